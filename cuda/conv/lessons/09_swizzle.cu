// Lesson 09, swizzle. Idea: rows of 128 bytes, all 32 banks, without padding. Vector v of row r lies at v ^ (r % 8), so
// that vectors v of eight rows lie in different banks, as the eight of one row do.
// Removes: the padding, and half of the barriers.
// Adds to the lesson before: steps of 64 of K; a third stage, so that two are on their way while one is multiplied.
// Limit: mma.sync itself, which has every operand pass through registers, and reaches two thirds of what wgmma does.
#include "cuda/conv/lessons/lesson.cuh"
#include "cuda/conv/ptx.cuh"

enum { TILE_M = 128, TILE_N = 128, TILE_K = 64, STAGES = 3, THREADS = 256, WARPS_N = 4 };
enum { VECTORS = TILE_K / 8, PITCH = VECTORS * 16 };                             // of a row; bytes
enum { PASSES = TILE_M * VECTORS / THREADS, ROWS_PER_PASS = THREADS / VECTORS }; // of the loads of a tile
enum { A_BYTES = TILE_M * PITCH, STAGE_BYTES = A_BYTES + TILE_N * PITCH, SHARED_BYTES = STAGES * STAGE_BYTES };

enum { FRAGMENT = 16, WARP_M = TILE_M * WARPS_N * 32 / THREADS, WARP_N = TILE_N / WARPS_N };

// A warp's part of C: WARP_M × WARP_N in results of mma.sync, of which a lane has of rows lane / 4 and lane / 4 + 8
// columns 2 · (lane % 4) and the next.
struct WarpTile {
  float acc[WARP_M / FRAGMENT][WARP_N / 8][4];
};
static __device__ __forceinline__ int warp_m() { return threadIdx.x / 32 / WARPS_N * WARP_M; }
static __device__ __forceinline__ int warp_n() { return threadIdx.x / 32 % WARPS_N * WARP_N; }
// Where a vector of a row lies in a tile.
static __device__ __forceinline__ uint32_t swizzled(int row, int v) { return row * PITCH + (v ^ row % 8) * 16; }

static __device__ __forceinline__ void multiply(WarpTile &t, uint32_t a, uint32_t b) {
  int lane = threadIdx.x % 32, row = lane % 16, column = lane / 16 * 8 + lane % 8;
#pragma unroll
  for (int v = 0; v < VECTORS; v += FRAGMENT / 8) {
    Fragment af[WARP_M / FRAGMENT], bf[WARP_N / FRAGMENT];
    for (int i = 0; i < WARP_M / FRAGMENT; i++)
      af[i] = ldmatrix_x4<false>(a + swizzled(warp_m() + i * FRAGMENT + row, v + lane / 16));
    for (int j = 0; j < WARP_N / FRAGMENT; j++)
      bf[j] = ldmatrix_x4<false>(b + swizzled(warp_n() + j * FRAGMENT + column, v + lane / 8 % 2));
    for (int i = 0; i < WARP_M / FRAGMENT; i++)
      for (int j = 0; j < WARP_N / 8; j++) mma_sync<bf16>(t.acc[i][j], af[i], bf[j / 2], j % 2);
  }
}

// Of 16 × 16 results, four lanes that share rows have eight neighbours each after quad_transpose.
static __device__ __forceinline__ void store(const LessonGemm &g, int row, int column, const WarpTile &t) {
  int lane = threadIdx.x % 32;
  row += warp_m() + lane / 4 + lane % 2 * 8;
  column += warp_n() + lane / 2 % 2 * 8;
#pragma unroll
  for (int i = 0; i < WARP_M / FRAGMENT; i++)
#pragma unroll
    for (int j = 0; j < WARP_N / FRAGMENT; j++)
      c_store<8>(g, row + i * FRAGMENT, column + j * FRAGMENT, quad_transpose(t.acc[i][2 * j]).v);
}

static __global__ __launch_bounds__(THREADS, 2) void forward_kernel(const __grid_constant__ LessonGemm g) {
  uint32_t stages = shared_address(dynamic_shared());
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
  WarpTile tile = {};
  for (int s = 0; s < STAGES - 1; s++) copy(stages + s * STAGE_BYTES, s * TILE_K);
  for (int step = 0; step * TILE_K < g.k; step++) {
    uint32_t stage = stages + step % STAGES * STAGE_BYTES, next = stages + (step + STAGES - 1) % STAGES * STAGE_BYTES;
    cp_async_wait<STAGES - 2>();
    __syncthreads(); // the stage has arrived for every thread, and none still reads the one before
    copy(next, (step + STAGES - 1) * TILE_K); // past the end of K: zeros
    multiply(tile, stage, stage + A_BYTES);
  }
  store(g, row, column, tile);
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

extern "C" const Rung lesson_swizzle = {"09_swizzle", lesson_supports, forward};
