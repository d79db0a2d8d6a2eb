// What the wgrad of several rungs ends in: partial sums of the filter's gradient, added up in a fixed order.
#pragma once
#include "cuda/conv/implicit_gemm.cuh"

// count matrices [k, taps · ldc] of float with the given distances in elements; rows past k are not read.
struct SplitKWorkspace {
  float *data;
  int slices, pitch; // pitch: from row to row
  size_t stride;     // from slot to slot
};

static inline size_t split_k_bytes(const SplitKWorkspace &s) { return s.slices * s.stride * sizeof(float); }

// What one launch of a wgrad by slots computes: tiles of dyᵀ · unrolled x, each over one slot of the pixels.
struct WgradOperands {
  Im2colView x;
  const void *dy;
  int first_slice;
};
struct WgradGemm {
  WgradOperands operands[CONV_MAX_PAIRS];
  int pairs, slice_k;      // of a slot
  int m, tiles_m, tiles_n; // dy's channels; tiles
  SplitKWorkspace workspace;
  // Rung 04's:
  FilterGrad out;
  bool single_slice; // there is one slot, which is dw: scaled, and added to what is there where that is asked for
};
static_assert(sizeof(WgradGemm) <= 4096, "a kernel's arguments");

// In tiles of rows × columns over about so many slots, whose memory is left to the caller.
WgradGemm wgrad_gemm(const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out, int rows,
                     int columns, int slices);
static inline size_t wgrad_gemm_k(int pairs, const Tensor *dy) {
  size_t pixels = 0;
  for (int i = 0; i < pairs; i++) pixels += tensor_pixels(&dy[i]);
  return pixels;
}
__device__ __forceinline__ const WgradOperands &wgrad_operands(const WgradGemm &p, int slice) {
  int i = 0;
  while (i + 1 < p.pairs && slice >= p.operands[i + 1].first_slice) i++;
  return p.operands[i];
}

// How many slots to cut `pixels` into when each takes `blocks` thread blocks: enough to fill a GPU, but of a length that
// is worth the extra pass. Depends on shapes alone, or the bits would differ from one GPU to the next.
int split_k_slices(size_t pixels, size_t blocks);

// dw (+)= scale · Σ slots.
void split_k_reduce(Device *dev, const SplitKWorkspace &workspace, const FilterGrad *out);

// db[c] (+)= Σ over all n tensors, their valid rows and pixels. Takes scratch.
void column_sums(Device *dev, int n, const Tensor *dy, float *db, bool accumulate);
