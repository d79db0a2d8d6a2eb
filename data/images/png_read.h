// Reads PNG files with zlib: every checksum is verified, so that a damaged file is refused and never trained on. W3C,
// Portable Network Graphics (second edition), ISO/IEC 15948.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "base/scratch.h"
#include "data/images/fault.h"
#include "data/images/row_target.h"
#include "data/images/sample_range.h"
#include "data/images/samples.h"

typedef struct PngHeader {
  int h, w;
  int bits;  // per sample: 1, 2, 4, 8 or 16
  int color; // 0 gray, 2 RGB, 3 palette, 4 gray with alpha, 6 RGB with alpha
  bool interlaced;
  int64_t least; // bytes that its packed pixels take, or more
} PngHeader;

bool png_is(const uint8_t *bytes, size_t size); // whether it begins as a PNG file does
// Reads the first chunk. The size is returned unchecked, negative if above INT32_MAX.
bool png_header(const uint8_t *bytes, size_t size, PngHeader *header, ImageFault *fault);
// Decodes: gray is repeated, palettes are looked up, and an index beyond the palette is black; 16-bit
// samples are scaled from `range`; alpha is dropped. Takes its memory from `scratch`.
bool png_read(const RowTarget *to, SampleRange range, const uint8_t *bytes, size_t size, Scratch *scratch,
              ImageFault *fault);
// Adds the samples of a 16-bit file, without those of alpha, to count[SAMPLE_VALUES]; of other files none.
bool png_count(uint32_t *count, const uint8_t *bytes, size_t size, Scratch *scratch, ImageFault *fault);
// Decodes to the samples themselves, alpha and indices included. The size must have been checked; s->v is malloc'ed,
// also on failure.
bool png_samples(Samples *s, const uint8_t *bytes, size_t size, Scratch *scratch, ImageFault *fault);
