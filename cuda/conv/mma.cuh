// A block's tile of a matrix product with mma.sync: operands in swizzled shared memory, how threads copy them there, how
// warps fetch fragments of them, the pipeline of stages, and the way out. Used by rung 04, whose two files differ in what
// they stage. Everything here is for sm_80 and later.
//
// A stage holds 128 bytes' worth of terms of both operands, in chunks of 16 bytes. In memory an operand is either a row of
// terms for each of the result's rows (or columns), or, "by term", a row of the result's rows for each term. Chunks are
// shuffled within the rows so that the eight that one phase of an instruction touches lie in different banks.
#pragma once
#include "cuda/common.cuh"
#include "cuda/conv/ptx.cuh"

// One operand: OUTER rows (IS_A) or columns of the result, copied by THREADS.
template <class T, bool IS_A, int OUTER, bool BY_TERM, int THREADS> struct MmaOperand {
  static constexpr bool IS_BY_TERM = BY_TERM;
  static constexpr int VECTOR = 16 / sizeof(T), DEPTH = 128 / sizeof(T), TERMS = 32 / sizeof(T); // TERMS: of one mma
  static constexpr int ROWS = BY_TERM ? DEPTH : OUTER, CHUNKS = (BY_TERM ? OUTER : DEPTH) / VECTOR;
  static constexpr int PITCH = CHUNKS * 16, BYTES = ROWS * PITCH;
  // ldmatrix does not turn floats over, so that they are read from tiles by term as what they are.
  static constexpr bool PLAIN = BY_TERM && sizeof(T) == 4;

  // A phase of plain loads reads two chunks in each of four rows; of ldmatrix, one chunk in each of eight.
  __device__ static constexpr int shuffle(int row) { return PLAIN ? row % 4 * 2 : CHUNKS >= 8 ? row % 8 : row / 2 % 4; }
  __device__ static uint32_t at(int row, int chunk) { return row * PITCH + (chunk ^ shuffle(row)) * 16; }

  // Copying: LANES threads to a row, PASSES rows to a thread, and in each of them chunks lane, lane + 8, …: ACROSS. By
  // term a thread's rows are neighbours, so that they lie under one tap; else they are spread to be shuffled alike.
  static constexpr int LANES = MIN(CHUNKS, 8), ACROSS = CHUNKS / LANES, PASSES = ROWS * LANES / THREADS;
  static constexpr int ROW_STEP = BY_TERM ? 1 : ROWS / PASSES;
  static_assert(CHUNKS >= 4 && ROWS % PASSES == 0 && PASSES <= 8 && (BY_TERM || ROW_STEP % 8 == 0));
  __device__ static int row(int pass) { return threadIdx.x / LANES * (BY_TERM ? PASSES : 1) + pass * ROW_STEP; }
  __device__ static int lane() { return threadIdx.x % LANES * VECTOR; } // in elements
  __device__ static uint32_t own(uint32_t tile) { return tile + at(row(0), threadIdx.x % LANES); }
  // From its own first chunk to those of other passes; a tile is aligned so that ^ meets only the chunk's number.
  __device__ static uint32_t move(uint32_t own, int pass, int across) {
    return (own ^ (BY_TERM ? shuffle(pass) * 16 : 0)) + pass * ROW_STEP * PITCH + across * 128;
  }

  // Which of a warp's rows of the result is row r of its fragment i. Plain loads of A fetch rows r and r + 8 at once.
  __device__ static int outer(int i, int r) { return i * 16 + (PLAIN && IS_A ? r % 8 * 2 + r / 8 : r); }
  // A warp's fragments, from row `first` of the result, a multiple of 32, of the stage's k-th TERMS. All lie constants away
  // from the lane's first chunk; where these cross shuffled ones, + is ^.
  template <int COUNT> __device__ static void fetch(Fragment (&f)[COUNT], uint32_t tile, int first, int k) {
    int lane = threadIdx.x % 32, matrix = lane / 8;
    int second = IS_A ? matrix % 2 : matrix / 2,
        upper = IS_A ? matrix / 2 : matrix % 2; // half of the rows; of the terms
    if constexpr (PLAIN) {
      int row = IS_A ? lane / 4 * 2 : lane / 4;
      uint32_t from = tile + at(lane % 4, (first + row) / 4) + row % 4 * 4;
#pragma unroll
      for (int i = 0; i < COUNT; i++)
#pragma unroll
        for (int high = 0; high < 2; high++) { // half of the terms
          uint32_t *r = f[i].r, term = (k * TERMS + high * 4) * PITCH;
          if constexpr (IS_A)
            load_shared8((from ^ i * 64) + term, r[2 * high], r[2 * high + 1]);
          else
            load_shared4((from ^ i * 64) + term, r[high]), load_shared4((from ^ i * 64 + 32) + term, r[2 + high]);
        }
    } else if constexpr (BY_TERM) {
      uint32_t from = tile + at(upper * 8 + lane % 8, first / 8 + second);
#pragma unroll
      for (int i = 0; i < COUNT; i++) f[i] = load_matrices<true>((from ^ i * 32) + k * TERMS * PITCH);
    } else {
      uint32_t from = tile + at(first + second * 8 + lane % 8, upper);
#pragma unroll
      for (int i = 0; i < COUNT; i++) f[i] = load_matrices<false>((from ^ k * 32) + i * 16 * PITCH);
    }
    if constexpr (sizeof(T) == 4)
#pragma unroll
      for (int i = 0; i < COUNT; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) f[i].r[j] = __float_as_uint(round_to_tf32(__uint_as_float(f[i].r[j])));
  }
};

