// Catches average precision that differs from pycocotools'.
//
// Compares the evaluator with pycocotools' results: on files (../shared/data/cocoeval; its README.md describes the
// traps) and, if pycocotools is installed, on random sets.
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "data/coco/coco.h"
#include "data/coco/cocoeval.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

// A figure is a mean of at most 80·10·101 terms in [0, 1], so that the order of summation moves it by less than
// 80800·2⁻⁵³ < 1e-11; 1e-9 is far above that and far below the weight of one detection.
static const double tolerance = 1e-9;

// Moves into an object up to the value of a key; the reader is closed from there, so nothing needs to be left.
static bool enter(Json *j, const char *wanted) {
  const char *key;
  if (!json_begin_object(j)) return false;
  while ((key = json_key(j))) {
    if (strcmp(key, wanted) == 0) return true;
    json_skip(j);
  }
  return false;
}

// Compares the object at the reader with the 12 figures; the number compared.
static int compare_stats(Json *j, const EvalSummary *e) {
  int compared = 0;
  const char *key;
  if (!json_begin_object(j)) return 0;
  while ((key = json_key(j))) {
    int i = 0;
    while (i < EVAL_STATS && strcmp(eval_stats[i].key, key) != 0) i++;
    if (i == EVAL_STATS) {
      json_skip(j);
      continue;
    }
    EXPECT_NEAR(e->stats[i], json_number(j), tolerance);
    compared++;
  }
  return compared;
}

static int compare_categories(Json *j, const EvalSummary *e) {
  int compared = 0;
  const char *key;
  if (!json_begin_object(j)) return 0;
  while ((key = json_key(j))) {
    long long id = strtoll(key, NULL, 10);
    const EvalCategory *c = NULL;
    for (int k = 0; k < e->num_categories; k++)
      if (e->categories[k].id == id) c = &e->categories[k];
    if (!EXPECT(c != NULL && json_begin_object(j))) return compared;
    while ((key = json_key(j))) {
      double got = strcmp(key, "AP") == 0 ? c->ap : strcmp(key, "AP50") == 0 ? c->ap50 : c->ar;
      EXPECT_NEAR(got, json_number(j), tolerance);
    }
    compared++;
  }
  return compared;
}

// Of a category by id, or of "all", the mean over the IoU thresholds at each recall.
static int compare_curves(Json *j, const EvalSummary *e) {
  int compared = 0;
  const char *key;
  if (!json_begin_object(j)) return 0;
  while ((key = json_key(j))) {
    const bool all = !strcmp(key, "all");
    int k = all ? e->num_categories : 0, r = 0;
    while (k < e->num_categories && e->categories[k].id != strtoll(key, NULL, 10)) k++;
    if (!EXPECT(all == (k == e->num_categories))) return compared;
    for (json_begin_array(j); json_next(j); r++)
      if (EXPECT(r < EVAL_RECALLS)) EXPECT_NEAR(e->precision[k][CURVE_MEAN][r], json_number(j), tolerance);
    compared += EXPECT_INT(r, EVAL_RECALLS);
  }
  return compared;
}

// Compares with {"stats": …, "per_category": …} and, where there are any, "curves" under a key of a file.
static void expect_section(const EvalSummary *e, const char *path, const char *section) {
  size_t size;
  char *text = file_read(path, &size, NULL);
  if (!EXPECT(text != NULL)) return;
  Json j;
  json_open(&j, path, text, size);
  int stats = 0, categories = e->num_categories, curves = e->num_categories + 1;
  const char *key;
  if (EXPECT(enter(&j, section)) && json_begin_object(&j)) {
    while ((key = json_key(&j))) {
      if (strcmp(key, "stats") == 0)
        stats = compare_stats(&j, e);
      else if (strcmp(key, "per_category") == 0)
        categories = compare_categories(&j, e);
      else if (strcmp(key, "curves") == 0)
        curves = compare_curves(&j, e);
      else
        json_skip(&j);
    }
  }
  if (j.failed) printf("  %s\n", j.err.msg);
  EXPECT_INT(stats, EVAL_STATS);
  EXPECT_INT(categories, e->num_categories);
  EXPECT_INT(curves, e->num_categories + 1);
  json_close(&j);
  free(text);
}

static bool load(Coco *gt, CocoResults *dt, const char *gt_path, const char *dt_path) {
  Err err = {{0}};
  bool have_gt = EXPECT(coco_load(gt, gt_path, &err));
  bool have_dt = have_gt && EXPECT(coco_results_load(dt, dt_path, gt, &err));
  if (!have_dt) printf("  %s\n", err.msg);
  if (have_gt && !have_dt) coco_free(gt);
  return have_dt;
}

