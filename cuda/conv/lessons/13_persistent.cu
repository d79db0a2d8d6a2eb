// Lesson 13, persistent blocks. Idea: as many blocks as multiprocessors, each of which computes tile after tile: while
// the consumers store one, the producer fills the stages for the next.
// Removes: a start for every tile, and the wait for its first loads.
// Adds to the lesson before: a static scheduler. Tiles come in bands of a few columns, so that those that are computed
// at the same time find each other's operands in L2.
// Limit: what L2 delivers: each block asks for all of its A and its B.
#include "cuda/conv/hopper_wgmma.cuh"
#include "cuda/conv/lessons/lessons.h"

enum { TILE_M = 128, TILE_N = 256, TILE_K = 64, STAGES = 4, CONSUMERS = 2, THREADS = (CONSUMERS + 1) * WARPGROUP };
enum { A_BYTES = TILE_M * SWIZZLE_ROW, STAGE_BYTES = A_BYTES + TILE_N * SWIZZLE_ROW };
enum { SHARED_BYTES = STAGES * STAGE_BYTES + SWIZZLE_ATOM }; // stages begin at a multiple of SWIZZLE_ATOM
enum { MAX_BAND = 8 };                                       // columns of tiles

// Forward as a GEMM, with tensor maps of A, the im2col matrix of x, and of B, the filters.
struct TmaGemm {
  CUtensorMap a, b;
  DestArgs y;
  Conv conv;
  int m, filter_width, across, steps; // steps of K: TILE_K channels each, `across` under one tap
  bool dense;                         // A is x as it lies
  int tiles_m, tiles, band;           // band: columns of tiles
};
// C: 64 × 256 to a warpgroup, sixteen rows to a warp. A lane has of rows lane / 4 and lane / 4 + 8, and of every eight
// columns, 2 · (lane % 4) and the next.
using Accumulators = float[TILE_N / 2];

static __device__ __forceinline__ Position position_of(const TmaGemm &p, int row) {
  int w = p.y.t.w, h = p.y.t.h;
  return {row / w / h, row / w % h, row % w};
}

// Tile i: bands of columns, one after the other, each row by row.
struct Tile {
  int row, column;
};
static __device__ __forceinline__ Tile tile_at(const TmaGemm &p, int i) {
  int before = i / (p.band * p.tiles_m) * p.band; // columns of tiles, of the bands before
  return {i / p.band % p.tiles_m * TILE_M, (before + i % p.band) * TILE_N};
}

// By one thread: a step of A and B into a stage.
static __device__ __forceinline__ void load(const TmaGemm &p, uint32_t stage, uint32_t full, int row, int column,
                                            int step) {
  int tap = step / p.across, c = step % p.across * TILE_K, s = p.filter_width;
  Position at = position_of(p, row);
  int i = at.i * p.conv.stride - p.conv.pad, j = at.j * p.conv.stride - p.conv.pad;
  barrier_expect(full, STAGE_BYTES);
  if (p.dense)
    tma_load(stage, &p.a, full, c, 0, row, 0);
  else
    tma_load_im2col(stage, &p.a, full, c, j, i, at.n, tap % s, tap / s);
  tma_load(stage + A_BYTES, &p.b, full, c, tap, column, 0);
}

static __device__ __forceinline__ void multiply(Accumulators &acc, uint32_t a, uint32_t b) {
  uint64_t of_a = matrix_descriptor(a), of_b = matrix_descriptor(b);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < TILE_K * 2; k += WGMMA_K * 2) // bytes
    wgmma<__nv_bfloat16, TILE_N, false>(acc, of_a + k / 16, of_b + k / 16, true);
  wgmma_commit();
}

static __device__ __forceinline__ void store(const TmaGemm &p, int row, int column, const Accumulators &acc) {
  int lane = threadIdx.x % 32;
  row += threadIdx.x / 32 * WGMMA_WARP_M + lane / 4 + lane % 2 * 8;
  column += lane / 2 % 2 * 8;
  Position at = position_of(p, row);
#pragma unroll
  for (int j = 0; j < TILE_N; j += 16) {
    Eight v = quad_transpose(&acc[j / 2]);
    if (row < p.m && column + j < p.y.t.ldc) dest_store8<__nv_bfloat16>(p.y, at.n, at.i, at.j, column + j, v, {});
  }
}

static __global__ __launch_bounds__(THREADS, 1) void forward_kernel(const __grid_constant__ TmaGemm p) {
  if constexpr (HAS_WGMMA) {
    __shared__ PipelineBarriers<STAGES> barriers;
    uint32_t stages = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    int warpgroup = uniform(threadIdx.x / WARPGROUP), thread = threadIdx.x % WARPGROUP;
    if (threadIdx.x == 0) pipeline_init(barriers, 1, CONSUMERS);
    __syncthreads();
    PipelineState<STAGES> pipe(barriers);
    if (warpgroup == CONSUMERS) {
      registers_dealloc<40>();
      if (thread) return;
      for (int i = blockIdx.x; i < p.tiles; i += gridDim.x) {
        Tile tile = tile_at(p, i);
        for (int step = 0; step < p.steps; step++, pipe.advance()) {
          pipe.wait_empty();
          load(p, stages + pipe.stage * STAGE_BYTES, pipe.full, tile.row, tile.column, step);
        }
      }
    } else {
      registers_alloc<232>();
      for (int i = blockIdx.x; i < p.tiles; i += gridDim.x) {
        Tile tile = tile_at(p, i);
        Accumulators acc = {};
        for (int step = 0; step < p.steps; step++, pipe.advance()) {
          uint32_t stage = stages + pipe.stage * STAGE_BYTES;
          pipe.wait_full();
          multiply(acc, stage + warpgroup * WGMMA_M * SWIZZLE_ROW, stage + A_BYTES);
          wgmma_wait<0>();
          if (thread == 0) barrier_arrive_at(pipe.empty);
        }
        store(p, tile.row, tile.column, acc);
      }
    }
  }
}

static void forward(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y) {
  for (int i = 0; i < pairs && !dev->measuring; i++) {
    const Tensor *t = &y[i].t;
    int m = (int)tensor_pixels(t), across = blocks_for(w->ldc, TILE_K), steps = w->h * w->w * across;
    int tiles_m = blocks_for(m, TILE_M), tiles_n = blocks_for(t->ldc, TILE_N);
    int band = MIN(tiles_n, MAX_BAND), tiles = tiles_m * tiles_n;
    while (tiles_n % band) band--;
    Im2col a = im2col_forward(conv, w, t);
    if (!m) continue;
    CUtensorMap map_a = map_im2col_rows(&x[i], &a, TILE_M), map_b = map_filters(w, TILE_K, TILE_N);
    bool dense = im2col_is_identity(&a, &x[i]);
    TmaGemm p = {map_a, map_b, dest_args(&y[i]), *conv, m, w->w, across, steps, dense, tiles_m, tiles, band};
    allow_shared(forward_kernel, SHARED_BYTES);
    forward_kernel<<<MIN(tiles, dev->granted), THREADS, SHARED_BYTES, stream_of(dev)>>>(p);
    LAUNCH_CHECK();
  }
}

static bool supports(Device *dev, ConvOp op, const Conv *conv, const Tensor *x, const Tensor *w) {
  return op == CONV_FORWARD && dev->wgmma && x->dtype == BF16 && map_im2col_fits(conv, w);
}

extern "C" const Rung lesson_persistent = {"13_persistent", supports, forward};
