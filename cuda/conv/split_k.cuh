// Split-K of wgrad in rungs 02 to 04, and of rung 04's forward and dgrad where rows are few. K is cut into slices,
// since M × N alone gives too few threadblock tiles for a GPU; each block leaves its accumulators in a workspace, and a
// second kernel adds the slices in a fixed order, so that a run repeats its bits.
#pragma once
#include "cuda/conv/implicit_gemm.cuh"

// `slices` matrices of float [M, N] with the given distances in elements. In wgrad M are output channels and N taps ·
// ldc, and rows past dw's are not read; otherwise M are pixels and N channels.
struct SplitKWorkspace {
  float *data;
  int slices, pitch; // pitch: from row to row
  size_t stride;     // from slice to slice
  bool half_taps;    // of wgrad: N has but the first half of every tap's ldc; the rest is padding
};

static inline size_t split_k_bytes(const SplitKWorkspace &s) { return s.slices * s.stride * sizeof(float); }

// What one launch of a split-K wgrad computes: threadblock tiles of dyᵀ · im2col(x), each over one slice of a pair's K.
struct WgradOperands {
  Im2colView x;
  const void *dy;
  int first_slice;
};
struct WgradGemm {
  WgradOperands operands[CONV_MAX_PAIRS];
  int pairs, slice_k;      // slice_k: pixels of a slice
  int m, tiles_m, tiles_n; // M, dy's channels; threadblock tiles
  SplitKWorkspace workspace;
  // Rung 04's:
  FilterGrad out;
  bool single_slice; // K is not split: the workspace is dw, scaled, and added to what is there where that is asked for
};
static_assert(sizeof(WgradGemm) <= 4096, "a kernel's arguments");

// For threadblock tiles of rows × columns and about so many slices; the workspace is left to the caller.
WgradGemm wgrad_gemm(const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out, int rows,
                     int columns, int slices, bool half_taps = false);
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

__device__ __forceinline__ void add4(float4 &a, const float4 &b) {
  a.x += b.x;
  a.y += b.y;
  a.z += b.z;
  a.w += b.w;
}

// Into how many slices to split `pixels` of K when each takes `blocks` threadblocks: enough to fill a GPU, but of a
// length that is worth the extra pass. By shapes alone, or the bits would differ from one GPU to the next.
int split_k_slices(size_t pixels, size_t blocks);

// The split-K reduction: dw (+)= scale · Σ slices.
void split_k_reduce(Device *dev, const SplitKWorkspace &workspace, const FilterGrad *out);
// The same for forward and dgrad, through the problem's Dest: row m of a slice is row m of the problem's
// view, and a device-side count says how many there are.
void split_k_reduce_to_dest(Device *dev, const SplitKWorkspace &workspace, const GemmProblem &problem);
