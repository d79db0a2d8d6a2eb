#include "data/images/jpeg.h"
#include <string.h>

enum { SOF0 = 0xc0, SOF3 = 0xc3, DHT, JPG = 0xc8, DAC = 0xcc, SOF15 = 0xcf };
enum { RST0 = 0xd0, SOI = 0xd8, EOI, SOS, APP1 = 0xe1 };

typedef struct Segment {
  int marker;
  const uint8_t *body; // after the two bytes of length
  size_t size;
} Segment;

static unsigned u16(const uint8_t *p, bool big) { return big ? p[0] << 8 | p[1] : p[1] << 8 | p[0]; }
static uint32_t u32(const uint8_t *p, bool big) {
  uint32_t a = u16(p, big), b = u16(p + 2, big);
  return big ? a << 16 | b : b << 16 | a;
}

bool jpeg_is(const uint8_t *bytes, size_t size) { return size >= 2 && bytes[0] == 0xff && bytes[1] == SOI; }

// Advances to the next segment, over entropy-coded data too: there 0xff is followed by zero or a restart marker. False
// at EOI and at the end, where the last segment may be cut short.
static bool next_segment(const uint8_t **at, const uint8_t *end, Segment *s) {
  const uint8_t *p = *at;
  bool standalone = true;
  while (standalone) {
    p = memchr(p, 0xff, (size_t)(end - p));
    if (!p) return false;
    while (p < end && *p == 0xff) p++; // fill bytes before a marker are legal
    if (end - p < 3 || *p == EOI) return false;
    standalone = *p == 0 || (*p >= RST0 && *p <= SOI);
  }
  size_t length = u16(p + 1, true);
  if (length < 2) return false;
  *s = (Segment){*p, p + 3, length - 2};
  if (s->size > (size_t)(end - s->body)) s->size = (size_t)(end - s->body);
  *at = s->body + s->size;
  return true;
}

bool jpeg_frame(const uint8_t *bytes, size_t size, JpegFrame *frame) {
  const uint8_t *at = bytes;
  for (Segment s; next_segment(&at, bytes + size, &s);) {
    if (s.marker < SOF0 || s.marker > SOF15 || s.marker == DHT || s.marker == JPG || s.marker == DAC) continue;
    if (s.size < 5) return false;
    frame->coding = s.marker > JPG ? JPEG_ARITHMETIC : s.marker == SOF3 ? JPEG_LOSSLESS : JPEG_HUFFMAN;
    frame->bits = s.body[0];
    frame->h = (int)u16(s.body + 1, true);
    frame->w = (int)u16(s.body + 3, true);
    return true;
  }
  return false;
}

bool jpeg_tables_ok(const uint8_t *bytes, size_t size) {
  enum { LENGTHS = 16, SYMBOLS = 256 };
  const uint8_t *at = bytes;
  for (Segment s; next_segment(&at, bytes + size, &s);) {
    if (s.marker != DHT) continue;
    for (size_t left = s.size; left > 0;) {
      const uint8_t *table = s.body + s.size - left; // class and number, how many codes of each length, symbols
      if (left < 1 + LENGTHS) return false;
      size_t symbols = 0;
      for (int i = 1; i <= LENGTHS; i++) symbols += table[i];
      if (symbols > SYMBOLS || 1 + LENGTHS + symbols > left) return false;
      left -= 1 + LENGTHS + symbols;
    }
  }
  return true;
}

// The orientation entry of the first directory of a TIFF structure; 1 when there is none.
static int tiff_orientation(const uint8_t *tiff, size_t size) {
  enum { ORIENTATION = 0x0112, ENTRY = 12 };
  if (size < 8) return 1;
  bool big = tiff[0] == 'M';
  size_t directory = u32(tiff + 4, big);
  if (directory > size - 2) return 1;
  size_t entries = u16(tiff + directory, big);
  const uint8_t *entry = tiff + directory + 2, *end = tiff + size;
  for (size_t i = 0; i < entries && end - entry >= ENTRY; i++, entry += ENTRY) {
    if (u16(entry, big) != ORIENTATION) continue;
    unsigned value = u16(entry + 8, big);
    return value >= 1 && value <= 8 ? (int)value : 1;
  }
  return 1;
}

int jpeg_orientation(const uint8_t *bytes, size_t size) {
  enum { EXIF = 6 }; // "Exif" and two zero bytes come before the TIFF header
  const uint8_t *at = bytes;
  for (Segment s; next_segment(&at, bytes + size, &s) && s.marker != SOS;)
    if (s.marker == APP1 && s.size > EXIF && !memcmp(s.body, "Exif\0", EXIF))
      return tiff_orientation(s.body + EXIF, s.size - EXIF);
  return 1;
}
