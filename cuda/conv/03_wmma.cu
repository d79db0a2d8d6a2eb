// Rung 03, WMMA: forward and dgrad as implicit GEMM on tensor cores. Idea: the im2col matrix exists only as tiles in
// shared memory.
// Removes: the im2col matrix in memory, and the fp32 units.
// Adds to the rung before: cp.async loads pixels under their taps straight into the tiles, a pipeline of three stages;
// warp tiles of nvcuda::wmma fragments; all pairs and phases are one grouped GEMM.
// Limit: mma.sync, which reaches two thirds of what Hopper's wgmma does, addresses computed by the threads that
// multiply, and threadblock tiles that ask L2 for 32 bytes for every 1024 products.
#include <limits.h>
#include "cuda/conv/implicit_gemm.cuh"
#include "cuda/conv/ladder.h"
#include "cuda/conv/wmma.cuh"

enum { MIN_BLOCKS = 264 }; // two for each of an H100's 132 multiprocessors (SMs)

// ---- loads of a stage: activations (A) and filter (B) ---------------------------------------------------------------

// A, the activations: what a thread copies of a stage. It has one vector of K under as many rows as there are passes; k
// advances by TILE_K with every stage.
template <class T, class Operand> struct ActivationLoader {
  const Im2colView &view;
  int64_t base[Operand::PASSES]; // offset of the pixel under the first tap, which may lie in the padding
  int y[Operand::PASSES], x[Operand::PASSES];

  __device__ ActivationLoader(const Im2colView &view, int first) : view(view) {
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++) {
      int row = first + Operand::row(i);
      Position at = position_of(view, row);
      y[i] = row < view_rows(view) ? view.im2col.y.in + view.im2col.y.in_stride * at.i : INT_MIN / 2; // never inside
      x[i] = view.im2col.x.in + view.im2col.x.in_stride * at.j;
      base[i] = (((int64_t)at.n * view.in.h + y[i]) * view.in.w + x[i]) * view.in.ldc;
    }
  }
  __device__ void load(T *tile, const KCoord &k) const {
    int offset = (k.y * view.in.w + k.x) * view.in.ldc + k.c;
    bool in_k = k.y < view.im2col.y.taps;
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++) {
      unsigned iy = y[i] + k.y, ix = x[i] + k.x; // what is left of the image or above wraps to the far right and below
      bool inside = in_k && iy < (unsigned)view.in.h && ix < (unsigned)view.in.w;
      cp_async16(Operand::at(tile, i), (const T *)view.in.data + (inside ? base[i] + offset : 0), inside);
    }
  }
};

// B, the filter, columns `first` … of N. Forward the filter is K-major and the thread's k is the activations'; in dgrad
// it is MN-major, and each pass has a k of its own.
template <class T, class Operand> struct FilterLoader {
  const Im2colView &view;
  const Tensor &w;
  int first;
  KCoord own[Operand::IS_MN_MAJOR ? Operand::PASSES : 1];

  __device__ FilterLoader(const Im2colView &view, const Tensor &w, int first) : view(view), w(w), first(first) {
    if constexpr (Operand::IS_MN_MAJOR)
#pragma unroll
      for (int i = 0; i < Operand::PASSES; i++) {
        own[i] = {};
        k_advance(own[i], Operand::row(i), view);
      }
  }
  __device__ void load(T *tile, const KCoord &pixels) {
    if (!Operand::is_active()) return;
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++) {
      const KCoord &k = Operand::IS_MN_MAJOR ? own[i] : pixels;
      int filter = Operand::IS_MN_MAJOR ? k.c : first + Operand::row(i);
      int channel = Operand::IS_MN_MAJOR ? first + Operand::contiguous() : k.c;
      bool inside = k.y < view.im2col.y.taps && filter < w.n && channel < w.ldc;
      int at = (filter * w.h * w.w + filter_tap(k, view, w.w)) * w.ldc + channel;
      cp_async16(Operand::at(tile, i), (const T *)w.data + (inside ? at : 0), inside);
      if constexpr (Operand::IS_MN_MAJOR) k_advance(own[i], Operand::TILE_K, view);
    }
  }
};

// ---- kernel ---------------------------------------------------------------------------------------------------------

