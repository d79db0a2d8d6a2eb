// What a launch of rung 05, forward or dgrad, computes, in which tiles, and which block takes which of them.
#pragma once
#include "cuda/conv/wgmma.cuh"

enum {
  MAX_MAPPED = 6,
  BAND = 8, // tiles across that are neighbours in the order of tiles, at most
};

// One of the products that a launch computes, and the maps of the pixels that it reads and writes.
struct MappedPart {
  CUtensorMap pixels, result;
  Part part;
  bool dense; // the positions are the pixels of what is read, in order
};
struct WgmmaProduct {
  CUtensorMap filter; // [columns of the filter bank, taps, channels]
  MappedPart of[MAX_MAPPED];
  int parts, across; // tiles across
  Divider band;      // tiles of a band: across is a multiple of it
  int filter_width;  // taps
};
static_assert(sizeof(WgmmaProduct) <= 4096, "a kernel's arguments");

// ROWS × COLUMNS of a result, by one block. CLUSTER blocks, one below the other, share the filter's tile, of which each
// fetches a part for all. BY_TERM: the filter is read with its terms as rows, in columns of 64 channels. Results leave in
// one piece, or in two where floats would leave too little room for stages.
template <class T_, int ROWS_, int COLUMNS_, int CLUSTER_, bool BY_TERM_> struct WgmmaTile {
  using T = T_;
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, CLUSTER = CLUSTER_;
  static constexpr bool BY_TERM = BY_TERM_;
  static constexpr int DEPTH = SWIZZLE_ROW / sizeof(T);        // terms of a stage: one swizzled row
  static constexpr int TERMS = WGMMA_TERMS * 2 / sizeof(T);    // of a wgmma
  static constexpr int DOWN = ROWS / (CONSUMERS * WGMMA_ROWS); // wgmmas of a warpgroup
  static constexpr int CHUNK = DEPTH * SWIZZLE_ROW;            // by term: 64 channels of a stage's terms
  static constexpr int CHUNKS = (COLUMNS + 63) / 64;
  static constexpr int A_BYTES = ROWS * SWIZZLE_ROW, B_BYTES = BY_TERM ? CHUNKS * CHUNK : COLUMNS * SWIZZLE_ROW;
  static constexpr int PIECES = sizeof(T) == 4 && COLUMNS == 256 ? 2 : 1, PIECE = COLUMNS / PIECES;
  static constexpr int STAGE = A_BYTES + B_BYTES, BOX = Box<T, PIECE>::BYTES;
  static constexpr int BOXES = ROWS / WARP_ROWS * BOX;
  static constexpr int ALL_STAGES = (MAX_SHARED - SWIZZLE_ATOM - 5 * 1024 - BOXES) / STAGE; // 5 KB: the schedule
  static constexpr int STAGES = ALL_STAGES < 8 ? ALL_STAGES : 8, BYTES = STAGES * STAGE + BOXES + SWIZZLE_ATOM;
  static_assert(STAGES >= 3 && DOWN >= 1 && ROWS <= 256 && B_BYTES % SWIZZLE_ATOM == 0);
  static_assert(BY_TERM ? sizeof(T) == 2 && CHUNKS % CLUSTER == 0 : COLUMNS / CLUSTER % 8 == 0);
};

// ---- the order of tiles -----------------------------------------------------------------------------------------------

// What a block has in shared memory besides its stages.
template <class Tile> struct Schedule {
  int first[MAX_MAPPED + 1];                          // tile of each part, counted in tiles of a cluster
  int down[MAX_MAPPED];                               // its tiles one below the other
  int stages[MAX_MAPPED];                             // of its sums
  alignas(8) float bias[CONSUMERS][2][Tile::COLUMNS]; // of a warpgroup's tile, and of the one before or after
  RingBarriers<Tile::STAGES> ring;
};
struct Work {
  int row, column;
};

// Stages of a sum: taps by blocks of channels. A part that no tap meets has one of zeros.
template <class Tile> __device__ __forceinline__ int stages_of(const Gather &g) {
  int taps = g.walk.y.taps * g.walk.x.taps;
  return taps ? taps * ((g.in.ldc + Tile::DEPTH - 1) / Tile::DEPTH) : 1;
}

// Past the device-side count of a part's rows there are no tiles. By a warp, a lane for each part: all of it is read for
// the first time, and nothing else can begin before.
template <class Tile> __device__ __forceinline__ void count_tiles(const WgmmaProduct &p, Schedule<Tile> &s) {
  int lane = threadIdx.x % 32, tiles = 0;
  if (lane < p.parts) {
    const Gather &g = p.of[lane].part.gather;
    int down = (gather_rows(g) + Tile::ROWS * Tile::CLUSTER - 1) / (Tile::ROWS * Tile::CLUSTER);
    s.down[lane] = down;
    s.stages[lane] = stages_of<Tile>(g);
    tiles = down * p.across;
  }
#pragma unroll 1
  for (int by = 1; by < p.parts; by *= 2) {
    int before = __shfl_up_sync(~0u, tiles, by);
    if (lane >= by) tiles += before;
  }
  if (lane < p.parts) s.first[lane + 1] = tiles;
  if (lane == 0) s.first[0] = 0;
}
template <class Tile> __device__ __forceinline__ int part_of(const Schedule<Tile> &s, int tile) {
  int i = 0;
  while (tile >= s.first[i + 1]) i++;
  return i;
}

// Tiles that share pixels are neighbours; where the filters of all columns would not stay in L2, a band of them is.
template <class Tile>
__device__ __forceinline__ Work find_work(const WgmmaProduct &p, const Schedule<Tile> &s, int tile, int part,
                                          int rank) {
  int rest = tile - s.first[part], left = 0, width = p.band.by;
  if (p.across > width)
    for (int band = s.down[part] * width; rest >= band; rest -= band) left += width; // few: no division
  int row = divide(rest, p.band), column = left + rest - row * width;
  return {(row * Tile::CLUSTER + rank) * Tile::ROWS, column * Tile::COLUMNS};
}
