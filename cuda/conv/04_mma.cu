// Rung 04, mma.sync: forward and dgrad as implicit GEMM. Idea: the tensor cores' own instructions, so that it is known
// which lane holds what, and shared memory, registers and addresses can be laid out for it.
// Removes: padding and bank conflicts in shared memory, the addresses in the mainloop, waiting at barriers.
// Adds to the rung before: warp tiles of 64 × 64 fed by ldmatrix from swizzled shared memory; stages of 128 bytes of K;
// fragments loaded one instruction ahead, across the barrier; a thread's addresses are one addition to each of its
// rows; split-K where rows are few, so that all multiprocessors read the filter.
// Limit: mma.sync itself, which reaches two thirds of what Hopper's wgmma does.
#include <math.h>
#include "cuda/conv/implicit_gemm.cuh"
#include "cuda/conv/ladder.h"
#include "cuda/conv/mma.cuh"
#include "cuda/conv/split_k.cuh"

enum { MAX_TAPS = 16 }; // of a filter, across and down: bits of a mask

// ---- loads of a stage: activations (A) and filter (B) ---------------------------------------------------------------

// How far a thread's k advances with every stage, split into channels and taps beforehand, so that no step of it
// divides or loops.
struct KStep {
  int c, y, x;
};
static KStep k_step_of(const Im2colView &view, int k) {
  int taps = k / view.in.ldc, across = MAX(view.im2col.x.taps, 1);
  return {k % view.in.ldc, taps / across, taps % across};
}

// The grouped GEMM with what depends on a stage's K.
struct MmaParams : GroupedGemm {
  KStep k_step[MAX_PROBLEMS];
  // Split-K of one problem, whose Dest is then a slice of the workspace, unless there is but one slice:
  int slice_k_tiles;
  size_t slice_stride; // elements
};
static_assert(sizeof(MmaParams) <= 4096, "a kernel's arguments");

__device__ __forceinline__ void k_advance_by(KCoord &k, const KStep &k_step, const Im2colView &view) {
  k.c += k_step.c;
  int carry = k.c >= view.in.ldc;
  k.c -= carry * view.in.ldc;
  k.x += k_step.x + carry;
  carry = k.x >= view.im2col.x.taps;
  k.x -= carry * view.im2col.x.taps;
  k.y += k_step.y + carry;
}
__device__ __forceinline__ KCoord k_coord_of(const Im2colView &view, int k) {
  int tap = k / view.in.ldc, across = max(view.im2col.x.taps, 1);
  return {k % view.in.ldc, tap / across, tap % across};
}

// Of the taps from `first` on along an axis of `size` pixels, those that lie inside the image: a bit for each.
__device__ __forceinline__ unsigned taps_inside(int first, int taps, int size) {
  int from = min(max(-first, 0), (int)MAX_TAPS), to = min(max(size - first, 0), taps);
  return (1u << to) - 1 & ~((1u << from) - 1);
}

// A, the activations: what a thread copies of a stage. It has one chunk of K under as many rows as there are passes;
// which taps of a row lie in the padding is a mask, made before the mainloop.
template <class Operand> struct ActivationIterator {
  const uint4 *data;
  int taps, pixel, image_row;       // taps down; chunks of a pixel and of a row of them
  int base[Operand::PASSES];        // chunk of the pixel under the first tap, which may lie in the padding
  unsigned inside[Operand::PASSES]; // the taps that lie in the image, those across in the upper half

  __device__ ActivationIterator(const Im2colView &view, int first)
      : data((const uint4 *)view.in.data), taps(view.im2col.y.taps), pixel(view.in.ldc / Operand::VECTOR),
        image_row(view.in.w * pixel) {
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++) {
      int row = first + Operand::row(i);
      Position at = position_of(view, row);
      int y = view.im2col.y.in + view.im2col.y.in_stride * at.i, x = view.im2col.x.in + view.im2col.x.in_stride * at.j;
      base[i] = (at.n * view.in.h + y) * image_row + x * pixel;
      inside[i] = taps_inside(y, taps, view.in.h) | taps_inside(x, view.im2col.x.taps, view.in.w) << MAX_TAPS;
      if (row >= view_rows(view)) inside[i] = 0;
    }
  }
  __device__ void load(uint32_t tile, const KCoord &k) const {
    int offset = k.y * image_row + k.x * pixel + k.c / Operand::VECTOR;
    bool in_k = k.y < taps;
    uint32_t to = Operand::thread_base(tile);
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++) {
      bool here = in_k & (inside[i] >> (k.y & MAX_TAPS - 1) & inside[i] >> (MAX_TAPS + k.x));
      cp_async16(Operand::pass_address(to, i, 0), data + (here ? (unsigned)(base[i] + offset) : 0u), here);
    }
  }
};

