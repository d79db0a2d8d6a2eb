// Catches average precision that differs from figures worked out by hand.
#include <omp.h>
#include "base/alloc.h"
#include "base/json.h"
#include "data/coco/coco.h"
#include "data/coco/cocoeval.h"
#include "test/harness/coco_scene.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

// A figure is a mean of at most 4·10·101 terms in [0, 1], each off by a few eps: below 4040·4·2⁻⁵³ < 2e-12.
static const double tolerance = 2e-12;

static double stat(const EvalSummary *s, const char *key) {
  for (int i = 0; i < EVAL_STATS; i++)
    if (strcmp(eval_stats[i].key, key) == 0) return s->stats[i];
  return NAN;
}

// Runs and frees the scene; the summary's category names are static.
static EvalSummary scene_eval(Scene *s, IouType type) {
  EvalSummary out;
  Err err = {{0}};
  if (!EXPECT(cocoeval_run(&out, &s->gt, &s->dt, type, &err))) printf("  %s\n", err.msg);
  free(s);
  return out;
}

static void expect_three_detections(EvalSummary e) {
  // Recall 1/2 at precision 1 covers 51 recall points; below the 0.64, recall 1 at precision 2/3 covers 50 more.
  double low = (51 + 50 * 2.0 / 3) / 101, high = 51.0 / 101;
  EXPECT_NEAR(stat(&e, "AP"), (3 * low + 7 * high) / 10, tolerance);
  EXPECT_NEAR(stat(&e, "AP50"), low, tolerance);
  EXPECT_NEAR(stat(&e, "AP75"), high, tolerance);
  EXPECT_NEAR(stat(&e, "AP_small"), -1, 0);
  EXPECT_NEAR(stat(&e, "AP_medium"), (3 * low + 7 * high) / 10, tolerance);
  EXPECT_NEAR(stat(&e, "AR_1"), 0.65, tolerance);
  EXPECT_NEAR(stat(&e, "AR_100"), 0.65, tolerance);
  if (EXPECT_INT(e.num_categories, 2)) {
    EXPECT_NEAR(e.categories[0].ap50, low, tolerance);
    EXPECT_NEAR(e.categories[0].ar, 0.65, tolerance);
    EXPECT_NEAR(e.categories[1].ap, -1, 0);
    EXPECT_INT(e.categories[1].id, 101);
  }
  cocoeval_free(&e);
}

TEST(cocoeval_by_hand) { expect_three_detections(scene_eval(three_detections(), EVAL_BBOX)); }

// Boxes on whole pixels have the same IoU as masks, and stand in for masks that are not there.
TEST(cocoeval_box_stands_in_for_mask) { expect_three_detections(scene_eval(three_detections(), EVAL_SEGM)); }

// Where others have masks, an object without one is not scored by its mask, nor is a detection in its box.
TEST(cocoeval_ignores_objects_without_a_mask) {
  Scene *s = scene_new(1, 1);
  add_gt(s, 0, 0, 0, 0, 50, 50);
  add_gt(s, 0, 0, 100, 0, 50, 50);
  add_dt(s, 0, 0, 0.9, 100, 0, 20, 20);
  add_dt(s, 0, 0, 0.8, 0, 0, 50, 50);
  Rle mask = rle_from_bbox((double[]){0, 0, 50, 50}, 480, 640);
  s->anns[0].type = SEG_RLE;
  s->anns[0].rle_h = 480;
  s->anns[0].rle_w = 640;
  s->anns[0].num_runs = mask.n;
  s->gt.runs = mask.runs;
  EvalSummary e;
  Err err;
  EXPECT(cocoeval_run(&e, &s->gt, &s->dt, EVAL_SEGM, &err) && !e.all_box_masks);
  EXPECT_INT(e.box_masks, 1);
  EXPECT_NEAR(stat(&e, "AP"), 1, tolerance);
  cocoeval_free(&e);
  EXPECT(cocoeval_run(&e, &s->gt, &s->dt, EVAL_BBOX, &err));
  EXPECT(stat(&e, "AP") < 0.5);
  cocoeval_free(&e);
  rle_free(&mask);
  free(s);
}

