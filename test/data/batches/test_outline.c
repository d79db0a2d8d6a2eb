// Catches boxes and visible areas of moved objects that are not those of what can be seen.
//
// Compares with what can be told by hand, and with a fine grid of points, each of which is looked up in the object.
#include "base/alloc.h"
#include "base/rng.h"
#include "data/batches/outline.h"
#include "test/harness/test.h"

static void expect_extent(const Outline *o, double x1, double y1, double x2, double y2) {
  EXPECT_NEAR(o->x1, x1, 1e-9);
  EXPECT_NEAR(o->y1, y1, 1e-9);
  EXPECT_NEAR(o->x2, x2, 1e-9);
  EXPECT_NEAR(o->y2, y2, 1e-9);
}

static const float still[] = {1, 0, 0, 0, 1, 0};

TEST(outline_by_hand) {
  const double square[] = {2, 3, 6, 3, 6, 9, 2, 9};
  Outline o = outline_begin(still, 10, 10);
  outline_polygon(&o, square, 4);
  expect_extent(&o, 2, 3, 6, 9);
  EXPECT(o.whole == 24 && o.visible == 24);
  // A canvas of 4 × 5 pixels shows 2 × 2 of them.
  o = outline_begin(still, 4, 5);
  outline_polygon(&o, square, 4);
  expect_extent(&o, 2, 3, 4, 5);
  EXPECT(o.whole == 24 && o.visible == 4 && o.right == 6 && o.bottom == 9);
  // Twice as large and turned by 90°: canvas (x, y) shows (y / 2, 5 - x / 2).
  const float turned[] = {0, 0.5f, 0, -0.5f, 0, 5};
  o = outline_begin(turned, 10, 10);
  outline_polygon(&o, square, 4);
  EXPECT_NEAR(o.whole, 4 * 24, 1e-9);
  expect_extent(&o, 0, 4, 4, 10);
  EXPECT_NEAR(o.visible, 4 * 6, 1e-9);
  // All of it beyond the canvas.
  o = outline_begin(still, 2, 2);
  outline_polygon(&o, square, 4);
  EXPECT(o.visible == 0 && !(o.x2 > o.x1));
  // Not convex: a U, of which the canvas shows the two ends alone.
  const double u[] = {0, 0, 2, 0, 2, 8, 6, 8, 6, 0, 8, 0, 8, 10, 0, 10};
  o = outline_begin(still, 10, 5);
  outline_polygon(&o, u, 8);
  EXPECT(o.visible == 20 && o.whole == 80 - 4 * 8);
  expect_extent(&o, 0, 0, 8, 5);
}

// Runs that go on in the next column, whole columns, single pixels: as the polygon of each pixel.
TEST(outline_of_runs_is_that_of_their_pixels) {
  enum { H = 9, W = 13 };
  const float map[] = {0.8f, -0.4f, 2, 0.5f, 0.9f, -1};
  for (int trial = 0; trial < 60; trial++) {
    uint8_t bytes[H * W];
    const int density = 1 + trial % 3 * 4;
    for (int i = 0; i < H * W; i++)
      bytes[i] =
          trial < 3 ? trial > 0 : (int)(rng_u32(rng_key(RNG_TEST, (uint64_t)trial), (uint64_t)i / 4) % 10) < density;
    Rle mask = rle_from_bytes(bytes, H, W);
    Outline runs = outline_begin(map, 8, 7), pixels = outline_begin(map, 8, 7);
    outline_mask(&runs, &mask);
    for (int i = 0; i < H * W; i++) {
      const double x = i % W, y = i / W;
      if (bytes[i]) outline_polygon(&pixels, (double[]){x, y, x + 1, y, x + 1, y + 1, x, y + 1}, 4);
    }
    EXPECT_NEAR(runs.whole, pixels.whole, 1e-9);
    EXPECT_NEAR(runs.visible, pixels.visible, 1e-9);
    if (pixels.visible > 0) expect_extent(&runs, pixels.x1, pixels.y1, pixels.x2, pixels.y2);
    rle_free(&mask);
  }
}

static bool contains(const double *xy, int points, double x, double y) { // even-odd
  bool in = false;
  for (int i = 0, j = points - 1; i < points; j = i++)
    if ((xy[2 * i + 1] > y) != (xy[2 * j + 1] > y) &&
        x < (xy[2 * j] - xy[2 * i]) * (y - xy[2 * i + 1]) / (xy[2 * j + 1] - xy[2 * i + 1]) + xy[2 * i])
      in = !in;
  return in;
}

// A star, moved by random maps, against a grid of 8 × 8 points in each canvas pixel.
TEST(outline_of_a_star_is_where_its_points_are) {
  enum { POINTS = 14, SIDE = 24, FINE = 8 };
  double xy[2 * POINTS];
  for (int i = 0; i < POINTS; i++) {
    const double angle = 2 * 3.14159265358979 * i / POINTS, r = i % 2 ? 4 : 10;
    xy[2 * i] = 12 + r * cos(angle);
    xy[2 * i + 1] = 12 + r * sin(angle);
  }
  for (uint64_t trial = 0; trial < 8; trial++) {
    float m[6];
    for (uint64_t i = 0; i < 6; i++)
      m[i] = (float)((i % 3 == 2 ? 24 : 2) * ((double)rng_uniform(rng_key(RNG_TEST, trial), i) - 0.5));
    Outline o = outline_begin(m, SIDE, SIDE);
    outline_polygon(&o, xy, POINTS);
    double x1 = INFINITY, y1 = INFINITY, x2 = -INFINITY, y2 = -INFINITY;
    int found = 0;
    for (int i = 0; i < SIDE * FINE * SIDE * FINE; i++) {
      const double x = (i % (SIDE * FINE) + 0.5) / FINE, y = (i / (SIDE * FINE) + 0.5) / FINE;
      if (!contains(xy, POINTS, (double)m[0] * x + (double)m[1] * y + (double)m[2],
                    (double)m[3] * x + (double)m[4] * y + (double)m[5]))
        continue;
      found++;
      x1 = fmin(x1, x);
      y1 = fmin(y1, y);
      x2 = fmax(x2, x);
      y2 = fmax(y2, y);
    }
    EXPECT(found > 0 || o.visible < 1);
    // Along the boundary cells of the grid are in or out as their centres are: their errors nearly cancel.
    EXPECT_NEAR(found / (double)(FINE * FINE), o.visible, 0.02 * o.visible + 0.5);
    if (found == 0) continue;
    EXPECT(o.x1 <= x1 && o.y1 <= y1 && o.x2 >= x2 && o.y2 >= y2);             // no point is beyond, …
    EXPECT(x1 - o.x1 < 3 && y1 - o.y1 < 3 && o.x2 - x2 < 3 && o.y2 - y2 < 3); // … and the tips are narrow
  }
}
