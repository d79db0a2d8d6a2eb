// Gives the bytes of an image file an EXIF orientation.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "data/images/image.h"

typedef struct ExifEntry {
  unsigned tag, type;
  uint32_t count, value; // a value of type 3, SHORT, takes the first two of its four bytes
} ExifEntry;
enum { EXIF_ROOM = 512, EXIF_TAG = 0x0112, EXIF_SHORT = 3, EXIF_LONG = 4 };

// A TIFF structure with these entries; its size.
size_t exif_tiff(uint8_t tiff[EXIF_ROOM], bool big_endian, const ExifEntry *entry, int n);
// The same with an orientation alone.
size_t exif_of(uint8_t tiff[EXIF_ROOM], int orientation);

// The pixels that a camera would store for this upright image with that orientation.
Image exif_stored(const Image *upright, int orientation);
// A PNG of an upright image that stores it so, with the orientation.
void exif_write_png(const char *path, const Image *upright, int orientation);

// The file's bytes with more in them, malloc'ed.
uint8_t *jpeg_with_segment(const uint8_t *jpeg, size_t size, const void *body, size_t n, size_t *new_size); // APP1
uint8_t *png_with_chunk(const uint8_t *png, size_t size, const char *before, const char *type, const void *data,
                        size_t n, size_t *new_size); // before the first chunk of that type
