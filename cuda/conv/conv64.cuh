// What the kernels for 3 × 3 convolutions of 64 to 64 channels share: images as one row of pixels, in which a tap is a
// fixed distance, and a ring of them in shared memory.
//
// A column of zeros stands between the rows of an image, a row of zeros between images: width + 1 pixels to a row,
// height + 1 rows to an image. Each pixel's neighbours under the nine taps are then dy · (width + 1) + dx from it,
// wherever it stands. TMA's im2col mode reads such rows: its bounding box is a pixel larger than the image, and what is
// outside arrives as zeros.
#pragma once
#include "cuda/conv/wgmma.cuh"

enum {
  CONV64_CHANNELS = 64,
  CONV64_TAPS = 9,
  CONV64_SLICES = CONV64_CHANNELS / WGMMA_K, // of K, of a tap
};

// The pixels of `t` in such a row, of which the first is `before` columns and rows in front of the first image: 1 where
// the zeros come first, as in an operand, or 0.
static inline Im2col conv64_row(const Tensor *t, int before) {
  Im2col row = {};
  row.y.size = t->h + 1;
  row.x.size = t->w + 1;
  row.y.in = row.x.in = -before;
  row.y.in_stride = row.x.in_stride = row.y.out_stride = row.x.out_stride = 1;
  return row;
}

// Whether it is such a convolution of `in`, the operand that is read under the taps.
static inline bool conv64_is(const Conv *conv, const Tensor *in, const Tensor *w) {
  return in->dtype != F32 && conv->stride == 1 && conv->pad == 1 && w->h == 3 && w->w == 3 && w->n == CONV64_CHANNELS &&
         w->c == CONV64_CHANNELS && in->c == CONV64_CHANNELS && in->ldc == CONV64_CHANNELS &&
         w->ldc == CONV64_CHANNELS && !in->count && (size_t)in->n * (in->h + 1) * (in->w + 1) >> 30 == 0;
}
