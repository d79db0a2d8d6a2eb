// The orientation that EXIF metadata give an image. Exif 2.32, section 4.6; TIFF 6.0, section 2.
#pragma once
#include <stddef.h>
#include <stdint.h>

// The value of the tag Orientation (0x0112) in the first directory of a TIFF structure, which may follow "Exif" and two
// zero bytes: 1 … 8, or 0 without a valid one. Odd forms are read as Pillow's ImageOps.exif_transpose reads them, while
// browsers take one SHORT only: the value may be the first of several, of 16 or 32 bits, and a directory that is cut
// short is read up to there. Of several entries the first that can be read counts.
int exif_orientation(const uint8_t *exif, size_t size);
