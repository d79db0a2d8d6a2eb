// The confusion matrix of detections. One image at a time, because its categories compete for the same objects.
#include "data/coco/cocoeval_confusion.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/rng.h"
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

// The cells that were hit, in order of appearance, in a hash table.
typedef struct Counts {
  int n, scores; // number of categories, of scores
  size_t cells, cells_cap, counts_cap;
  int64_t *cell, *count;   // [cells], [cells, scores]
  size_t *slot, slot_mask; // [slot_mask + 1] index of a cell plus 1; 0: free. At most half are taken
} Counts;

static size_t slot_of(const Counts *c, int64_t cell) {
  size_t i = (size_t)rng_key(0, (uint64_t)cell) & c->slot_mask;
  while (c->slot[i] && c->cell[c->slot[i] - 1] != cell) i = (i + 1) & c->slot_mask;
  return i;
}

static void add_slots(Counts *c) {
  const size_t slots = MAX(2 * (c->slot_mask + 1), 1024);
  free(c->slot);
  c->slot = xcalloc(slots, sizeof *c->slot);
  c->slot_mask = slots - 1;
  for (size_t k = 0; k < c->cells; k++) c->slot[slot_of(c, c->cell[k])] = k + 1;
}

static void count_hit(Counts *c, const Hit *hit) {
  if (2 * c->cells >= c->slot_mask) add_slots(c);
  size_t *slot = &c->slot[slot_of(c, hit->cell)];
  const size_t scores = (size_t)c->scores;
  if (!*slot) {
    array_reserve((void **)&c->cell, &c->cells_cap, c->cells + 1, sizeof *c->cell);
    array_reserve((void **)&c->count, &c->counts_cap, (c->cells + 1) * scores, sizeof *c->count);
    c->cell[c->cells] = hit->cell;
    memset(c->count + c->cells * scores, 0, scores * sizeof *c->count);
    *slot = ++c->cells;
  }
  c->count[(*slot - 1) * scores + (size_t)hit->score]++;
}

typedef struct CellPosition {
  int64_t cell;
  size_t at;
} CellPosition;

static int compare_position(const void *a, const void *b) {
  const CellPosition *p = a, *q = b;
  return (p->cell > q->cell) - (p->cell < q->cell);
}

// In the order of cells, which does not depend on the threads. Frees the counts.
static EvalConfusion sort_counts(Counts *c) {
  const size_t scores = (size_t)c->scores, row = scores * sizeof *c->count;
  EvalConfusion out = {
      .cells = c->cells, .cell = xmalloc(c->cells * sizeof *out.cell), .count = xmalloc(c->cells * row)};
  CellPosition *order = xmalloc(c->cells * sizeof *order);
  for (size_t k = 0; k < c->cells; k++) order[k] = (CellPosition){c->cell[k], k};
  qsort(order, c->cells, sizeof *order, compare_position);
  for (size_t k = 0; k < c->cells; k++) {
    out.cell[k] = order[k].cell;
    memcpy(out.count + k * scores, c->count + order[k].at * scores, row);
  }
  free(order);
  free(c->cell);
  free(c->count);
  free(c->slot);
  return out;
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

static void match_image(const EvalCells *e, const EvalCell *c, const double *score, double threshold, Counts *to) {
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
    count_at(&m, own, reach, to->n, s);
  }
#pragma omp critical
  for (size_t i = 0; i < m.hits; i++) count_hit(to, &m.hit[i]);
  free(iou);
  free(own);
  free(m.ignored);
  free(m.taken);
  free(m.order);
  free(m.hit);
}

bool eval_confusion(EvalConfusion *out, const Coco *gt, const CocoResults *dt, IouType type, const double *score,
                    int scores, double iou, Err *err) {
  EvalCells e;
  EvalSummary notes = {0};
  Counts counts = {.n = gt->num_categories, .scores = scores};
  *out = (EvalConfusion){0};
  const bool ok = eval_cells_gather(&e, gt, dt, type, MAX_DETS, &notes, err);
  if (ok) {
    regroup(&e, score[0]);
#pragma omp parallel for schedule(dynamic, 16)
    for (int i = 0; i < e.num_cells; i++) match_image(&e, &e.cells[i], score, iou, &counts);
    *out = sort_counts(&counts);
  }
  eval_cells_free(&e);
  return ok;
}

void eval_confusion_free(EvalConfusion *c) {
  free(c->cell);
  free(c->count);
  *c = (EvalConfusion){0};
}
