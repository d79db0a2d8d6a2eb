// Rung 03, WMMA: the gradient of the filter, dyᵀ · unrolled x, whose long side is the sum over pixels. The pixels are cut
// into slots, so that there are blocks for the whole GPU even where the filter is small; each block adds up one tile over
// one slot, and the slots are added in order afterwards. Both operands lie in memory with a pixel's channels together,
// which makes pixels the rows of both tiles in shared memory.
#include "cuda/conv/filter_grad.cuh"
#include "cuda/conv/walk.cuh"
#include "cuda/conv/wmma.cuh"

// ---- kernel ---------------------------------------------------------------------------------------------------------

// A thread's share of dy's tile: eight or four channels of as many pixels as there are passes.
template <class T, class Operand>
__device__ __forceinline__ void load_gradient(T *tile, const T *dy, int m, int channel, int first, int end) {
  if (!Operand::takes_part()) return;
#pragma unroll
  for (int i = 0; i < Operand::PASSES; i++) {
    int row = first + Operand::row(i);
    bool inside = row < end && channel < m;
    copy16_async(Operand::at(tile, i), dy + (inside ? (size_t)row * m + channel : 0), inside);
  }
}

// The same of x under the tap of the thread's columns; k.y beyond the taps: there are none.
template <class T, class Operand>
__device__ __forceinline__ void load_pixels(T *tile, const Gather &g, const Column &k, int first, int end) {
#pragma unroll
  for (int i = 0; i < Operand::PASSES; i++) {
    int row = first + Operand::row(i);
    Position at = position_of(g, row);
    unsigned y = g.walk.y.in + g.walk.y.in_step * at.i + k.y, x = g.walk.x.in + g.walk.x.in_step * at.j + k.x;
    bool inside = row < end && k.y < g.walk.y.taps && y < (unsigned)g.in.h && x < (unsigned)g.in.w;
    const T *from = inside ? pixel<T>(g.in, at.n, y, x) + k.c : (const T *)g.in.data;
    copy16_async(Operand::at(tile, i), from, inside);
  }
}

template <class T, int ROWS>
__global__ __launch_bounds__(WMMA_THREADS, 2) void wmma_wgrad_kernel(const __grid_constant__ FilterProduct p) {
  if constexpr (wmma_has<T>) {
    using Tile = WmmaTile<T, ROWS, 128, true, true>;
    int slot = blockIdx.y, row = blockIdx.x / p.across * ROWS, column = blockIdx.x % p.across * 128;
    const FilterPart &part = filter_part(p, slot);
    const Gather &g = part.x;
    int first = (slot - part.first_slot) * p.pixels, end = min(first + p.pixels, gather_rows(g));
    int tap = (column + Tile::B::lane()) / g.in.ldc, taps = g.walk.x.taps;
    Column k = {(column + Tile::B::lane()) % g.in.ldc, tap / taps, tap % taps};
    WmmaSum<T, Tile> sum;
    int steps = max(end - first + Tile::DEPTH - 1, 0) / Tile::DEPTH; // none past the count: the slot is zeros
    wmma_accumulate(sum, steps, [&](T *a, T *b) {
      load_gradient<T, typename Tile::A>(a, (const T *)part.dy, p.m, row + Tile::A::lane(), first, end);
      load_pixels<T, typename Tile::B>(b, g, k, first, end);
      first += Tile::DEPTH;
    });
    float *to = p.slots.data + slot * p.slots.stride;
#pragma unroll
    for (int i = 0; i < Tile::DOWN; i++)
#pragma unroll
      for (int j = 0; j < Tile::ACROSS; j++) {
        int y = row + Tile::warp_row() + i * WMMA_SIDE, x = column + Tile::warp_column() + j * WMMA_SIDE;
        wmma::store_matrix_sync(to + (size_t)y * p.slots.pitch + x, sum.part[i][j], p.slots.pitch, wmma::mem_row_major);
      }
  }
}

// ---- launchers ------------------------------------------------------------------------------------------------------

template <class T, int ROWS> static void launch(Device *dev, const FilterProduct &p) {
  constexpr int bytes = WmmaTile<T, ROWS, 128, true, true>::BYTES;
  auto kernel = wmma_wgrad_kernel<T, ROWS>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  dim3 grid(p.down * p.across, p.slots.count);
  kernel<<<grid, WMMA_THREADS, bytes, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}

void wmma_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  const Tensor *dw = &out->dw;
  int rows = dy->ldc <= 32 ? 32 : dy->ldc <= 64 ? 64 : 128;
  size_t tiles = (size_t)blocks_for(dy->ldc, rows) * blocks_for((size_t)dw->h * dw->w * dw->ldc, 128);
  int slots = filter_grad_slots(filter_pixels(pairs, dy), tiles);
  FilterProduct p = filter_product(conv, pairs, x, dy, out, rows, 128, slots);
  p.slots.data = (float *)device_scratch(dev, slots_bytes(p.slots));
  if (!p.slots.data) return;
  WITH_TYPE(x->dtype, T, {
    if (rows == 32)
      launch<T, 32>(dev, p);
    else if (rows == 64)
      launch<T, 64>(dev, p);
    else
      launch<T, 128>(dev, p);
  });
  filter_grad_reduce(dev, p.slots, out);
}
