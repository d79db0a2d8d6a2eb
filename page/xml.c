#include "page/xml.h"
#include <stdbool.h>
#include <string.h>
#include "base/basics.h"
#include "base/utf8.h"

// Whether XML has no place for the n bytes at s, one character where n is not 0.
static bool has_no_place(const char *s, size_t n) {
  const bool control = (unsigned char)*s < 0x20 && *s != '\n' && *s != '\t';
  return n == 0 || control || (n == 3 && (!memcmp(s, "\uFFFE", 3) || !memcmp(s, "\uFFFF", 3)));
}

// What stands for a character; NULL: itself.
static const char *entity_of(char c, bool attribute) {
  if (attribute && (c == '\n' || c == '\t')) return c == '\n' ? "&#10;" : "&#9;";
  return c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : NULL;
}

static void print(FILE *f, const char *s, bool attribute) {
  const char *end = s + strlen(s);
  for (size_t n; *s; s += MAX(n, 1)) {
    n = utf8_length(s, end);
    const char *instead = has_no_place(s, n) ? "\uFFFD" : entity_of(*s, attribute);
    if (instead)
      fputs(instead, f);
    else
      fwrite(s, 1, n, f);
  }
}

void xml_print(FILE *f, const char *text) { print(f, text, false); }
void xml_print_attribute(FILE *f, const char *text) { print(f, text, true); }
