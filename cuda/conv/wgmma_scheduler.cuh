// The tile scheduler of rung 05, forward and dgrad. The kernel is persistent: a threadblock for each multiprocessor
// (SM) that is granted, which takes every gridDim.x-th tile of a grouped GEMM. Here are the kernel's parameters, the
// shape of a threadblock tile with its pipeline stages, and the order (rasterisation) of tiles, which decides what the
// blocks that run at once find in L2.
#pragma once
#include "cuda/conv/wgmma.cuh"

enum {
  MAX_MAPPED = 6,
  EPILOGUE_FULL =
      1 + CONSUMERS, // named barriers, one for each consumer warpgroup: its boxes are full, for the store warp,
  EPILOGUE_EMPTY = EPILOGUE_FULL + CONSUMERS, // or empty again
  EPILOGUE_THREADS = WARPGROUP + 32,          // that meet at them: the consumer warpgroup and its store warp
  PIPELINE_INIT =
      EPILOGUE_EMPTY + CONSUMERS, // two more: for the producer warps, the pipeline's barriers are initialised,
  PIPELINE_STARTED,               // and for all with work, each producer has issued its first stage
  PRODUCER_THREADS = 2 * 32,
  RASTER_BAND = 8,      // tiles along N that are neighbours in the order of tiles, at most
  INTERLEAVE_WAVES = 8, // of tiles for each block, from which problems with different K may be interleaved
};

// One GEMM of the group, and the tensor maps of its loads and stores.
struct MappedProblem {
  CUtensorMap pixels, result;
  GemmProblem problem;
  bool reads_dense; // the im2col matrix is the tensor: tiled mode loads it
};
// The tiles of each problem.
struct TileOrder {
  int first[MAX_MAPPED + 1]; // tile
  int tiles_m[MAX_MAPPED];   // of the problem
};
// How the problems share the order of tiles: one after the other, or interleaved, a row of tiles each.
struct Interleave {
  int last;                       // problem; 0: not interleaved
  int problem_bits, tiles_n_bits; // of the number of problems, and of tiles along N: both are powers of two
};
// The kernel's parameters. What is read first stands first: parameters come from memory, line by line.
struct WgmmaParams {
  int problems, tiles_n; // tiles_n: of each
  Divider band;          // tiles of a band: tiles_n is a multiple of it
  int filter_width;      // taps
  bool counted;          // the device alone knows how many rows hold data, and so the order
  Interleave interleave;
  TileOrder order; // where it is not counted
  int k_tiles[MAX_MAPPED];
  int first_row;      // of the problems; the launch before this one computes those before it
  uint64_t policy;    // L2 eviction priority of the activations' lines
  CUtensorMap filter; // [filters, taps, channels]
  MappedProblem mapped[MAX_MAPPED];
};
static_assert(sizeof(WgmmaParams) <= 4096, "a kernel's arguments");

