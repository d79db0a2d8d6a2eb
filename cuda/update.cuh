// What the optimisers' updates share: a threadblock works on a part of one parameter, and stores the shadow that the
// convolutions read while it has the weights in registers.
#pragma once
#include "cuda/common.cuh"

enum { UPDATE_THREADS = 256 }; // four vectors each of a whole part

// Of the part's elements i … i+3, i a multiple of 4: four weights that have been updated, times the scale of their row,
// as T.
template <class T> __device__ __forceinline__ void store_shadow(const UpdatePart &part, int i, float4 w) {
  if (!part.shadow) return;
  T *to = (T *)part.shadow + i;
  const float factor = part.scale ? ((const float *)part.scale)[(unsigned)(part.at + i) / part.row] : 1.f;
  const float v[4] = {w.x * factor, w.y * factor, w.z * factor, w.w * factor};
  if constexpr (sizeof(T) == 4) {
    *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
  } else {
    uint2 raw;
    T *t = (T *)&raw;
#pragma unroll
    for (int k = 0; k < 4; k++) t[k] = from_float<T>(v[k]);
    *(uint2 *)to = raw;
  }
}
