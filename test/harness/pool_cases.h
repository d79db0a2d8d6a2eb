// The shapes that max pooling is tested on, for the reference against its definition and for the kernels against it.
#pragma once
#include "nn/device.h"
#include "nn/ops.h"

typedef struct PoolCase {
  int n, h, w, c, rows; // rows: valid
  Pool pool;            // size, stride, pad
  bool ceil;            // windows along an axis are rounded up
} PoolCase;

static const PoolCase pool_cases[] = {
    {1, 1, 1, 1, 1, {1, 1, 0}, false},      // nothing to choose from
    {2, 7, 5, 5, 2, {3, 2, 1}, false},      // odd sizes, padding channels
    {1, 8, 8, 16, 1, {3, 2, 1}, false},     // the stem's
    {3, 5, 6, 8, 3, {1, 2, 0}, false},      // P6: a subsample
    {1, 9, 4, 3, 1, {2, 3, 0}, false},      // pixels in no window
    {2, 4, 4, 9, 2, {4, 1, 2}, false},      // large overlap
    {1, 3, 3, 2, 1, {2, 2, 2}, false},      // windows entirely in the padding
    {3, 5, 5, 4, 1, {3, 2, 1}, false},      // rows past the count
    {2, 3, 3, 8, 0, {3, 2, 1}, false},      // nothing valid
    {2, 61, 47, 72, 2, {3, 2, 1}, false},   // many threadblocks, the last one partial
    {1, 40, 20, 16, 1, {16, 16, 0}, false}, // taps fill a byte
    {1, 2, 2, 1100, 1, {3, 2, 1}, false},   // a pixel wider than a run of the reference
    {1, 130, 2, 1, 1, {3, 1, 1}, false},    // many pixels a run
    {2, 12, 13, 9, 2, {3, 2, 0}, true},     // GoogLeNet's: 12 has one window more than rounded down, 13 has not
    {1, 7, 5, 3, 1, {2, 3, 1}, true},       // a last window that begins behind the input is left out
    {2, 13, 27, 8, 2, {3, 2, 0}, false},    // AlexNet's
    {1, 14, 6, 8, 1, {2, 2, 0}, false},     // VGG's
    {2, 14, 11, 20, 2, {3, 1, 1}, true},    // GoogLeNet's within its blocks
    {1, 6, 37, 7, 1, {3, 1, 0}, false},     // no padding
    {2, 2, 9, 8, 1, {3, 1, 1}, false},      // lower than a window
    {1, 1, 1, 3, 1, {3, 1, 1}, false},      // a pixel alone
    {2, 5, 8, 11, 2, {2, 2, 1}, true},      // even windows with padding
    {1, 9, 6, 8, 1, {2, 2, 0}, true},       // the last window cut
};

// Windows along an axis of `size` positions: torch's pooling_output_shape.
static inline int pool_outputs(const PoolCase *k, int size) {
  const Pool *p = &k->pool;
  int n = (size + 2 * p->pad - p->size + (k->ceil ? p->stride - 1 : 0)) / p->stride + 1;
  return k->ceil && (n - 1) * p->stride >= size + p->pad ? n - 1 : n;
}
