// Catches synthetic scenes whose annotations do not match their pixels, or change under the same seed.
#include <omp.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "data/coco/coco.h"
#include "data/coco/contour.h"
#include "data/coco/layout.h"
#include "data/images/png.h"
#include "data/shapes/shapes.h"
#include "test/harness/test.h"

// A random mask: scattered pixels, which meet by corners, or discs added and taken away.
static void random_mask(uint8_t *mask, int h, int w, uint64_t key) {
  memset(mask, 0, (size_t)h * w);
  if (rng_u32(key, 0) % 2) {
    for (int i = 0; i < h * w; i++) mask[i] = rng_uniform(key, 100 + (uint64_t)i) < 0.3f;
    return;
  }
  for (uint64_t k = 0; k < 4; k++) {
    float cy = rng_uniform(key, 1 + 3 * k) * (float)h, cx = rng_uniform(key, 2 + 3 * k) * (float)w;
    float radius = 1 + 6 * rng_uniform(key, 3 + 3 * k);
    for (int y = 0; y < h; y++)
      for (int x = 0; x < w; x++)
        if (hypotf((float)y - cy, (float)x - cx) < radius) mask[y * w + x] = k != 2;
  }
}

TEST(contours_rasterise_back_to_the_mask) {
  enum { SIDE = 24, ROUNDS = 1000 };
  uint8_t mask[SIDE * SIDE], back[SIDE * SIDE];
  int traced = 0, several = 0;
  for (uint64_t round = 0; round < ROUNDS; round++) {
    uint64_t key = rng_key(RNG_TEST, round);
    int h = 1 + (int)(rng_u32(key, 50) % SIDE), w = 1 + (int)(rng_u32(key, 51) % SIDE);
    random_mask(mask, h, w, key);
    Contours c;
    if (!contours_trace(&c, mask, h, w)) continue;
    Rle parts[SIDE * SIDE];
    const double *xy = c.xy;
    for (int i = 0; i < c.parts; i++) {
      parts[i] = rle_from_polygon(xy, c.points[i], h, w);
      xy += 2 * c.points[i];
    }
    memset(back, 0, sizeof back);
    if (c.parts) {
      Rle all = rle_merge(parts, c.parts, false);
      rle_to_bytes(&all, back);
      rle_free(&all);
    }
    EXPECT(!memcmp(mask, back, (size_t)h * w));
    for (int i = 0; i < c.parts; i++) rle_free(&parts[i]);
    traced++;
    several += c.parts > 1;
    contours_free(&c);
  }
  EXPECT(traced > ROUNDS / 2 && several > ROUNDS / 10);
}

TEST(contours_refuse_holes) {
  static const uint8_t ring[] = {1, 1, 1, 1, 0, 1, 1, 1, 1}, open_ring[] = {1, 1, 1, 1, 0, 1, 1, 1, 0};
  Contours c;
  EXPECT(!contours_trace(&c, ring, 3, 3));
  // A gap at a corner opens the hole: pixels of the background that touch by corners belong together.
  if (EXPECT(contours_trace(&c, open_ring, 3, 3))) {
    EXPECT_INT(c.parts, 1);
    contours_free(&c);
  }
}

TEST(scenes_keep_their_promises) {
  enum { SIZE = 96, SCENES = 60 };
  int by_class[SHAPE_CLASSES] = {0}, crowds = 0, occluded = 0, sizes[2] = {0};
  uint8_t *count = xmalloc(SIZE * SIZE), *mask = xmalloc(SIZE * SIZE);
  for (uint64_t i = 0; i < SCENES; i++) {
    ShapeScene s;
    shapes_scene(&s, SIZE, rng_key(RNG_TEST, i));
    memset(count, 0, SIZE * SIZE);
    int shapes = 0;
    for (int k = 0; k < s.n; k++) {
      const ShapeInstance *item = &s.items[k];
      EXPECT_INT(item->mask.h * item->mask.w, SIZE * SIZE);
      int area = (int)rle_area(&item->mask);
      EXPECT(area > 0 && area <= item->whole && 2 * area >= item->whole);
      occluded += area < item->whole;
      rle_to_bytes(&item->mask, mask);
      for (int p = 0; p < SIZE * SIZE; p++) count[p] += mask[p];
      crowds += item->crowd;
      if (item->crowd) continue;
      shapes++;
      by_class[item->category]++;
      double box[4];
      rle_bbox(&item->mask, box);
      double side = MAX(box[2], box[3]);
      EXPECT(side <= SIZE / 2 + 1); // a diameter of half the image may straddle one more pixel
      sizes[side > SIZE / 4]++;
    }
    EXPECT(shapes >= 2 && shapes <= 8);
    int most = 0;
    for (int p = 0; p < SIZE * SIZE; p++) most = MAX(most, count[p]);
    EXPECT_INT(most, 1); // visible parts do not overlap
    shapes_scene_free(&s);
  }
  for (int c = 0; c < SHAPE_CLASSES; c++) EXPECT(by_class[c] > 10);
  EXPECT(crowds > 0 && crowds < SCENES / 3 && occluded > 20 && sizes[0] > 30 && sizes[1] > 30);
  free(count);
  free(mask);
}

