#include "base/utf8.h"
#include <stdint.h>
#include <string.h>

size_t utf8_length(const char *p, const char *end) {
  uint32_t lead = (unsigned char)p[0];
  if (lead < 0x80) return 1;
  size_t count = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || (size_t)(end - p) < count) return 0;
  uint32_t code = lead & (0x7Fu >> count);
  for (size_t i = 1; i < count; i++) {
    if (((unsigned char)p[i] & 0xC0) != 0x80) return 0;
    code = code << 6 | ((unsigned char)p[i] & 0x3F);
  }
  if (code < (count == 3 ? 0x800u : count == 4 ? 0x10000u : 0x80u)) return 0;
  return code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0 : count;
}

bool utf8_is(const char *text) {
  const char *end = text + strlen(text);
  for (size_t length; text < end; text += length)
    if (!(length = utf8_length(text, end))) return false;
  return true;
}
