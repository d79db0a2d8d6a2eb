// Exercise 6 of docs/course/conv/06_split_k.md: a sum in slices, whose bits do not depend on the order in which slices
// finish. Slices consist of tiles; the last tile may be short, and a slice may have no tiles.
#include "docs/course/exercises/conv.h"

float split_k_dot(int k, const float *a, const float *b, int slices, const int *order, float *workspace) {
  const int tiles = (k + SPLIT_K_TILE - 1) / SPLIT_K_TILE;
  float sum = 0;
  // ---- your code ----
  // ---- end of your code ----
  return sum;
}
