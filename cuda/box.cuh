// Boxes in device memory: one vectorised 16-byte access each, and the decoding of a network's four regression outputs.
#pragma once
#include "cuda/common.cuh"
#include "exact/geometry.h"

__device__ __forceinline__ Box load_box(const Tensor &t, size_t row) {
  float4 v = ((const float4 *)t.data)[row];
  return {v.x, v.y, v.z, v.w};
}
__device__ __forceinline__ void store_box(const Tensor &t, size_t row, Box b) {
  ((float4 *)t.data)[row] = make_float4(b.x1, b.y1, b.x2, b.y2);
}

// The box that the predicted `delta` [4] makes of the anchor or RoI `from`, clipped to the resized image.
template <class T>
__device__ __forceinline__ Box decode_inside(const BoxCoder &coder, Box from, const T *delta, const ImageInfo &image) {
  float d[4] = {to_float(delta[0]), to_float(delta[1]), to_float(delta[2]), to_float(delta[3])};
  return box_clip(box_decode(&coder, from, d), image.rh, image.rw, coder.extra);
}

// Writes row i of a group.
static __device__ __forceinline__ void put_box(const Boxes &out, int group, int i, Box box, float score, int index) {
  size_t row = (size_t)group * out.capacity + i;
  store_box(out.box, row, box);
  ((float *)out.score.data)[row] = score;
  out.index[row] = index;
}
