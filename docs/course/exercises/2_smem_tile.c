// Exercise 2 of docs/course/conv/02_smem_tile.md: a block's tile of C. For every SHARED_K columns of K, fill both tiles
// from slow memory, with zeros outside a matrix, and multiply them in fast memory. In a kernel, the block's threads
// would replace each of the loops over a tile.
#include "docs/course/exercises/conv.h"

void block_tile(const ProductShape *shape, int row, int column, float a[SHARED_M][SHARED_K],
                float b[SHARED_N][SHARED_K], float c[SHARED_M][SHARED_N]) {
  for (int i = 0; i < SHARED_M; i++)
    for (int j = 0; j < SHARED_N; j++) c[i][j] = 0;
  for (int first = 0; first < shape->k; first += SHARED_K) {
    // ---- your code ----
    // ---- end of your code ----
  }
}
