// The filters of a PNG's rows (section 9 of the standard): each byte is stored as its difference from a prediction.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { PNG_NONE, PNG_SUB, PNG_UP, PNG_AVERAGE, PNG_PAETH, PNG_FILTERS };

// Whichever of left (a), above (b) and above left (c) is nearest to a + b - c.
static inline uint8_t png_paeth(int a, int b, int c) {
  const int pa = abs(b - c), pb = abs(a - c), pc = abs(a + b - 2 * c);
  const int nearest = pb <= pc ? b : c;
  return (uint8_t)(pa <= pb && pa <= pc ? a : nearest);
}

// Undoes the filter of a row of `size` bytes in place. `up` is the row above, zeros for the first; bpp: bytes per
// pixel, 1 to 8. Other filters change nothing.
void png_unfilter(int filter, uint8_t *restrict row, const uint8_t *restrict up, size_t size, size_t bpp);
// The reference, used for pixels of 1 or 2 bytes and by processors without SSE2.
void png_unfilter_plain(int filter, uint8_t *restrict row, const uint8_t *restrict up, size_t size, size_t bpp);
