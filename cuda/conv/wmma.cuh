// A block's tile of a matrix product on the tensor cores, through nvcuda::wmma: shapes, shared memory, and the
// multiplication of what is staged there. Used by rung 03, which differs between its two files only in what it stages.
#pragma once
#include <mma.h>
#include <type_traits>
#include "cuda/common.cuh"
#include "cuda/conv/ptx.cuh"

namespace nvcuda::wmma::precision {
struct tf32; // declared by mma.h only for architectures that have it
}
namespace wmma = nvcuda::wmma;

enum { WMMA_THREADS = 256, WMMA_WARPS = 8, WMMA_SIDE = 16 };

// How the tensor cores name an element type, and the terms that one instruction adds up. The types that an architecture
// lacks are not declared while it is being compiled for, so kernels look only inside `if constexpr (wmma_has<T>)`.
template <class T> struct WmmaType {
  using type = T;
  static constexpr int TERMS = 16;
};
template <> struct WmmaType<float> {
  using type = wmma::precision::tf32;
  static constexpr int TERMS = 8;
};
template <class T> static constexpr bool wmma_has = AMPERE || std::is_same_v<T, __half>;

// One operand in shared memory: OUTER rows (or columns) of the result by 64 bytes' worth of terms. BY_TERM: a row of
// memory is a term, [DEPTH, OUTER]; otherwise [OUTER, DEPTH]. The pitch is padded so that the rows that one instruction
// fetches lie in different banks.
template <class T, int OUTER, bool BY_TERM> struct WmmaOperand {
  static constexpr bool IS_BY_TERM = BY_TERM;
  static constexpr int VECTOR = 16 / sizeof(T), DEPTH = 64 / sizeof(T);
  static constexpr int PITCH = BY_TERM ? OUTER + 8 : DEPTH + VECTOR;
  static constexpr int ELEMENTS = (BY_TERM ? DEPTH : OUTER) * PITCH;
  // Copying the tile in vectors: ACROSS to a row of memory, so that a thread copies the same column of each of its rows.
  static constexpr int ACROSS = (BY_TERM ? OUTER : DEPTH) / VECTOR, VECTORS = ACROSS * (BY_TERM ? DEPTH : OUTER);
  static constexpr int PASSES = (VECTORS + WMMA_THREADS - 1) / WMMA_THREADS, ROWS_PER_PASS = WMMA_THREADS / ACROSS;
  static_assert(WMMA_THREADS % ACROSS == 0 && VECTORS % ACROSS == 0);

  __device__ static int row(int pass) { return threadIdx.x / ACROSS + pass * ROWS_PER_PASS; }
  __device__ static int lane() { return threadIdx.x % ACROSS * VECTOR; }
  // False for threads that a small tile leaves without work.
  __device__ static bool takes_part() { return VECTORS >= WMMA_THREADS || threadIdx.x < VECTORS; }
  __device__ static T *at(T *tile, int pass) { return tile + row(pass) * PITCH + lane(); }
};

// ROWS × COLUMNS of the result, eight warps, each with a rectangle of fragments.
template <class T, int ROWS, int COLUMNS, bool A_BY_TERM, bool B_BY_TERM> struct WmmaTile {
  using A = WmmaOperand<T, ROWS, A_BY_TERM>;
  using B = WmmaOperand<T, COLUMNS, B_BY_TERM>;
  static constexpr int DEPTH = A::DEPTH, STAGES = 3;
  static constexpr int WARPS_ACROSS = COLUMNS >= 128 ? 4 : 2, WARPS_DOWN = WMMA_WARPS / WARPS_ACROSS;
  static constexpr int WARP_ROWS = ROWS / WARPS_DOWN, WARP_COLUMNS = COLUMNS / WARPS_ACROSS;
  static constexpr int DOWN = WARP_ROWS / WMMA_SIDE, ACROSS = WARP_COLUMNS / WMMA_SIDE; // fragments of a warp
  // For the way out, a strip of one row of each warp's fragments.
  static constexpr int STRIP_PITCH = WARP_COLUMNS + 4, STRIP = WMMA_SIDE * STRIP_PITCH;
  static constexpr int STAGE = A::ELEMENTS + B::ELEMENTS;
  static constexpr int BYTES = MAX(STAGES * STAGE * (int)sizeof(T), WMMA_WARPS *STRIP *(int)sizeof(float));
  static_assert(DOWN >= 1 && ACROSS >= 1 && BYTES <= 64 * 1024); // what a block may have on sm_75

  __device__ static T *stage(int i) { return (T *)dynamic_shared() + i * STAGE; } // a, then b
  __device__ static int warp_row() { return threadIdx.x / 32 / WARPS_ACROSS * WARP_ROWS; }
  __device__ static int warp_column() { return threadIdx.x / 32 % WARPS_ACROSS * WARP_COLUMNS; }
};

