// The ladder: several ways to compute a convolution, from the shortest to read to the fastest, under one table. Device's
// `conv` names one of them; the ops (conv.cu) pick for themselves where it is NULL.
#pragma once
#include "nn/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ConvOp { CONV_FORWARD, CONV_DGRAD, CONV_WGRAD, CONV_OPS } ConvOp;

// The functions are those of nn/ops.h, checked and simplified by conv.cu: a fully connected layer comes as a 1 × 1
// convolution, and wgrad leaves db to its caller unless `wgrad_sums` is set. All are deterministic.
struct Rung {
  const char *name;
  // Whether it computes `op` when the operand that is read pixel by pixel (x, or dy in dgrad) and the filter (dw in wgrad)
  // are such as `in` and `w`.
  bool (*supports)(const Device *dev, ConvOp op, const Conv *conv, const Tensor *in, const Tensor *w);
  void (*forward)(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y);
  void (*dgrad)(Device *dev, const Conv *conv, int pairs, const Tensor *dy, const Tensor *w, const Dest *dx);
  void (*wgrad)(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out);
  bool wgrad_sums; // wgrad yields db, too
};

extern const Rung rung_naive, rung_im2col, rung_wmma, rung_mma, rung_wgmma, rung_cudnn;
extern const Rung *const conv_rungs[]; // all of them, from the bottom; NULL at the end

// By name; NULL when there is none.
const Rung *conv_rung(const char *name);
// The fastest of ours that can.
const Rung *conv_own_rung(const Device *dev, ConvOp op, const Conv *conv, const Tensor *in, const Tensor *w);

#ifdef __cplusplus
}
#endif