// ROWS_ × COLUMNS_ of the result, shared out among DOWN × ACROSS warps; BLOCKS of them fit a multiprocessor's registers.
template <int ROWS_, int COLUMNS_, int DOWN, int ACROSS, int BLOCKS_> struct MmaShape {
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, BLOCKS = BLOCKS_;
  static constexpr int THREADS = 32 * DOWN * ACROSS, WARP_ROWS = ROWS / DOWN, WARP_COLUMNS = COLUMNS / ACROSS;
  __device__ static int warp_row() { return threadIdx.x / 32 / ACROSS * WARP_ROWS; }
  __device__ static int warp_column() { return threadIdx.x / 32 % ACROSS * WARP_COLUMNS; }
};

enum { MMA_STAGES = 3 };

template <class T_, class Shape, bool A_BY_TERM, bool B_BY_TERM> struct MmaTile : Shape {
  using T = T_;
  using A = MmaOperand<T, true, Shape::ROWS, A_BY_TERM, Shape::THREADS>;
  using B = MmaOperand<T, false, Shape::COLUMNS, B_BY_TERM, Shape::THREADS>;
  static constexpr int DEPTH = A::DEPTH, STEPS = 4;                                     // STEPS: instructions deep
  static constexpr int DOWN = Shape::WARP_ROWS / 16, ACROSS = Shape::WARP_COLUMNS / 16; // fragments of a warp
  static constexpr int STAGE = A::BYTES + B::BYTES, BYTES = MMA_STAGES * STAGE;
  // For the way out, all of a warp's sums.
  static constexpr int STRIP_PITCH = Shape::WARP_COLUMNS + 8, STRIP = Shape::WARP_ROWS * STRIP_PITCH;
  static_assert(Shape::THREADS / 32 * STRIP * (int)sizeof(float) <= BYTES);
};

template <class Tile> struct MmaSum {
  float part[Tile::DOWN][2 * Tile::ACROSS][4]; // of 16 × 8
};
template <class Tile> struct MmaFragments {
  Fragment a[Tile::DOWN], b[Tile::ACROSS];
  __device__ __forceinline__ void fetch(uint32_t stage, int k) {
    Tile::A::fetch(a, stage, Tile::warp_row(), k);
    Tile::B::fetch(b, stage + Tile::A::BYTES, Tile::warp_column(), k);
  }
};

template <class Tile> __device__ __forceinline__ void mma_multiply(MmaSum<Tile> &sum, const MmaFragments<Tile> &f) {
#pragma unroll
  for (int i = 0; i < Tile::DOWN; i++)
#pragma unroll
    for (int j = 0; j < 2 * Tile::ACROSS; j++) mma_sync<typename Tile::T>(sum.part[i][j], f.a[i], f.b[j / 2], j % 2);
}

