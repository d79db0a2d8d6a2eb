// Walks the grid band by band, assigns tiles to the blocks in turn, and compares with the schedule of each block.
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/conv.h"

enum { MOST = 600 };

static void check_block(const TileGrid *g, int block, const TilePosition *all) {
  static TilePosition tile[MOST + 1];
  const int tiles = g->rows * g->columns, waves = (tiles + g->blocks - 1) / g->blocks;
  for (int i = 0; i <= MOST; i++) tile[i] = (TilePosition){-1, -1};
  const BlockSchedule s = block_schedule(g, block, tile);
  int turns = 0;
  for (int number = block; number < tiles; number += g->blocks, turns++) {
    const TilePosition want = all[number], got = tile[turns];
    if (got.row != want.row || got.column != want.column)
      difference("%d x %d tiles, bands of %d, %d blocks: tile %d of block %d is (%d, %d), not (%d, %d)", g->rows,
                 g->columns, g->band, g->blocks, turns, block, got.row, got.column, want.row, want.column);
  }
  if (s.tiles != turns || tile[turns].row != -1)
    difference("%d tiles, %d blocks: block %d has %d tiles, not %d", tiles, g->blocks, block, turns, s.tiles);
  if (s.waves != waves) difference("%d tiles, %d blocks: %d waves, not %d", tiles, g->blocks, waves, s.waves);
  if (s.idle != waves * g->blocks - tiles)
    difference("%d tiles, %d blocks: %d blocks are idle in the last wave, not %d", tiles, g->blocks,
               waves * g->blocks - tiles, s.idle);
}

static void check(const TileGrid *g) {
  static TilePosition all[MOST];
  int n = 0;
  for (int left = 0; left < g->columns; left += g->band)
    for (int row = 0; row < g->rows; row++)
      for (int column = left; column < left + g->band && column < g->columns; column++)
        all[n++] = (TilePosition){row, column};
  for (int block = 0; block < g->blocks; block++) check_block(g, block, all);
}

int main(void) {
  static const TileGrid grids[] = {{1, 1, 1, 1},    {1, 1, 1, 4},  {5, 4, 4, 3},    {5, 4, 2, 3},
                                   {7, 5, 2, 6},    {7, 5, 8, 6},  {16, 8, 8, 132}, {17, 8, 8, 132},
                                   {33, 8, 4, 132}, {6, 7, 3, 42}, {6, 7, 3, 41},   {64, 9, 4, 132}};
  for (int i = 0; i < (int)(sizeof grids / sizeof *grids); i++) check(&grids[i]);
  return solved();
}
