// How rung 05, forward and dgrad, computes a product: the shape of its tiles, and whether the last round of them is a launch
// of its own. By shapes and the number of multiprocessors alone; no sum's order depends on it.
#pragma once
#include <limits.h>
#include <math.h>
#include "cuda/conv/wgmma_tiles.cuh"

// Cycles of a launch by tiles of this shape, of the rows from `begin` on and before `end`, by so many blocks at once. In each
// round of blocks: the first tile's stages, which are bound by the tensor cores or by what L2 delivers (58 bytes a cycle to
// each multiprocessor), its beginning, and its end, by the bytes of results. About half of the end is left where a warp of its
// own sends these, and after the last tile. Tiles of 192 columns have to be cheaper by 3 %. Parts that take turns are counted
// as if they did not. Fitted to an H200's times of the network's convolutions with every shape, at batch 1, 2, 3, 4 and 16, in
// TF32 too: what is chosen takes 0.2 % longer than the fastest shapes, on average.
static inline double cost_of(const WgmmaProduct &p, int blocks, int rows, int columns, int begin, int end) {
  int bytes = (int)dtype_size(p.of[0].part.gather.in.dtype), depth = SWIZZLE_ROW / bytes;
  int across = blocks_for(p.of[0].part.out.t.ldc, columns), tiles = 0, rounds = 0;
  double stage = MAX(rows * columns / 32.0, (rows + columns) * SWIZZLE_ROW / 58.0), cycles = 0;
  for (int i = 0; i < p.parts; i++) {
    const Gather &g = p.of[i].part.gather;
    int begun = rounds;
    tiles += blocks_for(rows_between(g, begin, end), rows) * across;
    rounds = blocks_for(tiles, blocks);
    cycles += (rounds - begun) * (stages_of(g, depth) * stage + 250); // rounds that begin with a tile of this part
  }
  double each = (columns >= 128 ? 0.18 : 0.38) * rows * columns * bytes, last = 0.22 * rows * columns * bytes;
  return (cycles + (rounds - 1) * each + last) * (columns == 192 ? 1.03 : 1);
}

struct TileChoice {
  int rows, columns;
  void (*launch)(Device *, WgmmaProduct &, const Tensor *w, int begin, int end);
};
// Rows `begin` … `end` of all parts, by one shape of tiles.
struct RowsLaunch {
  const TileChoice *tiles;
  int begin, end;
  double cost; // cycles
};
struct LaunchPlan {
  int count;
  RowsLaunch of[2];
};

static inline RowsLaunch cheapest_launch(const WgmmaProduct &p, int blocks, const TileChoice *choices, int count,
                                         int begin, int end) {
  RowsLaunch best = {NULL, begin, end, INFINITY};
  for (const TileChoice *c = choices; c < choices + count; c++) {
    double cost = cost_of(p, blocks, c->rows, c->columns, begin, end);
    if (cost < best.cost) best.tiles = c, best.cost = cost;
  }
  return best;
}

// What is cheapest: the whole in one launch, or, where the last round of tiles would be a short one, the rounds before it and
// then the rows that are left, in tiles that there are more of. The second launch does not wait for the first: its blocks begin
// where the first's have ended. That is safe since the first is an ordinary launch, before which all has ended that both read;
// since they write different rows; and since the second ends after the first, for whoever comes next. It has to save AGAIN
// cycles, since it takes some thousand until its blocks multiply; where less was to be saved, it was as often slower.
static inline LaunchPlan plan_launches(const WgmmaProduct &p, int blocks, const TileChoice *choices, int count) {
  constexpr double AGAIN = 9000;
  LaunchPlan plan = {1, {cheapest_launch(p, blocks, choices, count, 0, INT_MAX)}};
  const Gather &g = p.of[0].part.gather;
  if (p.parts > 1 || g.in.count) return plan;
  int all = gather_capacity(g), channels = p.of[0].part.out.t.ldc;
  double least = plan.of[0].cost;
  for (const TileChoice *c = choices; c < choices + count; c++) {
    int across = blocks_for(channels, c->columns), rounds = blocks_for(all, c->rows) * across / blocks;
    int rows = rounds * blocks / across * c->rows; // of tiles that fill their rounds
    if (!rows || rows >= all) continue;
    RowsLaunch first = {c, 0, rows, cost_of(p, blocks, c->rows, c->columns, 0, rows)};
    RowsLaunch rest = cheapest_launch(p, blocks, choices, count, rows, INT_MAX);
    double cost = first.cost + rest.cost + AGAIN;
    if (cost < least) least = cost, plan = {2, {first, rest}};
  }
  return plan;
}
