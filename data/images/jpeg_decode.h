// JPEG files to RGB pixels: stb_image, which is compiled here and nowhere else, decodes segments, scans and blocks.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "base/scratch.h"
#include "data/images/fault.h"

// Decodes into rgb[h, w, 3], of the size that jpeg_frame gives. Refused is a file that ends before every component has
// a scan, one of whose scans ends before its blocks do, or that names a table it does not define; but the Huffman
// tables that Motion JPEG leaves out are the standard's. Takes its memory from `scratch`.
bool jpeg_decode(uint8_t *rgb, const uint8_t *bytes, size_t size, Scratch *scratch, ImageFault *fault);
