// Catches crops of the wrong pixels, and crops that overwrite each other.
#include "data/pictures/crops.h"
#include "test/harness/png_pixels.h"
#include "test/harness/test.h"

enum { SIDE = 8 };
static const ResultClass class_list[] = {{1, "traffic light"}, {2, "../a-b"}, {3, NULL}};
static const ResultClasses classes = {class_list, COUNT(class_list)};

static Image gradient(void) {
  Image im = image_alloc(SIDE, SIDE);
  for (int i = 0; i < 3 * SIDE * SIDE; i++) im.rgb[i] = (uint8_t)i;
  return im;
}

TEST(crops_are_cut_along_boxes) {
  char *folder = xasprintf("%s/crops", test_tmp()), *first = xasprintf("%s/x-0001-traffic_light.png", folder);
  uint8_t mask[SIDE * SIDE] = {[2 * SIDE + 1] = 1, [3 * SIDE + 3] = 1};
  CocoResult found[] = {
      {.category_id = 1, .score = 0.9, .bbox = {1.2, 2.0, 2.3, 1.6}, .has_segm = true}, // pixels 1 … 3, 2 … 3
      {.category_id = 2, .score = 0.8, .bbox = {-5, 6.5, 100, 100}},                    // to the end, rows 6 and 7
      {.category_id = 2, .score = 0.7, .bbox = {9, 9, 1, 1}},                           // outside
      {.category_id = 3, .score = 0.6, .bbox = {0, 0, 0.5, 0.5}},
      {.category_id = 3, .score = 0.4, .bbox = {0, 0, 1, 1}},
  };
  found[0].rle = rle_from_bytes(mask, SIDE, SIDE);
  Image image = gradient();
  Crops c;
  Err err;
  if (EXPECT(crops_open(&c, folder, true, &classes, 0, &err)) &&
      EXPECT(crops_write(&c, "x", &image, found, COUNT(found), 0.5, &err))) {
    PngFile png = png_file_read(first);
    if (EXPECT(png.h == 2 && png.w == 3 && png.channels == 4))
      for (int i = 0; i < 2 * 3; i++) {
        const int at = (2 + i / 3) * SIDE + 1 + i % 3;
        EXPECT(!memcmp(png.bytes + 4 * i, image.rgb + 3 * at, 3));
        EXPECT_INT(png.bytes[4 * i + 3], mask[at] ? 255 : 0);
      }
    free(png.bytes);
    char *second = xasprintf("%s/x-0002-.._a_b.png", folder), *fourth = xasprintf("%s/x-0004-.png", folder);
    png = png_file_read(second); // it has no mask: all of it is opaque
    if (EXPECT(png.h == 2 && png.w == SIDE && png.channels == 3))
      EXPECT(!memcmp(png.bytes, image.rgb + 3 * 6 * SIDE, 3 * 2 * SIDE));
    free(png.bytes);
    EXPECT(path_is_file(fourth));
    free(second);
    free(fourth);
    char *third = xasprintf("%s/x-0003-.._a_b.png", folder), *fifth = xasprintf("%s/x-0005-.png", folder);
    EXPECT(!path_is_file(third) && !path_is_file(fifth));
    free(third);
    free(fifth);
  }
  crops_close(&c);
  EXPECT(!crops_open(&c, folder, true, &classes, 0, &err) && strstr(err.msg, "/crops is not empty, and"));
  EXPECT(crops_open(&c, folder, false, &classes, 1, &err)); // another rank has begun already
  EXPECT(!crops_write(&c, "no/folder", &image, found, 1, 0, &err) && strstr(err.msg, "cannot write"));
  crops_close(&c);
  image_free(&image);
  rle_free(&found[0].rle);
  free(folder);
  free(first);
}

// Boxes that no image has: far away, without a size, not finite.
TEST(crops_of_stray_boxes) {
  static const double stray[] = {0, -1, 3.5, 1e9, -1e9, 1e300, -1e300, INFINITY, -INFINITY, NAN};
  char *folder = xasprintf("%s/stray", test_tmp());
  Image image = gradient();
  Crops c;
  Err err;
  if (EXPECT(crops_open(&c, folder, false, &classes, 0, &err)))
    for (int i = 0; i < COUNT(stray) * COUNT(stray); i++) {
      const double a = stray[i / COUNT(stray)], b = stray[i % COUNT(stray)];
      const CocoResult found = {.category_id = 1, .score = 1, .bbox = {a, b, b, a}};
      EXPECT(crops_write(&c, "x", &image, &found, 1, 0, &err));
    }
  crops_close(&c);
  image_free(&image);
  free(folder);
}