TEST(cocoeval_mask_stands_in_for_box) {
  Scene *s = three_detections();
  Rle mask = rle_from_bbox(s->results[2].bbox, 480, 640);
  s->results[2] = (CocoResult){.image_id = 11, .category_id = 100, .score = 0.7, .has_segm = true, .rle = mask};
  expect_three_detections(scene_eval(s, EVAL_BBOX));
  rle_free(&mask);
}

TEST(cocoeval_ties_keep_the_order_of_images_then_of_the_file) {
  for (int swap = 0; swap < 2; swap++) {
    Scene *s = scene_new(2, 1);
    add_gt(s, 0, 0, 0, 0, 50, 50);
    add_dt(s, swap, 0, 0.5, 0, 0, 50, 50); // the one in image 0 is a hit and comes first, wherever the file has it
    add_dt(s, !swap, 0, 0.5, 0, 0, 50, 50);
    EvalSummary e = scene_eval(s, EVAL_BBOX);
    EXPECT_NEAR(stat(&e, "AP50"), 1, tolerance);
    cocoeval_free(&e);
  }
  Scene *s = scene_new(1, 1);
  add_gt(s, 0, 0, 0, 0, 50, 50);
  add_dt(s, 0, 0, 0.5, 300, 0, 50, 50);
  add_dt(s, 0, 0, 0.5, 0, 0, 50, 50);
  EvalSummary e = scene_eval(s, EVAL_BBOX);
  EXPECT_NEAR(stat(&e, "AP50"), 0.5, tolerance);
  EXPECT_NEAR(stat(&e, "AR_1"), 0, tolerance);
  EXPECT_NEAR(stat(&e, "AR_10"), 1, tolerance);
  cocoeval_free(&e);
}

TEST(cocoeval_nan_scores_come_last) {
  Scene *s = scene_new(1, 1);
  add_gt(s, 0, 0, 0, 0, 50, 50);
  add_dt(s, 0, 0, NAN, 300, 0, 50, 50);
  add_dt(s, 0, 0, -1e30, 0, 0, 50, 50);
  EvalSummary e = scene_eval(s, EVAL_BBOX);
  EXPECT_NEAR(stat(&e, "AP50"), 1, tolerance);
  cocoeval_free(&e);
}

TEST(cocoeval_crowds_absorb_without_counting) {
  Scene *s = scene_new(1, 1);
  add_gt(s, 0, 0, 0, 0, 400, 400)->crowd = true;
  add_gt(s, 0, 0, 500, 0, 50, 50);
  add_dt(s, 0, 0, 0.9, 10, 10, 50, 50); // in the crowd, twice: IoU is over the detection's own area
  add_dt(s, 0, 0, 0.8, 90, 90, 50, 50);
  add_dt(s, 0, 0, 0.7, 500, 0, 50, 50);
  EvalSummary e = scene_eval(s, EVAL_BBOX);
  EXPECT_NEAR(stat(&e, "AP"), 1, tolerance);
  EXPECT_NEAR(stat(&e, "AP_large"), -1, 0);
  cocoeval_free(&e);
}

TEST(cocoeval_keeps_the_best_of_an_image) {
  static const int ranks[] = {0, 1, 9, 10, 99, 100}; // of the hit
  for (int k = 0; k < COUNT(ranks); k++) {
    const int rank = ranks[k];
    Scene *s = scene_new(1, 1);
    add_gt(s, 0, 0, 0, 0, 50, 50);
    for (int i = 0; i < rank; i++) add_dt(s, 0, 0, 0.9, 300, 300, 50, 50);
    add_dt(s, 0, 0, 0.1, 0, 0, 50, 50);
    EvalSummary e = scene_eval(s, EVAL_BBOX);
    EXPECT_NEAR(stat(&e, "AR_1"), rank < 1, tolerance);
    EXPECT_NEAR(stat(&e, "AR_10"), rank < 10, tolerance);
    EXPECT_NEAR(stat(&e, "AR_100"), rank < 100, tolerance);
    EXPECT_NEAR(stat(&e, "AP50"), rank < 100 ? 1. / (rank + 1) : 0, tolerance);
    cocoeval_free(&e);
  }
}