// A warp's fragments of the result.
template <class T, class Tile> struct WmmaSum {
  wmma::fragment<wmma::accumulator, WMMA_SIDE, WMMA_SIDE, WmmaType<T>::TERMS, float> part[Tile::DOWN][Tile::ACROSS];
};

// An operand's fragment. Terms run along A's rows and down B's columns, so that a tile by terms is A turned over.
template <class T, bool IS_A, bool BY_TERM>
using WmmaFragment =
    wmma::fragment<std::conditional_t<IS_A, wmma::matrix_a, wmma::matrix_b>, WMMA_SIDE, WMMA_SIDE, WmmaType<T>::TERMS,
                   typename WmmaType<T>::type, std::conditional_t<IS_A != BY_TERM, wmma::row_major, wmma::col_major>>;

// The fragment at (outer, term) of an operand's tile; floats are rounded to TF32 on the way.
template <class T, bool IS_A, class Operand>
__device__ __forceinline__ auto wmma_load(const T *tile, int outer, int term) {
  constexpr bool BY_TERM = Operand::IS_BY_TERM;
  WmmaFragment<T, IS_A, BY_TERM> f;
  const T *at = BY_TERM ? tile + term * Operand::PITCH + outer : tile + outer * Operand::PITCH + term;
  wmma_load_shared<IS_A, IS_A != BY_TERM>(f, at, Operand::PITCH);
  if constexpr (std::is_same_v<T, float>)
#pragma unroll
    for (int i = 0; i < f.num_elements; i++) f.x[i] = round_to_tf32(f.x[i]);
  return f;
}

// sum += a · b of one stage.
template <class T, class Tile>
__device__ __forceinline__ void wmma_multiply(WmmaSum<T, Tile> &sum, const T *a, const T *b) {
#pragma unroll
  for (int term = 0; term < Tile::DEPTH; term += WmmaType<T>::TERMS) {
    WmmaFragment<T, false, Tile::B::IS_BY_TERM> y[Tile::ACROSS];
#pragma unroll
    for (int j = 0; j < Tile::ACROSS; j++)
      y[j] = wmma_load<T, false, typename Tile::B>(b, Tile::warp_column() + j * WMMA_SIDE, term);
#pragma unroll
    for (int i = 0; i < Tile::DOWN; i++) {
      auto x = wmma_load<T, true, typename Tile::A>(a, Tile::warp_row() + i * WMMA_SIDE, term);
#pragma unroll
      for (int j = 0; j < Tile::ACROSS; j++) wmma::mma_sync(sum.part[i][j], x, y[j], sum.part[i][j]);
    }
  }
}

// Adds up `steps` stages, of which load(a, b) starts copying the next; two are on their way while one is multiplied.
template <class T, class Tile, class Load>
__device__ __forceinline__ void wmma_accumulate(WmmaSum<T, Tile> &sum, int steps, Load load) {
#pragma unroll
  for (int i = 0; i < Tile::DOWN; i++)
#pragma unroll
    for (int j = 0; j < Tile::ACROSS; j++) wmma::fill_fragment(sum.part[i][j], 0.f);
  for (int i = 0; i < Tile::STAGES - 1; i++) {
    if (i < steps) load(Tile::stage(i), Tile::stage(i) + Tile::A::ELEMENTS);
    copies_commit();
  }
  int now = 0, next = Tile::STAGES - 1; // stages
  for (int step = 0; step < steps; step++) {
    copies_wait<Tile::STAGES - 2>();
    __syncthreads(); // this stage has arrived for every thread, and none still reads the one that is overwritten next
    if (step + Tile::STAGES - 1 < steps) load(Tile::stage(next), Tile::stage(next) + Tile::A::ELEMENTS);
    copies_commit(); // empty at the end, so that the count above keeps its meaning
    wmma_multiply(sum, Tile::stage(now), Tile::stage(now) + Tile::A::ELEMENTS);
    next = now;
    now = now + 1 == Tile::STAGES ? 0 : now + 1;
  }
  __syncthreads(); // the stages are free for other uses
}

// ---- rung 03's other file ---------------------------------------------------------------------------------------------

void wmma_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out);