// B, the filter, forward: K-major, rows are filters `first` …, from `first_k` on.
template <class Operand> struct FilterIterator {
  const uint4 *data;
  unsigned at, per_pass; // chunk of the thread's first row; from pass to pass
  int k_left, left;      // chunks of K from the thread's on; rows from its first on

  __device__ FilterIterator(const Im2colView &, const Tensor &w, int first, int first_k) : data((const uint4 *)w.data) {
    int all = w.h * w.w * w.ldc / Operand::VECTOR, own = (first_k + Operand::contiguous()) / Operand::VECTOR;
    at = (first + Operand::row(0)) * all + own;
    per_pass = all * Operand::ROW_STEP;
    k_left = all - own;
    left = w.n - first - Operand::row(0);
  }
  __device__ void load(uint32_t tile, const Im2colView &, const KStep &, bool in_slice) {
    uint32_t to = Operand::thread_base(tile);
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++) {
      bool inside = in_slice & (k_left > 0) & (i * Operand::ROW_STEP < left);
      cp_async16(Operand::pass_address(to, i, 0), data + (inside ? at + i * per_pass : 0u), inside);
    }
    at += Operand::CHUNKS;
    k_left -= Operand::CHUNKS;
  }
};

// B in dgrad: MN-major, N being a filter's input channels, from `first` on. A thread's rows are k, from `first_k` on:
// output channels under one tap, no more than eight, a multiple of which every tap has.
template <class Operand> struct TransposedFilterIterator {
  const uint4 *data;
  int filters, left;               // chunks of input channels from the thread's first on
  int filter, origin, down, right; // chunks: to the next filter; to the phase's first tap and from there to the next
  KCoord own;

  __device__ TransposedFilterIterator(const Im2colView &view, const Tensor &w, int first, int first_k)
      : data((const uint4 *)w.data), own(k_coord_of(view, first_k + Operand::row(0))) {
    const Im2colAxis &y = view.im2col.y, &x = view.im2col.x;
    int tap = w.ldc / Operand::VECTOR, channel = (first + Operand::contiguous()) / Operand::VECTOR;
    left = tap - channel;
    filters = w.n;
    filter = w.h * w.w * tap;
    origin = (y.filter * w.w + x.filter) * tap + channel;
    down = y.filter_stride * w.w * tap;
    right = x.filter_stride * tap;
  }
  __device__ void load(uint32_t tile, const Im2colView &view, const KStep &k_step, bool in_slice) {
    uint32_t to = Operand::thread_base(tile);
    unsigned at = own.c * filter + origin + own.y * down + own.x * right;
    int k_left = in_slice & (own.y < view.im2col.y.taps) ? filters - own.c : 0; // from the first row on
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++)
#pragma unroll
      for (int j = 0; j < Operand::CHUNKS_PER_LANE; j++) {
        bool inside = (i < k_left) & (8 * j < left);
        cp_async16(Operand::pass_address(to, i, j), data + (inside ? at + i * filter + 8 * j : 0u), inside);
      }
    k_advance_by(own, k_step, view);
  }
};

// ---- kernel ---------------------------------------------------------------------------------------------------------

// What the epilogue needs of its Dest, in registers.
static __device__ __forceinline__ DestArgs dest_in_registers(const DestArgs &from) {
  DestArgs d = from;
  d.t.data = in_register(d.t.data);
  d.addend.data = in_register(d.addend.data);
  d.mask.data = in_register(d.mask.data);
  d.t.ldc = in_register(d.t.ldc);
  d.t.c = in_register(d.t.c);
  int flags = in_register(d.accumulate | d.relu << 1 | d.resized << 2);
  d.accumulate = flags & 1;
  d.relu = flags & 2;
  d.resized = flags & 4;
  return d;
}

