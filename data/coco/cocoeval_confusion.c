// The confusion matrix of detections. One image at a time, because its categories compete for the same objects.
#include "data/coco/cocoeval_confusion.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/cocoeval_cells.h"

enum { MAX_DETS = 100 };

static int compare_gt(const void *pa, const void *pb) {
  const EvalGt *a = pa, *b = pb;
  return (a->order > b->order) - (a->order < b->order);
}

static int compare_dt(const void *pa, const void *pb) {
  const EvalDt *a = pa, *b = pb;
  int by_score = eval_compare_score(a->result->score, b->result->score);
  return by_score ? by_score : (a->result > b->result) - (a->result < b->result);
}

// Replaces the cells by cells of whole images, with all categories; drops detections below the score.
static void regroup(EvalCells *e, double score) {
  const size_t images = (size_t)e->coco->num_images;
  EvalCell *cells = xcalloc(images, sizeof *cells);
  EvalGt *gts = xmalloc((size_t)e->num_gts * sizeof *gts), **gt = xmalloc(images * sizeof *gt), *next_gt = gts;
  EvalDt *dts = xmalloc((size_t)e->num_dts * sizeof *dts), **dt = xmalloc(images * sizeof *dt), *next_dt = dts;
  for (int g = 0; g < e->num_gts; g++) cells[e->gts[g].image].num_gts++;
  for (int d = 0; d < e->num_dts; d++) cells[e->dts[d].image].num_dts += e->dts[d].result->score >= score;
  for (size_t i = 0; i < images; i++) {
    cells[i].gts = gt[i] = next_gt;
    cells[i].dts = dt[i] = next_dt;
    next_gt += cells[i].num_gts;
    next_dt += cells[i].num_dts;
  }
  for (int g = 0; g < e->num_gts; g++) *gt[e->gts[g].image]++ = e->gts[g];
  for (int d = 0; d < e->num_dts; d++)
    if (e->dts[d].result->score >= score) *dt[e->dts[d].image]++ = e->dts[d];
#pragma omp parallel for schedule(dynamic, 16)
  for (size_t i = 0; i < images; i++) {
    qsort(gt[i] - cells[i].num_gts, (size_t)cells[i].num_gts, sizeof *gts, compare_gt);
    qsort(cells[i].dts, (size_t)cells[i].num_dts, sizeof *dts, compare_dt);
  }
  free(gt);
  free(dt);
  free(e->gts);
  free(e->dts);
  free(e->cells);
  *e = (EvalCells){e->coco, e->type, gts, dts, cells, (int)(next_gt - gts), (int)(next_dt - dts), (int)images};
}

typedef struct Hit { // adds one to a cell of the matrix at a score
  int64_t cell;
  int score;
} Hit;

typedef struct Matching {
  const EvalCell *cell;
  const double *iou; // [num_dts, num_gts]
  double threshold;
  bool *ignored, *taken; // by ground truth
  int *order;            // scratch, one element for each ground truth
  Hit *hit;              // of the image: at most one for each object and detection at each score
  size_t hits;
} Matching;

// Matches a detection: in its own category, where it may match ignored ground truth, or among the objects of the other
// categories; -1: no match.
static int take(Matching *m, int d, bool own) {
  const EvalCell *c = m->cell;
  int n = 0;
  for (int pass = 0; pass < (own ? 2 : 1); pass++)
    for (int g = 0; g < c->num_gts; g++)
      if (m->ignored[g] == pass && (c->gts[g].category == c->dts[d].category) == own) m->order[n++] = g;
  int g = eval_best_gt(c, m->order, n, m->ignored, m->taken, m->iou + (size_t)d * (size_t)c->num_gts, m->threshold);
  if (g >= 0) m->taken[g] = true;
  return g;
}

static void add(Matching *m, int n, int truth, int detected, int score) {
  m->hit[m->hits++] = (Hit){(int64_t)truth * (n + 1) + detected, score};
}

