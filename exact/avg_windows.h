// Which positions a mean is taken over, by how many it divides, and which windows cover a position, along one axis; on
// the CPU and CUDA, forward and backward.
#pragma once
#include "base/basics.h"
#include "exact/pool_windows.h"

// The input positions of window `out`, of `outputs`, along `size` positions; empty where it covers none.
static inline HD PoolSpan avg_window(const AvgPool *p, int out, int outputs, int size) {
  if (p->window.size) return pool_window(&p->window, out, size);
  const uint32_t i = (uint32_t)out, of = (uint32_t)outputs, h = (uint32_t)size;
  PoolSpan bin = {(int)(i * h / of), (int)(((i + 1) * h + of - 1) / of)};
  return bin;
}

// What this axis contributes to the divisor of window `out`: its positions, with those in the padding where they count.
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

// Whether a pool makes `out` positions of `in` along an axis. Adaptive ones have sides whose products, which tell where
// bins begin, 32 bits hold.
static inline bool avg_pool_fits(const AvgPool *p, int in, int out) {
  return p->window.size ? pool_fits(&p->window, in, out) : in > 0 && in <= 65535 && out > 0 && out <= 65535;
}
