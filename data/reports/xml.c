#include "data/reports/xml.h"
#include <stdbool.h>
#include <string.h>
#include "base/utf8.h"
#include "base/util.h"

void xml_print(FILE *f, const char *s) {
  const char *end = s + strlen(s);
  for (size_t n; *s; s += MAX(n, 1)) {
    n = utf8_length(s, end);
    bool none = n == 0 || (unsigned char)*s < 0x20 || (n == 3 && (!memcmp(s, "\uFFFE", 3) || !memcmp(s, "\uFFFF", 3)));
    const char *entity = *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : *s == '&' ? "&amp;" : *s == '"' ? "&quot;" : NULL;
    if (none || entity)
      fputs(none ? "\uFFFD" : entity, f);
    else
      fwrite(s, 1, n, f);
  }
}
