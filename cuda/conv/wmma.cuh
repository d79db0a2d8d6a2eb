// Threadblock tile and mainloop of rung 03, on the tensor cores through nvcuda::wmma: tile shapes, layout of a pipeline
// stage in shared memory, warp tiles, and a mainloop with cp.async. The rung's two files differ only in how they fill a
// stage.
#pragma once
#include <mma.h>
#include <type_traits>
#include "cuda/common.cuh"
#include "cuda/conv/ptx.cuh"

namespace wmma = nvcuda::wmma;

enum { WMMA_THREADS = 256, WMMA_WARPS = 8, WMMA_MN = 16 };

// How the tensor cores name an element type, and the K of one instruction.
template <class T> struct WmmaType {
  using type = T;
  static constexpr int MMA_K = 16;
};
template <> struct WmmaType<float> {
  using type = wmma::precision::tf32;
  static constexpr int MMA_K = 8;
};

// One operand of a stage: MN rows (A) or columns (B) by 64 bytes of K. MN_MAJOR: [TILE_K, MN]; otherwise, K-major, [MN,
// TILE_K]. Rows are padded, so that those that one instruction reads lie in different banks.
template <class T, int MN, bool MN_MAJOR> struct WmmaOperand {
  static constexpr bool IS_MN_MAJOR = MN_MAJOR;
  static constexpr int VECTOR = 16 / sizeof(T), TILE_K = 64 / sizeof(T);
  static constexpr int PITCH = MN_MAJOR ? MN + 8 : TILE_K + VECTOR;
  static constexpr int ELEMENTS = (MN_MAJOR ? TILE_K : MN) * PITCH;
  // Who copies what, in vectors of 16 bytes: a thread takes the same column of each of its rows.
  static constexpr int VECTORS_PER_ROW = (MN_MAJOR ? MN : TILE_K) / VECTOR,
                       VECTORS = VECTORS_PER_ROW * (MN_MAJOR ? TILE_K : MN);
  static constexpr int PASSES = (VECTORS + WMMA_THREADS - 1) / WMMA_THREADS,
                       ROWS_PER_PASS = WMMA_THREADS / VECTORS_PER_ROW;
  static_assert(WMMA_THREADS % VECTORS_PER_ROW == 0 && VECTORS % VECTORS_PER_ROW == 0);

  __device__ static int row(int pass) { return threadIdx.x / VECTORS_PER_ROW + pass * ROWS_PER_PASS; }
  __device__ static int contiguous() { return threadIdx.x % VECTORS_PER_ROW * VECTOR; } // offset along the row
  // False for threads that a small tile leaves without work.
  __device__ static bool is_active() { return VECTORS >= WMMA_THREADS || threadIdx.x < VECTORS; }
  __device__ static T *at(T *tile, int pass) { return tile + row(pass) * PITCH + contiguous(); }
};

// A threadblock tile of TILE_M × TILE_N, shared out among eight warps; a warp tile is a rectangle of fragments.
template <class T, int TILE_M, int TILE_N, bool A_MN_MAJOR, bool B_MN_MAJOR> struct WmmaTile {
  using A = WmmaOperand<T, TILE_M, A_MN_MAJOR>;
  using B = WmmaOperand<T, TILE_N, B_MN_MAJOR>;
  static constexpr int TILE_K = A::TILE_K, STAGES = 3;
  static constexpr int WARPS_N = TILE_N >= 128 ? 4 : 2, WARPS_M = WMMA_WARPS / WARPS_N;
  static constexpr int WARP_M = TILE_M / WARPS_M, WARP_N = TILE_N / WARPS_N;
  static constexpr int FRAGMENTS_M = WARP_M / WMMA_MN, FRAGMENTS_N = WARP_N / WMMA_MN; // of a warp tile
  // The epilogue's staging buffer of a warp: one row of its fragments.
  static constexpr int EPILOGUE_PITCH = WARP_N + 4, EPILOGUE_ELEMENTS = WMMA_MN * EPILOGUE_PITCH;
  static constexpr int STAGE = A::ELEMENTS + B::ELEMENTS;
  static constexpr int BYTES = MAX(STAGES * STAGE * (int)sizeof(T), WMMA_WARPS *EPILOGUE_ELEMENTS *(int)sizeof(float));
  static_assert(FRAGMENTS_M >= 1 && FRAGMENTS_N >= 1 && BYTES <= 99 * 1024); // what sm_86 has for a block, the least

  __device__ static T *stage(int i) { return (T *)dynamic_shared() + i * STAGE; } // A, then B
  __device__ static int warp_m() { return threadIdx.x / 32 / WARPS_N * WARP_M; }
  __device__ static int warp_n() { return threadIdx.x / 32 % WARPS_N * WARP_N; }
};

