// Exercise 7 of docs/course/conv/07_wmma.md: a warp tile of fragments. For every 16 elements of K, load the
// fragments of all rows and all columns once, and multiply every pair; store the accumulators at the end.
#include "docs/course/exercises/conv.h"

void warp_tile(const float *a, const float *b, float *c) {
  WarpMatrix acc[WARP_M / FRAGMENT][WARP_N / FRAGMENT] = {0};
  // ---- your code ----
  // ---- end of your code ----
}