// A threadblock tile TILE_M × TILE_N and its pipeline stages. MN_MAJOR: the filter is B as it lies, in panels of 64
// channels. The epilogue stages a tile in one piece, or in two where floats would leave too little room for stages.
// CLUSTER: so many neighbouring blocks have tiles of the same columns, one below the other; each loads its share of B
// for all (multicast), so that L2 is asked for B once a cluster.
template <class T_, int TILE_M_, int TILE_N_, bool MN_MAJOR_, int CLUSTER_ = 1> struct WgmmaTile {
  using T = T_;
  static constexpr int CLUSTER = CLUSTER_, CLUSTER_M = CLUSTER * TILE_M_, CLUSTER_N = TILE_N_ / CLUSTER;
  static constexpr int TILE_M = TILE_M_, TILE_N = TILE_N_;
  static constexpr bool MN_MAJOR = MN_MAJOR_;
  static constexpr int TILE_K = SWIZZLE_ROW / sizeof(T);          // of a stage: one swizzled row
  static constexpr int MMA_K = WGMMA_K * 2 / sizeof(T);           // of a wgmma
  static constexpr int WGMMAS_M = TILE_M / (CONSUMERS * WGMMA_M); // wgmmas of a consumer warpgroup
  static constexpr int PANEL_BYTES = TILE_K * SWIZZLE_ROW;        // MN-major: 64 channels of a stage's K
  static constexpr int PANELS = (TILE_N + 63) / 64;
  static constexpr int A_BYTES = TILE_M * SWIZZLE_ROW, B_BYTES = MN_MAJOR ? PANELS * PANEL_BYTES : TILE_N * SWIZZLE_ROW;
  static constexpr int PIECES = sizeof(T) == 4 && TILE_N == 256 ? 2 : 1, PIECE = TILE_N / PIECES;
  using Staging = EpilogueTile<T, PIECE>; // of a warp
  static constexpr int STAGE_BYTES = A_BYTES + B_BYTES, STAGING_BYTES = Staging::BYTES;
  static constexpr int ALL_STAGING_BYTES = TILE_M / WGMMA_WARP_M * STAGING_BYTES;
  static constexpr int ALL_STAGES =
      (MAX_SHARED - SWIZZLE_ATOM - 5 * 1024 - ALL_STAGING_BYTES) / STAGE_BYTES; // 5 KB: WgmmaShared
  static constexpr int STAGES = ALL_STAGES < 8 ? ALL_STAGES : 8,
                       BYTES = STAGES * STAGE_BYTES + ALL_STAGING_BYTES + SWIZZLE_ATOM;
  static_assert(STAGES >= 3 && WGMMAS_M >= 1 && TILE_M <= 256 && B_BYTES % SWIZZLE_ATOM == 0);
  static_assert(!MN_MAJOR || sizeof(T) == 2);
  static_assert(CLUSTER == 1 || (!MN_MAJOR && CLUSTER_N * SWIZZLE_ROW % SWIZZLE_ATOM == 0));

  // Whether a warp of its own stores a consumer warpgroup's boxes: it then waits until TMA has read them, instead of
  // the consumer warps. That costs time where there is little to store, or no next tile whose mainloop could overlap.
  static constexpr bool has_store_warp(bool single) { return TILE_N >= 128 && WGMMAS_M == 1 && !single; }
  // Threads that meet when the pipeline has started: all but those of warps without work.
  static constexpr int started_threads(bool single) {
    return CONSUMERS * WARPGROUP + PRODUCER_THREADS + (has_store_warp(single) ? CONSUMERS * 32 : 0);
  }
};

// ---- the tile scheduler ---------------------------------------------------------------------------------------------

// What a block has in static shared memory besides its stages.
template <class Tile> struct WgmmaShared {
  TileOrder order;                                   // where the device counts
  alignas(8) float bias[CONSUMERS][2][Tile::TILE_N]; // of a warpgroup's tile, and of the one before or after
  PipelineBarriers<Tile::STAGES> pipe;
};

// Mainloop iterations of a problem: taps times tiles of so many channels. A phase that no tap meets has one, of zeros.
static inline int k_tiles_of(const Im2colView &view, int tile_k) {
  int taps = im2col_taps(&view.im2col);
  return taps ? taps * blocks_for(view.in.ldc, tile_k) : 1;
}
// Of a cluster's tiles, which the scheduler hands out as one.
template <class Tile> __host__ __device__ __forceinline__ int tiles_m_of(int rows) {
  return (rows + Tile::CLUSTER_M - 1) / Tile::CLUSTER_M;
}

static inline int bits_of(int count) {
  int bits = 0;
  while (1 << bits < count) bits++;
  return bits;
}
// The phases of a strided dgrad read the same pixels and write neighbouring ones. Interleaved they find the pixels in
// L2, and lines are whole again before they are written back: a fifth of the time where both are large. Unless K is the
// same for all, each block has to have some waves of tiles, with another problem in each; and phases that only write
// zeros are faster by themselves.
static inline Interleave interleave_of(const WgmmaParams &p, int blocks) {
  const Im2colView &first = p.mapped[0].problem.view;
  bool equal = true, interleave = p.problems > 1;
  for (int i = 0; i < p.problems; i++) {
    const Im2colView &view = p.mapped[i].problem.view;
    interleave &=
        view.in.data == first.in.data && view_capacity(view) == view_capacity(first) && im2col_taps(&view.im2col) > 0;
    equal &= p.k_tiles[i] == p.k_tiles[0];
  }
  Interleave t = {p.problems - 1, bits_of(p.problems), bits_of(p.tiles_n)};
  interleave &= 1 << t.problem_bits == p.problems && 1 << t.tiles_n_bits == p.tiles_n;
  interleave &= p.tiles_n == (int)p.band.by; // a row of problem_tile's is one of tile_origin's
  int strips = blocks >> t.tiles_n_bits,
      next = strips + (strips >> t.problem_bits); // by which a block's problem changes
  bool waves = next & t.last && p.order.first[p.problems] >= INTERLEAVE_WAVES * blocks;
  return interleave && (equal || waves) ? t : Interleave{};
}

