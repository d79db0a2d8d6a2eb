#include "data/coco/lookalike.h"
#include <stdint.h>
#include <string.h>
#include "base/utf8.h"

// The next code point for comparing: skips spaces, including zero-width ones. 0: the end.
static uint32_t next_letter(const char **at) {
  for (;;) {
    const char *p = *at;
    const size_t n = *p ? utf8_length(p, p + strlen(p)) : 0;
    if (!*p) return 0;
    uint32_t c = n > 1 ? (unsigned char)*p & (0x7fu >> n) : (unsigned char)*p;
    for (size_t i = 1; i < n; i++) c = c << 6 | ((unsigned char)p[i] & 0x3f);
    *at += n ? n : 1;
    if (c == ' ' || (c >= '\t' && c <= '\r') || c == 0xa0 || (c >= 0x2000 && c <= 0x200f) || c == 0x202f ||
        c == 0x205f || c == 0x2060 || c == 0x3000 || c == 0xfeff)
      continue;
    return c;
  }
}

static bool is_accent(uint32_t c) { return c >= 0x300 && c <= 0x36f; }

static bool pass_accents(const char **at) {
  const char *from = *at, *next = *at;
  while (is_accent(next_letter(&next))) *at = next;
  return *at > from;
}

bool looks_same(const char *a, const char *b) {
  for (;;) {
    const uint32_t x = next_letter(&a), y = next_letter(&b);
    if (!x && !y) return true;
    if (x == y) continue;
    if (!(x > 127 && y && pass_accents(&b)) && !(y > 127 && x && pass_accents(&a))) return false;
  }
}
