// A convolution as a matrix product, for both devices: rows are pixels of its result, columns (tap, channel) of what it reads.
//
// Both directions are the same walk. Forward, the pixel at i reads taps from i·stride - pad on. Backward with stride s,
// the pixel at s·u + phase of dx receives from those taps r alone that are ≡ phase + pad (mod s); for one phase they
// are neighbours in dy, so dgrad is s × s dense products of stride 1 that share out the filter's taps, none wasted.
#pragma once
#include "nn/ops.h"

typedef struct Axis {
  int size;                // positions computed
  int out, out_step;       // position i is element out + out_step · i of the result
  int in, in_step;         // its tap t reads element in + in_step · i + t of the operand, which is 0 outside
  int taps;                // may be 0: nothing arrives
  int filter, filter_step; // tap t is the filter's filter + filter_step · t
} Axis;

typedef struct Walk {
  Axis y, x;
} Walk;

static inline Axis axis_forward(const Conv *conv, int taps, int size) {
  return (Axis){.size = size, .out_step = 1, .in = -conv->pad, .in_step = conv->stride, .taps = taps, .filter_step = 1};
}

static inline Axis axis_backward(const Conv *conv, int taps, int size, int phase) {
  int stride = conv->stride, first = (phase + conv->pad) % stride, ours = (taps - first + stride - 1) / stride;
  // Where dy's positions ascend the filter's taps descend.
  return (Axis){.size = (size - phase + stride - 1) / stride,
                .out = phase,
                .out_step = stride,
                .in = (phase + conv->pad) / stride - (ours - 1),
                .in_step = 1,
                .taps = ours,
                .filter = first + stride * (ours - 1),
                .filter_step = -stride};
}

static inline int walk_taps(const Walk *walk) { return walk->y.taps * walk->x.taps; }
static inline int walk_area(const Walk *walk) { return walk->y.size * walk->x.size; }
// Index of the filter's tap that the walk's tap is.
static inline int walk_filter_tap(const Walk *walk, int tap, int filter_width) {
  const Axis *y = &walk->y, *x = &walk->x;
  return (y->filter + tap / x->taps * y->filter_step) * filter_width + x->filter + tap % x->taps * x->filter_step;
}

// A row of the product: position (i, j) of image n.
typedef struct Position {
  int n, i, j;
} Position;

static inline Position walk_position(const Walk *walk, size_t row) {
  int area = walk_area(walk), rest = (int)(row % area);
  return (Position){(int)(row / area), rest / walk->x.size, rest % walk->x.size};
}
static inline Position walk_next(const Walk *walk, Position p) {
  if (++p.j == walk->x.size) {
    p.j = 0;
    if (++p.i == walk->y.size) p.i = 0, p.n++;
  }
  return p;
}
