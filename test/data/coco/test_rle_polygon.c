// Catches polygons whose masks differ from pycocotools' (test_rle.c has its own), and work without bound.
#include "base/alloc.h"
#include "base/rng.h"
#include "data/coco/rle.h"
#include "test/harness/test.h"

static void expect_runs(const Rle *r, const uint32_t *runs, int n) {
  EXPECT_INT(r->n, n);
  for (int i = 0; i < MIN(n, r->n); i++) EXPECT_INT(r->runs[i], runs[i]);
}

TEST(rle_polygon_covers_pixel_middles) {
  Rle square = rle_from_bbox((double[]){1, 1, 2, 2}, 5, 5); // pixels 1 and 2 both ways
  expect_runs(&square, (uint32_t[]){6, 2, 3, 2, 12}, 5);
  rle_free(&square);
  Rle whole = rle_from_bbox((double[]){-3, -3, 100, 100}, 4, 6);
  expect_runs(&whole, (uint32_t[]){0, 24}, 2);
  rle_free(&whole);
  Rle outside = rle_from_bbox((double[]){20, 0, 5, 5}, 4, 6);
  expect_runs(&outside, (uint32_t[]){24}, 1);
  rle_free(&outside);
  Rle nothing = rle_from_polygon(NULL, 0, 4, 6);
  expect_runs(&nothing, (uint32_t[]){24}, 1);
  rle_free(&nothing);
}

// Whatever the coordinates, the runs add up and the canonical form holds: no run but the first is empty.
TEST(rle_polygon_survives_stray_coordinates) {
  static const double stray[] = {0, -0.5, 3.3, 1e3, -1e3, 1e7, -1e7, 1e300, -1e300, INFINITY, -INFINITY, NAN};
  for (uint64_t round = 0; round < 60; round++) {
    double xy[8];
    for (int i = 0; i < COUNT(xy); i++) xy[i] = stray[rng_u32(round, (uint64_t)i) % (round % 10 ? 5u : 12u)];
    Rle r = rle_from_polygon(xy, 4, 9, 7);
    uint32_t sum = 0;
    for (int i = 0; i < r.n; i++) {
      EXPECT(i == 0 || r.runs[i] > 0);
      sum += r.runs[i];
    }
    EXPECT_INT(sum, 63);
    rle_free(&r);
  }
}

// However many edges a polygon has, its memory is bounded by its pixels. Triangles that share a corner and cover it,
// added by exclusive or, are the same mask: what they toggle twice cancels.
TEST(rle_polygon_of_many_edges) {
  enum { H = 70, W = 90, POINTS = 20000 };
  static double xy[2 * POINTS];
  static uint8_t want[H * W], got[H * W], triangle[H * W];
  Scratch scratch = {0};
  memset(want, 0, sizeof want);
  for (int i = 0; i < 2 * POINTS; i++) xy[i] = (double)rng_uniform(1, (uint64_t)i) * (i % 2 ? H : W);
  for (int i = 1; i + 1 < POINTS; i++) {
    const double *p = xy + 2 * (size_t)i;
    Rle part = rle_from_polygon((double[]){xy[0], xy[1], p[0], p[1], p[2], p[3]}, 3, H, W);
    rle_to_bytes(&part, triangle);
    for (int k = 0; k < H * W; k++) want[k] ^= triangle[k];
    rle_free(&part);
  }
  for (int in_scratch = 0; in_scratch < 2; in_scratch++) {
    Rle mask = rle_from_polygon_in(in_scratch ? &scratch : NULL, xy, POINTS, H, W);
    rle_to_bytes(&mask, got);
    EXPECT(!memcmp(got, want, sizeof got));
    if (!in_scratch) rle_free(&mask);
  }
  EXPECT(scratch.used + scratch.more_bytes < 400000);
  scratch_free(&scratch);
}

// Edges three times are the same mask, but too many crossings for the list that serves few: both ways of filling must
// agree, also beyond a tile of columns, below the last row and past the last column.
TEST(rle_polygon_of_many_crossings) {
  static const int size[][2] = {{3001, 1500}, {2, 16000}, {40, 9000}, {20000, 70}, {600, 640}};
  enum { POINTS = 400, TIMES = 3 };
  for (int i = 0; i < COUNT(size); i++)
    for (int points = 3; points <= POINTS; points *= 11) {
      const int h = size[i][0], w = size[i][1];
      const double span = MIN(1.2 * w, 2 * 16000. / points);
      double xy[TIMES * 2 * POINTS];
      for (int k = 0; k < 2 * points; k++) {
        const double at = (double)rng_uniform(rng_key(RNG_TEST, (uint64_t)(100 * i + points)), (uint64_t)k);
        xy[k] = k % 2 ? h * (1.2 * at - 0.1) : 0.5 * w + span * (at - 0.5);
      }
      for (int k = 2 * points; k < TIMES * 2 * points; k++) xy[k] = xy[k - 2 * points];
      Rle few = rle_from_polygon(xy, points, h, w), many = rle_from_polygon(xy, TIMES * points, h, w);
      EXPECT(few.n == many.n && !memcmp(few.runs, many.runs, (size_t)few.n * sizeof *few.runs));
      rle_free(&few);
      rle_free(&many);
    }
}

// 20,000 edges across a picture of a million columns: there and back, so that nothing is left.
TEST(rle_polygon_of_long_edges) {
  enum { POINTS = 20000, W = 1000000 };
  static double xy[2 * POINTS];
  for (int i = 0; i < POINTS; i += 2) xy[2 * i] = W;
  Rle nothing = rle_from_polygon(xy, POINTS, 1, W);
  expect_runs(&nothing, (uint32_t[]){W}, 1);
  rle_free(&nothing);
}
