#include "base/name_key.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"

enum { HANGUL = 0xac00, HANGUL_END = 0xd7a4 };

typedef struct Decomposition {
  uint16_t code, base, mark; // mark 0: the base alone
} Decomposition;

static const Decomposition decompositions[] = {
// ascending by code
#include "base/decompositions.def"
};

static uint32_t decode(const char *p, size_t length) {
  uint32_t code = (unsigned char)*p & (length > 1 ? 0x7fu >> length : 0x7fu);
  for (size_t i = 1; i < length; i++) code = code << 6 | ((unsigned char)p[i] & 0x3f);
  return code;
}

static char *encode(char *to, uint32_t code) { // below U+10000
  if (code < 0x80) {
    *to++ = (char)code;
    return to;
  }
  if (code < 0x800) {
    *to++ = (char)(0xc0 | code >> 6);
  } else {
    *to++ = (char)(0xe0 | code >> 12);
    *to++ = (char)(0x80 | (code >> 6 & 0x3f));
  }
  *to++ = (char)(0x80 | (code & 0x3f));
  return to;
}

static int compare_code(const void *a, const void *b) {
  const Decomposition *p = a, *q = b;
  return (p->code > q->code) - (p->code < q->code);
}

// A letter that is not decomposed, in lower case, as far as a rule gives it: Latin capitals are 32 before their lower
// case, or, from U+0100 on, one before; they are the even codes up to U+0137 and from U+014A on, and the odd ones
// between. Greek and Cyrillic capitals are 32 or 80 before, others one; a final sigma is a sigma.
static uint32_t lower(uint32_t c) {
  if ((c >= 'A' && c <= 'Z') || (c >= 0xc0 && c <= 0xde && c != 0xd7)) return c + 32;
  if ((c >= 0x100 && c < 0x138) || (c >= 0x14a && c < 0x178)) return c | 1;
  if (c >= 0x139 && c < 0x149) return c + (c & 1);
  if ((c >= 0x391 && c <= 0x3a9) || (c >= 0x410 && c < 0x430)) return c + 32;
  if (c == 0x3c2) return 0x3c3;
  if (c >= 0x400 && c < 0x410) return c + 80;
  if ((c >= 0x460 && c < 0x482) || (c >= 0x48a && c < 0x4c0) || (c >= 0x4d0 && c < 0x530) ||
      (c >= 0x1e00 && c < 0x1e96) || (c >= 0x1ea0 && c < 0x1f00))
    return c | 1;
  return c;
}

// Unicode, 3.12: a syllable is a leading consonant, a vowel and perhaps a trailing consonant.
static char *decompose_hangul(char *to, uint32_t syllable) {
  enum { VOWELS = 21, TRAILS = 28, LEAD = 0x1100, VOWEL = 0x1161, TRAIL = 0x11a7 };
  const uint32_t at = syllable - HANGUL;
  to = encode(to, LEAD + at / (VOWELS * TRAILS));
  to = encode(to, VOWEL + at / TRAILS % VOWELS);
  return at % TRAILS ? encode(to, TRAIL + at % TRAILS) : to;
}

static char *add_letter(char *to, uint32_t code, bool ignores_case) {
  if (code >= HANGUL && code < HANGUL_END) return decompose_hangul(to, code);
  const Decomposition wanted = {.code = (uint16_t)code};
  const Decomposition *d = code >= 0xc0 && code < 0x10000 ? bsearch(&wanted, decompositions, COUNT(decompositions),
                                                                    sizeof *decompositions, compare_code)
                                                          : NULL;
  if (!d) return encode(to, ignores_case ? lower(code) : code);
  to = add_letter(to, d->base, ignores_case);
  return d->mark ? encode(to, d->mark) : to;
}

char *name_key(const char *name, bool ignores_case) {
  const char *end = name + strlen(name);
  char *key = xmalloc(3 * (size_t)(end - name) + 1), *to = key; // three bytes become at most nine
  for (size_t length; name < end; name += length) {
    length = utf8_length(name, end);
    if (!length || length > 3) {
      length = MAX(length, 1);
      memcpy(to, name, length);
      to += length;
    } else {
      to = add_letter(to, decode(name, length), ignores_case);
    }
  }
  *to = '\0';
  return key;
}
