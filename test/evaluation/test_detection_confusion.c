// Catches a confusion matrix shown at another score than the best F1's or the one asked for.
#include <math.h>
#include "evaluation/detection_confusion.h"
#include "test/harness/coco_scene.h"
#include "test/harness/test.h"

static EvaluationReport confusion_of(Scene *s, double least) {
  EvaluationReport r = {0};
  detection_confusion(&s->gt, &s->dt, least, &r);
  free(s);
  return r;
}

static int64_t cell(const EvaluationReport *r, int truth, int found, double score) {
  const ReportScores *s = &r->scores;
  int k = 0;
  while (k < s->n && s->score[k] != score) k++;
  CHECK(k < s->n);
  for (size_t i = 0; i < s->counts.cells; i++)
    if (s->counts.cell[i] == truth * r->confusion.classes + found) return s->counts.count[i * (size_t)s->n + (size_t)k];
  return 0;
}

// Two objects, of which one is found at 0.6 and one at 0.35, and a false detection at 0.2: F1 is 1 from 0.25 to 0.35.
static Scene *three_scores(void) {
  Scene *s = scene_new(1, 2);
  add_gt(s, 0, 0, 0, 0, 50, 50);
  add_gt(s, 0, 1, 100, 0, 50, 50);
  add_dt(s, 0, 0, 0.6, 0, 0, 50, 50);
  add_dt(s, 0, 1, 0.35, 100, 0, 50, 50);
  add_dt(s, 0, 1, 0.2, 300, 0, 50, 50);
  return s;
}

TEST(detection_confusion_opens_at_the_best_f1) {
  EvaluationReport r = confusion_of(three_scores(), 0.5);
  EXPECT_INT(r.scores.n, 19);
  EXPECT(r.scores.score[0] == 0.05 && r.scores.score[2] == 0.15 && r.scores.score[18] == 0.95);
  EXPECT(r.scores.opens_at == 0.25 && r.scores.highest == 0.6 && r.scores.least == 0.5);
  EXPECT(cell(&r, 1, 1, 0.35) == 1 && cell(&r, 1, 1, 0.4) == 0 && cell(&r, 1, 2, 0.4) == 1);
  EXPECT(cell(&r, 2, 1, 0.2) == 1 && cell(&r, 2, 1, 0.25) == 0);
  EXPECT(confusion_right(&r.confusion) == 1 && confusion_detections(&r.confusion) == 1); // at `least`
  EXPECT_STR(r.confusion.name[2], "background");
  report_free(&r);
}

// A score between two of them, above all, or below all, has its place among them, and may be the best.
TEST(detection_confusion_has_the_score_that_is_asked_for) {
  static const double least[] = {0.22, 0.97, 0};
  static const int index[] = {4, 19, 0};
  for (int i = 0; i < COUNT(least); i++) {
    EvaluationReport r = confusion_of(three_scores(), least[i]);
    EXPECT(r.scores.n == 20 && r.scores.score[index[i]] == least[i]);
    EXPECT_NEAR(r.scores.opens_at, i == 0 ? 0.22 : 0.25, 0);
    EXPECT_INT(confusion_detections(&r.confusion), i == 0 ? 2 : i == 1 ? 0 : 3);
    report_free(&r);
  }
}

// Nothing was found, or nothing of a score that is told; or all of it is wrong.
TEST(detection_confusion_of_nothing) {
  for (int i = 0; i < 4; i++) {
    Scene *s = scene_new(1, 2);
    if (i < 3) add_gt(s, 0, 0, 0, 0, 50, 50);
    if (i) add_dt(s, 0, 1, i == 1 ? 0.04 : 0.4, 300, 0, 50, 50);
    if (i) add_dt(s, 0, 1, NAN, 0, 0, 50, 50);
    EvaluationReport r = confusion_of(s, 0.5);
    EXPECT(i == 0 ? isnan(r.scores.highest) : r.scores.highest == (i == 1 ? 0.04 : 0.4));
    EXPECT(i < 2 ? isnan(r.scores.opens_at) : r.scores.opens_at == 0.05);
    EXPECT_INT(confusion_images(&r.confusion), i < 3);
    report_free(&r);
  }
}
