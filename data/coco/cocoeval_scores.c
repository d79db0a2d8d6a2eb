// COCO's detection metrics: match each image and category, then one precision-recall curve for each category.
#include <float.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/cocoeval.h"
#include "data/coco/cocoeval_cells.h"

enum { THRESHOLDS = 10, LAST = EVAL_LIMITS - 1 };

const char *const iou_types[] = {[EVAL_BBOX] = "bbox", [EVAL_SEGM] = "segm", [EVAL_BOUNDARY] = "boundary", NULL};
const int eval_max_dets[EVAL_LIMITS] = {1, 10, 100};

const EvalStat eval_stats[EVAL_STATS] = {
    {"AP", false, 0, AREA_ALL, EVAL_AT_100},
    {"AP50", false, 50, AREA_ALL, LAST},
    {"AP75", false, 75, AREA_ALL, LAST},
    {"AP_small", false, 0, AREA_SMALL, LAST},
    {"AP_medium", false, 0, AREA_MEDIUM, LAST},
    {"AP_large", false, 0, AREA_LARGE, LAST},
    {"AR_1", true, 0, AREA_ALL, 0},
    {"AR_10", true, 0, AREA_ALL, 1},
    {"AR_100", true, 0, AREA_ALL, LAST},
    {"AR_small", true, 0, AREA_SMALL, LAST},
    {"AR_medium", true, 0, AREA_MEDIUM, LAST},
    {"AR_large", true, 0, AREA_LARGE, LAST},
};
static const EvalStat ap_last = {"AP", false, 0, AREA_ALL, LAST};

// The doubles of numpy.linspace, whose last bit decides matches on a threshold: start + i·step, with the last recall
// exactly 1.
static double iou_threshold(int t) { return t * ((0.95 - 0.5) / (THRESHOLDS - 1)) + 0.5; }
static double recall_point(int r) { return r * (1.0 / (EVAL_RECALLS - 1)); }

// Precision and recall of one category for one area range and one limit on detections.
typedef struct CurveFigures {
  bool defined;
  double precision[THRESHOLDS], recall[THRESHOLDS]; // precision: mean over the 101 recall points
} CurveFigures;

typedef struct CategoryFigures {
  CurveFigures at[EVAL_AREAS][EVAL_LIMITS];
} CategoryFigures;

// Orders detections of one category, already sorted by image and rank, by score.
static int compare_dt_score(const void *pa, const void *pb) {
  const EvalDt *a = *(EvalDt *const *)pa, *b = *(EvalDt *const *)pb;
  int by_score = eval_compare_score(a->result->score, b->result->score);
  return by_score ? by_score : (a > b) - (a < b);
}

// Greedy matching in the order of scores, for one area range at all thresholds.
static void match_area(const EvalCell *c, EvalArea area, const double *iou, int *order, bool *ignored, bool *taken) {
  int n = 0;
  for (int g = 0; g < c->num_gts; g++) ignored[g] = eval_gt_ignored(&c->gts[g], area);
  for (int pass = 0; pass < 2; pass++)
    for (int g = 0; g < c->num_gts; g++)
      if (ignored[g] == pass) order[n++] = g;
  for (int t = 0; t < THRESHOLDS; t++) {
    uint16_t bit = (uint16_t)(1u << t);
    memset(taken, 0, (size_t)c->num_gts);
    for (int d = 0; d < c->num_dts; d++) {
      EvalDt *dt = &c->dts[d];
      int g =
          eval_best_gt(c, order, c->num_gts, ignored, taken, iou + (size_t)d * (size_t)c->num_gts, iou_threshold(t));
      if (g >= 0) taken[g] = true;
      // pycocotools keeps the matched id itself as the flag, so id 0 reads as "no match".
      bool matched = g >= 0 && c->gts[g].id != 0;
      if (matched) dt->matched[area] |= bit;
      if ((g >= 0 && ignored[g]) || (!matched && eval_outside(dt->area, area))) dt->ignored[area] |= bit;
    }
  }
}

// Most cells have no ground truth: nothing matches.
static void match_nothing(const EvalCell *c) {
  for (int d = 0; d < c->num_dts; d++)
    for (int a = 0; a < EVAL_AREAS; a++)
      if (eval_outside(c->dts[d].area, (EvalArea)a)) c->dts[d].ignored[a] = UINT16_MAX;
}

