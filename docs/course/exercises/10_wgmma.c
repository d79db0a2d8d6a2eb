// Exercise 10 of docs/course/conv/10_wgmma.md: the 64-bit descriptor of a wgmma operand in shared memory. The tile is
// the chapter's: consecutive rows of 64 bf16 values, 128 bytes, in the 128-byte swizzle.
#include "docs/course/exercises/conv.h"

uint64_t wgmma_descriptor(uint32_t tile, int row, int k) {
  uint64_t descriptor = 0;
  // ---- your code ----
  // ---- end of your code ----
  return descriptor;
}
