// Average pooling along one axis: the positions of a window, its divisor, and the windows that cover a position. Shared
// by the CPU and CUDA, forward and backward.
#pragma once
#include "base/basics.h"
#include "exact/pool_windows.h"

// The input positions of window `out`, of `outputs`, over `size` positions; empty if it covers none.
static inline HD PoolSpan avg_window(const AvgPool *p, int out, int outputs, int size) {
  if (p->window.size) return pool_window(&p->window, out, size);
  const uint32_t i = (uint32_t)out, of = (uint32_t)outputs, h = (uint32_t)size;
  PoolSpan bin = {(int)(i * h / of), (int)(((i + 1) * h + of - 1) / of)};
  return bin;
}

// This axis's factor of the divisor of window `out`: its positions, including those in the padding if they count.
static inline HD int avg_divisor(const AvgPool *p, int out, int outputs, int size) {
  PoolSpan span = avg_window(p, out, outputs, size);
  int first = out * p->window.stride - p->window.pad;
  if (p->window.size && p->count_pad) return MIN(first + p->window.size, size + p->window.pad) - first;
  return span.last - span.first;
}

// The windows, of `outputs`, that cover input position `in` of `size`.
static inline HD PoolSpan avg_windows_of(const AvgPool *p, int in, int outputs, int size) {
  if (p->window.size) return pool_windows_of(&p->window, in, outputs);
  const uint32_t i = (uint32_t)in, of = (uint32_t)outputs, h = (uint32_t)size;
  PoolSpan bins = {(int)(i * of / h), (int)(((i + 1) * of + h - 1) / h)};
  return bins;
}

// Whether a pool maps `in` positions to `out` along an axis. Adaptive pools need sides whose product, used to compute
// bin limits, fits into 32 bits.
static inline bool avg_pool_fits(const AvgPool *p, int in, int out) {
  return p->window.size ? pool_fits(&p->window, in, out) : in > 0 && in <= 65535 && out > 0 && out <= 65535;
}
