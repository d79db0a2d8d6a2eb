// The softmax of a row of logits by one warp, for detections and the box head's loss.
#pragma once
#include "cuda/common.cuh"
#include "exact/softmax.h"

// Two warp-shuffle reductions over one row: the maximum, then Σ exp(x - max); every lane has both. Lanes take every
// 32nd class and are summed as a tree, the order of cpu/softmax.h, so that with a portable exponential the bits are the
// reference's. A NaN among the logits makes the sum NaN, whatever the maximum.
template <class T, class Exp>
__device__ __forceinline__ Softmax warp_softmax(const T *x, int classes, Exp exponential) {
  int lane = threadIdx.x % 32;
  Softmax s = {-INFINITY, 0};
  for (int c = lane; c < classes; c += 32) s.max = fmaxf(s.max, to_float(x[c]));
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) s.max = fmaxf(s.max, __shfl_xor_sync(~0u, s.max, offset));
  for (int c = lane; c < classes; c += 32) s.sum += exponential(to_float(x[c]) - s.max);
  s.sum = warp_sum(s.sum);
  return s;
}
