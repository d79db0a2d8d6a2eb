// PNG files, written with zlib. W3C, Portable Network Graphics (second edition), ISO/IEC 15948.
#pragma once
#include "data/images/image.h"

// zlib's levels: 1 when thousands of files are written, 6 when people will download them.
enum { PNG_FAST = 1, PNG_SMALL = 6 };

// Writes the image, replacing the file. False when the file cannot be written.
bool png_write(const char *path, const Image *im, int level, Err *err);
// The same with a text (a tEXt chunk of the keyword Software) that says what made the picture.
bool png_write_signed(const char *path, const Image *im, int level, const char *software, Err *err);
// Other pixels than an Image's: gray, RGB or RGB with alpha, in 8 or 16 bits.
typedef struct PngPixels {
  int h, w;
  int channels;         // 1, 3 or 4
  int sample_bytes;     // 1, or 2 with the upper byte first
  const uint8_t *bytes; // [h, w, channels, sample_bytes]
} PngPixels;
// software: as above, NULL for none.
bool png_write_pixels(const char *path, const PngPixels *pixels, int level, const char *software, Err *err);
bool png_is_signed(const char *path, const char *software); // false, too, when it cannot be read
