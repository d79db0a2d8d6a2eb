// Exercise 9 of docs/course/conv/09_swizzle.md: an order of chunks without bank conflicts. Eight chunks of 16 bytes
// cover the 32 banks once: every row of eight chunks begins at bank 0; of rows of four, every second one does.
#include "docs/course/exercises/conv.h"

int swizzled(int chunks, int row, int chunk) {
  int position = chunk;
  // ---- your code ----
  // ---- end of your code ----
  return position;
}