TEST(scenes_depend_on_the_key_alone) {
  ShapeScene a, b, other;
  shapes_scene(&a, 64, 5);
  shapes_scene(&other, 64, 6);
  shapes_scene(&b, 64, 5);
  EXPECT(a.n == b.n && !memcmp(a.image.rgb, b.image.rgb, 64 * 64 * 3));
  EXPECT(memcmp(a.image.rgb, other.image.rgb, 64 * 64 * 3) != 0);
  shapes_scene_free(&a);
  shapes_scene_free(&b);
  shapes_scene_free(&other);
}

static bool same_file(const char *a_dir, const char *b_dir, const char *name) {
  char path[600];
  Err err;
  size_t a_size = 0, b_size = 0;
  snprintf(path, sizeof path, "%s/%s", a_dir, name);
  char *a = file_read(path, &a_size, &err);
  snprintf(path, sizeof path, "%s/%s", b_dir, name);
  char *b = file_read(path, &b_size, &err);
  bool same = a && b && a_size == b_size && !memcmp(a, b, a_size);
  free(a);
  free(b);
  return same;
}

TEST(shapes_files_do_not_depend_on_threads) {
  static const char *const names[] = {"annotations/instances_train.json", "annotations/instances_val.json",
                                      "train/000001.png", "train/000009.png", "val/000003.png"};
  char one[512], four[512];
  snprintf(one, sizeof one, "%s/one", test_tmp());
  snprintf(four, sizeof four, "%s/four", test_tmp());
  ShapesConfig config = {.train = 9, .val = 3, .size = 64, .seed = 7};
  Err err = {{0}};
  int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  config.dir = one;
  EXPECT(shapes_write(&config, &err));
  omp_set_num_threads(4);
  config.dir = four;
  EXPECT(shapes_write(&config, &err));
  omp_set_num_threads(threads);
  for (int i = 0; i < COUNT(names); i++) EXPECT(same_file(one, four, names[i]));
  EXPECT(!same_file(one, one, "train/000010.png"));
  char train[600], val[600]; // another seed for another split
  snprintf(train, sizeof train, "%s/train", one);
  snprintf(val, sizeof val, "%s/val", one);
  EXPECT(!same_file(train, val, "000001.png"));
}

TEST(shapes_annotations_agree_with_their_masks) {
  char dir[512];
  snprintf(dir, sizeof dir, "%s/agree", test_tmp());
  ShapesConfig config = {.dir = dir, .train = 60, .val = 1, .size = 64, .seed = 3};
  Err err = {{0}};
  CocoLayout layout;
  if (!EXPECT(shapes_write(&config, &err)) || !EXPECT(coco_layout_find(&layout, dir, "train", NULL, NULL, &err)))
    return;
  Coco coco;
  if (!EXPECT(coco_load(&coco, layout.annotations, &err))) return;
  EXPECT_INT(coco.num_images, 60);
  EXPECT_INT(coco.num_categories, SHAPE_CLASSES);
  int polygons = 0, runs = 0, crowds = 0, several = 0;
  for (int i = 0; i < coco.num_images; i++) {
    const CocoImage *im = &coco.images[i];
    EXPECT(im->anns >= 2 && im->h == 64 && im->w == 64);
    for (int k = 0; k < im->anns; k++) {
      const CocoAnn *a = &coco.anns[im->first_ann + k];
      Rle r;
      if (!EXPECT(coco_ann_rle(&coco, a, im->h, im->w, &r))) continue;
      double box[4];
      rle_bbox(&r, box);
      EXPECT_NEAR(a->area, (double)rle_area(&r), 0);
      for (int c = 0; c < 4; c++) EXPECT_NEAR(a->bbox[c], box[c], 0);
      polygons += a->type == SEG_POLYGONS;
      several += a->type == SEG_POLYGONS && a->parts > 1;
      runs += a->type == SEG_RLE;
      crowds += a->crowd;
      EXPECT(!a->crowd || a->type == SEG_RLE);
      rle_free(&r);
    }
  }
  EXPECT(polygons > 100 && runs > 20 && crowds > 0 && several > 0);
  char path[600];
  snprintf(path, sizeof path, "%s/%s", layout.folder[0], coco.images[0].file_name);
  Image im;
  if (EXPECT(image_load(&im, path, &err))) {
    EXPECT(im.h == 64 && im.w == 64);
    image_free(&im);
  }
  coco_free(&coco);
  coco_layout_free(&layout);
}

TEST(shapes_replace_their_own_and_nothing_else) {
  char dir[512], path[600];
  snprintf(dir, sizeof dir, "%s/own", test_tmp());
  ShapesConfig config = {.dir = dir, .train = 4, .val = 2, .size = 32};
  Err err = {{0}};
  EXPECT(shapes_write(&config, &err));
  config.train = 2;
  EXPECT(shapes_write(&config, &err));
  snprintf(path, sizeof path, "%s/train/000002.png", dir);
  EXPECT(path_is_file(path));
  snprintf(path, sizeof path, "%s/train/000003.png", dir);
  EXPECT(!path_is_file(path)); // of the larger set
  snprintf(path, sizeof path, "%s/shapes.json", dir);
  EXPECT(remove(path) == 0); // without its mark the folder may hold anything
  EXPECT(!shapes_write(&config, &err));
  EXPECT(strstr(err.msg, dir) != NULL);
  FILE *f = fopen(path, "w"); // and a file of that name that another program wrote is no mark
  if (!EXPECT(f)) return;
  fputs("{\"shapes\":[\"circle\"]}\n", f);
  fclose(f);
  EXPECT(!shapes_write(&config, &err));
}
