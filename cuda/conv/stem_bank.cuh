// What the stem's two forward kernels share: the filter in shared memory, and the products.
#pragma once
#include "cuda/conv/stem.cuh"

enum {
  ROWS_AT_ONCE = 2,                                  // of output pixels, which the accumulators hold
  FILTER_BYTES = STEM_FILTERS * GROUP * PIXEL_BYTES, // of the bank, under a group of taps
};
static inline int stem_bank_bytes(const Tensor *w) { return w->h * blocks_for(w->w, GROUP) * FILTER_BYTES; }

// The filter: [rows of taps, groups, pairs of taps, filters, two taps, four channels], zeros where there is no tap or
// no filter. A thread has some loads in flight before it stores the first.
template <class T> __device__ void load_bank(const Tensor &w, int groups, int first, uint32_t bank) {
  constexpr int N = 8;
  const int across = groups * GROUP, all = w.h * across * STEM_FILTERS;
#pragma unroll 1
  for (int begin = threadIdx.x; begin < all; begin += N * WARPGROUP) {
    uint2 v[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
      const int i = begin + k * WARPGROUP, tap = i / STEM_FILTERS, filter = i % STEM_FILTERS;
      const int ty = tap / across, tx = tap - ty * across;
      v[k] = make_uint2(0, 0);
      if (i < all && first + filter < w.n && tx < w.w) v[k] = *(const uint2 *)pixel<T>(w, first + filter, ty, tx);
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
      const int i = begin + k * WARPGROUP, tap = i / STEM_FILTERS, filter = i % STEM_FILTERS;
      const uint32_t pair = bank + (tap / 2 * STEM_FILTERS + filter) * PAIR_BYTES;
      if (i < all) store_shared(pair + tap % 2 * PIXEL_BYTES, __uint_as_float(v[k].x), __uint_as_float(v[k].y));
    }
  }
}

// Issues the wgmmas of rows `first` and the next of the output pixels that a patch is for.
template <class T, int STRIDE>
__device__ __forceinline__ void stem_multiply(float (&acc)[ROWS_AT_ONCE][STEM_FILTERS / 2], const StemPatch &s,
                                              int taps_h, int first, uint32_t patch, uint32_t bank) {
  int output_row = STRIDE * s.pitch;
  uint64_t a = unswizzled_descriptor(patch + first * output_row, s.next_pair, CORE_BYTES);
  uint64_t b = unswizzled_descriptor(bank, STEM_FILTERS * PAIR_BYTES, CORE_BYTES);
  wgmma_fence();
#pragma unroll 1
  for (int ty = 0; ty < taps_h; ty++) {
    uint64_t under = a;
#pragma unroll 1
    for (int i = 0; i < s.groups; i++) {
#pragma unroll
      for (int j = 0; j < ROWS_AT_ONCE; j++)
        wgmma<T, STEM_FILTERS, false>(acc[j], under + (j * output_row >> 4), b, ty + i > 0);
      under += s.next_group >> 4;
      b += FILTER_BYTES >> 4;
    }
    a += s.pitch >> 4;
  }
  wgmma_fence();
  wgmma_commit();
}
