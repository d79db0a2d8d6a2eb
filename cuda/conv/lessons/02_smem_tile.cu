// Lesson 02, a tile in shared memory. Idea: a threadblock computes a tile of C, and loads what its threads have in
// common once, for all of them.
// Removes: 31 of 32 loads from memory, and a cache line to a thread: neighbouring threads load neighbours of K.
// Adds to the lesson before: tiles of A and B in shared memory, and two barriers for every TILE_K of K.
// Limit: shared memory, which is asked for two operands for every product.
#include "cuda/conv/lessons/lesson.cuh"

enum { TILE_M = 32, TILE_N = 32, TILE_K = 32, THREADS = TILE_M * TILE_N };

static __global__ __launch_bounds__(THREADS) void forward_kernel(const __grid_constant__ LessonGemm g) {
  __shared__ bf16 a[TILE_M][TILE_K], b[TILE_K][TILE_N];
  int tiles_n = (g.n + TILE_N - 1) / TILE_N, row = blockIdx.x / tiles_n * TILE_M,
      column = blockIdx.x % tiles_n * TILE_N;
  int tx = threadIdx.x % TILE_N, ty = threadIdx.x / TILE_N;
  RowOfA rows = row_of_a(g, row + ty);
  float acc = 0;
  for (int k = 0; k < g.k; k += TILE_K) {
    const bf16 *from_a = a_at(g, rows, k + tx), *from_b = b_at(g, k + tx, column + ty);
    a[ty][tx] = from_a ? *from_a : bf16();
    b[tx][ty] = from_b ? *from_b : bf16();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE_K; i++) acc += to_float(a[ty][i]) * to_float(b[i][tx]);
    __syncthreads(); // none still reads the tiles that are overwritten next
  }
  c_store<1>(g, row + ty, column + tx, &acc);
}

static void forward(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y) {
  for (int i = 0; i < pairs && !dev->measuring; i++) {
    LessonGemm g = lesson_gemm(conv, &x[i], w, &y[i]);
    int blocks = blocks_for(g.m, TILE_M) * blocks_for(g.n, TILE_N);
    if (blocks) forward_kernel<<<blocks, THREADS, 0, stream_of(dev)>>>(g);
    LAUNCH_CHECK();
  }
}

extern "C" const Rung lesson_smem_tile = {"02_smem_tile", lesson_supports, forward};
