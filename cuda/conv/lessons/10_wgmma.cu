// Lesson 10, wgmma. Idea: the tensor cores read both operands from shared memory by themselves. A warpgroup, four
// warps, asks for 64 × 128 × 16 products with one instruction, and goes on while they are computed.
// Removes: ldmatrix, and fragments in registers.
// Adds to the lesson before: matrix descriptors, which say where a swizzled tile lies; a fence between copies and the
// tensor cores, which read through the async proxy. Copies are asked for while products run.
// Limit: the same threads compute an address for every 16 bytes that are copied.
#include "cuda/conv/hopper_wgmma.cuh"
#include "cuda/conv/lessons/lesson.cuh"

enum { TILE_M = 128, TILE_N = 128, TILE_K = 64, STAGES = 3, THREADS = WARPGROUP };
enum { VECTORS = TILE_K / 8, PITCH = SWIZZLE_ROW };                              // of a row; bytes
enum { PASSES = TILE_M * VECTORS / THREADS, ROWS_PER_PASS = THREADS / VECTORS }; // of the loads of a tile
enum { A_BYTES = TILE_M * PITCH, STAGE_BYTES = A_BYTES + TILE_N * PITCH };
enum { SHARED_BYTES = STAGES * STAGE_BYTES + SWIZZLE_ATOM }; // stages begin at a multiple of SWIZZLE_ATOM

// C: 64 × 128 to a wgmma, sixteen rows to a warp. A lane has of rows lane / 4 and lane / 4 + 8, and of every eight
// columns, 2 · (lane % 4) and the next.
using Accumulators = float[TILE_M / WGMMA_M][TILE_N / 2];

// Where a vector of a row lies in a tile.
static __device__ __forceinline__ uint32_t swizzled(int row, int v) { return row * PITCH + (v ^ row % 8) * 16; }

static __device__ __forceinline__ void multiply(Accumulators &acc, uint32_t a, uint32_t b) {
  uint64_t of_a = matrix_descriptor(a), of_b = matrix_descriptor(b);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < TILE_K * 2; k += WGMMA_K * 2) // bytes
#pragma unroll
    for (int i = 0; i < TILE_M / WGMMA_M; i++)
      wgmma<bf16, TILE_N, false>(acc[i], of_a + (i * WGMMA_M * PITCH + k) / 16, of_b + k / 16, true);
  wgmma_commit();
}

static __device__ __forceinline__ void store(const LessonGemm &g, int row, int column, const Accumulators &acc) {
  int lane = threadIdx.x % 32;
  row += threadIdx.x / 32 * WGMMA_WARP_M + lane / 4 + lane % 2 * 8;
  column += lane / 2 % 2 * 8;
#pragma unroll
  for (int i = 0; i < TILE_M / WGMMA_M; i++)
#pragma unroll
    for (int j = 0; j < TILE_N; j += 16) c_store<8>(g, row + i * WGMMA_M, column + j, quad_transpose(&acc[i][j / 2]).v);
}

static __global__ __launch_bounds__(THREADS, 2) void forward_kernel(const __grid_constant__ LessonGemm g) {
  if constexpr (HAS_WGMMA) {
    uint32_t stages = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    int tiles_n = (g.n + TILE_N - 1) / TILE_N, row = blockIdx.x / tiles_n * TILE_M,
        column = blockIdx.x % tiles_n * TILE_N;
    int tx = threadIdx.x % VECTORS, ty = threadIdx.x / VECTORS;
    RowOfA rows[PASSES];
    for (int i = 0; i < PASSES; i++) rows[i] = row_of_a(g, row + i * ROWS_PER_PASS + ty);
    auto copy = [&](uint32_t stage, int k) {
      for (int i = 0; i < PASSES; i++) {
        int at = i * ROWS_PER_PASS + ty;
        const bf16 *from_a = a_at(g, rows[i], k + tx * 8), *from_b = b_at(g, k + tx * 8, column + at);
        cp_async16(stage + swizzled(at, tx), from_a ? from_a : g.x.data, from_a);
        cp_async16(stage + A_BYTES + swizzled(at, tx), from_b ? from_b : g.w.data, from_b);
      }
      cp_async_commit();
    };
    Accumulators acc = {};
    for (int s = 0; s < STAGES - 1; s++) copy(stages + s * STAGE_BYTES, s * TILE_K);
    for (int step = 0; step * TILE_K < g.k; step++) {
      uint32_t stage = stages + step % STAGES * STAGE_BYTES, next = stages + (step + STAGES - 1) % STAGES * STAGE_BYTES;
      cp_async_wait<STAGES - 2>();
      shared_write_fence();
      __syncthreads(); // the stage has arrived for every thread, and nothing still reads the one before
      multiply(acc, stage, stage + A_BYTES);
      copy(next, (step + STAGES - 1) * TILE_K); // past the end of K: zeros
      wgmma_wait<0>();
    }
    store(g, row, column, acc);
  }
}

static void forward(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y) {
  allow_shared(forward_kernel, SHARED_BYTES);
  for (int i = 0; i < pairs && !dev->measuring; i++) {
    LessonGemm g = lesson_gemm(conv, &x[i], w, &y[i]);
    int blocks = blocks_for(g.m, TILE_M) * blocks_for(g.n, TILE_N);
    if (blocks) forward_kernel<<<blocks, THREADS, SHARED_BYTES, stream_of(dev)>>>(g);
    LAUNCH_CHECK();
  }
}

static bool supports(Device *dev, ConvOp op, const Conv *conv, const Tensor *x, const Tensor *w) {
  return dev->wgmma && lesson_supports(dev, op, conv, x, w);
}

extern "C" const Rung lesson_wgmma = {"10_wgmma", supports, forward};
