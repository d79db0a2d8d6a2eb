// Confusion of detections. An image at a time: its categories compete for the same objects.
#include "data/coco/cocoeval_confusion.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "data/coco/cocoeval_cells.h"

enum { MAX_DETS = 100 };

static int compare_gt(const void *pa, const void *pb) {
  const EvalGt *a = pa, *b = pb;
  if (a->image != b->image) return a->image < b->image ? -1 : 1;
  return (a->order > b->order) - (a->order < b->order);
}

static int compare_dt(const void *pa, const void *pb) {
  const EvalDt *a = pa, *b = pb;
  if (a->image != b->image) return a->image < b->image ? -1 : 1;
  int by_score = eval_compare_score(a->result->score, b->result->score);
  return by_score ? by_score : (a->result > b->result) - (a->result < b->result);
}

// Cells of whole images in place of those of a category; detections below the score are left out.
static void regroup(EvalCells *e, double score) {
  int n = 0;
  for (int d = 0; d < e->num_dts; d++)
    if (e->dts[d].result->score >= score) e->dts[n++] = e->dts[d];
  e->num_dts = n;
  qsort(e->gts, (size_t)e->num_gts, sizeof *e->gts, compare_gt);
  qsort(e->dts, (size_t)e->num_dts, sizeof *e->dts, compare_dt);
  e->num_cells = 0;
  for (int g = 0, d = 0; g < e->num_gts || d < e->num_dts;) {
    int image = MIN(g < e->num_gts ? e->gts[g].image : INT32_MAX, d < e->num_dts ? e->dts[d].image : INT32_MAX);
    EvalCell c = {.gts = e->gts + g, .dts = e->dts + d};
    for (; g < e->num_gts && e->gts[g].image == image; g++) c.num_gts++;
    for (; d < e->num_dts && e->dts[d].image == image; d++) c.num_dts++;
    e->cells[e->num_cells++] = c;
  }
}

typedef struct Matching {
  const EvalCell *cell;
  const double *iou; // [num_dts, num_gts]
  double threshold;
  bool *ignored, *taken; // by ground truth
  int *order;            // scratch, one for each
} Matching;

// What a detection takes of its own category, ignored ground truth included, or of the objects of the others; -1: none.
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

static void add(int64_t *count, int n, int truth, int detected) {
#pragma omp atomic
  count[(size_t)truth * ((size_t)n + 1) + (size_t)detected]++;
}

static void match_image(const EvalCells *e, const EvalCell *c, double threshold, int64_t *count) {
  const size_t gts = (size_t)c->num_gts, dts = (size_t)c->num_dts;
  const int n = e->coco->num_categories;
  double *iou = xmalloc(dts * gts * sizeof *iou);
  Matching m = {.cell = c, .iou = iou, .threshold = MIN(threshold, 1 - 1e-10)}; // as COCO's, so that 1 can be reached
  bool *done = xcalloc(dts, sizeof *done);
  m.ignored = xcalloc(gts, sizeof *m.ignored);
  m.taken = xcalloc(gts, sizeof *m.taken);
  m.order = xmalloc(gts * sizeof *m.order);
  eval_overlaps(e->coco, e->kind, c, m.threshold, iou);
  for (int g = 0; g < c->num_gts; g++) m.ignored[g] = eval_gt_ignored(&c->gts[g], AREA_ALL);
  for (int own = 1; own >= 0; own--)
    for (int d = 0; d < c->num_dts; d++) {
      const int g = done[d] ? -1 : take(&m, d, own);
      if (g < 0) continue;
      done[d] = true;
      if (!m.ignored[g]) add(count, n, c->gts[g].category, c->dts[d].category);
    }
  for (int d = 0; d < c->num_dts; d++)
    if (!done[d] && !eval_outside(c->dts[d].area, AREA_ALL)) add(count, n, n, c->dts[d].category);
  for (int g = 0; g < c->num_gts; g++)
    if (!m.taken[g] && !m.ignored[g]) add(count, n, c->gts[g].category, n);
  free(iou);
  free(done);
  free(m.ignored);
  free(m.taken);
  free(m.order);
}

int64_t *eval_confusion(const Coco *gt, const CocoResults *dt, EvalKind kind, double score, double iou, Err *err) {
  EvalCells e;
  EvalSummary notes = {0};
  int64_t *count = NULL;
  if (eval_cells_gather(&e, gt, dt, kind, MAX_DETS, &notes, err)) {
    const size_t n = (size_t)gt->num_categories + 1;
    count = xcalloc(n * n, sizeof *count);
    regroup(&e, score);
#pragma omp parallel for schedule(dynamic, 16)
    for (int i = 0; i < e.num_cells; i++) match_image(&e, &e.cells[i], iou, count);
  }
  eval_cells_free(&e);
  return count;
}
