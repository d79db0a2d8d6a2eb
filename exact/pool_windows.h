// Pooling along one axis: the positions of a window, and the windows that cover a position. Shared by the CPU and CUDA,
// forward and backward.
#pragma once
#include "base/basics.h"
#include "base/rng.h" // HD
#include "nn/ops.h"

typedef struct PoolSpan { // positions along an axis, [first, last)
  int first, last;
} PoolSpan;

// The input positions of window `out` that lie inside an input of `size` positions; the rest is padding.
static inline HD PoolSpan pool_window(const Pool *p, int out, int size) {
  int first = out * p->stride - p->pad;
  PoolSpan span = {MAX(first, 0), MIN(first + p->size, size)};
  return span;
}

// The windows, of `outputs`, that cover input position `in`.
static inline HD PoolSpan pool_windows_of(const Pool *p, int in, int outputs) {
  int behind = in + p->pad - p->size; // windows that start here or earlier end before `in`
  PoolSpan span = {behind < 0 ? 0 : behind / p->stride + 1, MIN((in + p->pad) / p->stride + 1, outputs)};
  return span;
}

// Whether `in` positions give `out` windows, rounded down or up.
static inline bool pool_fits(const Pool *p, int in, int out) {
  return out == pool_extent(p, in, false) || out == pool_extent(p, in, true);
}
