// Exercise 9 of docs/course/conv/09_swizzle.md: an order of chunks without bank conflicts. Eight chunks of 16 bytes are
// once through the 32 banks: a row of eight begins at bank 0, like every other; of rows of four, every second one does.
#include "docs/course/exercises/conv.h"

int swizzled(int chunks, int row, int chunk) {
  int position = chunk;
  // ---- your code ----
  // ---- end of your code ----
  return position;
}
