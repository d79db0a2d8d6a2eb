// Rung 04, mma.sync: wgrad, the GEMM dyᵀ · im2col(x), split along K, the pixels, as in rung 03: a block multiplies one
// threadblock tile over one slice, and the slices are added in order by a second kernel; where there is one slice, the
// epilogue writes dw itself. Both operands are MN-major, a row of channels for each pixel, which ldmatrix transposes;
// floats are read by loads of four or eight bytes instead.
#include <limits.h>
#include <math.h>
#include "cuda/conv/implicit_gemm.cuh"
#include "cuda/conv/mma.cuh"
#include "cuda/conv/split_k.cuh"

// ---- loads of a stage: dy (A) and im2col(x) (B) ---------------------------------------------------------------------

// A, dy: chunks of channels of as many pixels as there are passes.
template <class Operand> struct GradientIterator {
  const uint4 *data;
  unsigned at; // chunk of the thread's first pixel
  int pixel, left;

  __device__ GradientIterator(const void *dy, int channels, int first, int channel) : data((const uint4 *)dy) {
    pixel = channels / Operand::VECTOR;
    int own = (channel + Operand::contiguous()) / Operand::VECTOR;
    at = (first + Operand::row(0)) * pixel + own;
    left = pixel - own;
  }
  // Pixels from `row`, the thread's own, to `end`.
  __device__ void load(uint32_t tile, int row, int end) {
    uint32_t to = Operand::thread_base(tile);
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++)
#pragma unroll
      for (int j = 0; j < Operand::CHUNKS_PER_LANE; j++) {
        bool inside = (row + i * Operand::ROW_STEP < end) & (8 * j < left);
        unsigned from = at + i * Operand::ROW_STEP * pixel + 8 * j;
        cp_async16(Operand::pass_address(to, i, j), data + (inside ? from : 0u), inside);
      }
    at += Operand::TILE_K * pixel;
  }
};

// B, im2col(x): each of a thread's chunks is under a tap of its own.
template <class Operand> struct Im2colIterator {
  const Im2colView &view;
  int offset[Operand::CHUNKS_PER_LANE], y[Operand::CHUNKS_PER_LANE],
      x[Operand::CHUNKS_PER_LANE]; // of the tap: in chunks; where it is
  int pixel;

  __device__ Im2colIterator(const Im2colView &view, int column) : view(view), pixel(view.in.ldc / Operand::VECTOR) {
#pragma unroll
    for (int j = 0; j < Operand::CHUNKS_PER_LANE; j++) {
      int own = (column + Operand::contiguous()) / Operand::VECTOR + 8 * j, tap = own / pixel;
      y[j] = tap / view.im2col.x.taps;
      x[j] = tap % view.im2col.x.taps;
      offset[j] = (y[j] * view.in.w + x[j]) * pixel + own % pixel;
      if (y[j] >= view.im2col.y.taps) y[j] = INT_MIN / 2; // never inside
    }
  }
  __device__ void load(uint32_t tile, int row, int end) const {
    uint32_t to = Operand::thread_base(tile);
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++) {
      int own = row + i * Operand::ROW_STEP;
      Position at = position_of(view, own);
      int top = view.im2col.y.in + view.im2col.y.in_stride * at.i,
          left = view.im2col.x.in + view.im2col.x.in_stride * at.j;
      int base = ((at.n * view.in.h + top) * view.in.w + left) * pixel;
#pragma unroll
      for (int j = 0; j < Operand::CHUNKS_PER_LANE; j++) {
        unsigned iy = top + y[j], ix = left + x[j];
        bool inside = (own < end) & (iy < (unsigned)view.in.h) & (ix < (unsigned)view.in.w);
        cp_async16(Operand::pass_address(to, i, j),
                   (const uint4 *)view.in.data + (inside ? (unsigned)(base + offset[j]) : 0u), inside);
      }
    }
  }
};

// ---- kernel ---------------------------------------------------------------------------------------------------------

// dyᵀ · im2col(x) over the pixels of one slice: M output channels, N taps · channels of x. Grid (threadblock tiles of
// Shape::TILE_M × TILE_N, N fastest; slices), a warp tile for each warp. Slices go to the workspace [slices, M, N]; a
// single one goes to dw [k, r, s, c], scaled and accumulated.
template <class T, class Shape>
__global__ __launch_bounds__(Shape::THREADS, Shape::BLOCKS) void mma_wgrad_kernel(const __grid_constant__ WgradGemm p) {
  using Tile = MmaTile<T, Shape, true, true>;
  int slice = blockIdx.y, row = blockIdx.x / p.tiles_n * Shape::TILE_M, column = blockIdx.x % p.tiles_n * Shape::TILE_N;
  const WgradOperands &operands = wgrad_operands(p, slice);
  int first = (slice - operands.first_slice) * p.slice_k, end = min(first + p.slice_k, view_rows(operands.x));
  GradientIterator<typename Tile::A> dy_tiles(operands.dy, p.m, first, row);
  Im2colIterator<typename Tile::B> x_tiles(operands.x, column);
  MmaAccumulator<Tile> acc;
  int k_tiles = max(end - first + Tile::TILE_K - 1, 0) / Tile::TILE_K; // none past the count: the slice is zeros
  auto load_dy = [&](uint32_t stage) { dy_tiles.load(stage, first + Tile::A::row(0), end); };
  auto load_x = [&](uint32_t stage) {
    x_tiles.load(stage + Tile::A::BYTES, first + Tile::B::row(0), end);
    first += Tile::TILE_K;
  };
  mma_mainloop(acc, k_tiles, load_dy, load_x);
  // Epilogue: the accumulators of a slice go to the workspace as they are, those of an unsplit GEMM to dw itself.
  column += mma_epilogue_column<Tile>();
  float *to = p.workspace.data + slice * p.workspace.stride + (size_t)row * p.workspace.pitch + column;
  const Tensor &dw = p.out.dw;
  int c = column % dw.ldc, rows = !p.single_slice ? INT_MAX : column < p.workspace.pitch ? dw.n : 0;
  auto nothing = [](int, float *) { return 0; };
  auto old = [&](int down) {
    bool any = p.single_slice && p.out.accumulate && row + down < rows;
    return any ? load8(to + (size_t)down * p.workspace.pitch) : Eight{};
  };
  mma_epilogue<2>(acc, nothing, old, [&](int down, Eight v, const Eight &before) {
    if (row + down >= rows) return;
    float factor = p.single_slice && p.out.scale ? ((const float *)p.out.scale)[row + down] : 1.f;
#pragma unroll
    for (int i = 0; i < 8; i++) v.v[i] = c + i < dw.c ? before.v[i] + factor * v.v[i] : 0.f;
    store8(to + (size_t)down * p.workspace.pitch, v);
  });
}

