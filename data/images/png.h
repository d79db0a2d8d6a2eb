// Writes PNG files with zlib, large images with several threads; the bytes do not depend on how many.
// W3C, Portable Network Graphics (second edition), ISO/IEC 15948.
#pragma once
#include "data/images/image.h"

// zlib's levels: 1 for thousands of files, 6 for small files to be downloaded.
enum { PNG_FAST = 1, PNG_SMALL = 6 };

// Writes the image, replacing the file. False if the file cannot be written.
bool png_write(const char *path, const Image *im, int level, Err *err);
// Pixels of more formats than Image has: grey, RGB or RGB with alpha, in 8 or 16 bits.
typedef struct PngPixels {
  int h, w;
  int channels;         // 1, 3 or 4
  int sample_bytes;     // 1, or 2 with the upper byte first
  const uint8_t *bytes; // [h, w, channels, sample_bytes]
} PngPixels;
PngPixels png_pixels(const Image *im);
// Memory that png_write_pixels takes at most.
size_t png_write_bytes(const PngPixels *pixels);
// The same. software: the name of the program, in a tEXt chunk with the keyword Software; NULL: none.
bool png_write_pixels(const char *path, const PngPixels *pixels, int level, const char *software, Err *err);
bool png_is_signed(const char *path, const char *software); // also false if it cannot be read
