// PNG files of 8-bit RGB, written with zlib. W3C, Portable Network Graphics (second edition), ISO/IEC 15948.
#pragma once
#include "data/images/image.h"

// zlib's levels: 1 when thousands of files are written, 6 when people will download them.
enum { PNG_FAST = 1, PNG_SMALL = 6 };

// Writes the image, replacing the file. False when the file cannot be written.
bool png_write(const char *path, const Image *im, int level, Err *err);
// The same with a text (a tEXt chunk of the keyword Software) that says what made the picture.
bool png_write_signed(const char *path, const Image *im, int level, const char *software, Err *err);
bool png_is_signed(const char *path, const char *software); // false, too, when it cannot be read