// Epilogue: the tile through the problem's Dest, of type T, `slice` elements further on.
template <class T, class Tile>
__device__ __forceinline__ void problem_epilogue(const BlockTile &at, const MmaAccumulator<Tile> &acc, size_t slice) {
  struct EpilogueSource {
    int64_t offset;
    DestReads<T> reads;
  };
  const GemmProblem &problem = at.problem;
  DestArgs out = dest_in_registers(problem.out);
  out.t.data = (T *)out.t.data + slice;
  int column = at.column + mma_epilogue_column<Tile>(), rows = column < out.t.ldc ? view_rows(problem.view) : 0;
  bool dense = in_register((int)problem.dense);
  Eight bias = {};
  if (out.bias) bias = dest_bias8(out, column);
  auto amend = [&](int row, float *group) {
    if (!out.resized) return false;
    row += at.row;
    if (row >= rows) return true;
    Position p = problem_pixel(problem, row);
    Eight v = load8(group);
    add8(v, dest_resized8<T>(problem.out, p.n, p.i, p.j, column));
    store8(group, v);
    return true;
  };
  auto read = [&](int row) {
    row += at.row;
    EpilogueSource source;
    if (row < rows) {
      source.offset = (dense ? row : problem_pixel_index(problem, row)) * out.t.ldc + column;
      source.reads = dest_read8<T>(out, source.offset);
    }
    return source;
  };
  auto write = [&](int row, Eight v, const EpilogueSource &source) {
    row += at.row;
    if (row >= rows) return;
    add8(v, bias);
    dest_write8<T>(out, source.offset, column, v, source.reads);
  };
  mma_epilogue<8 / sizeof(T)>(acc, amend, read, write);
}

// All problems of a grouped GEMM, y [n, p, q, k] or, BACKWARD, dx [n, h, w, c]: M are pixels, N channels, K taps ·
// channels of the operand that the view reads. A threadblock for each tile of Shape::TILE_M × TILE_N, N fastest, so
// that blocks that read the same pixels run together and share them in L2; a warp tile for each warp, whose lanes also
// issue the cp.async of the stage after next. Tiles past a device-side count have nothing to do. SPLIT_K: of one
// problem, blockIdx.y is the slice of K, and results are floats.
template <class T, class Shape, bool BACKWARD, bool SPLIT_K>
__global__ __launch_bounds__(Shape::THREADS, Shape::BLOCKS) void mma_kernel(const __grid_constant__ MmaParams p) {
  using Tile = MmaTile<T, Shape, false, BACKWARD>;
  using Filter =
      std::conditional_t<BACKWARD, TransposedFilterIterator<typename Tile::B>, FilterIterator<typename Tile::B>>;
  BlockTile at = block_tile(p, Shape::TILE_M, Shape::TILE_N);
  const Im2colView &view = at.problem.view;
  const KStep &k_step = p.k_step[&at.problem - p.problem];
  int k_tiles = (view.im2col.y.taps * view.im2col.x.taps * view.in.ldc + Tile::TILE_K - 1) / Tile::TILE_K;
  int first_tile = SPLIT_K ? blockIdx.y * p.slice_k_tiles : 0, first_k = first_tile * Tile::TILE_K;
  if (SPLIT_K) k_tiles = min(k_tiles - first_tile, p.slice_k_tiles);
  if (at.row >= view_rows(view)) return;
  ActivationIterator<typename Tile::A> pixels(view, at.row);
  Filter filter(view, p.w, at.column, first_k);
  KCoord k = k_coord_of(view, first_k + Tile::A::contiguous());
  MmaAccumulator<Tile> acc;
  int left = k_tiles; // stages of the filter to load: what is past the slice would be read in vain
  auto load_pixels = [&](uint32_t stage) {
    pixels.load(stage, k);
    k_advance_by(k, k_step, view);
  };
  auto load_filter = [&](uint32_t stage) { filter.load(stage + Tile::A::BYTES, view, k_step, !SPLIT_K || left-- > 0); };
  mma_mainloop(acc, k_tiles, load_pixels, load_filter);
  using Result = std::conditional_t<SPLIT_K, float, T>;
  problem_epilogue<Result>(at, acc, SPLIT_K ? blockIdx.y * p.slice_stride : 0);
}

