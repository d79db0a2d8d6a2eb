// Implicit GEMM, shared by both devices: a convolution is a matrix product whose left operand is the im2col matrix of
// its input. The rows (the GEMM's M) are output pixels, the columns (K) are (tap, channel). The matrix is never stored:
// this header computes which pixel each element of it is.
//
// Forward, output pixel i reads taps from i · stride - pad on. dgrad with stride s is s² GEMMs of stride 1, one for
// each phase of dx: the pixel at s·u + phase receives only from the taps r ≡ phase + pad (mod s), and these are
// neighbours in dy. So the phases partition the filter's taps, and no product involves an inserted zero.
#pragma once
#include "nn/ops.h"

typedef struct Im2colAxis {
  int size;                  // output pixels
  int out, out_stride;       // output pixel i is element out + out_stride · i of the result
  int in, in_stride;         // its tap t is element in + in_stride · i + t of the operand; 0 outside it (the padding)
  int taps;                  // may be 0, for a phase that no tap reaches
  int filter, filter_stride; // tap t is the filter's filter + filter_stride · t
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
  // The filter is flipped: as positions in dy ascend, its taps descend.
  return (Im2colAxis){.size = (size - phase + stride - 1) / stride,
                      .out = phase,
                      .out_stride = stride,
                      .in = (phase + conv->pad) / stride - (ours - 1),
                      .in_stride = 1,
                      .taps = ours,
                      .filter = first + stride * (ours - 1),
                      .filter_stride = -stride};
}

static inline Im2col im2col_forward(const Conv *conv, const Tensor *w, const Tensor *y) {
  return (Im2col){im2col_axis_forward(conv, w->h, y->h), im2col_axis_forward(conv, w->w, y->w)};
}

// Whether the im2col matrix is x itself: one tap, stride 1, no padding, pixels in memory order.
static inline bool im2col_axis_is_identity(const Im2colAxis *a, int size) {
  return a->taps == 1 && !a->in && a->in_stride == 1 && a->size == size;
}
static inline bool im2col_is_identity(const Im2col *im2col, const Tensor *x) {
  return im2col_axis_is_identity(&im2col->y, x->h) && im2col_axis_is_identity(&im2col->x, x->w);
}

static inline int im2col_taps(const Im2col *im2col) { return im2col->y.taps * im2col->x.taps; }
static inline int im2col_area(const Im2col *im2col) { return im2col->y.size * im2col->x.size; }
// Index in the filter of a tap of the im2col matrix.
static inline int im2col_filter_tap(const Im2col *im2col, int tap, int filter_width) {
  const Im2colAxis *y = &im2col->y, *x = &im2col->x;
  return (y->filter + tap / x->taps * y->filter_stride) * filter_width + x->filter + tap % x->taps * x->filter_stride;
}

// A row of the im2col matrix: output pixel (i, j) of image n.
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
    if (++p.i == im2col->y.size) {
      p.i = 0;
      p.n++;
    }
  }
  return p;
}