typedef struct Fixture {
  const char *folder, *gt, *dt, *section; // under cocoeval/; the section of its expected.json
  IouType type;
  const char *boxes; // NULL, or the result file with the same detections in the same order, whose boxes are taken over
} Fixture;

#define OPEN_VAL "synth_coco_open_val", "../../coco/annotations/instances_val2017.json"
#define OPEN_TRAIN "synth_coco_open_train", "../../coco/annotations/instances_train2017.json"
static const Fixture fixtures[] = {
    {"cocoapi_val2014_100", "gt.json", "dt_bbox.json", "bbox", EVAL_BBOX, NULL},
    {"cocoapi_val2014_100", "gt.json", "dt_segm.json", "segm", EVAL_SEGM, NULL},
    {"fce_small", "gt_dataset.json", "dt_dataset.json", "bbox", EVAL_BBOX, NULL},
    {"fce_small", "gt_dataset.json", "dt_dataset_segm_only.json", "segm", EVAL_SEGM, NULL},
    {"padilla_voc100_bbox", "gt.json", "dt_bbox.json", "bbox", EVAL_BBOX, NULL},
    {OPEN_VAL, "dt_bbox.json", "bbox", EVAL_BBOX, NULL},
    {OPEN_VAL, "dt_segm.json", "segm", EVAL_SEGM, NULL},
    {OPEN_VAL, "dt_segm.json", "segm_when_bbox_present", EVAL_SEGM, "dt_bbox.json"},
    {OPEN_TRAIN, "dt_bbox.json", "bbox", EVAL_BBOX, NULL},
    {OPEN_TRAIN, "dt_segm.json", "segm", EVAL_SEGM, NULL},
    {OPEN_TRAIN, "dt_segm.json", "segm_when_bbox_present", EVAL_SEGM, "dt_bbox.json"},
};

// A file of the fixture, or NULL.
static const char *fixture_path(const Fixture *f, const char *file) {
  char relative[256];
  snprintf(relative, sizeof relative, "cocoeval/%s/%s", f->folder, file);
  return shared_path(relative);
}

static bool take_boxes(CocoResults *dt, const char *path, const Coco *gt) {
  CocoResults boxes;
  Err err = {{0}};
  if (!EXPECT(path && coco_results_load(&boxes, path, gt, &err))) return false;
  bool same = EXPECT_INT(boxes.n, dt->n);
  for (int i = 0; same && i < dt->n; i++) {
    same = EXPECT(boxes.items[i].score == dt->items[i].score);
    memcpy(dt->items[i].bbox, boxes.items[i].bbox, sizeof dt->items[i].bbox);
    dt->items[i].has_bbox = true;
  }
  coco_results_free(&boxes);
  return same;
}

// The same with what the authors of boundary IoU have (test/peers/boundary_goldens.py), a section for each folder.
static const Fixture boundaries[] = {
    {"cocoapi_val2014_100", "gt.json", "dt_segm.json", "cocoapi_val2014_100", EVAL_BOUNDARY, NULL},
    {"fce_small", "gt_dataset.json", "dt_dataset_segm_only.json", "fce_small", EVAL_BOUNDARY, NULL},
};

static void check_fixture(const Fixture *f, const char *expected) {
  Coco gt;
  CocoResults dt;
  EvalSummary e;
  Err err = {{0}};
  const char *gt_path = fixture_path(f, f->gt), *dt_path = fixture_path(f, f->dt);
  if (!EXPECT(gt_path && dt_path && expected) || !load(&gt, &dt, gt_path, dt_path)) return;
  if ((!f->boxes || take_boxes(&dt, fixture_path(f, f->boxes), &gt)) &&
      EXPECT(cocoeval_run(&e, &gt, &dt, f->type, &err))) {
    expect_section(&e, expected, f->section);
    cocoeval_free(&e);
  }
  coco_results_free(&dt);
  coco_free(&gt);
}

TEST(cocoeval_equals_pycocotools) {
  if (!shared_path("cocoeval")) {
    test_skip("no ../shared/data/cocoeval");
    return;
  }
  for (int i = 0; i < COUNT(fixtures); i++) check_fixture(&fixtures[i], fixture_path(&fixtures[i], "expected.json"));
}