// ---- the heuristic: threadblock tile and split-K --------------------------------------------------------------------

// TILE_M, TILE_N, warps along M and N, threadblocks for which a multiprocessor (SM) has registers
using Large = MmaShape<128, 256, 2, 4, 1>;
using Square = MmaShape<128, 128, 2, 2, 2>;
using Thin = MmaShape<128, 32, 4, 1, 3>;
using Small = MmaShape<64, 64, 2, 2, 3>;
using Low = MmaShape<64, 128, 1, 4, 3>; // for few rows

// Time of the busiest SM, in units of a product on the tensor cores: whole waves of blocks. `speed`: the share of
// Large's rate that a shape reaches where there is work enough.
template <class Tile> static double estimate(const Device *dev, const GroupedGemm &p, double speed) {
  int multiprocessors;
  CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, dev->index));
  int blocks = grouped_tiles(p, Tile::TILE_M) * blocks_for(p.problem[0].out.t.ldc, Tile::TILE_N);
  double time = blocks_for(blocks, multiprocessors) * (double)(Tile::TILE_M * Tile::TILE_N) / speed;
  return mma_fits<Tile>(dev) ? time : INFINITY;
}

static int k_tiles_of(const GroupedGemm &p, int tile_k) {
  return MAX(1, blocks_for(view_columns(p.problem[0].view), tile_k));
}

// Into how many slices to split K where rows are few, by the cycles that it takes: whatever the slices, the filter is
// read once; the busiest SM has its blocks' products, each with a prologue and an epilogue; a block waits for memory
// with all stages but one under way; slices are written, read again and added by a second launch. By the filter alone,
// as of one tile of rows, so that a row's bits do not depend on how many there are, up to FEW_ROWS.
static int few_rows_slices(const GroupedGemm &p, int k_tiles) {
  enum { MOST_SLICES = 32, OVERHEAD = 2, SECOND_LAUNCH = 3000, LATENCY = 2200 }; // OVERHEAD in stages, others in cycles
  const double stage = Low::TILE_M * Low::TILE_N / (MMA_STAGE_MACS * 0.7);       // its share of Large's rate
  const double read = (double)tensor_bytes(&p.w) / MMA_BYTES_A_CYCLE;
  const int columns = p.problem[0].out.t.ldc, tiles = blocks_for(columns, Low::TILE_N);
  const double slice = 2. * sizeof(float) * Low::TILE_M * columns / MMA_BYTES_A_CYCLE;
  double least = INFINITY;
  int best = 1;
  for (int slices = 1; slices <= MIN(k_tiles, (int)MOST_SLICES); slices++) {
    int blocks = blocks_for((size_t)tiles * slices, MMA_MULTIPROCESSORS);
    int each = blocks_for(k_tiles, slices) + OVERHEAD;
    double cycles = MAX(read, MAX(blocks * each * stage, each * (double)LATENCY / (MMA_STAGES - 1)));
    if (slices > 1) cycles += SECOND_LAUNCH + slices * slice;
    if (cycles < least) {
      least = cycles;
      best = slices;
    }
  }
  return best;
}

// ---- launchers ------------------------------------------------------------------------------------------------------

template <class T, class Shape, bool BACKWARD> static void launch_tiles(Device *dev, const GroupedGemm &group) {
  using Tile = MmaTile<T, Shape, false, BACKWARD>;
  MmaParams p = {group};
  grouped_schedule(&p, Shape::TILE_M, Shape::TILE_N);
  for (int i = 0; i < p.problems; i++) p.k_step[i] = k_step_of(p.problem[i].view, Tile::TILE_K);
  auto kernel = mma_kernel<T, Shape, BACKWARD, false>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::BYTES));
  kernel<<<p.tiles_m * p.tiles_n, Shape::THREADS, Tile::BYTES, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}

