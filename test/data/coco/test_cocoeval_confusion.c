// Catches confusion matrices of detections with counts in the wrong cells.
#include <float.h>
#include <math.h>
#include "base/alloc.h"
#include "data/coco/cocoeval_confusion.h"
#include "test/harness/coco_scene.h"
#include "test/harness/test.h"

// The whole matrix [n + 1, n + 1, scores]; NULL if there is none. Caller frees.
static int64_t *whole(const Scene *s, const double *score, int scores, double iou, Err *err) {
  ConfusionCounts c;
  if (!eval_confusion(&c, &s->gt, &s->dt, EVAL_BBOX, score, scores, iou, err)) return NULL;
  const size_t classes = (size_t)s->gt.num_categories + 1;
  int64_t *all = xcalloc(classes * classes * (size_t)scores, sizeof *all);
  for (size_t i = 0; i < c.cells; i++) {
    EXPECT(i == 0 || c.cell[i] > c.cell[i - 1]);
    memcpy(all + c.cell[i] * scores, c.count + i * (size_t)scores, (size_t)scores * sizeof *all);
  }
  confusion_counts_free(&c);
  return all;
}

// Compares with the matrix and frees the scene; `n` categories.
static void expect_confusion(Scene *s, int n, double score, double iou, const int64_t *want) {
  Err err = {{0}};
  int64_t *got = whole(s, &score, 1, iou, &err);
  if (EXPECT(got != NULL))
    for (int i = 0; i < (n + 1) * (n + 1); i++)
      if (!EXPECT_INT(got[i], want[i])) printf("  row %d, column %d\n", i / (n + 1), i % (n + 1));
  free(got);
  free(s);
}

// A hit, one for the other, a miss, and a detection of nothing.
static Scene *four_detections(void) {
  Scene *s = scene_new(2, 2);
  add_gt(s, 0, 0, 0, 0, 50, 50);
  add_gt(s, 0, 0, 100, 0, 50, 50);
  add_gt(s, 1, 1, 0, 0, 50, 50);
  add_dt(s, 0, 0, 0.9, 0, 0, 50, 50);
  add_dt(s, 0, 1, 0.8, 100, 0, 50, 40); // IoU 0.8
  add_dt(s, 1, 0, 0.7, 300, 300, 50, 50);
  add_dt(s, 1, 1, 0.3, 0, 0, 50, 50);
  return s;
}

TEST(confusion_of_detections_by_hand) {
  expect_confusion(four_detections(), 2, 0.5, 0.5, (int64_t[]){1, 1, 0, 0, 0, 1, 1, 0, 0});
  expect_confusion(four_detections(), 2, 0.3, 0.5, (int64_t[]){1, 1, 0, 0, 1, 0, 1, 0, 0});
  expect_confusion(four_detections(), 2, 0.31, 0.8, (int64_t[]){1, 1, 0, 0, 0, 1, 1, 0, 0});
  expect_confusion(four_detections(), 2, 0.5, 0.85, (int64_t[]){1, 0, 1, 0, 0, 1, 1, 1, 0});
  expect_confusion(four_detections(), 2, 0.5, 1, (int64_t[]){1, 0, 1, 0, 0, 1, 1, 1, 0});
}

// The right category comes first, whatever its score; the better score would have had the object otherwise.
TEST(confusion_of_detections_lets_the_right_category_go_first) {
  Scene *s = scene_new(1, 2);
  add_gt(s, 0, 0, 0, 0, 50, 50);
  add_dt(s, 0, 1, 0.9, 0, 0, 50, 50);
  add_dt(s, 0, 0, 0.6, 0, 0, 50, 40);
  expect_confusion(s, 2, 0.5, 0.5, (int64_t[]){1, 0, 0, 0, 0, 0, 0, 1, 0});
}

// Each object is taken once, by the best score; of two objects the one that is overlapped more.
TEST(confusion_of_detections_takes_an_object_once) {
  Scene *s = scene_new(1, 3);
  add_gt(s, 0, 0, 0, 0, 50, 50);
  add_gt(s, 0, 0, 0, 10, 50, 50);
  add_dt(s, 0, 2, 0.6, 0, 10, 50, 50);
  add_dt(s, 0, 1, 0.7, 0, 10, 50, 50);
  add_dt(s, 0, 2, 0.5, 0, 10, 50, 50);
  expect_confusion(s, 3, 0.5, 0.5, (int64_t[]){0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0});
}

// A crowd is no object; it absorbs detections of its own category only, any number of them.
TEST(confusion_of_detections_leaves_crowds_out) {
  Scene *s = scene_new(1, 2);
  add_gt(s, 0, 0, 0, 0, 400, 400)->crowd = true;
  for (int i = 0; i < 3; i++) add_dt(s, 0, 0, 0.9, 10 * i, 10, 50, 50);
  add_dt(s, 0, 1, 0.9, 10, 10, 50, 50);
  expect_confusion(s, 2, 0.5, 0.5, (int64_t[]){0, 0, 0, 0, 0, 0, 0, 1, 0});
}

