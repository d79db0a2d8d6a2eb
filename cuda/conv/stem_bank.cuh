// What the stem's two forward kernels share: the filter in shared memory, and the products.
#pragma once
#include "cuda/conv/stem.cuh"

enum { ROWS_AT_ONCE = 2 }; // of output pixels, which the accumulators hold

// Of a core matrix's row.
template <class T> static constexpr int STEM_TAPS = PAIR_BYTES / (STEM_MOST * sizeof(T));

static inline int stem_bank_bytes(const Tensor *w, int filters = STEM_FILTERS) {
  return w->h * blocks_for(w->w, GROUP) * filters * GROUP * STEM_MOST * (int)dtype_size(w->dtype);
}

// The filter: [rows of taps, groups, rows of core matrices, filters, two taps (one of floats), four channels], zeros
// where there is no tap or no filter; floats rounded to TF32. By THREADS threads, which have some loads in flight
// before they store the first.
template <class T, int THREADS = WARPGROUP, int FILTERS = STEM_FILTERS>
__device__ void load_bank(const Tensor &w, int groups, int first, uint32_t bank) {
  using Pixel = std::conditional_t<sizeof(T) == 4, float4, uint2>;
  constexpr int N = 8, TAPS = STEM_TAPS<T>;
  const int across = groups * GROUP, all = w.h * across * FILTERS;
#pragma unroll 1
  for (int begin = threadIdx.x; begin < all; begin += N * THREADS) {
    Pixel v[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
      const int i = begin + k * THREADS, tap = i / FILTERS, filter = i % FILTERS;
      const int ty = tap / across, tx = tap - ty * across;
      v[k] = {};
      if (i < all && first + filter < w.n && tx < w.w) v[k] = *(const Pixel *)pixel<T>(w, first + filter, ty, tx);
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
      const int i = begin + k * THREADS, tap = i / FILTERS, filter = i % FILTERS;
      const uint32_t to = bank + (tap / TAPS * FILTERS + filter) * PAIR_BYTES;
      if (i >= all) continue;
      if constexpr (sizeof(T) == 4)
        round_shared16(to, v[k]);
      else
        store_shared(to + tap % TAPS * PIXEL_BYTES, __uint_as_float(v[k].x), __uint_as_float(v[k].y));
    }
  }
}

// Issues the wgmmas of ROWS rows, from `first` on, of the output pixels that a patch is for.
template <class T, int STRIDE, int ROWS, int HALF>
__device__ __forceinline__ void stem_multiply(float (&acc)[ROWS][HALF], const StemPatch &s, int taps_h, int first,
                                              uint32_t patch, uint32_t bank) {
  constexpr int FILTERS = 2 * HALF, ACROSS = FILTERS * PAIR_BYTES, WGMMAS = GROUP / (2 * STEM_TAPS<T>); // of a group
  int output_row = STRIDE * s.pitch;
  uint64_t a = unswizzled_descriptor(patch + first * output_row, s.next_pair, CORE_BYTES);
  uint64_t b = unswizzled_descriptor(bank, ACROSS, CORE_BYTES);
  wgmma_fence();
#pragma unroll 1
  for (int ty = 0; ty < taps_h; ty++) {
    uint64_t under = a;
#pragma unroll 1
    for (int i = 0; i < s.groups; i++) {
#pragma unroll
      for (int k = 0; k < WGMMAS; k++, b += 2 * ACROSS >> 4)
#pragma unroll
        for (int j = 0; j < ROWS; j++)
          wgmma<T, FILTERS, false>(acc[j], under + (j * output_row + k * s.next_half >> 4), b, ty + i + k > 0);
      under += s.next_group >> 4;
    }
    a += s.pitch >> 4;
  }
  wgmma_fence();
  wgmma_commit();
}
