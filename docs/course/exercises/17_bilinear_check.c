// Samples maps of small integers at sixteenths of a pixel, where every sum is exact: on each axis a pixel's weight is
// max(0, 1 - |distance|), after the point has been clamped to the edge.
#include <math.h>
#include "base/rng.h"
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/exercises.h"

enum { MOST = 8 };

static double weight(double at, int pixel) { return fmax(0, 1 - fabs(at - pixel)); }

static double wanted(const float *map, int h, int w, float y, float x) {
  if (!(y >= -1 && y <= h && x >= -1 && x <= w)) return 0;
  const double row = fmin(fmax(y, 0), h - 1), column = fmin(fmax(x, 0), w - 1);
  double sum = 0;
  for (int i = 0; i < h; i++)
    for (int j = 0; j < w; j++) sum += weight(row, i) * weight(column, j) * map[i * w + j];
  return sum;
}

static void check(const float *map, int h, int w, float y, float x) {
  const double got = bilinear_sample(map, h, w, y, x), want = wanted(map, h, w, y, x);
  if (got != want) difference("%d x %d pixels, at (%g, %g): the sample is %g, not %g", h, w, y, x, got, want);
}

int main(void) {
  static const int sizes[][2] = {{4, 6}, {1, 1}, {1, 5}, {MOST, MOST}};
  for (int s = 0; s < 4; s++) {
    const int h = sizes[s][0], w = sizes[s][1];
    float map[MOST * MOST + 1];
    for (int i = 0; i < h * w; i++) map[i] = (float)(rng_u32(3, (uint64_t)i) % 1000);
    map[h * w] = NAN; // past the last pixel
    for (int y = -20; y <= 16 * (h + 1); y++)
      for (int x = -20; x <= 16 * (w + 1); x++) check(map, h, w, (float)y / 16, (float)x / 16);
    check(map, h, w, NAN, 0);
    check(map, h, w, 0, NAN);
    check(map, h, w, 1e30f, 0);
    check(map, h, w, 0, -1e30f);
  }
  return solved();
}