TEST(confusion_of_detections_refuses_what_cannot_be_scored) {
  Scene *s = four_detections();
  Err err = {{0}};
  s->results[1].has_bbox = false;
  EXPECT(!whole(s, &(double){0.5}, 1, 0.5, &err));
  EXPECT(strstr(err.msg, "detection 2 has") != NULL);
  free(s);
}

// At several scores at once as at each by itself, which is not a part of what is paired at a lower one: at 0.5 the
// second category has the object, at 0.3 the first.
TEST(confusion_of_detections_at_several_scores) {
  enum { N = 4, CLASSES = N + 1, SCORES = 13 };
  Err err;
  Scene *s = scene_new(1, 2);
  add_gt(s, 0, 0, 0, 0, 50, 50);
  add_dt(s, 0, 1, 0.5, 0, 0, 50, 50);
  add_dt(s, 0, 0, 0.3, 0, 0, 50, 50);
  int64_t *both = whole(s, (double[]){0.3, 0.5}, 2, 0.5, &err);
  static const int64_t want[] = {1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0};
  for (int i = 0; i < COUNT(want); i++) EXPECT_INT(both[i], want[i]);
  free(both);
  free(s);
  for (uint64_t seed = 1; seed <= 4; seed++) {
    s = random_scene(seed);
    for (int i = 0; i < s->dt.n; i += 50) s->results[i].score = NAN;
    double score[SCORES];
    for (int k = 0; k < SCORES; k++) score[k] = k / (SCORES - 1.0);
    for (int coarse = 0; coarse < 2; coarse++) {
      const double iou = coarse ? 0.3 : 0.6;
      int64_t *all = whole(s, score, SCORES, iou, &err);
      for (int k = 0; k < SCORES; k++) {
        int64_t *one = whole(s, &score[k], 1, iou, &err);
        for (int i = 0; i < CLASSES * CLASSES; i++) EXPECT_INT(all[i * SCORES + k], one[i]);
        free(one);
      }
      free(all);
    }
    free(s);
  }
}

// On crowded scenes rows add up to the objects, columns to no more than the detections, and the diagonal over the row,
// mean of categories and thresholds, is the evaluator's recall.
TEST(confusion_of_detections_agrees_with_the_evaluator) {
  enum { N = 4, THRESHOLDS = 10, AR_100 = 8 };
  Scene *s = random_scene(2);
  int64_t objects[N] = {0}, detections[N] = {0};
  for (int i = 0; i < s->gt.num_anns; i++) objects[s->anns[i].category] += !s->anns[i].crowd;
  for (int i = 0; i < s->dt.n; i++) detections[s->results[i].category_id - 100]++;
  EvalSummary e;
  Err err;
  double recall = 0;
  for (int t = 0; t < THRESHOLDS; t++) {
    const double iou = t * ((0.95 - 0.5) / (THRESHOLDS - 1)) + 0.5;
    int64_t *count = whole(s, &(double){0}, 1, iou, &err);
    for (int k = 0; k < N; k++) {
      int64_t row = 0, column = 0;
      for (int j = 0; j <= N; j++) {
        row += count[k * (N + 1) + j];
        column += count[j * (N + 1) + k];
      }
      EXPECT_INT(row, objects[k]);
      EXPECT(column > 0 && column <= detections[k]);
      recall += (double)count[k * (N + 1) + k] / (double)row / N / THRESHOLDS;
    }
    free(count);
  }
  EXPECT(cocoeval_run(&e, &s->gt, &s->dt, EVAL_BBOX, &err));
  EXPECT(recall > 0.01);
  EXPECT_NEAR(e.stats[AR_100], recall, 40 * DBL_EPSILON); // a mean of 40 terms in [0, 1]
  cocoeval_free(&e);
  free(s);
}

// As many categories as there can be: the whole matrix would have 34 GB for each score.
TEST(confusion_of_many_categories) {
  enum { N = 65535 };
  Scene *s = four_detections();
  CocoCategory *category = xcalloc(N, sizeof *category);
  for (int i = 0; i < N; i++) category[i].id = 100 + i;
  category[0].name = category[N - 1].name = "";
  s->gt.categories = category;
  s->gt.num_categories = N;
  for (int i = 0; i < s->gt.num_anns; i++)
    if (s->anns[i].category == 1) s->anns[i].category = N - 1;
  for (int i = 0; i < s->dt.n; i++)
    if (s->results[i].category_id == 101) s->results[i].category_id = 100 + N - 1;
  ConfusionCounts c;
  Err err;
  const int64_t classes = N + 1;
  const int64_t want[] = {0, N - 1, (N - 1) * classes + N, N * classes}; // as by hand at 0.5
  if (EXPECT(eval_confusion(&c, &s->gt, &s->dt, EVAL_BBOX, &(double){0.5}, 1, 0.5, &err)) && EXPECT_INT(c.cells, 4))
    for (int i = 0; i < 4; i++) EXPECT(c.cell[i] == want[i] && c.count[i] == 1);
  confusion_counts_free(&c);
  free(category);
  free(s);
}
