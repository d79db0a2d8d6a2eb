// Rung 03, WMMA: forward and dgrad. Idea: tensor cores, fed from pixels that are unrolled only in shared memory.
// Removes: the unrolled matrix in memory, and the fp32 units.
// Changed since the rung before: 16-byte copies gather pixels under their taps straight into the tiles, three stages of
// them under way; each warp multiplies fragments through nvcuda::wmma; all pairs and phases are one launch.
// Limit: mma.sync, which reaches two thirds of what Hopper's wgmma does, addresses computed by the threads that multiply,
// and tiles that ask for 32 bytes of L2 for every 1024 products.
#include <limits.h>
#include "cuda/conv/ladder.h"
#include "cuda/conv/walk.cuh"
#include "cuda/conv/wmma.cuh"

enum { FEW_BLOCKS = 264 }; // below two for each of 132 multiprocessors

// ---- gathering ------------------------------------------------------------------------------------------------------

// A thread's share of the pixels' tile: one vector of columns under as many rows as there are passes. The column moves
// on by one depth of the tile with every load.
template <class T, class Operand> struct PixelLoader {
  const Gather &g;
  int64_t base[Operand::PASSES]; // of the pixel under the first tap, which may lie outside, from the tensor's beginning
  int y[Operand::PASSES], x[Operand::PASSES];

  __device__ PixelLoader(const Gather &g, int first) : g(g) {
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++) {
      int row = first + Operand::row(i);
      Position at = position_of(g, row);
      y[i] = row < gather_rows(g) ? g.walk.y.in + g.walk.y.in_step * at.i : INT_MIN / 2; // never inside
      x[i] = g.walk.x.in + g.walk.x.in_step * at.j;
      base[i] = (((int64_t)at.n * g.in.h + y[i]) * g.in.w + x[i]) * g.in.ldc;
    }
  }
  __device__ void load(T *tile, const Column &k) const {
    int offset = (k.y * g.in.w + k.x) * g.in.ldc + k.c;
    bool term = k.y < g.walk.y.taps;
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++) {
      unsigned iy = y[i] + k.y, ix = x[i] + k.x; // what is left of the image or above wraps to the far right and below
      bool inside = term && iy < (unsigned)g.in.h && ix < (unsigned)g.in.w;
      copy16_async(Operand::at(tile, i), (const T *)g.in.data + (inside ? base[i] + offset : 0), inside);
    }
  }
};

// The filter's tile, columns `first` … of the result. Forward a filter's terms are contiguous and this thread's columns
// are the pixels' column; backward the result's channels are, and each pass has a row of terms of its own.
template <class T, class Operand> struct FilterLoader {
  const Gather &g;
  const Tensor &w;
  int first;
  Column own[Operand::IS_BY_TERM ? Operand::PASSES : 1];

  __device__ FilterLoader(const Gather &g, const Tensor &w, int first) : g(g), w(w), first(first) {
    if constexpr (Operand::IS_BY_TERM)
#pragma unroll
      for (int i = 0; i < Operand::PASSES; i++) {
        own[i] = {};
        column_advance(own[i], Operand::row(i), g);
      }
  }
  __device__ void load(T *tile, const Column &pixels) {
    if (!Operand::takes_part()) return;
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++) {
      const Column &k = Operand::IS_BY_TERM ? own[i] : pixels;
      int rank = Operand::IS_BY_TERM ? k.c : first + Operand::row(i);
      int lane = Operand::IS_BY_TERM ? first + Operand::lane() : k.c;
      bool inside = k.y < g.walk.y.taps && rank < w.n && lane < w.ldc;
      int at = (rank * w.h * w.w + filter_tap(k, g, w.w)) * w.ldc + lane;
      copy16_async(Operand::at(tile, i), (const T *)w.data + (inside ? at : 0), inside);
      if constexpr (Operand::IS_BY_TERM) column_advance(own[i], Operand::DEPTH, g);
    }
  }
};

// ---- kernel ---------------------------------------------------------------------------------------------------------

