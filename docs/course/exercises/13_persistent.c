// Exercise 13 of docs/course/conv/13_persistent.md: the tiles of one block of a persistent kernel, in the order in
// which it computes them, and the cost of the last wave. Tiles are numbered band after band; a band is `band` columns
// of tiles wide, the last one as wide as what remains, and is numbered row by row from left to right.
#include "docs/course/exercises/conv.h"

BlockSchedule block_schedule(const TileGrid *grid, int block, TilePosition *tile) {
  BlockSchedule schedule = {0, 0, 0};
  // ---- your code ----
  // ---- end of your code ----
  return schedule;
}
