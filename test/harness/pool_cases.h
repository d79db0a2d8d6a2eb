// The shapes that max pooling is tested on, for the reference against its definition and for the kernels against it.
#pragma once
#include "nn/ops.h"

typedef struct PoolCase {
  int n, h, w, c, rows; // rows: valid
  Pool pool;            // size, stride, pad
} PoolCase;

static const PoolCase pool_cases[] = {
    {1, 1, 1, 1, 1, {1, 1, 0}},      // nothing to choose from
    {2, 7, 5, 5, 2, {3, 2, 1}},      // odd sizes, padding channels
    {1, 8, 8, 16, 1, {3, 2, 1}},     // the stem's
    {3, 5, 6, 8, 3, {1, 2, 0}},      // P6: a subsample
    {1, 9, 4, 3, 1, {2, 3, 0}},      // pixels in no window
    {2, 4, 4, 9, 2, {4, 1, 2}},      // large overlap
    {1, 3, 3, 2, 1, {2, 2, 2}},      // windows entirely in the padding
    {3, 5, 5, 4, 1, {3, 2, 1}},      // rows past the count
    {2, 3, 3, 8, 0, {3, 2, 1}},      // nothing valid
    {2, 61, 47, 72, 2, {3, 2, 1}},   // many threadblocks, the last one partial
    {1, 40, 20, 16, 1, {16, 16, 0}}, // taps fill a byte
    {1, 2, 2, 1100, 1, {3, 2, 1}},   // a pixel wider than a run of the reference
    {1, 130, 2, 1, 1, {3, 1, 1}},    // many pixels a run
};

// Windows along an axis of `size` positions.
static inline int pool_outputs(const Pool *p, int size) { return (size + 2 * p->pad - p->size) / p->stride + 1; }