// The result of matching a detection in its own category: an object's index, or OTHERS if objects of other categories
// overlap enough, or NOTHING.
enum { OTHERS = -1, NOTHING = -2 };
static int take_own(Matching *m, int d) {
  const EvalCell *c = m->cell;
  const double *iou = m->iou + (size_t)d * (size_t)c->num_gts;
  int found = take(m, d, true);
  if (found >= 0) return found;
  found = NOTHING;
  for (int g = 0; g < c->num_gts; g++)
    if (c->gts[g].category != c->dts[d].category && iou[g] >= m->threshold) found = OTHERS;
  return found;
}

// Counts the first `reach` detections of an image. Matches within the own category, `own`, do not depend on less
// confident detections; matches with other categories do.
static void count_at(Matching *m, const int *own, int reach, int n, int score) {
  const EvalCell *c = m->cell;
  memset(m->taken, 0, (size_t)c->num_gts * sizeof *m->taken);
  for (int d = 0; d < reach; d++)
    if (own[d] >= 0) m->taken[own[d]] = true;
  for (int d = 0; d < reach; d++) {
    const int g = own[d] == OTHERS ? take(m, d, false) : own[d];
    if (g >= 0 ? !m->ignored[g] : !eval_outside(c->dts[d].area, AREA_ALL))
      add(m, n, g >= 0 ? c->gts[g].category : n, c->dts[d].category, score);
  }
  for (int g = 0; g < c->num_gts; g++)
    if (!m->taken[g] && !m->ignored[g]) add(m, n, c->gts[g].category, n, score);
}

static void match_image(const EvalCells *e, const EvalCell *c, const double *score, double threshold,
                        ConfusionCounts *to) {
  const size_t gts = (size_t)c->num_gts, dts = (size_t)c->num_dts;
  double *iou = xmalloc(dts * gts * sizeof *iou);
  int *own = xmalloc(dts * sizeof *own);
  // As in COCO, so that an IoU of 1 reaches the threshold 1.
  Matching m = {.cell = c, .iou = iou, .threshold = MIN(threshold, 1 - 1e-10)};
  m.ignored = xcalloc(gts, sizeof *m.ignored);
  m.taken = xcalloc(gts, sizeof *m.taken);
  m.order = xmalloc(gts * sizeof *m.order);
  m.hit = xmalloc((gts + dts) * (size_t)to->scores * sizeof *m.hit);
  eval_overlaps(e->coco, e->type, c, m.threshold, iou);
  for (int g = 0; g < c->num_gts; g++) m.ignored[g] = eval_gt_ignored(&c->gts[g], AREA_ALL);
  for (int d = 0; d < c->num_dts; d++) own[d] = take_own(&m, d);
  for (int s = 0, reach = c->num_dts; s < to->scores; s++) {
    while (reach > 0 && !(c->dts[reach - 1].result->score >= score[s])) reach--; // NaN comes last and reaches no score
    count_at(&m, own, reach, e->coco->num_categories, s);
  }
#pragma omp critical
  for (size_t i = 0; i < m.hits; i++) confusion_count(to, m.hit[i].cell, m.hit[i].score);
  free(iou);
  free(own);
  free(m.ignored);
  free(m.taken);
  free(m.order);
  free(m.hit);
}

bool eval_confusion(ConfusionCounts *out, const Coco *gt, const CocoResults *dt, IouType type, const double *score,
                    int scores, double iou, Err *err) {
  EvalCells e;
  EvalSummary notes = {0};
  *out = (ConfusionCounts){.scores = scores};
  const bool ok = eval_cells_gather(&e, gt, dt, type, MAX_DETS, &notes, err);
  if (ok) {
    regroup(&e, score[0]);
#pragma omp parallel for schedule(dynamic, 16)
    for (int i = 0; i < e.num_cells; i++) match_image(&e, &e.cells[i], score, iou, out);
    confusion_counts_sort(out);
  }
  eval_cells_free(&e);
  return ok;
}