// A hit of rank 149: seen at 150 detections, not at 149. Without a limit of 100 AP is undefined, as in pycocotools.
TEST(cocoeval_at_other_limits) {
  for (int last = 149; last <= 150; last++) {
    Scene *s = scene_new(1, 1);
    EvalSummary e;
    Err err;
    char key[EVAL_KEY];
    add_gt(s, 0, 0, 0, 0, 50, 50);
    for (int i = 0; i < 149; i++) add_dt(s, 0, 0, 0.9, 300, 300, 50, 50);
    add_dt(s, 0, 0, 0.1, 0, 0, 50, 50);
    EXPECT(cocoeval_run_at(&e, &s->gt, &s->dt, EVAL_BBOX, (int[]){2, 50, last}, &err));
    EXPECT_NEAR(stat(&e, "AP"), -1, 0);
    EXPECT_NEAR(e.ap_last, last == 150 ? 1. / 150 : 0, tolerance);
    EXPECT_NEAR(e.categories[0].ap, e.ap_last, 0);
    EXPECT_NEAR(stat(&e, "AP50"), e.ap_last, tolerance);
    EXPECT_NEAR(e.stats[7], 0, 0);
    EXPECT_NEAR(e.stats[8], last == 150, tolerance);
    EXPECT_STR(eval_stat_key(&e, 0, key), "AP");
    EXPECT_STR(eval_stat_key(&e, 6, key), "AR_2");
    EXPECT_STR(eval_stat_key(&e, 8, key), last == 150 ? "AR_150" : "AR_149");
    EXPECT_STR(eval_stat_key(&e, 9, key), "AR_small");
    cocoeval_free(&e);
    EXPECT(cocoeval_run_at(&e, &s->gt, &s->dt, EVAL_BBOX, (int[]){2, 100, last}, &err));
    EXPECT_NEAR(stat(&e, "AP"), 0, 0); // at the second limit
    EXPECT_NEAR(e.stats[8], last == 150, tolerance);
    cocoeval_free(&e);
    free(s);
  }
}

// A category's curves, those of one without ground truth, and of all: their mean is AP.
TEST(cocoeval_curves_by_hand) {
  EvalSummary e = scene_eval(three_detections(), EVAL_BBOX);
  for (int k = 0; k < 3; k += 2) // the category, and all
    for (int r = 0; r < EVAL_RECALLS; r++) {
      EXPECT_NEAR(e.precision[k][CURVE_50][r], r <= 50 ? 1 : 2. / 3, tolerance);
      EXPECT_NEAR(e.precision[k][CURVE_75][r], r <= 50, tolerance);
      EXPECT_NEAR(e.precision[k][CURVE_MEAN][r], r <= 50 ? 1 : 0.2, tolerance);
    }
  for (int c = 0; c < EVAL_CURVES; c++) EXPECT_NEAR(e.precision[1][c][0], -1, 0);
  cocoeval_free(&e);
  e = scene_eval(random_scene(3), EVAL_BBOX);
  static const int stats[EVAL_CURVES] = {[CURVE_50] = 1, [CURVE_75] = 2, [CURVE_MEAN] = 0};
  for (int c = 0; c < EVAL_CURVES; c++) {
    double sum = 0;
    for (int r = 0; r < EVAL_RECALLS; r++) sum += e.precision[e.num_categories][c][r];
    EXPECT_NEAR(sum / EVAL_RECALLS, e.stats[stats[c]], tolerance);
  }
  cocoeval_free(&e);
}

TEST(cocoeval_counts_what_it_leaves_out) {
  Scene *s = three_detections();
  add_dt(s, 7, 0, 1.0, 0, 0, 50, 50);
  add_dt(s, 0, 3, 1.0, 0, 0, 50, 50);
  s->results[4].category_id = -5;
  EvalSummary e = scene_eval(s, EVAL_BBOX);
  EXPECT_INT(e.unknown_image, 1);
  EXPECT_INT(e.unknown_category, 1);
  expect_three_detections(e);
}

TEST(cocoeval_of_fewer_images_leaves_their_objects_out) {
  Scene *s = scene_new(2, 1);
  add_gt(s, 0, 0, 10, 10, 50, 50);
  add_gt(s, 1, 0, 10, 10, 50, 50); // missed
  add_dt(s, 0, 0, 0.9, 10, 10, 50, 50);
  s->gt.num_images = 1;
  EvalSummary e = scene_eval(s, EVAL_BBOX);
  EXPECT_NEAR(stat(&e, "AP"), 1, tolerance);
  EXPECT_NEAR(stat(&e, "AR_100"), 1, tolerance);
  cocoeval_free(&e);
}

