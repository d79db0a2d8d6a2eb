// What a launch of rung 05, forward or dgrad, computes, in which tiles, and which block takes which of them.
#pragma once
#include "cuda/conv/wgmma.cuh"

enum {
  MAX_MAPPED = 6,
  BOXES_FULL = 1 + CONSUMERS,          // hardware's barriers, one for each warpgroup: boxes are there to leave,
  BOXES_FREE = BOXES_FULL + CONSUMERS, // or may be written again
  BOXES_THREADS = WARPGROUP + 32,      // that meet at them: who multiplies, and the warp that sends
  RING_THERE = BOXES_FREE + CONSUMERS, // two more: for the warps that fetch,
  RING_READY,                          // and for all with work, when each of these has asked for its first stage
  FETCH_THREADS = 2 * 32,
  BAND = 8,        // tiles across that are neighbours in the order of tiles, at most
  TURN_ROUNDS = 8, // of tiles for each block, from which parts with different sums may take turns
};

// One of the products that a launch computes, and the maps of the pixels that it reads and writes.
struct MappedPart {
  CUtensorMap pixels, result;
  Part part;
  bool reads_dense; // the positions are the pixels of what is read, in order
};
// The tiles of each part.
struct Order {
  int first[MAX_MAPPED + 1]; // tile
  int down[MAX_MAPPED];      // tiles one below the other
};
// How the parts share the order of tiles: one after the other, or in turns, a row of tiles each.
struct Turns {
  int last;                   // part; 0: no turns
  int part_bits, across_bits; // of the number of parts, and of tiles across: both are powers of two
};
// What is read first stands first: it comes from memory, line by line.
struct WgmmaProduct {
  int parts, across; // tiles across
  Divider band;      // tiles of a band: across is a multiple of it
  int filter_width;  // taps
  bool counted;      // the device alone knows how many rows hold data, and so the order
  Turns turns;
  Order order; // where it is not counted
  int stages[MAX_MAPPED];
  int first_row;      // of the parts; the launch before this one computes those before it
  uint64_t policy;    // for lines of pixels
  CUtensorMap filter; // [columns of the filter bank, taps, channels]
  MappedPart of[MAX_MAPPED];
};
static_assert(sizeof(WgmmaProduct) <= 4096, "a kernel's arguments");

// ROWS × COLUMNS of a result, by one block. BY_TERM: the filter is read with its terms as rows, in columns of 64 channels.
// Results leave in one piece, or in two where floats would leave too little room for stages.
template <class T_, int ROWS_, int COLUMNS_, bool BY_TERM_> struct WgmmaTile {
  using T = T_;
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_;
  static constexpr bool BY_TERM = BY_TERM_;
  static constexpr int DEPTH = SWIZZLE_ROW / sizeof(T);        // terms of a stage: one swizzled row
  static constexpr int TERMS = WGMMA_TERMS * 2 / sizeof(T);    // of a wgmma
  static constexpr int DOWN = ROWS / (CONSUMERS * WGMMA_ROWS); // wgmmas of a warpgroup
  static constexpr int CHUNK = DEPTH * SWIZZLE_ROW;            // by term: 64 channels of a stage's terms
  static constexpr int CHUNKS = (COLUMNS + 63) / 64;
  static constexpr int A_BYTES = ROWS * SWIZZLE_ROW, B_BYTES = BY_TERM ? CHUNKS * CHUNK : COLUMNS * SWIZZLE_ROW;
  static constexpr int PIECES = sizeof(T) == 4 && COLUMNS == 256 ? 2 : 1, PIECE = COLUMNS / PIECES;
  using Boxes = Box<T, PIECE>; // of a warp
  static constexpr int STAGE = A_BYTES + B_BYTES, BOX = Boxes::BYTES;
  static constexpr int BOXES = ROWS / WARP_ROWS * BOX;
  static constexpr int ALL_STAGES = (MAX_SHARED - SWIZZLE_ATOM - 5 * 1024 - BOXES) / STAGE; // 5 KB: the schedule
  static constexpr int STAGES = ALL_STAGES < 8 ? ALL_STAGES : 8, BYTES = STAGES * STAGE + BOXES + SWIZZLE_ATOM;
  static_assert(STAGES >= 3 && DOWN >= 1 && ROWS <= 256 && B_BYTES % SWIZZLE_ATOM == 0);
  static_assert(!BY_TERM || sizeof(T) == 2);

  // Whether a warp of its own sends a warpgroup's results: it then waits until TMA has taken them, instead of the warps that
  // multiply. That costs time where there is little to be sent, or nothing else to be done meanwhile.
  static constexpr bool sender(bool single) { return COLUMNS >= 128 && !single; }
  // That meet when the ring is ready: all but warps without work.
  static constexpr int ready_threads(bool single) {
    return CONSUMERS * WARPGROUP + FETCH_THREADS + (sender(single) ? CONSUMERS * 32 : 0);
  }
};

// ---- the order of tiles -----------------------------------------------------------------------------------------------

// What a block has in shared memory besides its stages.
template <class Tile> struct Schedule {
  Order order;                                        // where the device knows it
  alignas(8) float bias[CONSUMERS][2][Tile::COLUMNS]; // of a warpgroup's tile, and of the one before or after
  RingBarriers<Tile::STAGES> ring;
};