// Adds up `steps` stages, of which load_a(stage) and then load_b(stage) start copying the next, zeros after the last: a
// branch round them would keep the compiler from scattering them among the products.
// Fragments are fetched one instruction ahead, across stages too: the barrier stands before the last products of a stage,
// when every warp has fetched all it needs of it, so that these products hide the barrier and the first fetch after it.
template <class Tile, class LoadA, class LoadB>
__device__ __forceinline__ void mma_accumulate(MmaSum<Tile> &sum, int steps, LoadA load_a, LoadB load_b) {
#pragma unroll
  for (int i = 0; i < Tile::DOWN; i++)
#pragma unroll
    for (int j = 0; j < 2 * Tile::ACROSS; j++)
#pragma unroll
      for (int k = 0; k < 4; k++) sum.part[i][j][k] = 0.f;
  if (steps <= 0) return;
  uint32_t first = shared_address(dynamic_shared()), end = first + Tile::BYTES, now = first, next = first;
  for (int i = 0; i < MMA_STAGES - 1; i++) {
    load_a(next), load_b(next);
    copies_commit();
    next += Tile::STAGE;
  }
  copies_wait<MMA_STAGES - 2>();
  __syncthreads();
  MmaFragments<Tile> fragments[2];
  fragments[0].fetch(now, 0);
  for (int step = 0; step < steps; step++) {
#pragma unroll
    for (int k = 0; k < Tile::STEPS; k++) {
      if (k == Tile::STEPS - 1) {
        copies_wait<MMA_STAGES - 2>();
        __syncthreads();
        now = now + Tile::STAGE == end ? first : now + Tile::STAGE;
      }
      fragments[(k + 1) % 2].fetch(now, (k + 1) % Tile::STEPS); // past the last stage: what is there, and not used
      if (k == 0) load_a(next);
      if (k == 1) {
        load_b(next);
        copies_commit();
        next = next + Tile::STAGE == end ? first : next + Tile::STAGE;
      }
      mma_multiply(sum, fragments[k % 2]);
    }
  }
  copies_wait<0>();
  __syncthreads(); // the stages are free for other uses
}

// The column of the tile that mma_store gives to a lane: the same in all rows.
template <class Tile> __device__ __forceinline__ int mma_store_column() {
  constexpr int ACROSS = Tile::WARP_COLUMNS / 8;
  static_assert(32 % ACROSS == 0);
  return Tile::warp_column() + threadIdx.x % ACROSS * 8;
}

// Hands out the tile in groups of eight channels, through shared memory, since groups are not what a lane holds of a sum:
// write(row, Eight, read(row)) for each, at the lane's column. BATCH groups are read before the first is written, so that
// their latencies overlap. Before that amend(row, group) may change the group in shared memory. This runs once a tile,
// straight from the instruction caches' lower levels: short loops are faster than long code.
template <int BATCH, class Tile, class Amend, class Read, class Write>
__device__ __forceinline__ void mma_store(const MmaSum<Tile> &sum, Amend amend, Read read, Write write) {
  constexpr int ACROSS = Tile::WARP_COLUMNS / 8, STEP = 32 / ACROSS, ROWS = Tile::WARP_ROWS;
  int lane = threadIdx.x % 32, first = lane / ACROSS;
  float *strip = (float *)dynamic_shared() + threadIdx.x / 32 * Tile::STRIP, *own = strip + lane % ACROSS * 8;
#pragma unroll
  for (int i = 0; i < Tile::DOWN; i++)
#pragma unroll
    for (int j = 0; j < 2 * Tile::ACROSS; j++)
#pragma unroll
      for (int k = 0; k < 4; k++) {
        int row = Tile::A::outer(i, k / 2 * 8 + lane / 4), column = j * 8 + lane % 4 * 2 + k % 2;
        strip[row * Tile::STRIP_PITCH + column] = sum.part[i][j][k];
      }
  __syncwarp();
#pragma unroll 1
  for (int row = first; row < ROWS && amend(Tile::warp_row() + row, own + row * Tile::STRIP_PITCH); row += STEP) {
  }
#pragma unroll 1
  for (int row = first; row < ROWS; row += BATCH * STEP) {
    decltype(read(0)) reads[BATCH];
#pragma unroll
    for (int j = 0; j < BATCH; j++) reads[j] = read(Tile::warp_row() + row + j * STEP);
#pragma unroll
    for (int j = 0; j < BATCH; j++)
      write(Tile::warp_row() + row + j * STEP, load8(own + (row + j * STEP) * Tile::STRIP_PITCH), reads[j]);
  }
}

// Whether a block has the shared memory for it.
template <class Tile> static bool mma_fits(const Device *dev) {
  int bytes;
  CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, dev->index));
  return Tile::BYTES <= bytes;
}

// ---- rung 04's other file -------------------------------------------------------------------------------------------

void mma_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out);