TEST(cocoeval_id_zero_never_matches) {
  Scene *s = three_detections();
  s->anns[1].id = 0;
  EvalSummary e = scene_eval(s, EVAL_BBOX);
  EXPECT_INT(e.zero_ids, 1);
  EXPECT_NEAR(stat(&e, "AR_100"), 0.5, tolerance);
  cocoeval_free(&e);
}

TEST(cocoeval_last_annotation_of_an_id_stands_for_all) {
  Scene *s = three_detections();
  s->anns[0].replaced = true; // two objects where the second is, none where the hit was
  s->anns[0].by = 1;
  EvalSummary e = scene_eval(s, EVAL_BBOX);
  EXPECT_INT(e.duplicate_ids, 1);
  EXPECT_NEAR(stat(&e, "AR_100"), 0.15, tolerance);
  cocoeval_free(&e);
}

// Two annotations with one id, of which the last in the file is of the image with the lower id, or of one that is not
// there. AP is pycocotools 2.0.11's; the evaluator that numbers them itself finds all.
TEST(cocoeval_counts_the_last_in_the_file) {
  enum { LAST_IMAGE = 3, AWAY = 9 };
  static const double ap[2][2] = {{0.44224422442244227, 1}, {1. / 3, (51 + 50 * 2. / 3) / 101}};
  for (int away = 0; away < 2; away++) {
    char *text =
        xasprintf("{\"images\":[{\"id\":5,\"width\":100,\"height\":100},{\"id\":3,\"width\":100,\"height\":100}],"
                  "\"categories\":[{\"id\":1,\"name\":\"a\"}],\"annotations\":["
                  "{\"id\":1,\"image_id\":5,\"category_id\":1,\"bbox\":[0,0,50,50],\"area\":2500},"
                  "{\"id\":1,\"image_id\":%d,\"category_id\":1,\"bbox\":[20,20,40,40],\"area\":1600},"
                  "{\"id\":2,\"image_id\":5,\"category_id\":1,\"bbox\":[50,50,40,40],\"area\":1600}]}",
                  away ? AWAY : LAST_IMAGE);
    char path[1024];
    snprintf(path, sizeof path, "%s/last-in-the-file.json", test_tmp());
    write_text(path, text);
    free(text);
    CocoResult found[] = {{.image_id = 5, .category_id = 1, .bbox = {0, 0, 50, 50}, .score = 0.9, .has_bbox = true},
                          {.image_id = 3, .category_id = 1, .bbox = {20, 20, 40, 40}, .score = 0.8, .has_bbox = true},
                          {.image_id = 5, .category_id = 1, .bbox = {50, 50, 40, 40}, .score = 0.7, .has_bbox = true}};
    const CocoResults dt = {.items = found, .n = COUNT(found)};
    Coco gt;
    EvalSummary e;
    Err err;
    if (!EXPECT(coco_load(&gt, path, &err))) return;
    for (int own = 0; own < 2; own++) {
      gt.own_ids = own;
      EXPECT(cocoeval_run(&e, &gt, &dt, EVAL_BBOX, &err));
      EXPECT_NEAR(stat(&e, "AP"), ap[away][own], tolerance);
      EXPECT_INT(e.duplicate_ids, !own);
      cocoeval_free(&e);
    }
    coco_free(&gt);
  }
}

// Without a box the mask's is found, and without an area a mask of 40,000 pixels is large.
TEST(cocoeval_of_annotations_without_box_and_area) {
  CocoResult found = {.image_id = 1, .category_id = 1, .bbox = {0, 0, 200, 200}, .score = 0.9, .has_bbox = true};
  Rle mask = rle_from_bbox(found.bbox, 300, 300);
  found.rle = mask;
  found.has_segm = true;
  char path[1024];
  snprintf(path, sizeof path, "%s/without-box-and-area.json", test_tmp());
  write_text(path, "{\"images\":[{\"id\":1,\"width\":300,\"height\":300}],\"categories\":[{\"id\":1,\"name\":\"x\"}],"
                   "\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":1,"
                   "\"segmentation\":[[0,0,200,0,200,200,0,200]]}]}");
  Coco gt;
  Err err;
  if (!EXPECT(coco_load(&gt, path, &err))) return;
  for (int type = EVAL_BBOX; type <= EVAL_SEGM; type++) {
    EvalSummary e;
    EXPECT(cocoeval_run(&e, &gt, &(CocoResults){.items = &found, .n = 1}, (IouType)type, &err));
    EXPECT_NEAR(stat(&e, "AP"), 1, tolerance);
    EXPECT_NEAR(stat(&e, "AP_large"), 1, tolerance);
    EXPECT_NEAR(stat(&e, "AP_small"), -1, 0);
    cocoeval_free(&e);
  }
  coco_free(&gt);
  rle_free(&mask);
}

