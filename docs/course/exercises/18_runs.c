// Exercise 18 of docs/course/masks.md: bits to runs. A toggle is a position, counted down the columns, whose pixel
// differs from the one before it; a zero is assumed before the first pixel. A run lies between two toggles; the last
// one ends at the end of the mask.
#include "docs/course/exercises/exercises.h"

int runs_of_bits(int h, int w, const uint8_t *bits, uint32_t *runs) {
  int n = 0;
  // ---- your code ----
  // ---- end of your code ----
  return n;
}
