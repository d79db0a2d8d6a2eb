// A convolution as a matrix product, for both devices: rows are pixels of its result, columns (tap, channel) of what it reads.
//
// Both directions are the same walk. Forward, the pixel at i reads taps from i·stride - pad on. Backward with stride s,
// the pixel at s·u + phase of dx receives from those taps r alone that are ≡ phase + pad (mod s); for one phase they
// are neighbours in dy, so dgrad is s × s dense products of stride 1 that share out the filter's taps, none wasted.
#pragma once
#include "nn/ops.h"

typedef struct Im2colAxis {
  int size;                  // positions computed
  int out, out_stride;       // position i is element out + out_step · i of the result
  int in, in_stride;         // its tap t reads element in + in_step · i + t of the operand, which is 0 outside
  int taps;                  // may be 0: nothing arrives
  int filter, filter_stride; // tap t is the filter's filter + filter_step · t
} Im2colAxis;

typedef struct Im2col {
  Im2colAxis y, x;
} Im2col;

static inline Im2colAxis im2col_axis_forward(const Conv *conv, int taps, int size) {
  return (Im2colAxis){
      .size = size, .out_stride = 1, .in = -conv->pad, .in_stride = conv->stride, .taps = taps, .filter_stride = 1};
}

static inline Im2colAxis im2col_axis_dgrad(const Conv *conv, int taps, int size, int phase) {
  int stride = conv->stride, first = (phase + conv->pad) % stride, ours = (taps - first + stride - 1) / stride;
  // Where dy's positions ascend the filter's taps descend.
  return (Im2colAxis){.size = (size - phase + stride - 1) / stride,
                      .out = phase,
                      .out_stride = stride,
                      .in = (phase + conv->pad) / stride - (ours - 1),
                      .in_stride = 1,
                      .taps = ours,
                      .filter = first + stride * (ours - 1),
                      .filter_stride = -stride};
}

static inline int im2col_taps(const Im2col *im2col) { return im2col->y.taps * im2col->x.taps; }
static inline int im2col_area(const Im2col *im2col) { return im2col->y.size * im2col->x.size; }
// Index of the filter's tap that the walk's tap is.
static inline int im2col_filter_tap(const Im2col *im2col, int tap, int filter_width) {
  const Im2colAxis *y = &im2col->y, *x = &im2col->x;
  return (y->filter + tap / x->taps * y->filter_stride) * filter_width + x->filter + tap % x->taps * x->filter_stride;
}

// A row of the product: position (i, j) of image n.
typedef struct Position {
  int n, i, j;
} Position;

static inline Position im2col_position(const Im2col *im2col, size_t row) {
  int area = im2col_area(im2col), rest = (int)(row % area);
  return (Position){(int)(row / area), rest / im2col->x.size, rest % im2col->x.size};
}
static inline Position im2col_next(const Im2col *im2col, Position p) {
  if (++p.j == im2col->x.size) {
    p.j = 0;
    if (++p.i == im2col->y.size) p.i = 0, p.n++;
  }
  return p;
}
