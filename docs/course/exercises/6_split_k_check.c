// Sums of numbers of very different magnitude, where another order of addition gives other bits, with slices in several
// orders. Products are exact, so that a compiler may fuse them with the sum. Writing past the workspace, or reading
// past the vectors, is detected.
#include <math.h>
#include <string.h>
#include "base/rng.h"
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/conv.h"

enum { MOST_K = 300, MOST_SLICES = 16 };
static float a[MOST_K + 1], b[MOST_K + 1];

static float wanted(int k, int slices) {
  const int tiles = (k + SPLIT_K_TILE - 1) / SPLIT_K_TILE;
  float sum = 0;
  int at = 0;
  for (int s = 0; s < slices; s++) {
    float part = 0;
    for (; at < k && at / SPLIT_K_TILE < tiles * (s + 1) / slices; at++) part += a[at] * b[at];
    sum += part;
  }
  return sum;
}

// Slices in ascending order, in descending order, or odd ones first.
static void check(int k, int slices, int how) {
  float workspace[MOST_SLICES + 1];
  int order[MOST_SLICES];
  const int odd = slices / 2;
  for (int i = 0; i < slices; i++)
    order[i] = how == 0 ? i : how == 1 ? slices - 1 - i : i < odd ? 2 * i + 1 : 2 * (i - odd);
  for (int i = 0; i <= MOST_SLICES; i++) workspace[i] = NAN;
  const float got = split_k_dot(k, a, b, slices, order, workspace), want = wanted(k, slices);
  if (memcmp(&got, &want, sizeof got))
    difference("%d elements in %d slices, %s: the sum is %.9g, not %.9g", k, slices,
               how == 0   ? "first slice first"
               : how == 1 ? "last slice first"
                          : "odd slices first",
               got, want);
  for (int i = slices; i <= MOST_SLICES; i++)
    if (!isnan(workspace[i])) difference("%d elements in %d slices: part %d is written", k, slices, i);
}

int main(void) {
  static const int sizes[] = {MOST_K, 256, 64, 37, 8, 4, 3, 1, 0};
  for (int n = 0; n < (int)(sizeof sizes / sizeof *sizes); n++) {
    const int k = sizes[n];
    for (int i = 0; i < k; i++) {
      a[i] = ldexpf((float)((int)(rng_u32(1, (uint64_t)i) % 2047) - 1023), (int)(rng_u32(2, (uint64_t)i) % 20));
      b[i] = 1 + (float)(rng_u32(3, (uint64_t)i) % 7);
    }
    a[k] = b[k] = NAN;
    for (int slices = 1; slices <= MOST_SLICES; slices++)
      for (int how = 0; how < 3; how++) check(k, slices, how);
  }
  return solved();
}
