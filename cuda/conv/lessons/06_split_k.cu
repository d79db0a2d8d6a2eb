// Lesson 06, split-K. Idea: where C has fewer tiles than the GPU has SMs, K is cut into slices, a threadblock each; a
// second kernel adds them up, in order, so that a run repeats its bits.
// Removes: idle SMs.
// Adds to the lesson before: a workspace of fp32, and a pass over it.
// Limit: the fp32 units, as before. Split-K is for a small C under a long K; with tiles enough this is lesson 05.
#include "cuda/conv/lessons/lesson.cuh"
#include "cuda/conv/ptx.cuh"

enum { TILE_M = 128, TILE_N = 128, TILE_K = 32, THREADS = 256, SIDE = 16 };
enum { VECTORS = TILE_K / 8, PITCH = VECTORS + 1 };                              // of a row
enum { PASSES = TILE_M * VECTORS / THREADS, ROWS_PER_PASS = THREADS / VECTORS }; // of the loads of a tile
enum { FILL_BLOCKS = 264, MIN_SLICE_K = 512 }; // two to each SM of an H100; worth the second pass

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

// To C, or, where K is split, to this slice of partial [slices, M, N].
static __device__ __forceinline__ void store(const LessonGemm &g, int row, int column, const ThreadTile &t,
                                             float *partial) {
  int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE, n = column + tx * 8;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int m = row + i * SIDE + ty;
    if (!partial)
      c_store<8>(g, m, n, t.acc[i].v);
    else if (m < g.m && n < g.n)
      store8(partial + ((size_t)blockIdx.y * g.m + m) * g.n + n, t.acc[i]);
  }
}

static __global__ __launch_bounds__(THREADS) void forward_kernel(const __grid_constant__ LessonGemm g, int slice_k,
                                                                 float *partial) {
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
  int first = blockIdx.y * slice_k, end = min(first + slice_k, g.k);
  copy(0, first);
  for (int k = first, stage = 0; k < end; k += TILE_K, stage ^= 1) {
    cp_async_wait<0>();
    __syncthreads(); // the stage has arrived for every thread, and none still reads the other one
    if (k + TILE_K < end) copy(stage ^ 1, k + TILE_K);
    multiply(tile, a[stage], b[stage]);
  }
  store(g, row, column, tile, partial);
}

static __global__ void sum_kernel(const __grid_constant__ LessonGemm g, const float *partial, int slices) {
  size_t element = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 8, size = (size_t)g.m * g.n;
  if (element >= size) return;
  Eight sum = {};
  for (int i = 0; i < slices; i++) add8(sum, load8(partial + i * size + element));
  c_store<8>(g, (int)(element / g.n), (int)(element % g.n), sum.v);
}

static void forward(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y) {
  for (int i = 0; i < pairs; i++) {
    LessonGemm g = lesson_gemm(conv, &x[i], w, &y[i]);
    int blocks = blocks_for(g.m, TILE_M) * blocks_for(g.n, TILE_N);
    // By shapes alone, or the bits would differ from one GPU to the next.
    int fill = MAX(1, MIN(FILL_BLOCKS / MAX(1, blocks), g.k / MIN_SLICE_K));
    int slice_k = blocks_for(g.k, fill * TILE_K) * TILE_K, slices = blocks_for(g.k, slice_k);
    size_t elements = slices > 1 ? (size_t)g.m * g.n : 0;
    float *partial = elements ? (float *)device_workspace(dev, slices * elements * sizeof(float)) : NULL;
    if (dev->measuring || !blocks) continue;
    forward_kernel<<<dim3(blocks, slices), THREADS, 0, stream_of(dev)>>>(g, slice_k, partial);
    if (partial) sum_kernel<<<blocks_for(elements / 8, THREADS), THREADS, 0, stream_of(dev)>>>(g, partial, slices);
    LAUNCH_CHECK();
  }
}

extern "C" const Rung lesson_split_k = {"06_split_k", lesson_supports, forward};
