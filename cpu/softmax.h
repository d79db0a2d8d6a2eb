// The softmax of a row of logits by the CPU reference, for detections and the box head's loss.
#pragma once
#include "exact/softmax.h"

enum { SOFTMAX_LANES = 32 }; // partial sums, one per lane of a warp: cuda/softmax.cuh adds up in the same order

// A NaN among the logits makes every probability NaN, as PyTorch's softmax does. Every 32nd term is added to one of 32
// partial sums, and these are reduced as a tree: behind the largest term, which is 1, a single sum would round all that
// follow to its ulp.
static inline Softmax softmax_of(const real *x, int classes) {
  Softmax s = {.max = x[0]};
  real sum[SOFTMAX_LANES] = {0};
  for (int c = 1; c < classes; c++) s.max = x[c] > s.max ? x[c] : s.max;
  for (int c = 0; c < classes; c++) sum[c % SOFTMAX_LANES] += geometry_exp(x[c] - s.max);
  for (int n = SOFTMAX_LANES / 2; n > 0; n /= 2)
    for (int i = 0; i < n; i++) sum[i] += sum[i + n];
  s.sum = sum[0];
  return s;
}
