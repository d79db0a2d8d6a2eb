// Rung 04, mma.sync: wgrad, the GEMM dyᵀ · im2col(x), split along K, the pixels, as in rung 03: a block multiplies one
// threadblock tile over one slice, and the slices are added in order by a second kernel; where there is one slice, the
// epilogue writes dw itself. Both operands are MN-major, a row of channels for each pixel, which ldmatrix transposes;
// floats are read by loads of four or eight bytes instead.
#include <limits.h>
#include <math.h>
#include "cuda/conv/bias_shadow.cuh"
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

// B, im2col(x): each of a thread's chunks is under a tap of its own; of a pixel's every SPREAD-th is in N.
template <class Operand, int SPREAD> struct Im2colIterator {
  const Im2colView &view;
  int offset[Operand::CHUNKS_PER_LANE], y[Operand::CHUNKS_PER_LANE],
      x[Operand::CHUNKS_PER_LANE]; // of the tap: in chunks; where it is
  int pixel;

  __device__ Im2colIterator(const Im2colView &view, int column) : view(view), pixel(view.in.ldc / Operand::VECTOR) {
#pragma unroll
    for (int j = 0; j < Operand::CHUNKS_PER_LANE; j++) {
      int own = (column + Operand::contiguous()) / Operand::VECTOR + 8 * j, chunks = pixel / SPREAD, tap = own / chunks;
      y[j] = tap / view.im2col.x.taps;
      x[j] = tap % view.im2col.x.taps;
      offset[j] = (y[j] * view.in.w + x[j]) * pixel + own % chunks;
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

// Epilogue: the accumulators of a slice go to the workspace as they are, those of an unsplit GEMM to dw itself.
// Straight from registers: four lanes have eight neighbouring floats, a whole sector of 32 bytes.
template <class Tile>
__device__ __forceinline__ void wgrad_epilogue(const WgradGemm &p, const MmaAccumulator<Tile> &acc, int slice, int row,
                                               int column) {
  constexpr int PAIRS = 2 * Tile::FRAGMENTS_N; // of columns, of a lane in a row
  static_assert(PAIRS <= 16, "a bit of `padding` for each column");
  const Tensor &dw = p.out.dw;
  const bool last = p.single_slice;
  int lane = threadIdx.x % 32, rows = last ? dw.n : INT_MAX;
  row += Tile::warp_m();
  column += Tile::warp_n() + lane % 4 * 2;
  int left = p.workspace.pitch - column;
  unsigned padding = 0; // of the lane's columns, the even ones in the lower half
  if (last && dw.c < dw.ldc)
#pragma unroll 1
    for (int j = 0; j < PAIRS; j++) {
      int c = (column + j * 8) % dw.ldc;
      padding |= (c >= dw.c) << j | (c + 1 >= dw.c) << (16 + j);
    }
#pragma unroll
  for (int i = 0; i < Tile::FRAGMENTS_M; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int m = row + Tile::A::fragment_mn(i, half * 8 + lane / 4);
      if (m >= rows) continue;
      float factor = last && p.out.scale ? ((const float *)p.out.scale)[m] : 1.f;
      float2 *to = (float2 *)(p.workspace.data + slice * p.workspace.stride + (size_t)m * p.workspace.pitch + column);
#pragma unroll
      for (int j = 0; j < PAIRS; j++) {
        if (j * 8 >= left) continue;
        const float *v = &acc.fragment[i][j][2 * half];
        float2 before = last && p.out.accumulate ? to[j * 4] : make_float2(0.f, 0.f);
        to[j * 4] = make_float2(padding >> j & 1 ? 0.f : before.x + factor * v[0],
                                padding >> (16 + j) & 1 ? 0.f : before.y + factor * v[1]);
      }
    }
}

// dyᵀ · im2col(x) over the pixels of one slice: M output channels, N taps · channels of x. Grid (threadblock tiles of
// Shape::TILE_M × TILE_N, N fastest; slices), a warp tile for each warp. Slices go to the workspace [slices, M, N]; a
// single one goes to dw [k, r, s, c], scaled and accumulated.
template <class T, class Shape, int SPREAD>
__global__ __launch_bounds__(Shape::THREADS, Shape::BLOCKS) void mma_wgrad_kernel(const __grid_constant__ WgradGemm p) {
  using Tile = MmaTile<T, Shape, true, true>;
  int slice = blockIdx.y, row = blockIdx.x / p.tiles_n * Shape::TILE_M, column = blockIdx.x % p.tiles_n * Shape::TILE_N;
  const WgradOperands &operands = wgrad_operands(p, slice);
  int first = (slice - operands.first_slice) * p.slice_k, end = min(first + p.slice_k, view_rows(operands.x));
  GradientIterator<typename Tile::A> dy_tiles(operands.dy, p.m, first, row);
  Im2colIterator<typename Tile::B, SPREAD> x_tiles(operands.x, column);
  MmaAccumulator<Tile> acc;
  int k_tiles = max(end - first + Tile::TILE_K - 1, 0) / Tile::TILE_K; // none past the count: the slice is zeros
  auto load_dy = [&](uint32_t stage) { dy_tiles.load(stage, first + Tile::A::row(0), end); };
  auto load_x = [&](uint32_t stage) {
    x_tiles.load(stage + Tile::A::BYTES, first + Tile::B::row(0), end);
    first += Tile::TILE_K;
  };
  mma_mainloop(acc, k_tiles, load_dy, load_x);
  wgrad_epilogue(p, acc, slice, row, column);
}

// ---- the heuristic: threadblock tile and split-K --------------------------------------------------------------------

// TILE_M, TILE_N, warps along M and N, threadblocks for which a multiprocessor (SM) has registers
using LargeWgrad = MmaShape<128, 256, 2, 4, 1>;
using SquareWgrad = MmaShape<128, 128, 2, 2, 2>;
using LowWgrad = MmaShape<64, 128, 1, 4, 2>;
using ThinWgrad = MmaShape<32, 128, 1, 4, 3>;

enum {
  STAGE_OVERHEAD = 5, // prologue and epilogue, in stages
  FEW_STAGES = 4,     // dw takes about as long to write
  MAX_SLICES = 256,
};

struct SplitKPlan {
  double cycles; // estimated
  int slices;
};
// `speed`: the share of LargeWgrad's rate that a shape reaches where there is work enough.
template <class Shape> static SplitKPlan split_k_plan(const Device *dev, int m, int n, double stages, double speed) {
  int tiles = blocks_for(m, Shape::TILE_M) * blocks_for(n, Shape::TILE_N);
  double stage = Shape::TILE_M * Shape::TILE_N / (MMA_STAGE_MACS * speed),
         slice = 2. * sizeof(float) * m * n / MMA_BYTES_A_CYCLE;
  SplitKPlan best = {INFINITY, 1};
  if (!mma_fits<MmaTile<float, Shape, true, true>>(dev)) return best; // as large in any type
  for (int slices = 1; slices <= MIN(MAX_SLICES, MAX(1, (int)stages)); slices++) {
    double cycles =
        blocks_for((size_t)tiles * slices, MMA_MULTIPROCESSORS) * (stages / slices + STAGE_OVERHEAD) * stage;
    cycles += slices > 1 ? slices * slice : slice / 2; // written and read again; written
    if (cycles < best.cycles) best = {cycles, slices};
  }
  return best;
}

// ---- launchers ------------------------------------------------------------------------------------------------------

template <class T, class Shape, int SPREAD> static void launch(Device *dev, const WgradGemm &p) {
  using Tile = MmaTile<T, Shape, true, true>;
  auto kernel = mma_wgrad_kernel<T, Shape, SPREAD>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::BYTES));
  kernel<<<dim3(p.tiles_m * p.tiles_n, p.workspace.slices), Shape::THREADS, Tile::BYTES, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}

// Images of floats: of a pixel's two chunks the second is padding, and is left out of N.
static bool half_taps(const Tensor *x, const Tensor *dw) { return x->dtype == F32 && dw->c <= 4 && dw->ldc == 8; }

template <class Shape>
static void compute(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out,
                    int slices) {
  const bool half = half_taps(x, &out->dw);
  WgradGemm p = wgrad_gemm(conv, pairs, x, dy, out, Shape::TILE_M, Shape::TILE_N, slices, half);
  p.out = *out;
  p.single_slice = p.workspace.slices == 1 && !half;
  if (p.single_slice)
    p.workspace = {(float *)out->dw.data, 1, p.out.dw.h * p.out.dw.w * p.out.dw.ldc, 0, false};
  else
    p.workspace.data = (float *)device_workspace(dev, split_k_bytes(p.workspace));
  if (dev->measuring) return;
  if (half)
    launch<float, Shape, 2>(dev, p);
  else
    WITH_TYPE(x->dtype, T, { launch<T, Shape, 1>(dev, p); });
  if (!p.single_slice) split_k_reduce(dev, p.workspace, out);
}

void mma_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  const Tensor *dw = &out->dw;
  if (pairs == 1 && mma_dense_fits(conv, x, dw)) return mma_dense_wgrad(dev, x, dy, out);
  if (out->db) column_sums(dev, pairs, dy, (float *)out->db, out->accumulate);
  int m = dy->ldc, n = dw->h * dw->w * dw->ldc / (half_taps(x, dw) ? 2 : 1);
  double stages = (double)wgrad_gemm_k(pairs, dy) * dtype_size(x->dtype) / 128;
  // Few pixels, as in dense layers: two blocks on an SM, so that one loads and multiplies while the other writes.
  int squares = blocks_for(m, SquareWgrad::TILE_M) * blocks_for(n, SquareWgrad::TILE_N);
  if (stages <= FEW_STAGES && squares >= MMA_MULTIPROCESSORS && mma_fits<MmaTile<float, SquareWgrad, true, true>>(dev))
    return compute<SquareWgrad>(dev, conv, pairs, x, dy, out, 1);
  struct {
    SplitKPlan plan;
    decltype(compute<LargeWgrad>) *run;
  } options[] = {{split_k_plan<LargeWgrad>(dev, m, n, stages, 1.0), compute<LargeWgrad>},
                 {split_k_plan<SquareWgrad>(dev, m, n, stages, 0.92), compute<SquareWgrad>},
                 {split_k_plan<LowWgrad>(dev, m, n, stages, 0.6), compute<LowWgrad>},
                 {split_k_plan<ThinWgrad>(dev, m, n, stages, 0.4), compute<ThinWgrad>}},
    *best = options;
  for (auto &c : options)
    if (c.plan.cycles < best->plan.cycles) best = &c;
  best->run(dev, conv, pairs, x, dy, out, best->plan.slices);
}