// Stages of a sum: taps by blocks of so many channels. A part that no tap meets has one of zeros.
static int stages_of(const Gather &g, int depth) {
  int taps = walk_taps(&g.walk);
  return taps ? taps * blocks_for(g.in.ldc, depth) : 1;
}
template <class Tile> __host__ __device__ __forceinline__ int tiles_down(int rows) {
  return (rows + Tile::ROWS - 1) / Tile::ROWS;
}

static int bits_of(int count) {
  int bits = 0;
  while (1 << bits < count) bits++;
  return bits;
}
// The phases of a stride read the same pixels and write neighbouring ones. In turns they find the pixels in L2, and lines are
// whole again before they leave it: a fifth of the time where both are large. Unless sums are equally long, each block has to
// have some rounds of tiles, with another part in each; and phases that only write zeros are faster by themselves.
static Turns turns_of(const WgmmaProduct &p, int blocks) {
  const Gather &first = p.of[0].part.gather;
  bool equal = true, turns = p.parts > 1;
  for (int i = 0; i < p.parts; i++) {
    const Gather &g = p.of[i].part.gather;
    turns &= g.in.data == first.in.data && gather_capacity(g) == gather_capacity(first) && walk_taps(&g.walk) > 0;
    equal &= p.stages[i] == p.stages[0];
  }
  Turns t = {p.parts - 1, bits_of(p.parts), bits_of(p.across)};
  turns &= 1 << t.part_bits == p.parts && 1 << t.across_bits == p.across;
  turns &= p.across == (int)p.band.by; // a row of part_tile's is one of find_work's
  int strips = blocks >> t.across_bits, next = strips + (strips >> t.part_bits); // by which a block's part changes
  bool rounds = next & t.last && p.order.first[p.parts] >= TURN_ROUNDS * blocks;
  return turns && (equal || rounds) ? t : Turns{};
}

// Rows of a part from `begin` on, and before `end`.
static inline int rows_between(const Gather &g, int begin, int end) { return MIN(gather_capacity(g), end) - begin; }

// Counts the tiles of the rows from p.first_row on and before `end`, and puts them in order; so many blocks run at once.
template <class Tile> static void order_tiles(WgmmaProduct &p, int blocks, int end) {
  p.across = blocks_for(p.of[0].part.out.t.ldc, Tile::COLUMNS);
  int band = MIN(p.across, BAND);
  while (p.across % band) band--;
  p.band = divider(band);
  p.counted = false;
  for (int i = 0; i < p.parts; i++) {
    const Gather &g = p.of[i].part.gather;
    p.order.down[i] = tiles_down<Tile>(rows_between(g, p.first_row, end));
    p.order.first[i + 1] = p.order.first[i] + p.order.down[i] * p.across;
    p.stages[i] = stages_of(g, Tile::DEPTH);
    p.counted |= g.in.count != NULL;
  }
  p.turns = turns_of(p, blocks);
}

// Past the device-side count of a part's rows there are no tiles. By a warp, a lane for each part.
template <class Tile> __device__ __forceinline__ void count_tiles(const WgmmaProduct &p, Order &order) {
  int lane = threadIdx.x % 32, tiles = 0;
  if (lane < p.parts) {
    order.down[lane] = tiles_down<Tile>(gather_rows(p.of[lane].part.gather));
    tiles = order.down[lane] * p.across;
  }
#pragma unroll 1
  for (int by = 1; by < p.parts; by *= 2) {
    int before = __shfl_up_sync(~0u, tiles, by);
    if (lane >= by) tiles += before;
  }
  if (lane < p.parts) order.first[lane + 1] = tiles;
  if (lane == 0) order.first[0] = 0;
}
__device__ __forceinline__ int first_tile(const WgmmaProduct &p, const Order &counted, int part) {
  return p.counted ? counted.first[part] : p.order.first[part];
}

__device__ __forceinline__ int part_of(const WgmmaProduct &p, const Order &counted, int tile) {
  int i = 0;
  while (i + 1 < p.parts && tile >= first_tile(p, counted, i + 1)) i++;
  return i;
}

// A tile of a part. In turns, each row of tiles begins with the next part. By shifts, which the compiler can do in uniform
// registers, unlike `divide`: what follows from the part then stays there, too.
struct PartTile {
  int part, tile;
};
__device__ __forceinline__ PartTile part_tile(const WgmmaProduct &p, const Order &counted, int tile) {
  if (p.turns.last) {
    int strip = tile >> p.turns.across_bits, row = strip >> p.turns.part_bits;
    return {strip + row & p.turns.last, tile - (strip - row << p.turns.across_bits)};
  }
  int part = part_of(p, counted, tile);
  return {part, part ? tile - first_tile(p, counted, part) : tile};
}

struct Work {
  int row, column;
};
// Tiles that share pixels are neighbours; where the filters of all columns would not stay in L2, a band of them is.
template <class Tile>
__device__ __forceinline__ Work find_work(const WgmmaProduct &p, const Order &counted, const PartTile &of) {
  int left = 0, width = p.band.by, rest = of.tile;
  if (p.across > width) {
    int band = (p.counted ? counted.down[of.part] : p.order.down[of.part]) * width;
    for (; rest >= band; rest -= band) left += width; // few: no division
  }
  int row = divide(rest, p.band), column = left + rest - row * width;
  return {p.first_row + row * Tile::ROWS, column * Tile::COLUMNS};
}