static void match_cell(const EvalCells *e, const EvalCell *c) {
  if (!c->num_gts) {
    match_nothing(c);
    return;
  }
  size_t gts = (size_t)c->num_gts;
  double *iou = xmalloc((size_t)c->num_dts * gts * sizeof *iou);
  int *order = xmalloc(gts * sizeof *order);
  bool *ignored = xmalloc(gts), *taken = xmalloc(gts);
  eval_overlaps(e->coco, e->type, c, iou_threshold(0), iou);
  for (int a = 0; a < EVAL_AREAS; a++) match_area(c, (EvalArea)a, iou, order, ignored, taken);
  free(iou);
  free(order);
  free(ignored);
  free(taken);
}

// A curve at the recall points; returns its mean. Only matches are points of the curve, with recall (i + 1) / positives
// and precision[i]: detections between two matches have the recall of the first and lower precision.
static double curve_at_recalls(double *precision, int points, int positives, double curve[EVAL_RECALLS]) {
  for (int i = points - 1; i > 0; i--) precision[i - 1] = MAX(precision[i - 1], precision[i]);
  double sum = 0;
  for (int r = 0, i = 0; r < EVAL_RECALLS; r++) {
    while (i < points && (double)(i + 1) / positives < recall_point(r)) i++;
    curve[r] = i < points ? precision[i] : 0; // 0 beyond the highest recall reached
    sum += curve[r];
  }
  return sum / EVAL_RECALLS;
}

// A precision-recall curve for each threshold: detections by score, without those beyond the limit or ignored.
// precision is scratch, [THRESHOLDS, n], curve receives [THRESHOLDS, EVAL_RECALLS].
static void score_curves(CurveFigures *out, EvalDt *const *dts, int n, EvalArea area, int max_dets, int positives,
                         double *precision, double (*curve)[EVAL_RECALLS]) {
  int tp[THRESHOLDS] = {0}, seen[THRESHOLDS] = {0};
  for (int i = 0; i < n; i++) {
    const EvalDt *d = dts[i];
    if (d->rank >= max_dets) continue;
    unsigned counted = ~(unsigned)d->ignored[area], matched = d->matched[area] & counted;
    for (int t = 0; t < THRESHOLDS; t++) seen[t] += (int)(counted >> t & 1);
    for (; matched != 0; matched &= matched - 1) {
      int t = __builtin_ctz(matched), fp = seen[t] - ++tp[t];
      precision[(size_t)t * (size_t)n + (size_t)tp[t] - 1] = tp[t] / ((double)fp + tp[t] + DBL_EPSILON);
    }
  }
  for (int t = 0; t < THRESHOLDS; t++) {
    out->precision[t] = curve_at_recalls(precision + (size_t)t * (size_t)n, tp[t], positives, curve[t]);
    out->recall[t] = (double)tp[t] / positives;
  }
}

static void fill_precision(EvalPrecision to, bool defined, double (*curve)[EVAL_RECALLS]) {
  for (int r = 0; r < EVAL_RECALLS; r++) {
    double sum = 0;
    for (int t = 0; t < THRESHOLDS; t++) sum += curve[t][r];
    to[CURVE_50][r] = defined ? curve[0][r] : -1;
    to[CURVE_75][r] = defined ? curve[5][r] : -1;
    to[CURVE_MEAN][r] = defined ? sum / THRESHOLDS : -1;
  }
}

// dts are sorted by score here; gts and dts are those of one category.
static void score_category(CategoryFigures *out, EvalPrecision to, const int *limits, const EvalGt *gts, int num_gts,
                           EvalDt **dts, int n) {
  double *precision = xmalloc(THRESHOLDS * (size_t)n * sizeof *precision), curve[THRESHOLDS][EVAL_RECALLS] = {{0}};
  qsort(dts, (size_t)n, sizeof *dts, compare_dt_score);
  for (int a = 0; a < EVAL_AREAS; a++) {
    int positives = 0;
    for (int g = 0; g < num_gts; g++) positives += !eval_gt_ignored(&gts[g], (EvalArea)a);
    for (int m = 0; m < EVAL_LIMITS; m++) {
      CurveFigures *f = &out->at[a][m];
      f->defined = positives > 0;
      if (f->defined) score_curves(f, dts, n, (EvalArea)a, limits[m], positives, precision, curve);
      if (a == AREA_ALL && m == LAST) fill_precision(to, f->defined, curve);
    }
  }
  free(precision);
}