TEST(cocoeval_nothing_at_all) {
  Scene *s = scene_new(1, 1);
  EvalSummary e = scene_eval(s, EVAL_SEGM);
  for (int i = 0; i < EVAL_STATS; i++) EXPECT_NEAR(e.stats[i], -1, 0);
  cocoeval_free(&e);
  s = scene_new(1, 0);
  e = scene_eval(s, EVAL_BBOX);
  EXPECT_NEAR(stat(&e, "AP"), -1, 0);
  cocoeval_free(&e);
  s = scene_new(1, 1);
  add_gt(s, 0, 0, 0, 0, 50, 50);
  e = scene_eval(s, EVAL_BBOX);
  EXPECT_NEAR(stat(&e, "AP"), 0, 0);
  cocoeval_free(&e);
}

TEST(cocoeval_refuses_detections_without_extent) {
  Scene *s = three_detections();
  s->results[1].has_bbox = false;
  EvalSummary e;
  Err err = {{0}};
  EXPECT(!cocoeval_run(&e, &s->gt, &s->dt, EVAL_BBOX, &err));
  EXPECT(strstr(err.msg, "detection 2 has") != NULL);
  free(s);
}

// Masks that cannot be scored as they were meant stop the evaluation of masks, by name; of boxes they do not.
TEST(cocoeval_refuses_masks_that_cannot_be_scored) {
  Scene *s = three_detections();
  EvalSummary e;
  Err err = {{0}};
  s->results[1].bad_segm = true;
  EXPECT(cocoeval_run(&e, &s->gt, &s->dt, EVAL_BBOX, &err));
  cocoeval_free(&e);
  EXPECT(!cocoeval_run(&e, &s->gt, &s->dt, EVAL_SEGM, &err));
  EXPECT_STR(err.msg, "detection 2, of image 10: its segmentation is invalid; correct it, or remove it");
  s->results[1].bad_segm = false;
  s->gt.path = "GT";
  s->images[0].h = 0;
  EXPECT(!cocoeval_run(&e, &s->gt, &s->dt, EVAL_SEGM, &err));
  EXPECT_STR(err.msg, "detection 1: its image, 10, is without height and width in GT");
  s->images[0].h = s->images[0].w = 100000;
  EXPECT(!cocoeval_run(&e, &s->gt, &s->dt, EVAL_SEGM, &err));
  EXPECT_STR(err.msg, "detection 1: its image, 10, is too large for masks in GT");
  free(s);
}

// A mask of another size than its image matches nothing; if no object has a mask, the boxes stand in. Both are
// counted, and the first is named.
TEST(cocoeval_counts_masks_that_are_not_the_images) {
  Scene *s = three_detections();
  Rle narrow = rle_from_bbox(s->results[1].bbox, 480, 320);
  s->results[1].rle = s->results[2].rle = narrow;
  s->results[1].has_segm = s->results[2].has_segm = true;
  EvalSummary e, boxes;
  Err err = {{0}};
  EXPECT(cocoeval_run(&boxes, &s->gt, &s->dt, EVAL_BBOX, &err));
  EXPECT(cocoeval_run(&e, &s->gt, &s->dt, EVAL_SEGM, &err));
  EXPECT_INT(e.other_size, 2);
  EXPECT_INT(e.first_other_size, 1);
  EXPECT_INT(e.box_masks, s->gt.num_anns);
  EXPECT_INT(e.first_box_mask, s->anns[0].id);
  EXPECT_INT(e.maskless, 1);
  EXPECT_INT(e.first_maskless, 0);
  EXPECT_INT(boxes.other_size + boxes.box_masks + boxes.maskless, 0);
  EXPECT(stat(&e, "AR_100") < stat(&boxes, "AR_100"));
  cocoeval_free(&e);
  cocoeval_free(&boxes);
  rle_free(&narrow);
  free(s);
}

