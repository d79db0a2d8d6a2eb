// Products of small integers, whose sums are exact, for shapes that are no multiples of a tile; reads of A and B are
// counted.
#include <math.h>
#include <string.h>
#include "base/rng.h"
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/conv.h"

enum { MOST = 64 };
static ProductShape shape;
static int reads_a[MOST][MOST], reads_b[MOST][MOST]; // by the current tile

static float element(int matrix, int i, int k) {
  return (float)((int)(rng_u32((uint64_t)matrix, (uint64_t)(i * MOST + k)) % 9) - 4);
}
float read_a(int row, int k) {
  if (row < 0 || row >= shape.m || k < 0 || k >= shape.k)
    difference("%d x %d x %d: A is read at (%d, %d), outside", shape.m, shape.n, shape.k, row, k);
  reads_a[row][k]++;
  return element(0, row, k);
}
float read_b(int column, int k) {
  if (column < 0 || column >= shape.n || k < 0 || k >= shape.k)
    difference("%d x %d x %d: B is read at (%d, %d), outside", shape.m, shape.n, shape.k, column, k);
  reads_b[column][k]++;
  return element(1, column, k);
}

static void check_reads(char matrix, int (*reads)[MOST], int first, int rows, int last) {
  for (int i = 0; i < last; i++)
    for (int k = 0; k < shape.k; k++) {
      const int want = i >= first && i < first + rows;
      if (reads[i][k] != want)
        difference("%d x %d x %d: a tile reads %c at (%d, %d) %d times, not %d", shape.m, shape.n, shape.k, matrix, i,
                   k, reads[i][k], want);
    }
}

static void check_tile(int row, int column) {
  float a[SHARED_M][SHARED_K], b[SHARED_N][SHARED_K], c[SHARED_M][SHARED_N];
  for (int k = 0; k < SHARED_K; k++) {
    for (int i = 0; i < SHARED_M; i++) a[i][k] = NAN;
    for (int j = 0; j < SHARED_N; j++) b[j][k] = NAN;
  }
  memset(reads_a, 0, sizeof reads_a);
  memset(reads_b, 0, sizeof reads_b);
  block_tile(&shape, row, column, a, b, c);
  for (int i = 0; i < SHARED_M; i++)
    for (int j = 0; j < SHARED_N; j++) {
      float want = 0;
      for (int k = 0; k < shape.k && row + i < shape.m && column + j < shape.n; k++)
        want += element(0, row + i, k) * element(1, column + j, k);
      if (!(c[i][j] == want))
        difference("%d x %d x %d: C at (%d, %d) is %g, not %g", shape.m, shape.n, shape.k, row + i, column + j, c[i][j],
                   want);
    }
  check_reads('A', reads_a, row, SHARED_M, shape.m);
  check_reads('B', reads_b, column, SHARED_N, shape.n);
}

int main(void) {
  static const ProductShape shapes[] = {{8, 16, 4},  {8, 16, 12}, {16, 32, 8}, {8, 16, 6},
                                        {11, 16, 8}, {8, 17, 8},  {1, 1, 1},   {30, 50, 23}};
  for (int s = 0; s < (int)(sizeof shapes / sizeof *shapes); s++) {
    shape = shapes[s];
    for (int row = 0; row < shape.m; row += SHARED_M)
      for (int column = 0; column < shape.n; column += SHARED_N) check_tile(row, column);
  }
  return solved();
}