// One problem by split-K: each slice is a matrix [rows, N] of floats in the workspace; a single one is the result.
template <class T, class Shape, bool BACKWARD> static void launch_split_k(Device *dev, const GroupedGemm &group) {
  using Tile = MmaTile<T, Shape, false, BACKWARD>;
  MmaParams p = {group};
  GemmProblem &problem = p.problem[0];
  const int rows = view_capacity(problem.view), columns = problem.out.t.ldc;
  const int k_tiles = k_tiles_of(p, Tile::TILE_K);
  p.slice_k_tiles = blocks_for(k_tiles, few_rows_slices(p, k_tiles));
  const int slices = blocks_for(k_tiles, p.slice_k_tiles);
  SplitKWorkspace workspace = {NULL, slices, columns, (size_t)rows * columns, false};
  if (slices > 1 || sizeof(T) < sizeof(float)) {
    workspace.data = (float *)device_workspace(dev, split_k_bytes(workspace));
    p.slice_stride = workspace.stride;
    problem.out = {};
    problem.out.t = tensor(F32, rows, 1, 1, columns);
    problem.out.t.data = workspace.data;
    problem.dense = true;
  }
  if (dev->measuring) return;
  grouped_schedule(&p, Shape::TILE_M, Shape::TILE_N);
  p.k_step[0] = k_step_of(problem.view, Tile::TILE_K);
  auto kernel = mma_kernel<T, Shape, BACKWARD, true>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::BYTES));
  kernel<<<dim3(p.tiles_m * p.tiles_n, slices), Shape::THREADS, Tile::BYTES, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
  if (problem.out.t.data == workspace.data) split_k_reduce_to_dest(dev, workspace, group.problem[0]);
}

struct TileOption {
  double time;
  void (*launch)(Device *, const GroupedGemm &);
};
template <class T, class Shape, bool BACKWARD>
static TileOption tile_option(const Device *dev, const GroupedGemm &p, double speed) {
  return {estimate<MmaTile<T, Shape, false, BACKWARD>>(dev, p, speed), launch_tiles<T, Shape, BACKWARD>};
}

template <class T, bool BACKWARD> static void launch(Device *dev, const GroupedGemm &p) {
  if constexpr (std::is_same_v<T, float> || !BACKWARD) {
    const Im2colView &view = p.problem[0].view;
    // Dense layers alone, a row an image. Of maps of several pixels a few images more would be too many rows, as would
    // RoIs (rung 05's few_dense_rows), and change the bits of the other rows.
    bool dense = p.problems == 1 && view.area.by == 1 && !view.in.count;
    int rows = dense ? view_capacity(view) : INT_MAX;
    if (rows <= Low::TILE_M) return launch_split_k<T, Low, BACKWARD>(dev, p);
    if (rows <= FEW_ROWS) return launch_split_k<T, Square, BACKWARD>(dev, p);
  }
  if (dev->measuring) return;
  const TileOption options[] = {
      tile_option<T, Large, BACKWARD>(dev, p, 1), tile_option<T, Square, BACKWARD>(dev, p, 0.97),
      tile_option<T, Thin, BACKWARD>(dev, p, 0.5), tile_option<T, Small, BACKWARD>(dev, p, 0.6)};
  const TileOption *best = options;
  for (const TileOption &c : options)
    if (c.time < best->time) best = &c;
  best->launch(dev, p);
}

template <bool BACKWARD>
static void compute(Device *dev, const Conv *conv, int pairs, const Tensor *in, const Tensor *w, const Dest *out) {
  for_each_group(conv, pairs, in, w, out, BACKWARD,
                 [&](GroupedGemm &p) { WITH_TYPE(w->dtype, T, { launch<T, BACKWARD>(dev, p); }); });
}

// TF32 is a loss of precision that has to be asked for. A filter's taps have to fit a row's mask.
static bool supports(Device *dev, ConvOp op, const Conv *, const Tensor *in, const Tensor *w) {
  bool few = op == CONV_WGRAD || (w->h <= MAX_TAPS && w->w <= MAX_TAPS);
  return few && (in->dtype != F32 || dev->tf32);
}

extern "C" const Rung rung_mma = {"mma", supports, compute<false>, compute<true>, mma_wgrad,
                                  true,  NULL,     NULL,           NULL,          NULL,
                                  NULL,  false,    NULL,           NULL,          mma_dense_squares};
