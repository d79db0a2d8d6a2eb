// What a launch of rung 05, forward or dgrad, computes, in which tiles, and which block takes which of them.
#pragma once
#include "cuda/conv/wgmma.cuh"

enum {
  MAX_MAPPED = 6,
  EPILOGUE_FULL = 1 + CONSUMERS,              // hardware's barriers, one for each warpgroup: boxes are there to leave,
  EPILOGUE_EMPTY = EPILOGUE_FULL + CONSUMERS, // or may be written again
  EPILOGUE_THREADS = WARPGROUP + 32,          // that meet at them: who multiplies, and the warp that sends
  PIPELINE_INIT = EPILOGUE_EMPTY + CONSUMERS, // two more: for the warps that fetch,
  PIPELINE_STARTED,                           // and for all with work, when each of these has asked for its first stage
  PRODUCER_THREADS = 2 * 32,
  RASTER_BAND = 8,      // tiles across that are neighbours in the order of tiles, at most
  INTERLEAVE_WAVES = 8, // of tiles for each block, from which parts with different sums may take turns
};

// One of the products that a launch computes, and the maps of the pixels that it reads and writes.
struct MappedProblem {
  CUtensorMap pixels, result;
  GemmProblem problem;
  bool reads_dense; // the positions are the pixels of what is read, in order
};
// The tiles of each part.
struct TileOrder {
  int first[MAX_MAPPED + 1]; // tile
  int tiles_m[MAX_MAPPED];   // tiles one below the other
};
// How the parts share the order of tiles: one after the other, or in turns, a row of tiles each.
struct Interleave {
  int last;                       // part; 0: no turns
  int problem_bits, tiles_n_bits; // of the number of parts, and of tiles across: both are powers of two
};
// What is read first stands first: it comes from memory, line by line.
struct WgmmaParams {
  int problems, tiles_n; // tiles across
  Divider band;          // tiles of a band: across is a multiple of it
  int filter_width;      // taps
  bool counted;          // the device alone knows how many rows hold data, and so the order
  Interleave interleave;
  TileOrder order; // where it is not counted
  int k_tiles[MAX_MAPPED];
  int first_row;      // of the parts; the launch before this one computes those before it
  uint64_t policy;    // for lines of pixels
  CUtensorMap filter; // [columns of the filter bank, taps, channels]
  MappedProblem mapped[MAX_MAPPED];
};
static_assert(sizeof(WgmmaParams) <= 4096, "a kernel's arguments");

// ROWS × COLUMNS of a result, by one block. BY_TERM: the filter is read with its terms as rows, in columns of 64 channels.
// Results leave in one piece, or in two where floats would leave too little room for stages.
template <class T_, int TILE_M_, int TILE_N_, bool MN_MAJOR_> struct WgmmaTile {
  using T = T_;
  static constexpr int TILE_M = TILE_M_, TILE_N = TILE_N_;
  static constexpr bool MN_MAJOR = MN_MAJOR_;
  static constexpr int TILE_K = SWIZZLE_ROW / sizeof(T);          // terms of a stage: one swizzled row
  static constexpr int MMA_K = WGMMA_K * 2 / sizeof(T);           // of a wgmma
  static constexpr int WGMMAS_M = TILE_M / (CONSUMERS * WGMMA_M); // wgmmas of a warpgroup
  static constexpr int PANEL_BYTES = TILE_K * SWIZZLE_ROW;        // by term: 64 channels of a stage's terms
  static constexpr int PANELS = (TILE_N + 63) / 64;
  static constexpr int A_BYTES = TILE_M * SWIZZLE_ROW, B_BYTES = MN_MAJOR ? PANELS * PANEL_BYTES : TILE_N * SWIZZLE_ROW;
  static constexpr int PIECES = sizeof(T) == 4 && TILE_N == 256 ? 2 : 1, PIECE = TILE_N / PIECES;
  using Staging = EpilogueTile<T, PIECE>; // of a warp
  static constexpr int STAGE_BYTES = A_BYTES + B_BYTES, STAGING_BYTES = Staging::BYTES;
  static constexpr int ALL_STAGING_BYTES = TILE_M / WGMMA_WARP_M * STAGING_BYTES;
  static constexpr int ALL_STAGES =
      (MAX_SHARED - SWIZZLE_ATOM - 5 * 1024 - ALL_STAGING_BYTES) / STAGE_BYTES; // 5 KB: the schedule
  static constexpr int STAGES = ALL_STAGES < 8 ? ALL_STAGES : 8,
                       BYTES = STAGES * STAGE_BYTES + ALL_STAGING_BYTES + SWIZZLE_ATOM;
  static_assert(STAGES >= 3 && WGMMAS_M >= 1 && TILE_M <= 256 && B_BYTES % SWIZZLE_ATOM == 0);
  static_assert(!MN_MAJOR || sizeof(T) == 2);

  // Whether a warp of its own sends a warpgroup's results: it then waits until TMA has taken them, instead of the warps that
  // multiply. That costs time where there is little to be sent, or nothing else to be done meanwhile.
  static constexpr bool has_store_warp(bool single) { return TILE_N >= 128 && !single; }
  // That meet when the ring is ready: all but warps without work.
  static constexpr int started_threads(bool single) {
    return CONSUMERS * WARPGROUP + PRODUCER_THREADS + (has_store_warp(single) ? CONSUMERS * 32 : 0);
  }
};

