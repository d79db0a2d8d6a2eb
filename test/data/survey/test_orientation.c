// Catches directions of objects that are not those of their masks, and objects counted that tell nothing.
#include <math.h>
#include <string.h>
#include "data/survey/orientation.h"
#include "test/harness/test.h"

static const double PI = 3.14159265358979323846;
enum { OBJECTS = 72 };

// Corners of a rectangle about a point, turned by an angle.
static void rectangle(double xy[8], double x, double y, double length, double width, double angle) {
  static const double corner[4][2] = {{-1, -1}, {1, -1}, {1, 1}, {-1, 1}};
  for (int i = 0; i < 4; i++) {
    const double u = corner[i][0] * length / 2, v = corner[i][1] * width / 2;
    xy[2 * i] = x + u * cos(angle) - v * sin(angle);
    xy[2 * i + 1] = y + u * sin(angle) + v * cos(angle);
  }
}

TEST(orientation_of_a_polygon) {
  double xy[16];
  int points[2] = {4, 4};
  size_t first[2] = {0, 8};
  const Coco c = {.xy = xy, .part_points = points, .part_first = first};
  CocoAnn a = {.type = SEG_POLYGONS, .parts = 1};
  for (int degrees = -80; degrees <= 80; degrees += 20) {
    rectangle(xy, 100, 50, 40, 10, degrees * PI / 180);
    const Axis axis = mask_axis(&c, &a);
    EXPECT_NEAR(axis.area, 400, 1e-9);
    EXPECT_NEAR(axis.ratio, 4, 1e-9);
    EXPECT_NEAR(axis.angle, degrees * PI / 180, 1e-9);
  }
  // Two squares side by side are twice as long as wide, whichever way their corners run.
  rectangle(xy, 10, 10, 8, 8, 0);
  rectangle(xy + 8, 10, 18, -8, 8, 0);
  a.parts = 2;
  const Axis both = mask_axis(&c, &a);
  EXPECT_NEAR(both.area, 128, 1e-9);
  EXPECT_NEAR(both.ratio, 2, 1e-9);
  EXPECT_NEAR(fabs(both.angle), PI / 2, 1e-9);
  for (int i = 0; i < 8; i++) xy[i] *= 1e300;
  EXPECT(mask_axis(&c, &a).area == 0);
  a.type = SEG_NONE;
  EXPECT(mask_axis(&c, &a).area == 0);
}

// Of pixels one by one.
TEST(orientation_of_runs) {
  static const char *const rows[] = {"..........", ".##.......", ".####..#..",
                                     "...####...", ".....###..", ".......##."};
  enum { H = COUNT(rows), W = 10 };
  uint8_t mask[H * W];
  double n = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;
  for (int i = 0; i < H * W; i++) mask[i] = rows[i / W][i % W] == '#';
  for (int i = 0; i < H * W; i++) {
    if (!mask[i]) continue;
    n++;
    x += i % W;
    y += (double)(i / W);
  }
  for (int i = 0; i < H * W; i++) {
    const double u = i % W - x / n, v = (double)(i / W) - y / n;
    if (!mask[i]) continue;
    xx += u * u / n;
    yy += v * v / n;
    xy += u * v / n;
  }
  Rle r = rle_from_bytes(mask, H, W);
  const Coco c = {.runs = r.runs};
  const CocoAnn a = {.type = SEG_RLE, .rle_h = H, .rle_w = W, .num_runs = r.n};
  const Axis axis = mask_axis(&c, &a);
  const double mean = (xx + yy) / 2, apart = hypot((xx - yy) / 2, xy);
  EXPECT_NEAR(axis.area, n, 0);
  EXPECT_NEAR(axis.angle, atan2(2 * xy, xx - yy) / 2, 1e-9);
  EXPECT_NEAR(axis.ratio, sqrt((mean + apart) / (mean - apart)), 1e-9);
  rle_free(&r);
}

// A picture of objects at the angles of `step` degrees, in 200 pixels; the first `cut` touch its edge.
static Orientation orientation_at(double step, double width, int cut) {
  static double xy[OBJECTS * 8];
  static int points[OBJECTS];
  static size_t first[OBJECTS];
  static CocoAnn anns[OBJECTS];
  static Object objects[OBJECTS];
  CocoImage image = {.h = 200, .w = 200, .anns = OBJECTS};
  for (int i = 0; i < OBJECTS; i++) {
    rectangle(xy + (size_t)i * 8, 100, 100, 40, width, i * step * PI / 180);
    points[i] = 4;
    first[i] = (size_t)i * 8;
    anns[i] = (CocoAnn){.type = SEG_POLYGONS, .parts = 1, .first_part = i, .bbox = {i < cut ? 0 : 50, 50, 100, 100}};
    objects[i] = (Object){.ann = i, .label = 1};
  }
  const Dataset d = {.coco = {.images = &image,
                              .num_images = 1,
                              .anns = anns,
                              .num_anns = OBJECTS,
                              .xy = xy,
                              .part_points = points,
                              .part_first = first},
                     .num_images = 1,
                     .image = (int[]){0},
                     .object = objects,
                     .first_object = (int[]){0, OBJECTS}};
  return orientation_of(&d);
}

TEST(orientation_of_a_data_set) {
  const Orientation all = orientation_at(5, 10, 0), sides = orientation_at(90, 10, 0), cut = orientation_at(90, 10, 30);
  EXPECT(all.objects == OBJECTS && all.aligned < 1e-9);
  EXPECT_INT(sides.objects, OBJECTS);
  EXPECT_NEAR(sides.aligned, 1, 1e-9);
  EXPECT_INT(cut.objects, OBJECTS - 30);
  EXPECT(orientation_at(5, 35, 0).objects == 0); // hardly longer than wide
  EXPECT(orientation_at(5, 2, 0).objects == 0);  // of 80 pixels
}
