#include "evaluation/detection_confusion.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/cocoeval_confusion.h"

static const double OVERLAP = 0.5;

// Chooses the scores; returns the index of `least` among them.
static int choose_scores(ReportScores *s, double least) {
  int index = 0;
  for (int i = 1; i < 20; i++) s->score[s->n++] = i / 20.0;
  while (index < s->n && s->score[index] < least) index++;
  if (index < s->n && s->score[index] == least) return index;
  memmove(s->score + index + 1, s->score + index, (size_t)(s->n - index) * sizeof *s->score);
  s->score[index] = least;
  s->n++;
  return index;
}

static double highest_score(const CocoResults *found) {
  double highest = NAN;
  for (int i = 0; i < found->n; i++) highest = fmax(highest, found->items[i].score); // ignores NaN
  return highest;
}

// The matrix at one of the scores: its cells are borrowed, its counts are the caller's to free.
static Confusion confusion_at(const ReportScores *s, int classes, int index) {
  const ConfusionCounts *all = &s->counts;
  int64_t *count = xmalloc(all->cells * sizeof *count);
  for (size_t i = 0; i < all->cells; i++) count[i] = all->count[i * (size_t)s->n + (size_t)index];
  return (Confusion){.classes = classes, .count = count, .cell = all->cell, .cells = all->cells, .background = true};
}

// F1 over all categories: 2 · right / (objects + detections); 0 if there are neither.
static double f1_at(const ReportScores *s, int classes, int index) {
  const Confusion c = confusion_at(s, classes, index);
  const int64_t both = confusion_images(&c) + confusion_detections(&c);
  const double f1 = both ? 2 * (double)confusion_right(&c) / (double)both : 0;
  free((void *)c.count);
  return f1;
}

// The score with the best F1, the lowest in a tie; NaN: no detection reaches any score.
static double best_score(const ReportScores *s, int classes) {
  double best = NAN, best_f1 = -1;
  for (int i = 0; i < s->n && s->score[i] <= s->highest; i++) {
    const double f1 = f1_at(s, classes, i);
    if (f1 <= best_f1) continue;
    best_f1 = f1;
    best = s->score[i];
  }
  return best;
}

void detection_confusion(const Coco *view, const CocoResults *found, double least, EvaluationReport *out) {
  Err err;
  const int n = view->num_categories;
  ReportScores s = {.highest = highest_score(found), .least = least};
  const int index = choose_scores(&s, least);
  if (!eval_confusion(&s.counts, view, found, EVAL_BBOX, s.score, s.n, OVERLAP, &err))
    return; // nothing can be matched, so there are no scores either
  s.opens_at = best_score(&s, n + 1);
  char **name = xcalloc((size_t)n + 1, sizeof *name);
  for (int i = 0; i < n; i++) name[i] = xstrdup(view->categories[i].name ? view->categories[i].name : "");
  name[n] = xstrdup("background");
  const size_t bytes = s.counts.cells * sizeof *s.counts.cell;
  out->confusion = confusion_at(&s, n + 1, index);
  out->confusion.cell = memcpy(xmalloc(bytes), s.counts.cell, bytes);
  out->confusion.name = (const char *const *)name;
  out->scores = s;
  out->rule =
      xasprintf("Rows are true categories, columns are predicted ones. Detections that reach the score threshold "
                "are matched in order of score: first to the unmatched object of the same category with the "
                "highest IoU (≥ %g), then, among what is left, to objects of other categories. Unmatched "
                "detections are false positives; unmatched objects are missed.",
                OVERLAP);
}
