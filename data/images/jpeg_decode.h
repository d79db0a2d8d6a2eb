// Decodes JPEG files to RGB with stb_image, which decodes segments, scans and blocks and is compiled only here.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "base/scratch.h"
#include "data/images/fault.h"

// Decodes into rgb[h, w, 3], of the size that jpeg_frame gives. Refuses files in which a component has no scan or not
// all of its progressive ones, a scan is truncated, or a table is undefined, except that missing Huffman tables (as in
// Motion JPEG) default to the standard's. Takes its memory from `scratch`.
bool jpeg_decode(uint8_t *rgb, const uint8_t *bytes, size_t size, Scratch *scratch, ImageFault *fault);
