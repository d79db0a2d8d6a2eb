#include "classification/data/class_name.h"
#include <stdint.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"

enum { LATIN = 0xc0, LATIN_END = 0x180, HANGUL = 0xac00, HANGUL_END = 0xd7a4 };

// For the letters from LATIN on: the lower-case letter and the mark that they decompose into; '.': they do not.
static const char letter[] = "aaaaaa.ceeeeiiii.nooooo..uuuuy..aaaaaa.ceeeeiiii.nooooo..uuuuy.y"
                             "aaaaaaccccccccdd..eeeeeeeeeegggggggghh..iiiiiiiii...jjkk.llllll."
                             "...nnnnnn...oooooo..rrrrrrsssssssstttt..uuuuuuuuuuuuwwyyyzzzzzz.";
static const char accent[] = "`'^~:o.,`'^:`'^:.~`'^~:..`'^:'..`'^~:o.,`'^:`'^:.~`'^~:..`'^:'.:"
                             "--((;;''^^**vvvv..--((**;;vv^^((**,,^^..~~--((;;*...^^,,.'',,vv."
                             "...'',,vv...--((\"\"..'',,vv''^^,,vv,,vv..~~--((oo\"\";;^^^^:''**vv.";

static uint32_t mark_of(char accent_sign) {
  static const char signs[] = "`'^~-(*:o\"v,;";
  static const uint16_t marks[] = {0x300, 0x301, 0x302, 0x303, 0x304, 0x306, 0x307,
                                   0x308, 0x30a, 0x30b, 0x30c, 0x327, 0x328};
  return marks[strchr(signs, accent_sign) - signs];
}

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

// A letter without a mark, in lower case: capitals are 32 before their lower case, or, from U+0100 on, one before; they
// are the even codes up to U+0137 and from U+014A on, and the odd ones between.
static uint32_t lower(uint32_t c) {
  if ((c >= 'A' && c <= 'Z') || (c >= 0xc0 && c <= 0xde && c != 0xd7)) return c + 32;
  if ((c >= 0x100 && c < 0x138) || (c >= 0x14a && c < 0x178)) return c | 1;
  if (c >= 0x139 && c < 0x149) return c + (c & 1);
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

char *class_name_key(const char *name) {
  const char *end = name + strlen(name);
  char *key = xmalloc(3 * (size_t)(end - name) + 1), *to = key; // a syllable's three bytes become nine
  for (size_t length; name < end; name += length) {
    length = utf8_length(name, end);
    const uint32_t code = length ? decode(name, length) : 0;
    if (!length || length > 3) {
      length = MAX(length, 1);
      memcpy(to, name, length);
      to += length;
    } else if (code >= LATIN && code < LATIN_END && letter[code - LATIN] != '.') {
      to = encode(encode(to, (uint32_t)letter[code - LATIN]), mark_of(accent[code - LATIN]));
    } else if (code >= HANGUL && code < HANGUL_END) {
      to = decompose_hangul(to, code);
    } else {
      to = encode(to, lower(code));
    }
  }
  *to = '\0';
  return key;
}
