// Threadblock tile, mainloop and epilogue of rung 04, with mma.sync: operands in swizzled shared memory, the cp.async
// pipeline that fills its stages, warp tiles fed by ldmatrix, and the way of accumulators through shared memory, from
// which a lane gets eight channels. The rung's two files differ in how they fill a stage; wgrad, whose results are
// floats, writes from registers.
//
// A stage holds 128 bytes of K of both operands, in chunks of 16 bytes. An operand is K-major (a row of memory is K,
// for each of M or N) or MN-major (a row is M or N, for each of K). Chunks are swizzled within their rows so that the
// eight that one phase of an instruction reads lie in different banks.
#pragma once
#include "cuda/common.cuh"
#include "cuda/conv/ptx.cuh"

// One operand of a stage: MN rows (IS_A) or columns of the threadblock tile, copied by THREADS.
template <class T, bool IS_A, int MN, bool MN_MAJOR, int THREADS> struct MmaOperand {
  static constexpr bool IS_MN_MAJOR = MN_MAJOR;
  static constexpr int VECTOR = 16 / sizeof(T), TILE_K = 128 / sizeof(T),
                       MMA_K = 32 / sizeof(T); // MMA_K: of one instruction
  static constexpr int SHARED_ROWS = MN_MAJOR ? TILE_K : MN, CHUNKS = (MN_MAJOR ? MN : TILE_K) / VECTOR;
  static constexpr int PITCH = CHUNKS * 16, BYTES = SHARED_ROWS * PITCH;
  // ldmatrix does not transpose floats, so that these are read from MN-major tiles by plain loads.
  static constexpr bool NO_LDMATRIX = MN_MAJOR && sizeof(T) == 4;

  // The swizzle. A phase of plain loads reads two chunks in each of four rows; of ldmatrix, one chunk in each of eight.
  __device__ static constexpr int swizzle(int row) {
    return NO_LDMATRIX ? row % 4 * 2 : CHUNKS >= 8 ? row % 8 : row / 2 % 4;
  }
  __device__ static uint32_t at(int row, int chunk) { return row * PITCH + (chunk ^ swizzle(row)) * 16; }

  // Who copies what: LANES threads to a row, PASSES rows to a thread, and CHUNKS_PER_LANE chunks in each of them: lane,
  // lane + 8, …. MN-major, a thread's rows are neighbours, so that they lie under one tap; K-major, they are spread so
  // that all have the same swizzle.
  static constexpr int LANES = MIN(CHUNKS, 8), CHUNKS_PER_LANE = CHUNKS / LANES, PASSES = SHARED_ROWS * LANES / THREADS;
  static constexpr int ROW_STEP = MN_MAJOR ? 1 : SHARED_ROWS / PASSES;
  static_assert(CHUNKS >= 4 && SHARED_ROWS % PASSES == 0 && PASSES <= 8 && (MN_MAJOR || ROW_STEP % 8 == 0));
  __device__ static int row(int pass) { return threadIdx.x / LANES * (MN_MAJOR ? PASSES : 1) + pass * ROW_STEP; }
  __device__ static int contiguous() { return threadIdx.x % LANES * VECTOR; } // offset along the row, in elements
  __device__ static uint32_t thread_base(uint32_t tile) { return tile + at(row(0), threadIdx.x % LANES); }
  // From the thread's first chunk to that of another pass; a tile is aligned so that ^ meets only the chunk's number.
  __device__ static uint32_t pass_address(uint32_t thread_base, int pass, int j) {
    return (thread_base ^ (MN_MAJOR ? swizzle(pass) * 16 : 0)) + pass * ROW_STEP * PITCH + j * 128;
  }

  // Which of a warp tile's rows is row r of fragment i. Plain loads of A read rows r and r + 8 at once.
  __device__ static int fragment_mn(int i, int r) { return i * 16 + (NO_LDMATRIX && IS_A ? r % 8 * 2 + r / 8 : r); }
  // The fragments of a warp tile, from row `first` of the operand, a multiple of 32, in the stage's k-th MMA_K. All lie
  // constants away from the lane's first chunk; where these cross swizzled ones, + is ^.
  template <int COUNT> __device__ static void load_fragments(Fragment (&f)[COUNT], uint32_t tile, int first, int k) {
    int lane = threadIdx.x % 32, matrix = lane / 8;
    int second = IS_A ? matrix % 2 : matrix / 2,
        upper = IS_A ? matrix / 2 : matrix % 2; // half of the rows; of K
    if constexpr (NO_LDMATRIX) {
      int row = IS_A ? lane / 4 * 2 : lane / 4;
      uint32_t from = tile + at(lane % 4, (first + row) / 4) + row % 4 * 4;
#pragma unroll
      for (int i = 0; i < COUNT; i++)
#pragma unroll
        for (int high = 0; high < 2; high++) { // half of K
          uint32_t *r = f[i].r, offset = (k * MMA_K + high * 4) * PITCH;
          if constexpr (IS_A)
            load_shared8((from ^ i * 64) + offset, r[2 * high], r[2 * high + 1]);
          else {
            load_shared4((from ^ i * 64) + offset, r[high]);
            load_shared4((from ^ i * 64 + 32) + offset, r[2 + high]);
          }
        }
    } else if constexpr (MN_MAJOR) {
      uint32_t from = tile + at(upper * 8 + lane % 8, first / 8 + second);
#pragma unroll
      for (int i = 0; i < COUNT; i++) f[i] = ldmatrix_x4<true>((from ^ i * 32) + k * MMA_K * PITCH);
    } else {
      uint32_t from = tile + at(first + second * 8 + lane % 8, upper);
#pragma unroll
      for (int i = 0; i < COUNT; i++) f[i] = ldmatrix_x4<false>((from ^ k * 32) + i * 16 * PITCH);
    }
    if constexpr (sizeof(T) == 4)
#pragma unroll
      for (int i = 0; i < COUNT; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) f[i].r[j] = __float_as_uint(round_to_tf32(__uint_as_float(f[i].r[j])));
  }
};

