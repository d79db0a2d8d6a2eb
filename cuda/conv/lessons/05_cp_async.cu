// Lesson 05, asynchronous copies. Idea: two buffers: while a tile is multiplied the next one is on its way (cp.async),
// past the registers and past the threads, which go on.
// Removes: the wait for memory at every tile, one of two barriers, and the registers between memory and shared memory.
// Adds to the lesson before: a second stage in shared memory, a group of copies in flight.
// Limit: the fp32 units: a product is an instruction of a thread.
#include "cuda/conv/lessons/lesson.cuh"
#include "cuda/conv/ptx.cuh"

enum { TILE_M = 128, TILE_N = 128, TILE_K = 32, THREADS = 256, SIDE = 16 };
enum { VECTORS = TILE_K / 8, PITCH = VECTORS + 1 };                              // of a row
enum { PASSES = TILE_M * VECTORS / THREADS, ROWS_PER_PASS = THREADS / VECTORS }; // of the loads of a tile

// A thread's 8 × 8 elements of C: rows i · SIDE + ty of the tile and columns tx · 8 + j. Column n of the tile is row
// n % 8 · SIDE + n / 8 of b, so that neighbouring threads read neighbouring rows.
struct ThreadTile {
  Eight acc[8];
};
__device__ __forceinline__ float element(const uint4 &vector, int i) { return to_float(((const bf16 *)&vector)[i]); }

static __device__ __forceinline__ void multiply(ThreadTile &t, const uint4 a[][PITCH], const uint4 b[][PITCH]) {
  int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
#pragma unroll 1 // more at once would not fit the registers
  for (int v = 0; v < VECTORS; v++) {
    uint4 av[8], bv[8];
    for (int i = 0; i < 8; i++) av[i] = a[i * SIDE + ty][v];
    for (int j = 0; j < 8; j++) bv[j] = b[j * SIDE + tx][v];
#pragma unroll
    for (int k = 0; k < 8; k++)
      for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) t.acc[i].v[j] += element(av[i], k) * element(bv[j], k);
  }
}

static __device__ __forceinline__ void store(const LessonGemm &g, int row, int column, const ThreadTile &t) {
  int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
#pragma unroll
  for (int i = 0; i < 8; i++) c_store<8>(g, row + i * SIDE + ty, column + tx * 8, t.acc[i].v);
}

static __global__ __launch_bounds__(THREADS) void forward_kernel(const __grid_constant__ LessonGemm g) {
  __shared__ uint4 a[2][TILE_M][PITCH], b[2][TILE_N][PITCH];
  int tiles_n = (g.n + TILE_N - 1) / TILE_N, row = blockIdx.x / tiles_n * TILE_M,
      column = blockIdx.x % tiles_n * TILE_N;
  int tx = threadIdx.x % VECTORS, ty = threadIdx.x / VECTORS;
  RowOfA rows[PASSES];
  for (int i = 0; i < PASSES; i++) rows[i] = row_of_a(g, row + i * ROWS_PER_PASS + ty);
  auto copy = [&](int stage, int k) {
    for (int i = 0; i < PASSES; i++) {
      int at = i * ROWS_PER_PASS + ty, at_b = at % 8 * SIDE + at / 8;
      const bf16 *from_a = a_at(g, rows[i], k + tx * 8), *from_b = b_at(g, k + tx * 8, column + at);
      cp_async16(&a[stage][at][tx], from_a ? from_a : g.x.data, from_a);
      cp_async16(&b[stage][at_b][tx], from_b ? from_b : g.w.data, from_b);
    }
    cp_async_commit();
  };
  ThreadTile tile = {};
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

extern "C" const Rung lesson_cp_async = {"05_cp_async", lesson_supports, forward};
