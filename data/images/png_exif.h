// EXIF metadata in PNG files.
#pragma once
#include <stddef.h>
#include <stdint.h>

// The orientation in the first chunk eXIf, before or after the pixels, or else in a text "Raw profile type exif", as
// ImageMagick writes it (tEXt or zTXt): 1 … 8, 0 without a valid one, or -1 if the bytes end before that is known.
int png_orientation(const uint8_t *bytes, size_t size);
