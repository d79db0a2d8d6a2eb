// Exercise 3 of docs/course/conv/03_register_tile.md: what limits how many blocks share a multiprocessor? Count by
// blocks, by warps, by registers and by shared memory; the least of the four holds. Registers belong to a scheduler,
// and a warp's lie with one: how many warps fit there? Schedulers get warps in turn, whichever block they are of.
#include "docs/course/exercises/conv.h"

int resident_blocks(BlockNeeds block) {
  int blocks = 0;
  // ---- your code ----
  // ---- end of your code ----
  return blocks;
}