TEST(cocoeval_same_bits_for_any_number_of_threads) {
  int threads = omp_get_max_threads();
  EvalSummary one, many;
  omp_set_num_threads(1);
  one = scene_eval(random_scene(1), EVAL_SEGM);
  omp_set_num_threads(4);
  many = scene_eval(random_scene(1), EVAL_SEGM);
  omp_set_num_threads(threads);
  EXPECT(one.stats[0] > 0 && one.stats[0] < 1);
  EXPECT(memcmp(one.stats, many.stats, sizeof one.stats) == 0);
  EXPECT(memcmp(one.categories, many.categories, (size_t)one.num_categories * sizeof *one.categories) == 0);
  cocoeval_free(&one);
  cocoeval_free(&many);
}

// ---- printing -------------------------------------------------------------------------------------------------------

static void print_as_pycocotools(FILE *f, const EvalSummary *e) { cocoeval_print(f, e, NULL); }
static void print_without(FILE *f, const EvalSummary *e) { cocoeval_print(f, e, "-"); }

// What a printing function wrote. Caller frees.
static char *printed(void (*print)(FILE *, const EvalSummary *), const EvalSummary *e) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  CHECK(f);
  print(f, e);
  fclose(f);
  return text;
}

TEST(cocoeval_print_has_the_layout_people_know) {
  EvalSummary e = scene_eval(three_detections(), EVAL_BBOX);
  char *text = printed(print_as_pycocotools, &e);
  EXPECT(strncmp(text, " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.604\n", 80) == 0);
  EXPECT(strstr(text, "\n Average Precision  (AP) @[ IoU=0.50      | area=   all | maxDets=100 ] = 0.835\n") != NULL);
  EXPECT(strstr(text, "\n Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=  1 ] = 0.650\n") != NULL);
  EXPECT(strstr(text, "\n Average Recall     (AR) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = -1.000\n") != NULL);
  free(text);
  text = printed(print_without, &e);
  EXPECT(strncmp(text, " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.604\n", 80) == 0);
  EXPECT(strstr(text, "\n Average Recall     (AR) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = -\n") != NULL);
  free(text);
  text = printed(cocoeval_print_categories, &e);
  EXPECT(strstr(text, "       100  thing                      0.604   0.835   0.650\n") != NULL);
  EXPECT(strstr(text, "       101  thing                          -       -       -\n") != NULL);
  free(text);
  cocoeval_free(&e);
}

TEST(cocoeval_print_names_its_limits) {
  Scene *s = three_detections();
  EvalSummary e;
  Err err;
  EXPECT(cocoeval_run_at(&e, &s->gt, &s->dt, EVAL_BBOX, (int[]){1, 10, 300}, &err));
  char *text = printed(print_as_pycocotools, &e);
  EXPECT(strncmp(text, " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = -1.000\n", 81) == 0);
  EXPECT(strstr(text, "\n Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=300 ] = 0.604\n") != NULL);
  free(text);
  text = printed(cocoeval_print_json, &e);
  EXPECT(strstr(text, "\"AP\": -1,\n") && strstr(text, "\"AP_at_300\": 0.60") && strstr(text, ", \"AR_300\": 0.65"));
  free(text);
  text = printed(cocoeval_print_categories, &e);
  EXPECT(strstr(text, "      AP    AP50  AR_300\n") != NULL);
  free(text);
  cocoeval_free(&e);
  free(s);
}

TEST(cocoeval_print_json_keeps_every_bit) {
  EvalSummary e = scene_eval(three_detections(), EVAL_BBOX);
  char *text = printed(cocoeval_print_json, &e);
  Json j;
  json_open(&j, "printed", text, strlen(text));
  int stats = 0, categories = 0;
  const char *key;
  json_begin_object(&j);
  while ((key = json_key(&j))) {
    if (strcmp(key, "per_category") != 0) {
      double want = stat(&e, key);
      EXPECT_NEAR(json_number(&j), want, 0);
      stats++;
      continue;
    }
    json_begin_object(&j);
    while ((key = json_key(&j))) {
      EXPECT_INT(atoi(key), 100 + categories++);
      json_skip(&j);
    }
  }
  EXPECT(json_done(&j));
  EXPECT_INT(stats, EVAL_STATS);
  EXPECT_INT(categories, 2);
  json_close(&j);
  free(text);
  cocoeval_free(&e);
}
