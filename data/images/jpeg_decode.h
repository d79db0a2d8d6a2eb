// Decodes JPEG files to RGB with stb_image, which decodes segments, scans and blocks and is compiled only here.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "base/scratch.h"
#include "data/images/fault.h"
#include "data/images/row_target.h"

// Decodes an image of the size that jpeg_frame gives. Refuses files in which a component has no scan or not
// all of its progressive ones, a scan is truncated, or a table is undefined, except that missing Huffman tables (as in
// Motion JPEG) default to the standard's. Takes its memory from `scratch`: at most 5 bytes per pixel, 7 for CMYK.
bool jpeg_decode(const RowTarget *to, const uint8_t *bytes, size_t size, Scratch *scratch, ImageFault *fault);