TEST(cocoeval_equals_the_authors_boundary_iou) {
  if (!shared_path("cocoeval")) {
    test_skip("no ../shared/data/cocoeval");
    return;
  }
  for (int i = 0; i < COUNT(boundaries); i++) check_fixture(&boundaries[i], "test/goldens/boundary.json");
}

// One file's expectations: {"bbox": {"AP": …}, "segm": …}; the number of figures compared. Where pycocotools itself
// fails, a "pycocotools_error" stands in place of the figures, and ours only have to come out.
static int compare_adversarial(Json *j, const char *path) {
  Coco gt;
  CocoResults dt;
  int compared = 0;
  const char *type;
  if (!load(&gt, &dt, path, path)) {
    json_skip(j);
    return 0;
  }
  json_begin_object(j);
  while ((type = json_key(j))) {
    EvalSummary e;
    if (!EXPECT(cocoeval_run(&e, &gt, &dt, strcmp(type, "segm") == 0 ? EVAL_SEGM : EVAL_BBOX, NULL))) break;
    compared += compare_stats(j, &e);
    cocoeval_free(&e);
  }
  coco_results_free(&dt);
  coco_free(&gt);
  return compared;
}

TEST(cocoeval_equals_pycocotools_on_adversarial_files) {
  const char *expected = shared_path("cocoeval/hotcoco_adversarial/expected_pycocotools.json");
  if (!expected) {
    test_skip("no ../shared/data/cocoeval/hotcoco_adversarial");
    return;
  }
  size_t size;
  char *text = file_read(expected, &size, NULL);
  Json j;
  json_open(&j, "expected_pycocotools.json", text, size);
  int compared = 0;
  const char *file;
  json_begin_object(&j);
  while ((file = json_key(&j))) {
    char name[256];
    snprintf(name, sizeof name, "cocoeval/hotcoco_adversarial/%s", file);
    const char *path = shared_path(name);
    if (!EXPECT(path != NULL)) break;
    compared += compare_adversarial(&j, path);
  }
  EXPECT(json_done(&j));
  EXPECT_INT(compared, 78 * EVAL_STATS); // 74 files, 7 of them with masks too, less 3 on which pycocotools fails
  json_close(&j);
  free(text);
}

// ---- random sets ----------------------------------------------------------------------------------------------------

static bool random_set_is_equal(const char *folder, int i) {
  static const char *const sections[] = {"bbox", "segm"};
  const long failures = test_failures();
  char *gt_path = xasprintf("%s/%d-gt.json", folder, i), *dt_path = xasprintf("%s/%d-dt.json", folder, i);
  char *figures = xasprintf("%s/%d-expected.json", folder, i);
  Coco gt;
  CocoResults dt;
  EvalSummary e;
  if (load(&gt, &dt, gt_path, dt_path)) {
    for (int k = 0; k < COUNT(sections); k++) {
      if (!EXPECT(cocoeval_run(&e, &gt, &dt, k ? EVAL_SEGM : EVAL_BBOX, NULL))) continue;
      expect_section(&e, figures, sections[k]);
      cocoeval_free(&e);
    }
    coco_results_free(&dt);
    coco_free(&gt);
  }
  free(gt_path);
  free(dt_path);
  free(figures);
  return test_failures() == failures;
}

// The interpreter is $PYTHON, or python3.
static void compare_random_sets(int sets, int seed) {
  const char *named = getenv("PYTHON"), *python = named && *named ? named : "python3", *said;
  char *folder = xasprintf("%s/random-%d", test_tmp(), seed);
  if (command(NULL, "%s -c 'import pycocotools.cocoeval'", python)) {
    test_skip(
        "pycocotools is not installed: python3 -m venv build/venv && build/venv/bin/pip install pycocotools, then "
        "PYTHON=build/venv/bin/python3 make test");
  } else if (EXPECT(dirs_make(folder, NULL)) &&
             !EXPECT_INT(command(&said, "%s test/peers/compare_pycocotools.py --cases %d --seed %d --write %s", python,
                                 sets, seed, folder),
                         0)) {
    printf("%s\n", said);
  } else {
    for (int i = 0; i < sets; i++)
      if (!random_set_is_equal(folder, i)) {
        printf("  set %d of seed %d\n", i, seed);
        break;
      }
  }
  free(folder);
}

TEST_TIER(cocoeval_equals_pycocotools_on_random_sets, 1) { compare_random_sets(200, 1); }
TEST_TIER(cocoeval_equals_pycocotools_on_many_random_sets, 2) { compare_random_sets(2000, 2); }
