// Exercise 13 of docs/course/conv/13_persistent.md: the tiles of one block of a persistent kernel, in the order in
// which it computes them, and what the last wave costs. Tiles are numbered band after band; a band is `band` columns of
// tiles wide, the last one what is left, and within it row after row from left to right.
#include "docs/course/exercises/conv.h"

BlockSchedule block_schedule(const TileGrid *grid, int block, TilePosition *tile) {
  BlockSchedule schedule = {0, 0, 0};
  // ---- your code ----
  // ---- end of your code ----
  return schedule;
}
