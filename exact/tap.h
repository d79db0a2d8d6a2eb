// Linear interpolation between neighbouring pixels: where a sample reads an axis, and the bilinear blend of two such
// axes. RoIAlign, mask targets, pasted masks and image resizing all sample through a Tap, on the CPU and CUDA.
#pragma once
#include "base/basics.h"
#include "base/rng.h" // HD
#include "exact/real.h"

// A sample between two pixels of an axis: (1 - fraction) · v[low] + fraction · v[high].
typedef struct Tap {
  int low, high;
  real fraction;
} Tap;

// Linear interpolation between the pixels of a tap.
static inline HD real tap_between(Tap t, real low, real high) { return (1 - t.fraction) * low + t.fraction * high; }

// Bilinear interpolation of the four pixels a b above c d.
static inline HD real tap_blend(Tap row, Tap column, real a, real b, real c, real d) {
  return tap_between(row, tap_between(column, a, b), tap_between(column, c, d));
}

// Where output position i of an axis resized from `from` to `to` pixels samples its input, as PyTorch's
// F.interpolate(mode="bilinear", align_corners=False) does: pixel centres lie at half-integers, the edge is repeated.
static inline HD Tap tap_resized(int i, int from, int to) {
  real scale = (real)from / (real)to;
  real at = scale * ((real)i + (real)0.5) - (real)0.5;
  at = at > 0 ? at : 0;
  Tap tap;
  tap.low = (int)at; // ≤ from - 1, since i + 1/2 < to
  tap.high = MIN(tap.low + 1, from - 1);
  tap.fraction = at - (real)tap.low;
  return tap;
}
