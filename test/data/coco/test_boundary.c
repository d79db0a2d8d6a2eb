// Catches boundary IoU that differs from its definition.
#include "base/alloc.h"
#include "base/rng.h"
#include "data/coco/boundary.h"
#include "data/coco/cocoeval.h"
#include "test/harness/coco_scene.h"
#include "test/harness/test.h"

// The definition: a pixel of the mask with one outside of it, or of the image, within `distance` rows and columns.
static void boundary_of(const uint8_t *mask, int h, int w, int distance, uint8_t *to) {
  for (int y = 0; y < h; y++)
    for (int x = 0; x < w; x++) {
      bool inside = mask[y * w + x] != 0;
      for (int v = y - distance; inside && v <= y + distance; v++)
        for (int u = x - distance; inside && u <= x + distance; u++)
          inside = v >= 0 && v < h && u >= 0 && u < w && mask[v * w + u];
      to[y * w + x] = mask[y * w + x] && !inside;
    }
}

static void expect_boundary(const uint8_t *mask, int h, int w, int distance) {
  const size_t pixels = (size_t)h * (size_t)w;
  uint8_t *want = xcalloc(pixels, 1), *got = xcalloc(pixels, 1);
  Rle rle = rle_from_bytes(mask, h, w), boundary = rle_boundary(&rle, distance);
  boundary_of(mask, h, w, distance, want);
  rle_to_bytes(&boundary, got);
  if (!EXPECT(boundary.h == h && boundary.w == w && memcmp(got, want, pixels) == 0))
    printf("  %d x %d (h x w), distance %d\n", h, w, distance);
  rle_free(&rle);
  rle_free(&boundary);
  free(want);
  free(got);
}

// Solid rectangles with holes and specks, from within a word of bits to more than two, that touch every border.
TEST(boundary_is_the_mask_without_its_erosion) {
  static const int sizes[][2] = {{1, 1}, {1, 9}, {9, 1}, {7, 5}, {64, 20}, {65, 33}, {63, 70}, {150, 40}, {128, 12}};
  static const int distances[] = {1, 2, 3, 7, 16, 40};
  uint64_t key = rng_key(RNG_TEST, 5), n = 0;
  for (int s = 0; s < COUNT(sizes); s++)
    for (int form = 0; form < 4; form++) {
      const int h = sizes[s][0], w = sizes[s][1];
      uint8_t *mask = xcalloc((size_t)h * (size_t)w, 1);
      memset(mask, form > 0, (size_t)h * (size_t)w);
      for (int k = 0; k < (form < 2 ? 0 : form == 2 ? 3 : h * w / 40); k++)
        mask[rng_u32(key, n++) % (uint32_t)(h * w)] = 0;
      if (form == 3) // from the third row and column on
        for (int i = 0; i < h * w; i++) mask[i] = mask[i] && i / w > 1 && i % w > 1;
      for (int d = 0; d < COUNT(distances); d++) expect_boundary(mask, h, w, distances[d]);
      free(mask);
    }
}

// Of empty runs, which files may hold in the middle of a mask.
TEST(boundary_of_a_mask_with_empty_runs) {
  uint32_t runs[] = {0, 20, 0, 20, 0, 24};
  const Rle whole = {.h = 8, .w = 8, .n = COUNT(runs), .runs = runs};
  Rle boundary = rle_boundary(&whole, 2);
  EXPECT_INT(rle_area(&boundary), 64 - 16);
  rle_free(&boundary);
}

// 2 % of the diagonal, halves to even: of 3:4:5 images 7.5 becomes 8, and 8.5, too.
TEST(boundary_distance_by_the_image) {
  EXPECT_INT(boundary_distance(480, 640), 16);
  EXPECT_INT(boundary_distance(225, 300), 8);
  EXPECT_INT(boundary_distance(255, 340), 8);
  EXPECT_INT(boundary_distance(3, 4), 1);
}

