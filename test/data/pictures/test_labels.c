// Catches label maps that give a pixel to the wrong detection.
#include "data/pictures/labels.h"
#include "test/harness/png_pixels.h"
#include "test/harness/test.h"

enum { H = 4, W = 6 };

// Columns first … end - 1 of the image.
static CocoResult columns(int first, int end, int64_t category, double score) {
  CocoResult r = {.category_id = category, .score = score, .has_segm = true};
  uint8_t mask[H * W];
  for (int i = 0; i < H * W; i++) mask[i] = i % W >= first && i % W < end;
  r.rle = rle_from_bytes(mask, H, W);
  return r;
}

static void expect_row(const char *path, int sample_bytes, const int want[W]) {
  PngFile png = png_file_read(path);
  if (!EXPECT(png.h == H && png.w == W && png.channels == 1 && png.sample_bytes == sample_bytes)) return;
  for (int i = 0; i < H * W; i++) {
    const uint8_t *p = png.bytes + i * sample_bytes;
    EXPECT_INT(sample_bytes == 1 ? p[0] : p[0] << 8 | p[1], want[i % W]);
  }
  free(png.bytes);
}

TEST(labels_say_which_detection) {
  static const ResultClass few[] = {{3, "a"}, {255, "b"}}, many[] = {{3, "a"}, {300, NULL}}, bad[] = {{0, "zero"}};
  char *folder = xasprintf("%s/maps/deep", test_tmp()), *path = xasprintf("%s/x.png", folder);
  // By descending score; the second has no mask, the last is too uncertain.
  CocoResult found[] = {
      columns(2, 4, 3, 0.9), {.category_id = 3, .score = 0.8}, columns(1, 6, 255, 0.7), columns(0, 1, 3, 0.4)};
  Labels l;
  Err err;
  if (EXPECT(labels_open(&l, folder, LABELS_INSTANCES, &(ResultClasses){few, COUNT(few)}, 0, &err)) &&
      EXPECT(labels_write(&l, "x", H, W, found, COUNT(found), 0.5, &err)))
    expect_row(path, 2, (int[]){0, 3, 1, 1, 3, 3});
  labels_close(&l);
  if (EXPECT(labels_open(&l, folder, LABELS_CLASSES, &(ResultClasses){few, COUNT(few)}, 0, &err)) &&
      EXPECT(labels_write(&l, "x", H, W, found, COUNT(found), 0, &err)))
    expect_row(path, 1, (int[]){3, 255, 3, 3, 255, 255});
  labels_close(&l);
  found[2].category_id = 300;
  if (EXPECT(labels_open(&l, folder, LABELS_CLASSES, &(ResultClasses){many, COUNT(many)}, 0, &err)) &&
      EXPECT(labels_write(&l, "x", H, W, found, COUNT(found), 0.7, &err)))
    expect_row(path, 2, (int[]){0, 300, 3, 3, 300, 300});
  // What is no label map may be the user's.
  CHECK(png_write(path, &(Image){.h = 1, .w = 1, .rgb = (uint8_t[3]){0}}, PNG_FAST, &err));
  EXPECT(!labels_write(&l, "x", H, W, found, COUNT(found), 0, &err) &&
         strstr(err.msg, "/x.png exists and was not written by"));
  EXPECT(!labels_write(&l, "no/folder", H, W, NULL, 0, 0, &err) && strstr(err.msg, "cannot write"));
  labels_close(&l);
  EXPECT(!labels_open(&l, folder, LABELS_CLASSES, &(ResultClasses){bad, COUNT(bad)}, 0, &err));
  EXPECT_STR(
      err.msg,
      "category id 0 (zero) does not fit into a label map, whose values are 1 to 65535: use --label-values instances");
  for (int i = 0; i < COUNT(found); i++) rle_free(&found[i].rle);
  free(path);
  free(folder);
}
