#include "data/import/base64.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

static int digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

uint8_t *base64_decode(const char *text, size_t *size) {
  static const char scheme[] = "base64,";
  const char *begin = !strncmp(text, "data:", 5) ? strstr(text, scheme) : NULL,
             *p = begin ? begin + strlen(scheme) : text;
  uint8_t *bytes = xmalloc(strlen(p) / 4 * 3 + 3);
  uint32_t bits = 0;
  int n = 0;
  *size = 0;
  for (; *p && *p != '='; p++) {
    if (*p == '\n' || *p == '\r' || *p == ' ') continue;
    const int d = digit(*p);
    if (d < 0) {
      free(bytes);
      return NULL;
    }
    bits = bits << 6 | (uint32_t)d;
    if (++n % 4 == 0)
      for (int k = 16; k >= 0; k -= 8) bytes[(*size)++] = (uint8_t)(bits >> k);
  }
  if (n % 4 >= 2) bytes[(*size)++] = (uint8_t)(n % 4 == 2 ? bits >> 4 : bits >> 10);
  if (n % 4 == 3) bytes[(*size)++] = (uint8_t)(bits >> 2);
  return bytes;
}