// Rows of a problem from `begin` on, and before `end`.
static inline int rows_between(const Im2colView &view, int begin, int end) {
  return MIN(view_capacity(view), end) - begin;
}

// Counts the tiles of the rows from p.first_row on and before `end`, and puts them in order; so many blocks, or
// clusters, run at once.
template <class Tile> static void schedule_tiles(WgmmaParams &p, int blocks, int end) {
  p.tiles_n = blocks_for(p.mapped[0].problem.out.t.ldc, Tile::TILE_N);
  int band = MIN(p.tiles_n, RASTER_BAND);
  while (p.tiles_n % band) band--;
  p.band = divider(band);
  p.counted = false;
  for (int i = 0; i < p.problems; i++) {
    const Im2colView &view = p.mapped[i].problem.view;
    p.order.tiles_m[i] = tiles_m_of<Tile>(rows_between(view, p.first_row, end));
    p.order.first[i + 1] = p.order.first[i] + p.order.tiles_m[i] * p.tiles_n;
    p.k_tiles[i] = k_tiles_of(view, Tile::TILE_K);
    p.counted |= view.in.count != NULL;
  }
  p.interleave = interleave_of(p, blocks);
}

// The same on the device, where it knows the rows: past their count there are no tiles. By a warp, a lane for each
// problem.
template <class Tile> __device__ __forceinline__ void count_tiles(const WgmmaParams &p, TileOrder &order) {
  int lane = threadIdx.x % 32, tiles = 0;
  if (lane < p.problems) {
    order.tiles_m[lane] = tiles_m_of<Tile>(view_rows(p.mapped[lane].problem.view));
    tiles = order.tiles_m[lane] * p.tiles_n;
  }
#pragma unroll 1
  for (int by = 1; by < p.problems; by *= 2) {
    int before = __shfl_up_sync(~0u, tiles, by);
    if (lane >= by) tiles += before;
  }
  if (lane < p.problems) order.first[lane + 1] = tiles;
  if (lane == 0) order.first[0] = 0;
}
__device__ __forceinline__ int first_tile_of(const WgmmaParams &p, const TileOrder &counted, int problem) {
  return p.counted ? counted.first[problem] : p.order.first[problem];
}

__device__ __forceinline__ int problem_of(const WgmmaParams &p, const TileOrder &counted, int tile) {
  int i = 0;
  while (i + 1 < p.problems && tile >= first_tile_of(p, counted, i + 1)) i++;
  return i;
}

// A tile of a problem. Interleaved, each row of tiles begins with the next problem. By shifts, which the compiler can
// do in uniform registers, unlike `divide`: what follows from the problem then stays there, too.
struct ProblemTile {
  int problem, tile;
};
__device__ __forceinline__ ProblemTile problem_tile(const WgmmaParams &p, const TileOrder &counted, int tile) {
  if (p.interleave.last) {
    int strip = tile >> p.interleave.tiles_n_bits, row = strip >> p.interleave.problem_bits;
    return {strip + row & p.interleave.last, tile - (strip - row << p.interleave.tiles_n_bits)};
  }
  int problem = problem_of(p, counted, tile);
  return {problem, problem ? tile - first_tile_of(p, counted, problem) : tile};
}

// Which of its cluster's blocks this is, and the tiles that it takes: the first, and the distance to the next.
template <class Tile> __device__ __forceinline__ int block_rank() {
  return Tile::CLUSTER > 1 ? blockIdx.x % Tile::CLUSTER : 0;
}
template <class Tile> __device__ __forceinline__ int block_first_tile() { return blockIdx.x / Tile::CLUSTER; }
template <class Tile> __device__ __forceinline__ int block_tile_stride() { return gridDim.x / Tile::CLUSTER; }

struct TileOrigin {
  int row, column;
};
// Rasterisation within a problem: tiles that share activations are neighbours; where the filters of all columns would
// not stay in L2, a band of them is.
template <class Tile>
__device__ __forceinline__ TileOrigin tile_origin(const WgmmaParams &p, const TileOrder &counted,
                                                  const ProblemTile &of) {
  int left = 0, width = p.band.by, rest = of.tile;
  if (p.tiles_n > width) {
    int band = (p.counted ? counted.tiles_m[of.problem] : p.order.tiles_m[of.problem]) * width;
    for (; rest >= band; rest -= band) left += width; // few: no division
  }
  int row = divide(rest, p.band), column = left + rest - row * width;
  return {p.first_row + row * Tile::CLUSTER_M + block_rank<Tile>() * Tile::TILE_M, column * Tile::TILE_N};
}
