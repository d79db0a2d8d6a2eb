#include "test/harness/exif.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/images/png.h"

static void put(uint8_t *p, uint32_t v, int bytes, bool big) {
  for (int i = 0; i < bytes; i++) p[big ? bytes - 1 - i : i] = (uint8_t)(v >> 8 * i);
}

size_t exif_tiff(uint8_t tiff[EXIF_ROOM], bool big, const ExifEntry *entry, int n) {
  CHECK(14 + 12 * n <= EXIF_ROOM);
  memset(tiff, 0, EXIF_ROOM);
  memcpy(tiff, big ? "MM" : "II", 2);
  put(tiff + 2, 42, 2, big);
  put(tiff + 4, 8, 4, big);
  put(tiff + 8, (uint32_t)n, 2, big);
  uint8_t *at = tiff + 10;
  for (int i = 0; i < n; i++, at += 12) {
    put(at, entry[i].tag, 2, big);
    put(at + 2, entry[i].type, 2, big);
    put(at + 4, entry[i].count, 4, big);
    put(at + 8, entry[i].value, entry[i].type == EXIF_SHORT && entry[i].count == 1 ? 2 : 4, big);
  }
  return (size_t)(at + 4 - tiff);
}

size_t exif_of(uint8_t tiff[EXIF_ROOM], int orientation) {
  return exif_tiff(tiff, true, &(ExifEntry){EXIF_TAG, EXIF_SHORT, 1, (uint32_t)orientation}, 1);
}

static uint8_t *insert(const uint8_t *file, size_t size, size_t at, const uint8_t *piece, size_t n, size_t *new_size) {
  uint8_t *bytes = xmalloc(size + n);
  memcpy(bytes, file, at);
  memcpy(bytes + at, piece, n);
  memcpy(bytes + at + n, file + at, size - at);
  *new_size = size + n;
  return bytes;
}

uint8_t *jpeg_with_segment(const uint8_t *jpeg, size_t size, const void *body, size_t n, size_t *new_size) {
  uint8_t *piece = xmalloc(n + 4);
  memcpy(piece, "\xff\xe1", 2);
  put(piece + 2, (uint32_t)n + 2, 2, true);
  memcpy(piece + 4, body, n);
  uint8_t *bytes = insert(jpeg, size, 2, piece, n + 4, new_size);
  free(piece);
  return bytes;
}

uint8_t *png_with_chunk(const uint8_t *png, size_t size, const char *before, const char *type, const void *data,
                        size_t n, size_t *new_size) {
  size_t at = 8;
  while (memcmp(png + at + 4, before, 4))
    at += 12 + ((size_t)png[at] << 24 | (size_t)png[at + 1] << 16 | (size_t)png[at + 2] << 8 | png[at + 3]);
  uint8_t *piece = xmalloc(n + 12);
  put(piece, (uint32_t)n, 4, true);
  memcpy(piece + 4, type, 4);
  memcpy(piece + 8, data, n);
  put(piece + 8 + n, (uint32_t)crc32(0, piece + 4, (uInt)n + 4), 4, true);
  uint8_t *bytes = insert(png, size, at, piece, n + 12, new_size);
  free(piece);
  return bytes;
}

Image exif_stored(const Image *upright, int orientation) {
  const int h = upright->h, w = upright->w;
  const bool turned = orientation >= IMAGE_TURNED;
  Image stored = turned ? image_alloc(w, h) : image_alloc(h, w);
  for (int y = 0; y < h; y++)
    for (int x = 0; x < w; x++) {
      const int row[] = {y, y, h - 1 - y, h - 1 - y, x, w - 1 - x, w - 1 - x, x};
      const int column[] = {x, w - 1 - x, w - 1 - x, x, y, y, h - 1 - y, h - 1 - y};
      memcpy(stored.rgb + 3 * (row[orientation - 1] * stored.w + column[orientation - 1]),
             upright->rgb + 3 * (y * w + x), 3);
    }
  return stored;
}

void exif_write_png(const char *path, const Image *upright, int orientation) {
  uint8_t tiff[EXIF_ROOM];
  size_t size, with;
  Err err;
  Image stored = exif_stored(upright, orientation);
  CHECK(png_write(path, &stored, PNG_FAST, &err));
  image_free(&stored);
  char *plain = file_read(path, &size, &err);
  CHECK(plain);
  uint8_t *bytes = png_with_chunk((uint8_t *)plain, size, "IDAT", "eXIf", tiff, exif_of(tiff, orientation), &with);
  FILE *f = fopen(path, "wb");
  CHECK(f && fwrite(bytes, 1, with, f) == with && fclose(f) == 0);
  free(bytes);
  free(plain);
}
