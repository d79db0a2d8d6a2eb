// The heuristic of rung 05, forward and dgrad: the threadblock tile, and whether the tail wave is a launch of its own.
// By shapes and the number of multiprocessors (SMs) granted alone; no accumulation order depends on it.
#pragma once
#include <limits.h>
#include <math.h>
#include "cuda/conv/wgmma_scheduler.cuh"

// Cycles of a launch by threadblock tiles of this shape, of the rows from `begin` on and before `end`, by so many
// blocks at once. In each wave of blocks: the first tile's mainloop, which is bound by the tensor cores or by what L2
// delivers (58 bytes a cycle to each SM), its prologue, and its epilogue, by the bytes of results. About half of the
// epilogue is left where a store warp takes it, and after the last tile. Tiles of 192 columns have to be cheaper by
// 3 %. Interleaved problems are counted as if they were not. Fitted to an H200's times of the network's convolutions
// with every shape, at batch 1, 2, 3, 4 and 16, in TF32 too: what is chosen takes 0.2 % longer than the fastest shapes,
// on average.
static inline double launch_cost(const WgmmaParams &p, int blocks, int rows, int columns, int begin, int end) {
  int bytes = (int)dtype_size(p.mapped[0].problem.view.in.dtype), tile_k = SWIZZLE_ROW / bytes;
  int tiles_n = blocks_for(p.mapped[0].problem.out.t.ldc, columns), tiles = 0, waves = 0;
  double stage = MAX(rows * columns / 32.0, (rows + columns) * SWIZZLE_ROW / 58.0), cycles = 0;
  for (int i = 0; i < p.problems; i++) {
    const Im2colView &view = p.mapped[i].problem.view;
    int begun = waves;
    tiles += blocks_for(rows_between(view, begin, end), rows) * tiles_n;
    waves = blocks_for(tiles, blocks);
    cycles +=
        (waves - begun) * (k_tiles_of(view, tile_k) * stage + 250); // waves that begin with a tile of this problem
  }
  double each = (columns >= 128 ? 0.18 : 0.38) * rows * columns * bytes, last = 0.22 * rows * columns * bytes;
  return (cycles + (waves - 1) * each + last) * (columns == 192 ? 1.03 : 1);
}

struct TileConfig {
  int rows, columns;
  void (*launch)(Device *, WgmmaParams &, const Tensor *w, int begin, int end);
};
// Rows `begin` … `end` of all problems, by one shape of tiles.
struct LaunchRange {
  const TileConfig *tiles;
  int begin, end;
  double cost; // cycles
};
struct LaunchPlan {
  int count;
  LaunchRange of[2];
};

static inline LaunchRange cheapest_launch(const WgmmaParams &p, int blocks, const TileConfig *configs, int count,
                                          int begin, int end) {
  LaunchRange best = {NULL, begin, end, INFINITY};
  for (const TileConfig *c = configs; c < configs + count; c++) {
    double cost = launch_cost(p, blocks, c->rows, c->columns, begin, end);
    if (cost < best.cost) {
      best.tiles = c;
      best.cost = cost;
    }
  }
  return best;
}

// The cheapest way: one launch, or, against wave quantisation, one of the whole waves and then one of the rows that are
// left, in tiles that there are more of. The second launch does not wait for the first (programmatic dependent launch):
// its blocks begin where the first's have ended. That is safe since the first lets it begin only when all has ended
// that both read; since they write different rows; and since the second ends after the first, for whoever comes next.
// Where SMs are left to collectives and idle, its blocks begin on these. It has to save SECOND_LAUNCH cycles, since it
// takes some thousand until its blocks multiply; where less was to be saved, it was as often slower.
static inline LaunchPlan plan_launches(const WgmmaParams &p, int blocks, const TileConfig *configs, int count) {
  constexpr double SECOND_LAUNCH = 9000;
  LaunchPlan plan = {1, {cheapest_launch(p, blocks, configs, count, 0, INT_MAX)}};
  const Im2colView &view = p.mapped[0].problem.view;
  if (p.problems > 1 || view.in.count) return plan;
  int all = view_capacity(view), channels = p.mapped[0].problem.out.t.ldc;
  double least = plan.of[0].cost;
  for (const TileConfig *c = configs; c < configs + count; c++) {
    int tiles_n = blocks_for(channels, c->columns), waves = blocks_for(all, c->rows) * tiles_n / blocks;
    int rows = waves * blocks / tiles_n * c->rows; // of tiles that fill their waves
    if (!rows || rows >= all) continue;
    LaunchRange first = {c, 0, rows, launch_cost(p, blocks, c->rows, c->columns, 0, rows)};
    LaunchRange rest = cheapest_launch(p, blocks, configs, count, rows, INT_MAX);
    double cost = first.cost + rest.cost + SECOND_LAUNCH;
    if (cost < least) {
      least = cost;
      plan = {2, {first, rest}};
    }
  }
  return plan;
}