// AP of a detection of a square of side 100 at (100, 100), with masks; NULL is its boundary. Of a crowd, and a hit of a
// lower score besides.
static double square_ap(bool crowd, IouType type, const double found[4]) {
  Scene *s = scene_new(1, 1);
  const double square[4] = {100, 100, 100, 100}, *box = found ? found : square;
  Rle truth = rle_from_bbox(square, 480, 640);
  CocoAnn *a = add_gt(s, 0, 0, 100, 100, 100, 100);
  a->crowd = crowd;
  a->type = SEG_RLE;
  a->rle_h = 480;
  a->rle_w = 640;
  a->num_runs = truth.n;
  s->gt.runs = truth.runs;
  CocoResult *r = add_dt(s, 0, 0, 0.9, box[0], box[1], box[2], box[3]);
  r->has_segm = true;
  r->rle = found ? rle_from_bbox(found, 480, 640) : rle_boundary(&truth, 16);
  if (crowd) {
    add_gt(s, 0, 0, 400, 400, 20, 20);
    add_dt(s, 0, 0, 0.1, 400, 400, 20, 20);
  }
  EvalSummary e;
  Err err = {{0}};
  if (!EXPECT(cocoeval_run(&e, &s->gt, &s->dt, type, &err))) printf("  %s\n", err.msg);
  const double ap = e.stats[0];
  cocoeval_free(&e);
  rle_free(&truth);
  rle_free(&r->rle);
  free(s);
  return ap;
}

// IoU of the rims, 16 pixels wide, of two such squares of which one is moved by x.
static double rim_iou(int x) {
  int both = 0, either = 0;
  for (int v = 0; v < 100; v++)
    for (int u = 0; u < 100 + x; u++) {
      const bool row = v < 16 || v >= 84;
      const bool a = u < 100 && (row || u < 16 || u >= 84), b = u >= x && (row || u - x < 16 || u - x >= 84);
      both += a && b;
      either += a || b;
    }
  return (double)both / either;
}

// With one object AP is the share of the ten thresholds that its overlap reaches.
static double ap_of(double iou) {
  int reached = 0;
  for (int t = 0; t < 10; t++) reached += iou >= 0.5 + 0.05 * t;
  return reached / 10.;
}

TEST(boundary_iou_counts_where_it_is_less) {
  for (int x = 0; x <= 15; x += 3) {
    const double mask = (100. - x) / (100 + x), rim = rim_iou(x), found[4] = {100 + x, 100, 100, 100};
    EXPECT(x == 0 || ap_of(rim) < ap_of(mask));
    EXPECT_NEAR(square_ap(false, EVAL_SEGM, found), ap_of(mask), 1e-12);
    EXPECT_NEAR(square_ap(false, EVAL_BOUNDARY, found), ap_of(rim), 1e-12);
  }
}

// The rim of a square is its own boundary, of 10000 - 68² pixels.
TEST(boundary_iou_counts_masks_where_they_are_less) {
  EXPECT_NEAR(square_ap(false, EVAL_SEGM, NULL), ap_of(0.5376), 1e-12);
  EXPECT_NEAR(square_ap(false, EVAL_BOUNDARY, NULL), ap_of(0.5376), 1e-12);
}

// A detection deep in a crowd, whose rims have nothing in common, is absorbed as with masks.
TEST(boundary_iou_leaves_crowds_to_the_masks) {
  EXPECT_NEAR(square_ap(true, EVAL_BOUNDARY, (double[]){130, 130, 40, 40}), 1, 1e-12);
}

TEST(boundary_iou_needs_masks) {
  Scene *s = three_detections();
  EvalSummary e;
  Err err = {{0}};
  s->gt.path = "GT";
  EXPECT(!cocoeval_run(&e, &s->gt, &s->dt, EVAL_BOUNDARY, &err));
  EXPECT_STR(err.msg, "boundary IoU needs masks, but no annotation of GT has one");
  Rle mask = rle_from_bbox((double[]){10, 10, 50, 50}, 480, 640);
  s->anns[0].type = SEG_RLE;
  s->anns[0].rle_h = 480;
  s->anns[0].rle_w = 640;
  s->anns[0].num_runs = mask.n;
  s->gt.runs = mask.runs;
  EXPECT(!cocoeval_run(&e, &s->gt, &s->dt, EVAL_BOUNDARY, &err));
  EXPECT_STR(err.msg, "boundary IoU needs masks, but no detection has one");
  rle_free(&mask);
  free(s);
}
