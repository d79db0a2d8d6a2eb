// Lesson 11, TMA. Idea: one thread asks the tensor memory accelerator for a whole tile: a box of a tensor, or pixels
// under a tap, with zeros for what is outside. An mbarrier says when all its bytes are there.
// Removes: addresses and copies in every thread, and the registers that hold them.
// Adds to the lesson before: tensor maps, which the host makes; a full barrier for each stage; K in steps of one tap.
// Limit: the next copy is asked for when all four warps have come to the same barrier, and they wait for it there.
#include "cuda/conv/hopper_wgmma.cuh"
#include "cuda/conv/lessons/lessons.h"

enum { TILE_M = 128, TILE_N = 128, TILE_K = 64, STAGES = 3, THREADS = WARPGROUP };
enum { A_BYTES = TILE_M * SWIZZLE_ROW, STAGE_BYTES = A_BYTES + TILE_N * SWIZZLE_ROW };
enum { SHARED_BYTES = STAGES * STAGE_BYTES + SWIZZLE_ATOM }; // stages begin at a multiple of SWIZZLE_ATOM

// Forward as a GEMM, with tensor maps of A, the im2col matrix of x, and of B, the filters.
struct TmaGemm {
  CUtensorMap a, b;
  DestArgs y;
  Conv conv;
  int m, filter_width, across, steps; // steps of K: TILE_K channels each, `across` under one tap
  bool dense;                         // A is x as it lies
  int tiles_n;
};
// C: 64 × 128 to a wgmma, sixteen rows to a warp. A lane has of rows lane / 4 and lane / 4 + 8, and of every eight
// columns, 2 · (lane % 4) and the next.
using Accumulators = float[TILE_M / WGMMA_M][TILE_N / 2];

static __device__ __forceinline__ Position position_of(const TmaGemm &p, int row) {
  int w = p.y.t.w, h = p.y.t.h;
  return {row / w / h, row / w % h, row % w};
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
#pragma unroll
    for (int i = 0; i < TILE_M / WGMMA_M; i++)
      wgmma<__nv_bfloat16, TILE_N, false>(acc[i], of_a + (i * WGMMA_M * SWIZZLE_ROW + k) / 16, of_b + k / 16, true);
  wgmma_commit();
}

static __device__ __forceinline__ void store(const TmaGemm &p, int row, int column, const Accumulators &acc) {
  int lane = threadIdx.x % 32;
  row += threadIdx.x / 32 * WGMMA_WARP_M + lane / 4 + lane % 2 * 8;
  column += lane / 2 % 2 * 8;
#pragma unroll
  for (int i = 0; i < TILE_M / WGMMA_M; i++, row += WGMMA_M)
#pragma unroll
    for (int j = 0; j < TILE_N; j += 16) {
      Eight v = quad_transpose(&acc[i][j / 2]);
      Position at = position_of(p, row);
      if (row < p.m && column + j < p.y.t.ldc) dest_store8<__nv_bfloat16>(p.y, at.n, at.i, at.j, column + j, v);
    }
}

static __global__ __launch_bounds__(THREADS, 2) void forward_kernel(const __grid_constant__ TmaGemm p) {
  if constexpr (HAS_WGMMA) {
    __shared__ uint64_t barriers[STAGES];
    uint32_t stages = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    uint32_t full = pinned_address(barriers);
    int row = blockIdx.x / p.tiles_n * TILE_M, column = blockIdx.x % p.tiles_n * TILE_N;
    auto copy = [&](int step) {
      int s = step % STAGES;
      if (threadIdx.x == 0 && step < p.steps) load(p, stages + s * STAGE_BYTES, full + s * 8, row, column, step);
    };
    for (int s = 0; s < STAGES && threadIdx.x == 0; s++) barrier_init(full + s * 8, 1);
    if (threadIdx.x == 0) barrier_init_fence();
    __syncthreads();
    Accumulators acc = {};
    for (int s = 0; s < STAGES - 1; s++) copy(s);
    for (int step = 0; step < p.steps; step++) {
      uint32_t stage = stages + step % STAGES * STAGE_BYTES;
      barrier_wait(full + step % STAGES * 8, step / STAGES % 2);
      __syncthreads(); // nothing still reads the stage before
      multiply(acc, stage, stage + A_BYTES);
      copy(step + STAGES - 1);
      wgmma_wait<0>();
    }
    store(p, row, column, acc);
  }
}

static void forward(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y) {
  for (int i = 0; i < pairs && !dev->measuring; i++) {
    const Tensor *t = &y[i].t;
    int m = (int)tensor_pixels(t), across = blocks_for(w->ldc, TILE_K), steps = w->h * w->w * across;
    int tiles_m = blocks_for(m, TILE_M), tiles_n = blocks_for(t->ldc, TILE_N);
    Im2col a = im2col_forward(conv, w, t);
    if (!m) continue;
    CUtensorMap map_a = map_im2col_rows(&x[i], &a, TILE_M), map_b = map_filters(w, TILE_K, TILE_N);
    bool dense = im2col_is_identity(&a, &x[i]);
    TmaGemm p = {map_a, map_b, dest_args(&y[i]), *conv, m, w->w, across, steps, dense, tiles_n};
    allow_shared(forward_kernel, SHARED_BYTES);
    forward_kernel<<<tiles_m * tiles_n, THREADS, SHARED_BYTES, stream_of(dev)>>>(p);
    LAUNCH_CHECK();
  }
}

static bool supports(Device *dev, ConvOp op, const Conv *conv, const Tensor *x, const Tensor *w) {
  return op == CONV_FORWARD && dev->wgmma && x->dtype == BF16 && map_im2col_fits(conv, w);
}

extern "C" const Rung lesson_tma = {"11_tma", supports, forward};