// Accumulators of a warp tile.
template <class T, class Tile> struct WmmaAccumulator {
  wmma::fragment<wmma::accumulator, WMMA_MN, WMMA_MN, WmmaType<T>::MMA_K, float> fragment[Tile::FRAGMENTS_M]
                                                                                         [Tile::FRAGMENTS_N];
};

// An operand's fragment. K runs along A's rows and down B's columns, so that MN-major is column-major for A and
// row-major for B.
template <class T, bool IS_A, bool MN_MAJOR>
using WmmaFragment =
    wmma::fragment<std::conditional_t<IS_A, wmma::matrix_a, wmma::matrix_b>, WMMA_MN, WMMA_MN, WmmaType<T>::MMA_K,
                   typename WmmaType<T>::type, std::conditional_t<IS_A != MN_MAJOR, wmma::row_major, wmma::col_major>>;

// The fragment at (mn, k) of an operand's tile; floats are rounded to TF32 on the way.
template <class T, bool IS_A, class Operand> __device__ __forceinline__ auto wmma_load(const T *tile, int mn, int k) {
  constexpr bool MN_MAJOR = Operand::IS_MN_MAJOR;
  WmmaFragment<T, IS_A, MN_MAJOR> f;
  const T *at = MN_MAJOR ? tile + k * Operand::PITCH + mn : tile + mn * Operand::PITCH + k;
  wmma_load_shared<IS_A, IS_A != MN_MAJOR>(f, at, Operand::PITCH);
  if constexpr (std::is_same_v<T, float>)
#pragma unroll
    for (int i = 0; i < f.num_elements; i++) f.x[i] = round_to_tf32(f.x[i]);
  return f;
}

// acc += a · b of one stage.
template <class T, class Tile>
__device__ __forceinline__ void wmma_warp_tile(WmmaAccumulator<T, Tile> &acc, const T *a, const T *b) {
#pragma unroll
  for (int k = 0; k < Tile::TILE_K; k += WmmaType<T>::MMA_K) {
    WmmaFragment<T, false, Tile::B::IS_MN_MAJOR> y[Tile::FRAGMENTS_N];
#pragma unroll
    for (int j = 0; j < Tile::FRAGMENTS_N; j++)
      y[j] = wmma_load<T, false, typename Tile::B>(b, Tile::warp_n() + j * WMMA_MN, k);
#pragma unroll
    for (int i = 0; i < Tile::FRAGMENTS_M; i++) {
      auto x = wmma_load<T, true, typename Tile::A>(a, Tile::warp_m() + i * WMMA_MN, k);
#pragma unroll
      for (int j = 0; j < Tile::FRAGMENTS_N; j++) wmma::mma_sync(acc.fragment[i][j], x, y[j], acc.fragment[i][j]);
    }
  }
}

// Mainloop with a cp.async pipeline over k_tiles: load(a, b) starts the copies of the next stage; two are in flight
// while one is multiplied.
template <class T, class Tile, class Load>
__device__ __forceinline__ void wmma_mainloop(WmmaAccumulator<T, Tile> &acc, int k_tiles, Load load) {
#pragma unroll
  for (int i = 0; i < Tile::FRAGMENTS_M; i++)
#pragma unroll
    for (int j = 0; j < Tile::FRAGMENTS_N; j++) wmma::fill_fragment(acc.fragment[i][j], 0.f);
  for (int i = 0; i < Tile::STAGES - 1; i++) {
    if (i < k_tiles) load(Tile::stage(i), Tile::stage(i) + Tile::A::ELEMENTS);
    cp_async_commit();
  }
  int read_stage = 0, write_stage = Tile::STAGES - 1; // of the pipeline
  for (int k_tile = 0; k_tile < k_tiles; k_tile++) {
    cp_async_wait<Tile::STAGES - 2>();
    __syncthreads(); // this stage has arrived for every thread, and none still reads the one that is overwritten next
    if (k_tile + Tile::STAGES - 1 < k_tiles)
      load(Tile::stage(write_stage), Tile::stage(write_stage) + Tile::A::ELEMENTS);
    cp_async_commit(); // an empty group at the end, so that the count of pending groups keeps its meaning
    wmma_warp_tile(acc, Tile::stage(read_stage), Tile::stage(read_stage) + Tile::A::ELEMENTS);
    write_stage = read_stage;
    read_stage = read_stage + 1 == Tile::STAGES ? 0 : read_stage + 1;
  }
  __syncthreads(); // the epilogue reuses the stages
}

// ---- rung 03's other file -------------------------------------------------------------------------------------------

void wmma_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out);
