// Rung 03, WMMA: wgrad, the GEMM dyᵀ · im2col(x), whose K is the pixels: hundreds of thousands, for a small M × N.
// Split-K gives the whole GPU blocks even where the filter is small: each block multiplies one threadblock tile over
// one slice of K and leaves it in the workspace; a second kernel adds the slices in order. Both operands lie in memory
// with a pixel's channels together, so that both tiles are MN-major.
#include "cuda/conv/implicit_gemm.cuh"
#include "cuda/conv/split_k.cuh"
#include "cuda/conv/wmma.cuh"

// ---- kernel ---------------------------------------------------------------------------------------------------------

// A, dy: eight or four channels of as many pixels as there are passes.
template <class T, class Operand>
__device__ __forceinline__ void load_dy(T *tile, const T *dy, int m, int channel, int first, int end) {
  if (!Operand::is_active()) return;
#pragma unroll
  for (int i = 0; i < Operand::PASSES; i++) {
    int row = first + Operand::row(i);
    bool inside = row < end && channel < m;
    cp_async16(Operand::at(tile, i), dy + (inside ? (size_t)row * m + channel : 0), inside);
  }
}

// B, the same of x under the tap of the thread's columns; k.y past the taps: there are none.
template <class T, class Operand>
__device__ __forceinline__ void load_x(T *tile, const Im2colView &view, const KCoord &k, int first, int end) {
#pragma unroll
  for (int i = 0; i < Operand::PASSES; i++) {
    int row = first + Operand::row(i);
    Position at = position_of(view, row);
    unsigned y = view.im2col.y.in + view.im2col.y.in_stride * at.i + k.y,
             x = view.im2col.x.in + view.im2col.x.in_stride * at.j + k.x;
    bool inside = row < end && k.y < view.im2col.y.taps && y < (unsigned)view.in.h && x < (unsigned)view.in.w;
    const T *from = inside ? pixel<T>(view.in, at.n, y, x) + k.c : (const T *)view.in.data;
    cp_async16(Operand::at(tile, i), from, inside);
  }
}

// A slice of the workspace [slices, M, N] = dyᵀ · im2col(x) over the slice's pixels: M output channels, N taps ·
// channels of x. Grid (threadblock tiles of TILE_M × 128, N fastest; slices), a warp tile for each of eight warps.
// Accumulators are stored as they are: scale, accumulation and padding are the reduction's.
template <class T, int TILE_M>
__global__ __launch_bounds__(WMMA_THREADS, 2) void wmma_wgrad_kernel(const __grid_constant__ WgradGemm p) {
  using Tile = WmmaTile<T, TILE_M, 128, true, true>;
  int slice = blockIdx.y, row = blockIdx.x / p.tiles_n * TILE_M, column = blockIdx.x % p.tiles_n * 128;
  const WgradOperands &operands = wgrad_operands(p, slice);
  const Im2colView &view = operands.x;
  int first = (slice - operands.first_slice) * p.slice_k, end = min(first + p.slice_k, view_rows(view));
  int tap = (column + Tile::B::contiguous()) / view.in.ldc, taps = view.im2col.x.taps;
  KCoord k = {(column + Tile::B::contiguous()) % view.in.ldc, tap / taps, tap % taps};
  WmmaAccumulator<T, Tile> acc;
  int k_tiles = max(end - first + Tile::TILE_K - 1, 0) / Tile::TILE_K; // none past the count: the slice is zeros
  wmma_mainloop(acc, k_tiles, [&](T *a, T *b) {
    load_dy<T, typename Tile::A>(a, (const T *)operands.dy, p.m, row + Tile::A::contiguous(), first, end);
    load_x<T, typename Tile::B>(b, view, k, first, end);
    first += Tile::TILE_K;
  });
  float *to = p.workspace.data + slice * p.workspace.stride;
#pragma unroll
  for (int i = 0; i < Tile::FRAGMENTS_M; i++)
#pragma unroll
    for (int j = 0; j < Tile::FRAGMENTS_N; j++) {
      int y = row + Tile::warp_m() + i * WMMA_MN, x = column + Tile::warp_n() + j * WMMA_MN;
      wmma::store_matrix_sync(to + (size_t)y * p.workspace.pitch + x, acc.fragment[i][j], p.workspace.pitch,
                              wmma::mem_row_major);
    }
}

// ---- launchers ------------------------------------------------------------------------------------------------------

template <class T, int TILE_M> static void launch(Device *dev, const WgradGemm &p) {
  constexpr int bytes = WmmaTile<T, TILE_M, 128, true, true>::BYTES;
  auto kernel = wmma_wgrad_kernel<T, TILE_M>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  dim3 grid(p.tiles_m * p.tiles_n, p.workspace.slices);
  kernel<<<grid, WMMA_THREADS, bytes, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}

void wmma_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  const Tensor *dw = &out->dw;
  int rows = dy->ldc <= 32 ? 32 : dy->ldc <= 64 ? 64 : 128;
  size_t tiles = (size_t)blocks_for(dy->ldc, rows) * blocks_for((size_t)dw->h * dw->w * dw->ldc, 128);
  int slices = split_k_slices(wgrad_gemm_k(pairs, dy), tiles);
  WgradGemm p = wgrad_gemm(conv, pairs, x, dy, out, rows, 128, slices);
  p.workspace.data = (float *)device_workspace(dev, split_k_bytes(p.workspace));
  if (!p.workspace.data) return;
  WITH_TYPE(x->dtype, T, {
    if (rows == 32)
      launch<T, 32>(dev, p);
    else if (rows == 64)
      launch<T, 64>(dev, p);
    else
      launch<T, 128>(dev, p);
  });
  split_k_reduce(dev, p.workspace, out);
}
