#include "data/pictures/draw_name.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/name_key.h"
#include "base/utf8.h"

// Of what remains when accents are apart (base/name_key.h). NULL: has no form, or never remains.
static const char *const greek[] = { // U+03B1 …
    "a", "v", "g", "d", "e", "z", "i", "th", "i", "k",  "l",  "m", "n",
    "x", "o", "p", "r", "s", "s", "t", "y",  "f", "ch", "ps", "o"};
static const char *const cyrillic[] = { // U+0430 …
    "a",  "b",  "v",  "g",  "d",  "e",  "zh", "z",  "i",  "i",    "k",  "l", "m",  "n",  "o",  "p",
    "r",  "s",  "t",  "u",  "f",  "kh", "ts", "ch", "sh", "shch", "",   "y", "",   "e",  "yu", "ya",
    NULL, NULL, "dj", NULL, "ye", "dz", "i",  NULL, "j",  "lj",   "nj", "c", NULL, NULL, NULL, "dz"};

static const struct {
  uint16_t code;
  const char *form;
} others[] = {{0xa0, " "},   {0xb0, "o"},    {0xb5, "u"},    {0xb7, "."},    {0xc6, "AE"},   {0xd0, "D"},
              {0xd7, "x"},   {0xd8, "O"},    {0xde, "TH"},   {0xdf, "ss"},   {0xe6, "ae"},   {0xf0, "d"},
              {0xf8, "o"},   {0xfe, "th"},   {0x110, "D"},   {0x111, "d"},   {0x126, "H"},   {0x127, "h"},
              {0x131, "i"},  {0x141, "L"},   {0x142, "l"},   {0x152, "OE"},  {0x153, "oe"},  {0x490, "G"},
              {0x491, "g"},  {0x1e9e, "SS"}, {0x2010, "-"},  {0x2011, "-"},  {0x2013, "-"},  {0x2014, "-"},
              {0x2018, "'"}, {0x2019, "'"},  {0x201c, "\""}, {0x201d, "\""}, {0x2026, "..."}};

static const char *lower_form(uint32_t code) {
  if (code >= 0x3b1 && code < 0x3b1 + COUNT(greek)) return greek[code - 0x3b1];
  if (code >= 0x430 && code < 0x430 + COUNT(cyrillic)) return cyrillic[code - 0x430];
  return NULL;
}

// The form of a code point of two or three bytes; NULL: none.
static const char *form_of(uint32_t code, bool *capital) {
  if (code >= 0x300 && code < 0x370) return ""; // an accent
  for (int i = 0; i < COUNT(others); i++)
    if (others[i].code == code) return others[i].form;
  *capital = (code >= 0x391 && code <= 0x3a9) || (code >= 0x400 && code < 0x430);
  return lower_form(!*capital ? code : code < 0x410 && code >= 0x400 ? code + 80 : code + 32);
}

static uint32_t decode(const char *p, size_t length) {
  const unsigned char *b = (const unsigned char *)p;
  return length == 2 ? (b[0] & 0x1fu) << 6 | (b[1] & 0x3fu)
                     : (b[0] & 0xfu) << 12 | (b[1] & 0x3fu) << 6 | (b[2] & 0x3fu);
}

// Writes the name in ASCII; false where it has a character without such a form. Two bytes become at most four.
static bool transliterate(const char *from, char *to) {
  for (const char *end = from + strlen(from); from < end;) {
    const size_t length = utf8_length(from, end);
    bool capital = false;
    if (length == 1 && *from >= ' ' && *from <= '~') {
      *to++ = *from++;
      continue;
    }
    const char *form = length == 2 || length == 3 ? form_of(decode(from, length), &capital) : NULL;
    if (!form) return false;
    for (const char *c = form; *c; c++) *to++ = (char)(capital && c == form ? *c - 32 : *c);
    from += length;
  }
  *to = '\0';
  return true;
}

char *draw_name(const char *name, int64_t id) {
  char *parts = name_key(name, false), *text = xmalloc(2 * strlen(parts) + 1);
  const bool ok = transliterate(parts, text) && (*text || !*name);
  free(parts);
  if (ok) return text;
  free(text);
  return xasprintf("class %lld", (long long)id);
}