// A threadblock tile TILE_M_ × TILE_N_, shared out among WARPS_M × WARPS_N warps; BLOCKS of them fit an SM's registers.
template <int TILE_M_, int TILE_N_, int WARPS_M, int WARPS_N, int BLOCKS_> struct MmaShape {
  static constexpr int TILE_M = TILE_M_, TILE_N = TILE_N_, BLOCKS = BLOCKS_;
  static constexpr int THREADS = 32 * WARPS_M * WARPS_N, WARP_M = TILE_M / WARPS_M, WARP_N = TILE_N / WARPS_N;
  __device__ static int warp_m() { return threadIdx.x / 32 / WARPS_N * WARP_M; }
  __device__ static int warp_n() { return threadIdx.x / 32 % WARPS_N * WARP_N; }
};

enum { MMA_STAGES = 3 };

// The chip that tiles and slices of split-K are chosen for. It is not asked for: the order of a sum must not depend on
// it.
enum {
  MMA_MULTIPROCESSORS = 132,
  MMA_STAGE_MACS = 13,      // M × N of a stage that one of them computes in a cycle, at best
  MMA_BYTES_A_CYCLE = 2000, // of the memory
};

template <class T_, class Shape, bool A_MN_MAJOR, bool B_MN_MAJOR> struct MmaTile : Shape {
  using T = T_;
  using A = MmaOperand<T, true, Shape::TILE_M, A_MN_MAJOR, Shape::THREADS>;
  using B = MmaOperand<T, false, Shape::TILE_N, B_MN_MAJOR, Shape::THREADS>;
  static constexpr int TILE_K = A::TILE_K, K_BLOCKS = 4; // K_BLOCKS: instructions of a stage
  static constexpr int FRAGMENTS_M = Shape::WARP_M / 16, FRAGMENTS_N = Shape::WARP_N / 16; // of a warp tile
  static constexpr int STAGE_BYTES = A::BYTES + B::BYTES, BYTES = MMA_STAGES * STAGE_BYTES;
  // The epilogue's staging buffer: all accumulators of a warp.
  static constexpr int EPILOGUE_PITCH = Shape::WARP_N + 8, EPILOGUE_ELEMENTS = Shape::WARP_M * EPILOGUE_PITCH;
  static_assert(Shape::THREADS / 32 * EPILOGUE_ELEMENTS * (int)sizeof(float) <= BYTES);
};

