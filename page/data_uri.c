#include "page/data_uri.h"
#include <string.h>
#include "base/alloc.h"

char *data_uri(const uint8_t *bytes, size_t size) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  static const char scheme[] = "data:image/jpeg;base64,";
  char *text = xmalloc(sizeof scheme + (size + 2) / 3 * 4), *p = text + sizeof scheme - 1;
  memcpy(text, scheme, sizeof scheme);
  for (size_t i = 0; i < size; i += 3) {
    uint32_t three = (uint32_t)bytes[i] << 16;
    if (i + 1 < size) three |= (uint32_t)bytes[i + 1] << 8;
    if (i + 2 < size) three |= bytes[i + 2];
    for (int k = 0; k < 4; k++) *p++ = i + (size_t)k <= size ? letters[three >> (18 - 6 * k) & 63] : '=';
  }
  *p = '\0';
  return text;
}
