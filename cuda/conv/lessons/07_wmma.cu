// Lesson 07, WMMA. Idea: the tensor cores, through nvcuda::wmma: a warp multiplies 16 × 16 × 16 at a time.
// Removes: the fp32 units, and conversions to fp32: operands stay bf16 until they are multiplied.
// Adds to lesson 05 (06 is for other shapes): fragments, which a warp holds in an order that the library keeps to
// itself, so that results reach their rows through shared memory.
// Limit: each fragment is loaded right before it is multiplied; rows padded for bank conflicts.
#include "cuda/conv/lessons/lesson.cuh"
#include "cuda/conv/ptx.cuh"

using namespace nvcuda;

enum { TILE_M = 128, TILE_N = 128, TILE_K = 32, THREADS = 256, WARPS_N = 4 };
enum { VECTORS = TILE_K / 8, PITCH = VECTORS + 1 };                              // of a row
enum { PASSES = TILE_M * VECTORS / THREADS, ROWS_PER_PASS = THREADS / VECTORS }; // of the loads of a tile

enum { FRAGMENT = 16, WARP_M = TILE_M * WARPS_N * 32 / THREADS, WARP_N = TILE_N / WARPS_N };

// A warp's part of C: WARP_M × WARP_N in fragments.
struct WarpTile {
  wmma::fragment<wmma::accumulator, FRAGMENT, FRAGMENT, FRAGMENT, float> acc[WARP_M / FRAGMENT][WARP_N / FRAGMENT];
};
static __device__ __forceinline__ int warp_m() { return threadIdx.x / 32 / WARPS_N * WARP_M; }
static __device__ __forceinline__ int warp_n() { return threadIdx.x / 32 % WARPS_N * WARP_N; }

static __device__ __forceinline__ void multiply(WarpTile &t, const uint4 a[][PITCH], const uint4 b[][PITCH]) {
#pragma unroll
  for (int v = 0; v < VECTORS; v += FRAGMENT / 8) {
    wmma::fragment<wmma::matrix_b, FRAGMENT, FRAGMENT, FRAGMENT, bf16, wmma::col_major> bf[WARP_N / FRAGMENT];
    for (int j = 0; j < WARP_N / FRAGMENT; j++)
      wmma_load_shared<false, false>(bf[j], (const bf16 *)&b[warp_n() + j * FRAGMENT][v], PITCH * 8);
    for (int i = 0; i < WARP_M / FRAGMENT; i++) {
      wmma::fragment<wmma::matrix_a, FRAGMENT, FRAGMENT, FRAGMENT, bf16, wmma::row_major> af;
      wmma_load_shared<true, true>(af, (const bf16 *)&a[warp_m() + i * FRAGMENT][v], PITCH * 8);
      for (int j = 0; j < WARP_N / FRAGMENT; j++) wmma::mma_sync(t.acc[i][j], af, bf[j], t.acc[i][j]);
    }
  }
}

// Through a fragment's room in shared memory for each warp, of which a lane takes half a row.
static __device__ __forceinline__ void store(const LessonGemm &g, int row, int column, const WarpTile &t) {
  __shared__ __align__(32) float staging[THREADS / 32][FRAGMENT * FRAGMENT];
  int lane = threadIdx.x % 32;
  float *own = staging[threadIdx.x / 32];
  row += warp_m() + lane / 2;
  column += warp_n() + lane % 2 * 8;
#pragma unroll
  for (int i = 0; i < WARP_M / FRAGMENT; i++)
#pragma unroll
    for (int j = 0; j < WARP_N / FRAGMENT; j++) {
      wmma::store_matrix_sync(own, t.acc[i][j], FRAGMENT, wmma::mem_row_major);
      __syncwarp();
      c_store<8>(g, row + i * FRAGMENT, column + j * FRAGMENT, own + lane * 8);
      __syncwarp();
    }
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
  WarpTile tile;
  for (auto &acc_row : tile.acc)
    for (auto &acc : acc_row) wmma::fill_fragment(acc, 0.f);
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

extern "C" const Rung lesson_wmma = {"07_wmma", lesson_supports, forward};