template <class Tile> struct MmaAccumulator {
  float fragment[Tile::FRAGMENTS_M][2 * Tile::FRAGMENTS_N][4]; // of 16 × 8
};
template <class Tile> struct MmaFragments {
  Fragment a[Tile::FRAGMENTS_M], b[Tile::FRAGMENTS_N];
  __device__ __forceinline__ void load_fragments(uint32_t stage, int k) {
    Tile::A::load_fragments(a, stage, Tile::warp_m(), k);
    Tile::B::load_fragments(b, stage + Tile::A::BYTES, Tile::warp_n(), k);
  }
};

template <class Tile>
__device__ __forceinline__ void mma_warp_tile(MmaAccumulator<Tile> &acc, const MmaFragments<Tile> &f) {
#pragma unroll
  for (int i = 0; i < Tile::FRAGMENTS_M; i++)
#pragma unroll
    for (int j = 0; j < 2 * Tile::FRAGMENTS_N; j++)
      mma_sync<typename Tile::T>(acc.fragment[i][j], f.a[i], f.b[j / 2], j % 2);
}

// Mainloop over k_tiles, a cp.async pipeline of MMA_STAGES: load_a(stage) and then load_b(stage) start the copies of
// the next stage, zeros past the end of K: a branch round them would keep the compiler from scattering them among the
// instructions that multiply.
// Fragments are loaded one k-block ahead, across stages too: the barrier stands before the last k-block of a stage,
// when every warp has loaded all it needs of it, so that this k-block hides the barrier and the first load after it.
template <class Tile, class LoadA, class LoadB>
__device__ __forceinline__ void mma_mainloop(MmaAccumulator<Tile> &acc, int k_tiles, LoadA load_a, LoadB load_b) {
#pragma unroll
  for (int i = 0; i < Tile::FRAGMENTS_M; i++)
#pragma unroll
    for (int j = 0; j < 2 * Tile::FRAGMENTS_N; j++)
#pragma unroll
      for (int k = 0; k < 4; k++) acc.fragment[i][j][k] = 0.f;
  if (k_tiles <= 0) return;
  uint32_t first = shared_address(dynamic_shared()), end = first + Tile::BYTES, read_stage = first, write_stage = first;
  for (int i = 0; i < MMA_STAGES - 1; i++) {
    load_a(write_stage);
    load_b(write_stage);
    cp_async_commit();
    write_stage += Tile::STAGE_BYTES;
  }
  cp_async_wait<MMA_STAGES - 2>();
  __syncthreads();
  MmaFragments<Tile> fragments[2];
  fragments[0].load_fragments(read_stage, 0);
  for (int k_tile = 0; k_tile < k_tiles; k_tile++) {
#pragma unroll
    for (int k = 0; k < Tile::K_BLOCKS; k++) {
      if (k == Tile::K_BLOCKS - 1) {
        cp_async_wait<MMA_STAGES - 2>();
        __syncthreads();
        read_stage = read_stage + Tile::STAGE_BYTES == end ? first : read_stage + Tile::STAGE_BYTES;
      }
      fragments[(k + 1) % 2].load_fragments(
          read_stage, (k + 1) % Tile::K_BLOCKS); // past the last stage: stale data, which is not used
      if (k == 0) load_a(write_stage);
      if (k == 1) {
        load_b(write_stage);
        cp_async_commit();
        write_stage = write_stage + Tile::STAGE_BYTES == end ? first : write_stage + Tile::STAGE_BYTES;
      }
      mma_warp_tile(acc, fragments[k % 2]);
    }
  }
  cp_async_wait<0>();
  __syncthreads(); // the epilogue reuses the stages
}

