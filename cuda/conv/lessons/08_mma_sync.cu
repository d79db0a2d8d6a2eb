// Lesson 08, mma.sync. Idea: the tensor cores' own instructions. It is known which lane holds what: ldmatrix fills four
// registers of every lane, mma.sync multiplies 16 × 8 × 16, and a lane finds its results by itself.
// Removes: results' way through shared memory: lanes that share rows exchange them by shuffles.
// Adds to the lesson before: the layout of fragments, for the addresses that lanes give ldmatrix.
// Limit: rows padded for bank conflicts: a fifth of shared memory, and steps of 32 of K, a barrier for each.
#include "cuda/conv/lessons/lesson.cuh"
#include "cuda/conv/ptx.cuh"

enum { TILE_M = 128, TILE_N = 128, TILE_K = 32, THREADS = 256, WARPS_N = 4 };
enum { VECTORS = TILE_K / 8, PITCH = VECTORS + 1 };                              // of a row
enum { PASSES = TILE_M * VECTORS / THREADS, ROWS_PER_PASS = THREADS / VECTORS }; // of the loads of a tile

enum { FRAGMENT = 16, WARP_M = TILE_M * WARPS_N * 32 / THREADS, WARP_N = TILE_N / WARPS_N };

// A warp's part of C: WARP_M × WARP_N in results of mma.sync, of which a lane has of rows lane / 4 and lane / 4 + 8
// columns 2 · (lane % 4) and the next.
struct WarpTile {
  float acc[WARP_M / FRAGMENT][WARP_N / 8][4];
};
static __device__ __forceinline__ int warp_m() { return threadIdx.x / 32 / WARPS_N * WARP_M; }
static __device__ __forceinline__ int warp_n() { return threadIdx.x / 32 % WARPS_N * WARP_N; }

static __device__ __forceinline__ void multiply(WarpTile &t, const uint4 a[][PITCH], const uint4 b[][PITCH]) {
  int lane = threadIdx.x % 32, row = lane % 16, column = lane / 16 * 8 + lane % 8;
#pragma unroll
  for (int v = 0; v < VECTORS; v += FRAGMENT / 8) {
    Fragment af[WARP_M / FRAGMENT], bf[WARP_N / FRAGMENT];
    for (int i = 0; i < WARP_M / FRAGMENT; i++)
      af[i] = ldmatrix_x4<false>(shared_address(&a[warp_m() + i * FRAGMENT + row][v + lane / 16]));
    for (int j = 0; j < WARP_N / FRAGMENT; j++)
      bf[j] = ldmatrix_x4<false>(shared_address(&b[warp_n() + j * FRAGMENT + column][v + lane / 8 % 2]));
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

static __global__ __launch_bounds__(THREADS) void forward_kernel(const __grid_constant__ LessonGemm g) {
  __shared__ __align__(32) uint4 a[2][TILE_M][PITCH], b[2][TILE_N][PITCH];
  int tiles_n = (g.n + TILE_N - 1) / TILE_N, row = blockIdx.x / tiles_n * TILE_M,
      column = blockIdx.x % tiles_n * TILE_N;
  int tx = threadIdx.x % VECTORS, ty = threadIdx.x / VECTORS;
  RowOfA rows[PASSES];
  for (int i = 0; i < PASSES; i++) rows[i] = row_of_a(g, row + i * ROWS_PER_PASS + ty);
  auto copy = [&](int stage, int k) {
    for (int i = 0; i < PASSES; i++) {
      int at = i * ROWS_PER_PASS + ty;
      const bf16 *from_a = a_at(g, rows[i], k + tx * 8), *from_b = b_at(g, k + tx * 8, column + at);
      cp_async16(&a[stage][at][tx], from_a ? from_a : g.x.data, from_a);
      cp_async16(&b[stage][at][tx], from_b ? from_b : g.w.data, from_b);
    }
    cp_async_commit();
  };
  WarpTile tile = {};
  copy(0, 0);
  for (int k = 0, stage = 0; k < g.k; k += TILE_K, stage ^= 1) {
    cp_async_wait<0>();
    __syncthreads(); // the stage has arrived for every thread, and none still reads the other one
    if (k + TILE_K < g.k) copy(stage ^ 1, k + TILE_K);
    multiply(tile, a[stage], b[stage]);
  }
  store(g, row, column, tile);
}

static void forward(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y) {
  for (int i = 0; i < pairs && !dev->measuring; i++) {
    LessonGemm g = lesson_gemm(conv, &x[i], w, &y[i]);
    int blocks = blocks_for(g.m, TILE_M) * blocks_for(g.n, TILE_N);
    if (blocks) forward_kernel<<<blocks, THREADS, 0, stream_of(dev)>>>(g);
    LAUNCH_CHECK();
  }
}

extern "C" const Rung lesson_mma_sync = {"08_mma_sync", lesson_supports, forward};
