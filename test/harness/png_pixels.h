// PNG files as their samples stand in them, alpha and 16 bits included, which data/images/image.h leaves out: by the
// specification, for what data/images/png.h writes (one IDAT, not interlaced).
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/test.h"

typedef struct PngFile {
  int h, w, channels, sample_bytes;
  uint8_t *bytes; // [h, w, channels, sample_bytes]; owned
} PngFile;

static inline uint32_t png_u32(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

// A row as it was before its filter.
static inline void png_unfilter(uint8_t *row, const uint8_t *up, size_t size, size_t bpp, int filter) {
  for (size_t i = 0; i < size; i++) {
    int a = i < bpp ? 0 : row[i - bpp], b = up ? up[i] : 0, c = i < bpp || !up ? 0 : up[i - bpp], p = a + b - c;
    int nearest = abs(p - a) <= abs(p - b) && abs(p - a) <= abs(p - c) ? a : abs(p - b) <= abs(p - c) ? b : c;
    const int predicted[] = {0, a, b, (a + b) / 2, nearest};
    row[i] = (uint8_t)(row[i] + predicted[filter]);
  }
}

// Bytes are NULL where the file is none of these.
static inline PngFile png_file_read(const char *path) {
  PngFile png = {0};
  Err err;
  size_t size;
  char *text = file_read(path, &size, &err);
  if (!EXPECT(text && size > 33)) return png;
  const uint8_t *file = (const uint8_t *)text, *header = file + 16, *chunk = file + 33;
  png.w = (int)png_u32(header);
  png.h = (int)png_u32(header + 4);
  png.sample_bytes = header[8] / 8;
  png.channels = header[9] == 0 ? 1 : header[9] == 2 ? 3 : 4;
  while (memcmp(chunk + 4, "IDAT", 4) && chunk + 12 < file + size) chunk += 12 + png_u32(chunk);
  const size_t bpp = (size_t)png.channels * (size_t)png.sample_bytes, stride = (size_t)png.w * bpp;
  uLongf length = (uLongf)((stride + 1) * (size_t)png.h);
  uint8_t *filtered = xmalloc(length);
  png.bytes = xmalloc(stride * (size_t)png.h);
  EXPECT(uncompress(filtered, &length, chunk + 8, png_u32(chunk)) == Z_OK);
  for (int y = 0; y < png.h; y++) {
    uint8_t *row = png.bytes + (size_t)y * stride, *from = filtered + (size_t)y * (stride + 1);
    memcpy(row, from + 1, stride);
    png_unfilter(row, y ? row - stride : NULL, stride, bpp, from[0]);
  }
  free(filtered);
  free(text);
  return png;
}
