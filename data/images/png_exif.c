#include "data/images/png_exif.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "base/alloc.h"
#include "data/images/exif.h"

enum {
  SIGNATURE = 8,
  CHUNK = 12,       // bytes that a chunk has beside its data
  TEXT_MOST = 16384 // bytes read of a profile that is text: the first directory is near its beginning
};

static uint32_t u32(const uint8_t *p) { return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }

static int hex_value(int c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

// A profile is three lines (one empty, its name, its length), then the bytes in hexadecimal, broken into lines.
static int profile_orientation(const uint8_t *text, size_t size) {
  uint8_t exif[TEXT_MOST / 2];
  const uint8_t *at = text, *end = text + size;
  size_t digits = 0;
  for (int line = 0; line < 3; line++) {
    at = memchr(at, '\n', (size_t)(end - at));
    if (!at) return 0;
    at++;
  }
  for (; at < end; at++) {
    const int value = hex_value(*at);
    if (isspace(*at)) continue;
    if (value < 0) break;
    exif[digits / 2] = (uint8_t)(digits % 2 ? exif[digits / 2] | value : value << 4);
    digits++;
  }
  return exif_orientation(exif, digits / 2);
}

static voidpf take(voidpf nothing, uInt items, uInt bytes) {
  (void)nothing;
  return xmalloc((size_t)items * bytes);
}
static void give_back(voidpf nothing, voidpf piece) {
  (void)nothing;
  free(piece);
}

// Of a text as tEXt has it or, compressed, as zTXt.
static int text_orientation(const uint8_t *data, size_t size, bool compressed) {
  static const char keyword[] = "Raw profile type exif";
  if (size <= sizeof keyword || memcmp(data, keyword, sizeof keyword)) return 0;
  data += sizeof keyword;
  size -= sizeof keyword;
  if (!compressed) return profile_orientation(data, size < TEXT_MOST ? size : TEXT_MOST);
  uint8_t text[TEXT_MOST];
  z_stream z = {.zalloc = take,
                .zfree = give_back,
                .next_in = (Bytef *)data + 1, // behind the method
                .avail_in = (uInt)size - 1,
                .next_out = text,
                .avail_out = sizeof text};
  if (data[0] != 0 || inflateInit(&z) != Z_OK) return 0;
  inflate(&z, Z_SYNC_FLUSH);
  inflateEnd(&z);
  return profile_orientation(text, sizeof text - z.avail_out);
}

int png_orientation(const uint8_t *bytes, size_t size) {
  enum { MOST = 16 }; // texts that are unpacked: one takes a thousand times its own bytes
  int of_text = 0, texts = 0;
  size_t at = SIGNATURE;
  while (at < size && size - at >= CHUNK) {
    const uint8_t *type = bytes + at + 4, *data = type + 4;
    const size_t room = size - at - CHUNK, length = u32(bytes + at);
    if (!memcmp(type, "IEND", 4)) return of_text;
    if (length > room) break;
    if (!memcmp(type, "eXIf", 4)) return exif_orientation(data, length);
    const bool compressed = !memcmp(type, "zTXt", 4);
    texts += compressed;
    if (!of_text && (compressed ? texts <= MOST : !memcmp(type, "tEXt", 4)))
      of_text = text_orientation(data, length, compressed);
    at += CHUNK + length;
  }
  return -1;
}