// ---- the order of tiles -----------------------------------------------------------------------------------------------

// What a block has in shared memory besides its stages.
template <class Tile> struct WgmmaShared {
  TileOrder order;                                   // where the device knows it
  alignas(8) float bias[CONSUMERS][2][Tile::TILE_N]; // of a warpgroup's tile, and of the one before or after
  PipelineBarriers<Tile::STAGES> pipe;
};

// Stages of a sum: taps by blocks of so many channels. A part that no tap meets has one of zeros.
static int k_tiles_of(const Im2colView &view, int depth) {
  int taps = im2col_taps(&view.im2col);
  return taps ? taps * blocks_for(view.in.ldc, depth) : 1;
}
template <class Tile> __host__ __device__ __forceinline__ int tiles_m_of(int rows) {
  return (rows + Tile::TILE_M - 1) / Tile::TILE_M;
}

static int bits_of(int count) {
  int bits = 0;
  while (1 << bits < count) bits++;
  return bits;
}
// The phases of a stride read the same pixels and write neighbouring ones. In turns they find the pixels in L2, and lines are
// whole again before they leave it: a fifth of the time where both are large. Unless sums are equally long, each block has to
// have some rounds of tiles, with another part in each; and phases that only write zeros are faster by themselves.
static Interleave interleave_of(const WgmmaParams &p, int blocks) {
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
  interleave &= p.tiles_n == (int)p.band.by; // a row of part_tile's is one of find_work's
  int strips = blocks >> t.tiles_n_bits, next = strips + (strips >> t.problem_bits); // by which a block's part changes
  bool waves = next & t.last && p.order.first[p.problems] >= INTERLEAVE_WAVES * blocks;
  return interleave && (equal || waves) ? t : Interleave{};
}

// Rows of a part from `begin` on, and before `end`.
static inline int rows_between(const Im2colView &view, int begin, int end) {
  return MIN(view_capacity(view), end) - begin;
}

// Counts the tiles of the rows from p.first_row on and before `end`, and puts them in order; so many blocks run at once.
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

// Past the device-side count of a part's rows there are no tiles. By a warp, a lane for each part.
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

// A tile of a part. In turns, each row of tiles begins with the next part. By shifts, which the compiler can do in uniform
// registers, unlike `divide`: what follows from the part then stays there, too.
struct ProblemTile {
  int problem, tile;
};
__device__ __forceinline__ ProblemTile problem_tile(const WgmmaParams &p, const TileOrder &counted, int tile) {
  if (p.interleave.last) {
    int staging = tile >> p.interleave.tiles_n_bits, row = staging >> p.interleave.problem_bits;
    return {staging + row & p.interleave.last, tile - (staging - row << p.interleave.tiles_n_bits)};
  }
  int problem = problem_of(p, counted, tile);
  return {problem, problem ? tile - first_tile_of(p, counted, problem) : tile};
}

struct TileOrigin {
  int row, column;
};
// Tiles that share pixels are neighbours; where the filters of all columns would not stay in L2, a band of them is.
template <class Tile>
__device__ __forceinline__ TileOrigin tile_origin(const WgmmaParams &p, const TileOrder &counted,
                                                  const ProblemTile &of) {
  int left = 0, width = p.band.by, rest = of.tile;
  if (p.tiles_n > width) {
    int band = (p.counted ? counted.tiles_m[of.problem] : p.order.tiles_m[of.problem]) * width;
    for (; rest >= band; rest -= band) left += width; // few: no division
  }
  int row = divide(rest, p.band), column = left + rest - row * width;
  return {p.first_row + row * Tile::TILE_M, column * Tile::TILE_N};
}
