// Exercise 3 of docs/course/conv/03_register_tile.md: how many blocks share a multiprocessor? Compute the limits by
// blocks, warps, registers and shared memory; the smallest one holds. Registers belong to a scheduler, and a warp's
// registers to a single one: how many warps fit there? Schedulers get warps in turn, of whichever block.
#include "docs/course/exercises/conv.h"

int resident_blocks(BlockNeeds block) {
  int blocks = 0;
  // ---- your code ----
  // ---- end of your code ----
  return blocks;
}
