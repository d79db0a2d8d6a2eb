// Lesson 03, a tile in registers. Idea: a thread computes 8 × 8 elements of C, 64 products of 8 + 8 operands.
// Removes: seven of eight loads from shared memory; with tiles of 128 × 128, three of four from memory.
// Adds to the lesson before: accumulators in registers, and several loads to a thread for every TILE_K of K.
// Limit: two bytes to a load, from memory and from shared memory; columns of B are written to one bank.
#include "cuda/conv/lessons/lesson.cuh"

enum { TILE_M = 128, TILE_N = 128, TILE_K = 32, THREADS = 256, SIDE = 16 };
enum { PASSES = TILE_M * TILE_K / THREADS, ROWS_PER_PASS = THREADS / TILE_K }; // of the loads of a tile

// A thread's 8 × 8 elements of C: rows i · SIDE + ty of the tile and columns tx · 8 + j.
struct ThreadTile {
  Eight acc[8];
};

static __device__ __forceinline__ void multiply(ThreadTile &t, const bf16 a[][TILE_K], const bf16 b[][TILE_N]) {
  int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
#pragma unroll 4
  for (int k = 0; k < TILE_K; k++) {
    float av[8], bv[8];
    for (int i = 0; i < 8; i++) av[i] = to_float(a[i * SIDE + ty][k]);
    for (int j = 0; j < 8; j++) bv[j] = to_float(b[k][tx * 8 + j]);
    for (int i = 0; i < 8; i++)
      for (int j = 0; j < 8; j++) t.acc[i].v[j] += av[i] * bv[j];
  }
}

static __device__ __forceinline__ void store(const LessonGemm &g, int row, int column, const ThreadTile &t) {
  int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
#pragma unroll
  for (int i = 0; i < 8; i++) c_store<8>(g, row + i * SIDE + ty, column + tx * 8, t.acc[i].v);
}

static __global__ __launch_bounds__(THREADS) void forward_kernel(const __grid_constant__ LessonGemm g) {
  __shared__ bf16 a[TILE_M][TILE_K], b[TILE_K][TILE_N];
  int tiles_n = (g.n + TILE_N - 1) / TILE_N, row = blockIdx.x / tiles_n * TILE_M,
      column = blockIdx.x % tiles_n * TILE_N;
  int tx = threadIdx.x % TILE_K, ty = threadIdx.x / TILE_K;
  RowOfA rows[PASSES];
  for (int i = 0; i < PASSES; i++) rows[i] = row_of_a(g, row + i * ROWS_PER_PASS + ty);
  ThreadTile tile = {};
  for (int k = 0; k < g.k; k += TILE_K) {
    for (int i = 0; i < PASSES; i++) {
      int at = i * ROWS_PER_PASS + ty;
      const bf16 *from_a = a_at(g, rows[i], k + tx), *from_b = b_at(g, k + tx, column + at);
      a[at][tx] = from_a ? *from_a : bf16();
      b[tx][at] = from_b ? *from_b : bf16();
    }
    __syncthreads();
    multiply(tile, a, b);
    __syncthreads(); // none still reads the tiles that are overwritten next
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

extern "C" const Rung lesson_register_tile = {"03_register_tile", lesson_supports, forward};
