// A product of small integers, with fragments whose layout only this file knows; loads, products and stores are
// counted.
#include <math.h>
#include <string.h>
#include "base/rng.h"
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/conv.h"

static int loads, products, stores;

// Where element (i, j) of a fragment lies among its 256.
static float *position(const WarpMatrix *f, int i, int j) { return (float *)f->of_lane + (37 * (16 * i + j)) % 256; }

WarpMatrix fragment_load(const float *from, int pitch) {
  WarpMatrix f;
  loads++;
  for (int i = 0; i < FRAGMENT; i++)
    for (int j = 0; j < FRAGMENT; j++) *position(&f, i, j) = from[i * pitch + j];
  return f;
}

void fragment_multiply(WarpMatrix *acc, const WarpMatrix *a, const WarpMatrix *b) {
  products++;
  for (int i = 0; i < FRAGMENT; i++)
    for (int j = 0; j < FRAGMENT; j++)
      for (int k = 0; k < FRAGMENT; k++) *position(acc, i, j) += *position(a, i, k) * *position(b, j, k);
}

void fragment_store(float *to, int pitch, const WarpMatrix *acc) {
  stores++;
  for (int i = 0; i < FRAGMENT; i++)
    for (int j = 0; j < FRAGMENT; j++) to[i * pitch + j] = *position(acc, i, j);
}

static void fill(float *matrix, int elements, uint64_t seed) {
  for (int i = 0; i < elements; i++) matrix[i] = (float)((int)(rng_u32(seed, (uint64_t)i) % 9) - 4);
}

static void count(const char *what, int got, int want) {
  if (got != want) difference("the result is right, but fragments are %s %d times, not %d", what, got, want);
}

int main(void) {
  enum { M = WARP_M / FRAGMENT, N = WARP_N / FRAGMENT, K = WARP_K / FRAGMENT };
  static float a[WARP_M * WARP_K + 256], b[WARP_N * WARP_K + 256], c[WARP_M * WARP_N + 256];
  fill(a, WARP_M * WARP_K, 1);
  fill(b, WARP_N * WARP_K, 2);
  for (int i = 0; i < WARP_M * WARP_N + 256; i++) c[i] = NAN;
  warp_tile(a, b, c);
  for (int i = 0; i < WARP_M; i++)
    for (int j = 0; j < WARP_N; j++) {
      float want = 0;
      for (int k = 0; k < WARP_K; k++) want += a[i * WARP_K + k] * b[j * WARP_K + k];
      if (c[i * WARP_N + j] != want) difference("c at (%d, %d) is %g, not %g", i, j, c[i * WARP_N + j], want);
    }
  for (int i = 0; i < 256; i++)
    if (!isnan(c[WARP_M * WARP_N + i])) difference("c is written %d elements past its end", i + 1);
  count("loaded", loads, (M + N) * K);
  count("multiplied", products, M * N * K);
  count("stored", stores, M * N);
  return solved();
}