static void score_categories(const EvalCells *e, CategoryFigures *figures, EvalSummary *out) {
  int n = e->coco->num_categories;
  int *gt_end = xcalloc((size_t)n + 1, sizeof *gt_end), *dt_end = xcalloc((size_t)n + 1, sizeof *dt_end);
  for (int i = 0; i < e->num_gts; i++) gt_end[e->gts[i].category + 1]++;
  for (int i = 0; i < e->num_dts; i++) dt_end[e->dts[i].category + 1]++;
  for (int k = 0; k < n; k++) {
    gt_end[k + 1] += gt_end[k];
    dt_end[k + 1] += dt_end[k];
  }
  EvalDt **by_score = xmalloc((size_t)e->num_dts * sizeof *by_score);
  for (int i = 0; i < e->num_dts; i++) by_score[i] = &e->dts[i];
#pragma omp parallel for schedule(dynamic)
  for (int k = 0; k < n; k++)
    score_category(&figures[k], out->precision[k], out->max_dets, e->gts + gt_end[k], gt_end[k + 1] - gt_end[k],
                   by_score + dt_end[k], dt_end[k + 1] - dt_end[k]);
  free(gt_end);
  free(dt_end);
  free(by_score);
}

// The index of a metric's limit; -1 if it is 100, and none is.
static int index_of_limit(const int *limits, const EvalStat *s) {
  if (s->limit != EVAL_AT_100) return s->limit;
  for (int m = 0; m < EVAL_LIMITS; m++)
    if (limits[m] == 100) return m;
  return -1;
}

// Mean over the categories for which the metric is defined, or -1. All of them average equally many points, so that the
// mean of means is pycocotools' mean over all points but for rounding.
static double mean_stat(const CategoryFigures *figures, int n, const int *limits, const EvalStat *s) {
  int first = s->iou ? (s->iou - 50) / 5 : 0, last = s->iou ? first : THRESHOLDS - 1;
  int limit = index_of_limit(limits, s), count = 0;
  double sum = 0;
  for (int k = 0; k < n && limit >= 0; k++) {
    const CurveFigures *f = &figures[k].at[s->area][limit];
    if (!f->defined) continue;
    for (int t = first; t <= last; t++, count++) sum += s->recall ? f->recall[t] : f->precision[t];
  }
  return count ? sum / count : -1;
}

static void mean_curves(EvalPrecision *precision, int n) {
  for (int c = 0; c < EVAL_CURVES; c++)
    for (int r = 0; r < EVAL_RECALLS; r++) {
      double sum = 0;
      int count = 0;
      for (int k = 0; k < n; k++) {
        if (precision[k][c][r] < 0) continue;
        sum += precision[k][c][r];
        count++;
      }
      precision[n][c][r] = count ? sum / count : -1;
    }
}

static void summarize(EvalSummary *out, const Coco *c, const CategoryFigures *figures) {
  const int n = c->num_categories, *limits = out->max_dets;
  for (int i = 0; i < EVAL_STATS; i++) out->stats[i] = mean_stat(figures, n, limits, &eval_stats[i]);
  out->ap_last = mean_stat(figures, n, limits, &ap_last);
  mean_curves(out->precision, n);
  out->categories = xmalloc((size_t)n * sizeof *out->categories);
  for (int k = 0; k < n; k++)
    out->categories[k] = (EvalCategory){.id = c->categories[k].id,
                                        .name = c->categories[k].name,
                                        .ap = mean_stat(&figures[k], 1, limits, &ap_last),
                                        .ap50 = mean_stat(&figures[k], 1, limits, &eval_stats[1]),
                                        .ar = mean_stat(&figures[k], 1, limits, &eval_stats[8])};
}

bool cocoeval_run_at(EvalSummary *out, const Coco *gt, const CocoResults *dt, IouType type,
                     const int max_dets[EVAL_LIMITS], Err *err) {
  EvalCells e;
  *out = (EvalSummary){.type = type};
  memcpy(out->max_dets, max_dets, sizeof out->max_dets);
  const bool ok = eval_cells_gather(&e, gt, dt, type, max_dets[LAST], out, err);
  if (ok) {
#pragma omp parallel for schedule(dynamic, 16)
    for (int i = 0; i < e.num_cells; i++) match_cell(&e, &e.cells[i]);
    out->num_categories = gt->num_categories;
    out->precision = xmalloc(((size_t)gt->num_categories + 1) * sizeof *out->precision);
    CategoryFigures *figures = xcalloc((size_t)gt->num_categories, sizeof *figures);
    score_categories(&e, figures, out);
    summarize(out, gt, figures);
    free(figures);
  }
  eval_cells_free(&e);
  return ok;
}

bool cocoeval_run(EvalSummary *out, const Coco *gt, const CocoResults *dt, IouType type, Err *err) {
  return cocoeval_run_at(out, gt, dt, type, eval_max_dets, err);
}

size_t cocoeval_bytes(int categories) {
  return (size_t)categories * (2 * (sizeof(EvalPrecision) + sizeof(EvalCategory)) + sizeof(CategoryFigures));
}

void cocoeval_free(EvalSummary *s) {
  free(s->categories);
  free(s->precision);
  memset(s, 0, sizeof *s);
}