// ---- the heuristic: threadblock tile and split-K --------------------------------------------------------------------

// TILE_M, TILE_N, warps along M and N, threadblocks for which a multiprocessor (SM) has registers
using LargeWgrad = MmaShape<128, 256, 2, 4, 1>;
using SquareWgrad = MmaShape<128, 128, 2, 2, 2>;
using LowWgrad = MmaShape<64, 128, 1, 4, 2>;
using ThinWgrad = MmaShape<32, 128, 1, 4, 3>;

// The chip that tiles and slices are chosen for. It is not asked for: the order of a sum must not depend on it.
enum {
  MULTIPROCESSORS = 132,
  STAGE_MACS = 13,      // M × N of a stage that one of them computes in a cycle, at best
  STAGE_OVERHEAD = 5,   // stages' worth of prologue and epilogue
  BYTES_A_CYCLE = 2000, // of the memory
  MAX_SLICES = 256,
};

struct SplitKPlan {
  double cycles; // estimated
  int slices;
};
// `speed`: the share of LargeWgrad's rate that a shape reaches where there is work enough.
template <class Shape>
static SplitKPlan split_k_plan(const Device *dev, const Tensor *dw, int m, double stages, double speed) {
  int n = dw->h * dw->w * dw->ldc, tiles = blocks_for(m, Shape::TILE_M) * blocks_for(n, Shape::TILE_N);
  double stage = Shape::TILE_M * Shape::TILE_N / (STAGE_MACS * speed),
         slice = 2. * sizeof(float) * m * n / BYTES_A_CYCLE;
  SplitKPlan best = {INFINITY, 1};
  if (!mma_fits<MmaTile<float, Shape, true, true>>(dev)) return best; // as large in any type
  for (int slices = 1; slices <= MIN(MAX_SLICES, MAX(1, (int)stages)); slices++) {
    double cycles = blocks_for((size_t)tiles * slices, MULTIPROCESSORS) * (stages / slices + STAGE_OVERHEAD) * stage;
    cycles += slices > 1 ? slices * slice : slice / 2; // written and read again; written
    if (cycles < best.cycles) best = {cycles, slices};
  }
  return best;
}

// ---- launchers ------------------------------------------------------------------------------------------------------

template <class T, class Shape> static void launch(Device *dev, const WgradGemm &p) {
  using Tile = MmaTile<T, Shape, true, true>;
  auto kernel = mma_wgrad_kernel<T, Shape>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::BYTES));
  kernel<<<dim3(p.tiles_m * p.tiles_n, p.workspace.slices), Shape::THREADS, Tile::BYTES, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}

template <class Shape>
static void compute(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out,
                    int slices) {
  WgradGemm p = wgrad_gemm(conv, pairs, x, dy, out, Shape::TILE_M, Shape::TILE_N, slices);
  p.out = *out;
  p.single_slice = p.workspace.slices == 1;
  if (p.single_slice)
    p.workspace = {(float *)out->dw.data, 1, p.out.dw.h * p.out.dw.w * p.out.dw.ldc, 0};
  else
    p.workspace.data = (float *)device_workspace(dev, split_k_bytes(p.workspace));
  if (dev->measuring) return;
  WITH_TYPE(x->dtype, T, { launch<T, Shape>(dev, p); });
  if (!p.single_slice) split_k_reduce(dev, p.workspace, out);
}

void mma_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  const Tensor *dw = &out->dw;
  int m = dy->ldc;
  double stages = (double)wgrad_gemm_k(pairs, dy) * dtype_size(x->dtype) / 128;
  struct {
    SplitKPlan plan;
    decltype(compute<LargeWgrad>) *run;
  } options[] = {{split_k_plan<LargeWgrad>(dev, dw, m, stages, 1.0), compute<LargeWgrad>},
                 {split_k_plan<SquareWgrad>(dev, dw, m, stages, 0.92), compute<SquareWgrad>},
                 {split_k_plan<LowWgrad>(dev, dw, m, stages, 0.6), compute<LowWgrad>},
                 {split_k_plan<ThinWgrad>(dev, dw, m, stages, 0.4), compute<ThinWgrad>}},
    *best = options;
  for (auto &c : options)
    if (c.plan.cycles < best->plan.cycles) best = &c;
  best->run(dev, conv, pairs, x, dy, out, best->plan.slices);
}