// Epilogue: a warp tile's accumulators go through its staging buffer in shared memory, a row of fragments at a time,
// since the Dest is written in groups of eight channels, and a lane of a fragment does not hold such.
template <class T, class Tile>
__device__ __forceinline__ void wmma_epilogue(const GemmProblem &p, const WmmaAccumulator<T, Tile> &acc, int m0,
                                              int n0) {
  float *staging = (float *)dynamic_shared() + threadIdx.x / 32 * Tile::EPILOGUE_ELEMENTS;
  int rows = view_rows(p.view), groups = Tile::WARP_N / 8;
#pragma unroll
  for (int i = 0; i < Tile::FRAGMENTS_M; i++) {
#pragma unroll
    for (int j = 0; j < Tile::FRAGMENTS_N; j++)
      wmma::store_matrix_sync(staging + j * WMMA_MN, acc.fragment[i][j], Tile::EPILOGUE_PITCH, wmma::mem_row_major);
    __syncwarp();
    for (int group = threadIdx.x % 32; group < WMMA_MN * groups; group += 32) {
      int down = group / groups, right = group % groups * 8;
      int row = m0 + Tile::warp_m() + i * WMMA_MN + down, column = n0 + Tile::warp_n() + right;
      if (row < rows && column < p.out.t.ldc)
        problem_store8<T>(p, row, column, load8(staging + down * Tile::EPILOGUE_PITCH + right));
    }
    __syncwarp();
  }
}

// All problems of a grouped GEMM, y [n, p, q, k] or, BACKWARD, dx [n, h, w, c]: M are pixels, N channels, K taps ·
// channels of the operand that the view reads. A threadblock for each tile of TILE_M × TILE_N, N fastest, so that
// blocks that read the same pixels run together and share them in L2; a warp tile for each of its eight warps. Tiles
// past a device-side count have nothing to do.
template <class T, int TILE_M, int TILE_N, bool BACKWARD>
__global__ __launch_bounds__(WMMA_THREADS, 2) void wmma_kernel(const __grid_constant__ GroupedGemm p) {
  using Tile = WmmaTile<T, TILE_M, TILE_N, false, BACKWARD>;
  BlockTile at = block_tile(p, TILE_M, TILE_N);
  const Im2colView &view = at.problem.view;
  if (at.row >= view_rows(view)) return;
  ActivationLoader<T, typename Tile::A> pixels(view, at.row);
  FilterLoader<T, typename Tile::B> filter(view, p.w, at.column);
  KCoord k = {};
  k_advance(k, Tile::A::contiguous(), view);
  int gemm_k = view.im2col.y.taps * view.im2col.x.taps * view.in.ldc;
  WmmaAccumulator<T, Tile> acc;
  wmma_mainloop(acc, (gemm_k + Tile::TILE_K - 1) / Tile::TILE_K, [&](T *a, T *b) {
    pixels.load(a, k);
    filter.load(b, k);
    k_advance(k, Tile::TILE_K, view);
  });
  wmma_epilogue<T>(at.problem, acc, at.row, at.column);
}

// ---- launchers ------------------------------------------------------------------------------------------------------

template <class T, int TILE_M, int TILE_N, bool BACKWARD> static void launch_tiles(Device *dev, GroupedGemm &p) {
  grouped_schedule(&p, TILE_M, TILE_N);
  constexpr int bytes = WmmaTile<T, TILE_M, TILE_N, false, BACKWARD>::BYTES;
  auto kernel = wmma_kernel<T, TILE_M, TILE_N, BACKWARD>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<p.tiles_m * p.tiles_n, WMMA_THREADS, bytes, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}

// Narrow results get narrow tiles; few rows get small ones, so that they reach every SM. Accumulators are the same in
// any of them.
template <class T, bool BACKWARD> static void launch(Device *dev, GroupedGemm &p) {
  int n = p.problem[0].out.t.ldc;
  if (n <= 32) return launch_tiles<T, 128, 32, BACKWARD>(dev, p);
  if (grouped_tiles(p, 128) * blocks_for(n, 128) < MIN_BLOCKS) return launch_tiles<T, 64, 64, BACKWARD>(dev, p);
  if (n <= 64) return launch_tiles<T, 128, 64, BACKWARD>(dev, p);
  launch_tiles<T, 128, 128, BACKWARD>(dev, p);
}

template <bool BACKWARD>
static void compute(Device *dev, const Conv *conv, int pairs, const Tensor *in, const Tensor *w, const Dest *out) {
  if (dev->measuring) return;
  for_each_group(conv, pairs, in, w, out, BACKWARD,
                 [&](GroupedGemm &p) { WITH_TYPE(w->dtype, T, { launch<T, BACKWARD>(dev, p); }); });
}

// TF32 is a loss of precision that has to be asked for.
static bool supports(Device *dev, ConvOp, const Conv *, const Tensor *in, const Tensor *) {
  return in->dtype != F32 || dev->tf32;
}

extern "C" const Rung rung_wmma = {"wmma", supports, compute<false>, compute<true>, wmma_wgrad};