// The column of the tile that mma_epilogue gives to a lane: the same in all rows.
template <class Tile> __device__ __forceinline__ int mma_epilogue_column() {
  constexpr int GROUPS_PER_ROW = Tile::WARP_N / 8;
  static_assert(32 % GROUPS_PER_ROW == 0);
  return Tile::warp_n() + threadIdx.x % GROUPS_PER_ROW * 8;
}

// Epilogue: hands out the tile in groups of eight channels, through shared memory, since a lane's accumulators are no
// such groups: write(row, Eight, read(row)) for each, at the lane's column. BATCH groups are read before the first is
// written, so that their latencies overlap. Before that amend(row, group) may change the group in shared memory. This
// runs once a tile, straight from the instruction caches' lower levels: short loops are faster than long code.
template <int BATCH, class Tile, class Amend, class Read, class Write>
__device__ __forceinline__ void mma_epilogue(const MmaAccumulator<Tile> &acc, Amend amend, Read read, Write write) {
  constexpr int GROUPS_PER_ROW = Tile::WARP_N / 8, ROWS_PER_PASS = 32 / GROUPS_PER_ROW;
  int lane = threadIdx.x % 32, first = lane / GROUPS_PER_ROW;
  float *staging = (float *)dynamic_shared() + threadIdx.x / 32 * Tile::EPILOGUE_ELEMENTS,
        *own = staging + lane % GROUPS_PER_ROW * 8;
#pragma unroll
  for (int i = 0; i < Tile::FRAGMENTS_M; i++)
#pragma unroll
    for (int j = 0; j < 2 * Tile::FRAGMENTS_N; j++)
#pragma unroll
      for (int k = 0; k < 4; k++) {
        int row = Tile::A::fragment_mn(i, k / 2 * 8 + lane / 4), column = j * 8 + lane % 4 * 2 + k % 2;
        staging[row * Tile::EPILOGUE_PITCH + column] = acc.fragment[i][j][k];
      }
  __syncwarp();
#pragma unroll 1
  for (int row = first; row < Tile::WARP_M && amend(Tile::warp_m() + row, own + row * Tile::EPILOGUE_PITCH);
       row += ROWS_PER_PASS) {
  }
#pragma unroll 1
  for (int row = first; row < Tile::WARP_M; row += BATCH * ROWS_PER_PASS) {
    decltype(read(0)) reads[BATCH];
#pragma unroll
    for (int j = 0; j < BATCH; j++) reads[j] = read(Tile::warp_m() + row + j * ROWS_PER_PASS);
#pragma unroll
    for (int j = 0; j < BATCH; j++)
      write(Tile::warp_m() + row + j * ROWS_PER_PASS, load8(own + (row + j * ROWS_PER_PASS) * Tile::EPILOGUE_PITCH),
            reads[j]);
  }
}

// Whether a block has the shared memory for it.
template <class Tile> static bool mma_fits(const Device *dev) {
  int bytes;
  CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, dev->index));
  return Tile::BYTES <= bytes;
}

// ---- rung 04's other files ------------------------------------------------------------------------------------------

void mma_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out);
// wgrad of a dense layer, a filter that covers its input, of few images: 128 in 16 bits, 64 of floats.
bool mma_dense_fits(const Conv *conv, const Tensor *x, const Tensor *dw);
int mma_dense_squares(Device *dev, const Conv *conv, const Tensor *x, const Tensor *dw); // as conv_squares of nn/ops.h
void mma_dense_wgrad(Device *dev, const Tensor *x, const Tensor *dy, const FilterGrad *out);
