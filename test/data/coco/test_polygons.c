// Catches masks that change when they are written as polygons.
#include <stdlib.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "data/coco/polygons.h"
#include "test/harness/test.h"

enum { MOST = 24 };

static bool inside(const uint8_t *mask, int h, int w, int y, int x) {
  return y >= 0 && y < h && x >= 0 && x < w && mask[y * w + x];
}

// Edges run along the sides of pixels: once where these are the mask's outline; otherwise, for slits, twice and between
// pixels of the mask.
static void expect_edges(const Contours *c, const uint8_t *mask, int h, int w) {
  int across[MOST + 1][MOST + 1] = {0}, down[MOST + 1][MOST + 1] = {0}; // above pixel (y, x), to the left of it
  const double *xy = c->xy;
  int wrong = 0;
  for (int i = 0; i < c->parts; xy += 2 * c->points[i++])
    for (int k = 0; k < c->points[i]; k++) {
      const double *p = xy + 2 * k, *q = xy + 2 * ((k + 1) % c->points[i]);
      wrong += (p[0] == q[0]) == (p[1] == q[1]); // a point twice, or something aslant
      for (int y = (int)fmin(p[1], q[1]); y < (int)fmax(p[1], q[1]); y++) down[y][(int)p[0]]++;
      for (int x = (int)fmin(p[0], q[0]); x < (int)fmax(p[0], q[0]); x++) across[(int)p[1]][x]++;
    }
  for (int y = 0; y <= h; y++)
    for (int x = 0; x <= w; x++) {
      const bool here = inside(mask, h, w, y, x), above = inside(mask, h, w, y - 1, x);
      wrong += down[y][x] != (here != inside(mask, h, w, y, x - 1));
      wrong += here != above ? across[y][x] != 1 : across[y][x] != 0 && (across[y][x] != 2 || !here);
    }
  EXPECT_INT(wrong, 0);
}

// As COCO reads polygons: the union of the parts.
static Rle polygons_rle(const Contours *c, int h, int w) {
  if (c->parts == 0) return rle_from_polygon(NULL, 0, h, w);
  Rle *parts = xmalloc((size_t)c->parts * sizeof *parts);
  const double *xy = c->xy;
  for (int i = 0; i < c->parts; i++) {
    parts[i] = rle_from_polygon(xy, c->points[i], h, w);
    xy += 2 * (size_t)c->points[i];
  }
  Rle all = rle_merge(parts, c->parts, false);
  for (int i = 0; i < c->parts; i++) rle_free(&parts[i]);
  free(parts);
  return all;
}

static void expect_back(const uint8_t *mask, int h, int w) {
  Rle want = rle_from_bytes(mask, h, w);
  Contours c = polygons_of(&want);
  Rle got = polygons_rle(&c, h, w);
  EXPECT(got.n == want.n && !memcmp(got.runs, want.runs, (size_t)want.n * sizeof *want.runs));
  double area = 0;
  const double *xy = c.xy;
  for (int i = 0; i < c.parts; xy += 2 * c.points[i++]) area += contour_area(xy, c.points[i]);
  EXPECT_NEAR(area, (double)rle_area(&want), 0); // integers
  expect_edges(&c, mask, h, w);
  rle_free(&got);
  rle_free(&want);
  contours_free(&c);
}

// Noise of every density has pieces and holes within holes that touch in every way.
TEST(polygons_rasterise_back_to_the_mask) {
  enum { ROUNDS = 2000 };
  uint8_t mask[MOST * MOST];
  for (uint64_t round = 0; round < ROUNDS; round++) {
    const uint64_t key = rng_key(RNG_TEST, round);
    const int h = 1 + (int)(rng_u32(key, 0) % MOST), w = 1 + (int)(rng_u32(key, 1) % MOST);
    const float density = (float)(rng_u32(key, 2) % 9) / 8; // 0 and 1 included
    for (int i = 0; i < h * w; i++) mask[i] = rng_uniform(key, 3 + (uint64_t)i) < density;
    expect_back(mask, h, w);
  }
}

// Every mask of 4 × 4 pixels with a border of the mask's own around it: each hole that fits, alone and beside others.
TEST(polygons_have_any_small_hole) {
  enum { INNER = 4, SIDE = INNER + 2 };
  for (unsigned bits = 0; bits < 1u << INNER * INNER; bits++) {
    uint8_t mask[SIDE * SIDE];
    memset(mask, 1, sizeof mask);
    for (int i = 0; i < INNER * INNER; i++) mask[(1 + i / INNER) * SIDE + 1 + i % INNER] = bits >> i & 1;
    expect_back(mask, SIDE, SIDE);
  }
}

// A slit leads from the hole's upper left corner to the left side, where it adds a point that it leaves by as well.
TEST(polygons_cut_a_slit) {
  static const uint8_t ring[] = {1, 1, 1, 1, 0, 1, 1, 1, 1};
  static const double want[] = {0, 0, 3, 0, 3, 3, 0, 3, 0, 1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1, 0, 1};
  Rle r = rle_from_bytes(ring, 3, 3);
  Contours c = polygons_of(&r);
  EXPECT_INT(c.parts, 1);
  if (EXPECT_INT(c.points[0], COUNT(want) / 2)) {
    int at = 0; // the polygon may begin with any of its points
    while (at < c.points[0] && (c.xy[2 * at] != 0 || c.xy[2 * at + 1] != 0)) at++;
    for (int i = 0; i < COUNT(want); i++) EXPECT_NEAR(c.xy[(2 * at + i) % COUNT(want)], want[i], 0);
  }
  contours_free(&c);
  rle_free(&r);
}