// Writes a warp's fragments through the part's Dest, a strip of sixteen rows at a time: groups of eight channels are
// what a lane holds there, and they are not what it holds of a fragment.
template <class T, class Tile>
__device__ __forceinline__ void write_out(const Part &p, const WmmaSum<T, Tile> &sum, int row0, int column0) {
  float *strip = (float *)dynamic_shared() + threadIdx.x / 32 * Tile::STRIP;
  int rows = gather_rows(p.gather), across = Tile::WARP_COLUMNS / 8;
#pragma unroll
  for (int i = 0; i < Tile::DOWN; i++) {
#pragma unroll
    for (int j = 0; j < Tile::ACROSS; j++)
      wmma::store_matrix_sync(strip + j * WMMA_SIDE, sum.part[i][j], Tile::STRIP_PITCH, wmma::mem_row_major);
    __syncwarp();
    for (int group = threadIdx.x % 32; group < WMMA_SIDE * across; group += 32) {
      int down = group / across, right = group % across * 8;
      int row = row0 + Tile::warp_row() + i * WMMA_SIDE + down, column = column0 + Tile::warp_column() + right;
      if (row < rows && column < p.out.t.ldc)
        part_store8<T>(p, row, column, load8(strip + down * Tile::STRIP_PITCH + right));
    }
    __syncwarp();
  }
}

template <class T, int ROWS, int COLUMNS, bool BACKWARD>
__global__ __launch_bounds__(WMMA_THREADS, 2) void wmma_kernel(const __grid_constant__ Product p) {
  if constexpr (wmma_has<T>) {
    using Tile = WmmaTile<T, ROWS, COLUMNS, false, BACKWARD>;
    TileAt at = product_tile(p, ROWS, COLUMNS);
    const Gather &g = at.part.gather;
    if (at.row >= gather_rows(g)) return;
    PixelLoader<T, typename Tile::A> pixels(g, at.row);
    FilterLoader<T, typename Tile::B> filter(g, p.w, at.column);
    Column k = {};
    column_advance(k, Tile::A::lane(), g);
    int terms = g.walk.y.taps * g.walk.x.taps * g.in.ldc;
    WmmaSum<T, Tile> sum;
    wmma_accumulate(sum, (terms + Tile::DEPTH - 1) / Tile::DEPTH, [&](T *a, T *b) {
      pixels.load(a, k);
      filter.load(b, k);
      column_advance(k, Tile::DEPTH, g);
    });
    write_out<T>(at.part, sum, at.row, at.column);
  }
}

// ---- launchers ------------------------------------------------------------------------------------------------------

template <class T, int ROWS, int COLUMNS, bool BACKWARD> static void launch_tiles(Device *dev, Product &p) {
  product_cut(&p, ROWS, COLUMNS);
  constexpr int bytes = WmmaTile<T, ROWS, COLUMNS, false, BACKWARD>::BYTES;
  auto kernel = wmma_kernel<T, ROWS, COLUMNS, BACKWARD>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<p.tiles * p.across, WMMA_THREADS, bytes, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}

// Narrow results get narrow tiles; few rows get small ones, so that they reach every multiprocessor. The sums are the
// same in any of them.
template <class T, bool BACKWARD> static void launch(Device *dev, Product &p) {
  int n = p.part[0].out.t.ldc;
  if (n <= 32) return launch_tiles<T, 128, 32, BACKWARD>(dev, p);
  if (product_tiles(p, 128) * blocks_for(n, 128) < FEW_BLOCKS) return launch_tiles<T, 64, 64, BACKWARD>(dev, p);
  if (n <= 64) return launch_tiles<T, 128, 64, BACKWARD>(dev, p);
  launch_tiles<T, 128, 128, BACKWARD>(dev, p);
}

template <bool BACKWARD>
static void compute(Device *dev, const Conv *conv, int pairs, const Tensor *in, const Tensor *w, const Dest *out) {
  if (dev->measuring) return;
  for_each_product(conv, pairs, in, w, out, BACKWARD,
                   [&](Product &p) { WITH_TYPE(w->dtype, T, { launch<T, BACKWARD>(dev, p); }); });
}

// Turing's tensor cores take fp16 only; TF32 is a loss of precision that has to be asked for.
static bool supports(const Device *dev, ConvOp, const Conv *, const Tensor *in, const Tensor *) {
  int major;
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, dev->index));
  return in->dtype == F16 || (major >= 8 && (in->dtype == BF16 || dev->tf32));
}

extern "C" const Rung rung_wmma = {"wmma", supports, compute<false>, compute<true>, wmma_wgrad};
