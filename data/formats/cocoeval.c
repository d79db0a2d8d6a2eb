// COCO's detection metrics: match each image and category, then one precision-recall curve for each category.
#include "data/formats/cocoeval.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data/formats/rle.h"

enum { THRESHOLDS = 10, RECALLS = 101, LIMITS = 3, MAX_DETS = 100 };

static const int limits[LIMITS] = {1, 10, MAX_DETS};
static const double area_range[EVAL_AREAS][2] = {{0, 1e10}, {0, 1024}, {1024, 9216}, {9216, 1e10}};

const EvalStat eval_stats[EVAL_STATS] = {
    {"AP", false, 0, AREA_ALL, 100},
    {"AP50", false, 50, AREA_ALL, 100},
    {"AP75", false, 75, AREA_ALL, 100},
    {"AP_small", false, 0, AREA_SMALL, 100},
    {"AP_medium", false, 0, AREA_MEDIUM, 100},
    {"AP_large", false, 0, AREA_LARGE, 100},
    {"AR_1", true, 0, AREA_ALL, 1},
    {"AR_10", true, 0, AREA_ALL, 10},
    {"AR_100", true, 0, AREA_ALL, 100},
    {"AR_small", true, 0, AREA_SMALL, 100},
    {"AR_medium", true, 0, AREA_MEDIUM, 100},
    {"AR_large", true, 0, AREA_LARGE, 100},
};

// The doubles of numpy.linspace, whose last bit decides matches on a threshold: start + i·step, and recall ends at 1.
static double iou_threshold(int t) { return t * ((0.95 - 0.5) / (THRESHOLDS - 1)) + 0.5; }
static double recall_point(int r) { return r * (1.0 / (RECALLS - 1)); }

typedef struct Gt {
  const CocoAnn *ann;
  int category, image, order; // indices into the ground truth; order as pycocotools lists them
  double area;
} Gt;

typedef struct Dt {
  const CocoResult *result;
  int category, image, rank; // rank: by score within image and category, from 0
  double area;
  uint16_t matched[EVAL_AREAS], ignored[EVAL_AREAS]; // bit t: at IoU threshold t
} Dt;

// The ground truth and the detections of one category in one image.
typedef struct Cell {
  const Gt *gts;
  Dt *dts;
  int num_gts, num_dts;
} Cell;

// Figures of one category for one area range and one limit on detections.
typedef struct CurveFigures {
  bool defined;
  double precision[THRESHOLDS], recall[THRESHOLDS]; // precision: mean over the 101 recall points
} CurveFigures;

typedef struct CategoryFigures {
  CurveFigures at[EVAL_AREAS][LIMITS];
} CategoryFigures;

typedef struct Eval {
  const Coco *coco;
  EvalKind kind;
  Gt *gts; // by category, image, order
  Dt *dts; // by category, image, rank
  Cell *cells;
  int num_gts, num_dts, num_cells;
} Eval;

static bool outside(double area, EvalArea a) { return area < area_range[a][0] || area > area_range[a][1]; }
static bool gt_ignored(const Gt *g, EvalArea a) { return g->ann->crowd || outside(g->area, a); }

// Sorts as a stable sort by -score does in numpy: higher first, NaN last; 0 leaves the tie to the caller.
static int compare_score(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) - isnan(b);
  return (a < b) - (a > b);
}

static int compare_gt(const void *pa, const void *pb) {
  const Gt *a = pa, *b = pb;
  if (a->category != b->category) return a->category < b->category ? -1 : 1;
  if (a->image != b->image) return a->image < b->image ? -1 : 1;
  return (a->order > b->order) - (a->order < b->order);
}

static int compare_dt(const void *pa, const void *pb) {
  const Dt *a = pa, *b = pb;
  if (a->category != b->category) return a->category < b->category ? -1 : 1;
  if (a->image != b->image) return a->image < b->image ? -1 : 1;
  int by_score = compare_score(a->result->score, b->result->score);
  return by_score ? by_score : (a->result > b->result) - (a->result < b->result);
}

// Detections of one category, already in the order of images and ranks.
static int compare_dt_score(const void *pa, const void *pb) {
  const Dt *a = *(Dt *const *)pa, *b = *(Dt *const *)pb;
  int by_score = compare_score(a->result->score, b->result->score);
  return by_score ? by_score : (a > b) - (a < b);
}

static int compare_ann_id(const void *pa, const void *pb) {
  const CocoAnn *a = *(const CocoAnn *const *)pa, *b = *(const CocoAnn *const *)pb;
  if (a->id != b->id) return a->id < b->id ? -1 : 1;
  return (a > b) - (a < b);
}

// For each annotation, the last one that has its id: pycocotools looks annotations up by id. Last in the order of
// images, which is the file's order in files that are written image by image.
static const CocoAnn **last_of_id(const Coco *c, int *duplicates) {
  const CocoAnn **by_id = xmalloc((size_t)c->num_anns * sizeof *by_id);
  const CocoAnn **last = xmalloc((size_t)c->num_anns * sizeof *last);
  for (int i = 0; i < c->num_anns; i++) by_id[i] = &c->anns[i];
  qsort(by_id, (size_t)c->num_anns, sizeof *by_id, compare_ann_id);
  for (int i = c->num_anns - 1; i >= 0; i--) {
    bool shared = i + 1 < c->num_anns && by_id[i]->id == by_id[i + 1]->id;
    last[by_id[i] - c->anns] = shared ? last[by_id[i + 1] - c->anns] : by_id[i];
    *duplicates += shared;
  }
  free(by_id);
  return last;
}

static void gather_gts(Eval *e, EvalSummary *out) {
  const Coco *c = e->coco;
  const CocoAnn **last = last_of_id(c, &out->duplicate_ids);
  e->gts = xmalloc((size_t)c->num_anns * sizeof *e->gts);
  for (int i = 0; i < c->num_anns; i++) {
    const CocoAnn *a = last[i];
    if (c->anns[i].category < 0 || a->category < 0) continue;
    double area = isnan(a->area) ? a->bbox[2] * a->bbox[3] : a->area;
    int image = coco_find_image(c, a->image_id);
    if (image < 0) continue; // a view with fewer images
    e->gts[e->num_gts++] = (Gt){.ann = a, .category = a->category, .image = image, .order = i, .area = area};
    out->zero_ids += a->id == 0;
    if (e->kind != EVAL_SEGM || coco_ann_has_mask(a, c->images[image].h, c->images[image].w)) continue;
    if (out->box_masks++ == 0) out->first_box_mask = a->id;
  }
  free(last);
  qsort(e->gts, (size_t)e->num_gts, sizeof *e->gts, compare_gt);
}

// Whether a detection's mask, or the box in its place, can be scored as it was meant.
static bool check_mask(const Coco *c, const CocoResult *r, int i, const CocoImage *image, EvalSummary *out, Err *err) {
  const char *what = image->h <= 0 || image->w <= 0                         ? "without height and width"
                     : (uint64_t)image->h * (uint64_t)image->w > UINT32_MAX ? "too large for masks"
                                                                            : NULL;
  if (what)
    return err_set(err, "detection %d: its image, %lld, is %s in %s", i + 1, (long long)r->image_id, what,
                   c->path ? c->path : "the ground truth");
  if (r->bad_segm)
    return err_set(err, "detection %d, of image %lld: its segmentation cannot be used; correct it, or leave it out",
                   i + 1, (long long)r->image_id);
  if (r->has_segm && (r->rle.h != image->h || r->rle.w != image->w) && out->other_size++ == 0)
    out->first_other_size = i;
  if (!r->has_segm && out->maskless++ == 0) out->first_maskless = i;
  return true;
}

static bool gather_dts(Eval *e, const CocoResults *dt, EvalSummary *out, Err *err) {
  const Coco *c = e->coco;
  e->dts = xmalloc((size_t)dt->n * sizeof *e->dts);
  int n = 0;
  for (int i = 0; i < dt->n; i++) {
    const CocoResult *r = &dt->items[i];
    if (!r->has_bbox && !r->has_segm)
      return err_set(err, "detection %d has neither bbox nor segmentation; give it one", i + 1);
    int image = coco_find_image(c, r->image_id), category = coco_find_category(c, r->category_id);
    out->unknown_image += image < 0;
    out->unknown_category += image >= 0 && category < 0;
    if (image < 0 || category < 0) continue;
    if (e->kind == EVAL_SEGM && !check_mask(c, r, i, &c->images[image], out, err)) return false;
    double area = r->has_bbox ? r->bbox[2] * r->bbox[3] : (double)rle_area(&r->rle);
    e->dts[n++] = (Dt){.result = r, .category = category, .image = image, .area = area};
  }
  qsort(e->dts, (size_t)n, sizeof *e->dts, compare_dt);
  int category = -1, image = -1, rank = 0;
  for (int i = 0; i < n; i++) {
    Dt d = e->dts[i];
    rank = d.category == category && d.image == image ? rank + 1 : 0;
    category = d.category;
    image = d.image;
    if (rank >= MAX_DETS) continue;
    d.rank = rank;
    e->dts[e->num_dts++] = d;
  }
  return true;
}

// Walks both sorted lists at once; a cell has ground truth, detections or both.
static void gather_cells(Eval *e) {
  e->cells = xmalloc(((size_t)e->num_gts + (size_t)e->num_dts) * sizeof *e->cells);
  int g = 0, d = 0;
  while (g < e->num_gts || d < e->num_dts) {
    int category =
        MIN(g < e->num_gts ? e->gts[g].category : INT32_MAX, d < e->num_dts ? e->dts[d].category : INT32_MAX);
    int gt_image = g < e->num_gts && e->gts[g].category == category ? e->gts[g].image : INT32_MAX;
    int dt_image = d < e->num_dts && e->dts[d].category == category ? e->dts[d].image : INT32_MAX;
    int image = MIN(gt_image, dt_image);
    Cell cell = {.gts = e->gts + g, .dts = e->dts + d};
    while (g < e->num_gts && e->gts[g].category == category && e->gts[g].image == image) {
      g++;
      cell.num_gts++;
    }
    while (d < e->num_dts && e->dts[d].category == category && e->dts[d].image == image) {
      d++;
      cell.num_dts++;
    }
    e->cells[e->num_cells++] = cell;
  }
}

// IoU of the boxes, iou[d * num_gts + g].
static void cell_iou_bbox(const Cell *c, const uint8_t *crowd, double *iou) {
  double(*dt)[4] = xmalloc((size_t)c->num_dts * sizeof *dt), (*gt)[4] = xmalloc((size_t)c->num_gts * sizeof *gt);
  for (int g = 0; g < c->num_gts; g++) memcpy(gt[g], c->gts[g].ann->bbox, sizeof gt[g]);
  for (int d = 0; d < c->num_dts; d++) {
    const CocoResult *r = c->dts[d].result;
    if (r->has_bbox)
      memcpy(dt[d], r->bbox, sizeof dt[d]);
    else
      rle_bbox(&r->rle, dt[d]);
  }
  bbox_iou(dt[0], c->num_dts, gt[0], c->num_gts, crowd, iou);
  free(dt);
  free(gt);
}

// IoU of the masks, iou[d * num_gts + g]; a box stands in where there is no mask.
static void cell_iou_segm(const Coco *coco, const Cell *c, const uint8_t *crowd, double *iou) {
  Rle *dt = xmalloc((size_t)c->num_dts * sizeof *dt), *gt = xmalloc((size_t)c->num_gts * sizeof *gt);
  const CocoImage *image = &coco->images[c->gts[0].image];
  for (int g = 0; g < c->num_gts; g++) {
    const CocoAnn *a = c->gts[g].ann;
    if (!coco_ann_rle(coco, a, image->h, image->w, &gt[g])) gt[g] = rle_from_bbox(a->bbox, image->h, image->w);
  }
  for (int d = 0; d < c->num_dts; d++) {
    const CocoResult *r = c->dts[d].result;
    dt[d] = r->has_segm ? r->rle : rle_from_bbox(r->bbox, image->h, image->w);
  }
  rle_iou(dt, c->num_dts, gt, c->num_gts, crowd, iou);
  for (int g = 0; g < c->num_gts; g++) rle_free(&gt[g]);
  for (int d = 0; d < c->num_dts; d++)
    if (!c->dts[d].result->has_segm) rle_free(&dt[d]);
  free(dt);
  free(gt);
}

// The ground truth that a detection takes at a threshold, or -1. Candidates come in `order`, ignored ones last; of
// equal IoUs the later one wins.
static int best_gt(const Cell *c, const int *order, const bool *ignored, const bool *taken, const double *iou,
                   double threshold) {
  int best = -1;
  double best_iou = threshold;
  for (int i = 0; i < c->num_gts; i++) {
    int g = order[i];
    if (taken[g] && !c->gts[g].ann->crowd) continue;
    if (best >= 0 && !ignored[best] && ignored[g]) break;
    if (iou[g] < best_iou) continue;
    best_iou = iou[g];
    best = g;
  }
  return best;
}

// Greedy matching in the order of scores, for one area range at all thresholds.
static void match_area(const Cell *c, EvalArea area, const double *iou, int *order, bool *ignored, bool *taken) {
  int n = 0;
  for (int g = 0; g < c->num_gts; g++) ignored[g] = gt_ignored(&c->gts[g], area);
  for (int pass = 0; pass < 2; pass++)
    for (int g = 0; g < c->num_gts; g++)
      if (ignored[g] == pass) order[n++] = g;
  for (int t = 0; t < THRESHOLDS; t++) {
    uint16_t bit = (uint16_t)(1u << t);
    memset(taken, 0, (size_t)c->num_gts);
    for (int d = 0; d < c->num_dts; d++) {
      Dt *dt = &c->dts[d];
      int g = best_gt(c, order, ignored, taken, iou + (size_t)d * (size_t)c->num_gts, iou_threshold(t));
      if (g >= 0) taken[g] = true;
      // pycocotools keeps the matched id itself as the flag, so id 0 reads as "no match".
      bool matched = g >= 0 && c->gts[g].ann->id != 0;
      if (matched) dt->matched[area] |= bit;
      if ((g >= 0 && ignored[g]) || (!matched && outside(dt->area, area))) dt->ignored[area] |= bit;
    }
  }
}

static void match_cell(const Eval *e, const Cell *c) {
  size_t gts = (size_t)c->num_gts;
  double *iou = xmalloc((size_t)c->num_dts * gts * sizeof *iou);
  uint8_t *crowd = xmalloc(gts);
  int *order = xmalloc(gts * sizeof *order);
  bool *ignored = xmalloc(gts), *taken = xmalloc(gts);
  for (int g = 0; g < c->num_gts; g++) crowd[g] = c->gts[g].ann->crowd;
  if (c->num_gts && c->num_dts) {
    if (e->kind == EVAL_BBOX)
      cell_iou_bbox(c, crowd, iou);
    else
      cell_iou_segm(e->coco, c, crowd, iou);
  }
  for (int a = 0; a < EVAL_AREAS; a++) match_area(c, (EvalArea)a, iou, order, ignored, taken);
  free(iou);
  free(crowd);
  free(order);
  free(ignored);
  free(taken);
}

// The mean of a curve over the recall points. Only matches are its points, recall (i + 1) / positives and precision[i]:
// what comes between two of them has the recall of the first and less precision.
static double mean_precision(double *precision, int points, int positives) {
  for (int i = points - 1; i > 0; i--) precision[i - 1] = MAX(precision[i - 1], precision[i]);
  double sum = 0;
  for (int r = 0, i = 0; r < RECALLS; r++) {
    while (i < points && (double)(i + 1) / positives < recall_point(r)) i++;
    if (i == points) break; // precision is 0 beyond the recall that was reached
    sum += precision[i];
  }
  return sum / RECALLS;
}

// A precision-recall curve for each threshold: detections by score, those beyond the limit or ignored left out.
// precision is scratch, [THRESHOLDS, n].
static void score_curves(CurveFigures *out, Dt *const *dts, int n, EvalArea area, int max_dets, int positives,
                         double *precision) {
  int tp[THRESHOLDS] = {0}, seen[THRESHOLDS] = {0};
  for (int i = 0; i < n; i++) {
    const Dt *d = dts[i];
    if (d->rank >= max_dets) continue;
    unsigned counted = ~(unsigned)d->ignored[area], matched = d->matched[area] & counted;
    for (int t = 0; t < THRESHOLDS; t++) seen[t] += (int)(counted >> t & 1);
    for (; matched != 0; matched &= matched - 1) {
      int t = __builtin_ctz(matched), fp = seen[t] - ++tp[t];
      precision[(size_t)t * (size_t)n + (size_t)tp[t] - 1] = tp[t] / ((double)fp + tp[t] + DBL_EPSILON);
    }
  }
  for (int t = 0; t < THRESHOLDS; t++) {
    out->precision[t] = mean_precision(precision + (size_t)t * (size_t)n, tp[t], positives);
    out->recall[t] = (double)tp[t] / positives;
  }
}

// dts are sorted by score here; gts and dts are those of one category.
static void score_category(CategoryFigures *out, const Gt *gts, int num_gts, Dt **dts, int n) {
  double *precision = xmalloc(THRESHOLDS * (size_t)n * sizeof *precision);
  qsort(dts, (size_t)n, sizeof *dts, compare_dt_score);
  for (int a = 0; a < EVAL_AREAS; a++) {
    int positives = 0;
    for (int g = 0; g < num_gts; g++) positives += !gt_ignored(&gts[g], (EvalArea)a);
    for (int m = 0; m < LIMITS; m++) {
      CurveFigures *f = &out->at[a][m];
      f->defined = positives > 0;
      if (f->defined) score_curves(f, dts, n, (EvalArea)a, limits[m], positives, precision);
    }
  }
  free(precision);
}

static void score_categories(const Eval *e, CategoryFigures *figures) {
  int n = e->coco->num_categories;
  int *gt_end = xcalloc((size_t)n + 1, sizeof *gt_end), *dt_end = xcalloc((size_t)n + 1, sizeof *dt_end);
  for (int i = 0; i < e->num_gts; i++) gt_end[e->gts[i].category + 1]++;
  for (int i = 0; i < e->num_dts; i++) dt_end[e->dts[i].category + 1]++;
  for (int k = 0; k < n; k++) {
    gt_end[k + 1] += gt_end[k];
    dt_end[k + 1] += dt_end[k];
  }
  Dt **by_score = xmalloc((size_t)e->num_dts * sizeof *by_score);
  for (int i = 0; i < e->num_dts; i++) by_score[i] = &e->dts[i];
#pragma omp parallel for schedule(dynamic)
  for (int k = 0; k < n; k++)
    score_category(&figures[k], e->gts + gt_end[k], gt_end[k + 1] - gt_end[k], by_score + dt_end[k],
                   dt_end[k + 1] - dt_end[k]);
  free(gt_end);
  free(dt_end);
  free(by_score);
}

// Mean over the categories that define the figure, or -1. All of them average equally many points, so that the mean of
// means is pycocotools' mean over all points but for rounding.
static double mean_stat(const CategoryFigures *figures, int n, const EvalStat *s) {
  int first = s->iou ? (s->iou - 50) / 5 : 0, last = s->iou ? first : THRESHOLDS - 1;
  int limit = 0, count = 0;
  double sum = 0;
  while (limits[limit] != s->max_dets) limit++;
  for (int k = 0; k < n; k++) {
    const CurveFigures *f = &figures[k].at[s->area][limit];
    if (!f->defined) continue;
    for (int t = first; t <= last; t++, count++) sum += s->recall ? f->recall[t] : f->precision[t];
  }
  return count ? sum / count : -1;
}

static void summarize(EvalSummary *out, const Coco *c, const CategoryFigures *figures) {
  for (int i = 0; i < EVAL_STATS; i++) out->stats[i] = mean_stat(figures, c->num_categories, &eval_stats[i]);
  out->num_categories = c->num_categories;
  out->categories = xmalloc((size_t)c->num_categories * sizeof *out->categories);
  for (int k = 0; k < c->num_categories; k++)
    out->categories[k] = (EvalCategory){.id = c->categories[k].id,
                                        .name = c->categories[k].name,
                                        .ap = mean_stat(&figures[k], 1, &eval_stats[0]),
                                        .ap50 = mean_stat(&figures[k], 1, &eval_stats[1]),
                                        .ar_100 = mean_stat(&figures[k], 1, &eval_stats[8])};
}

bool cocoeval_run(EvalSummary *out, const Coco *gt, const CocoResults *dt, EvalKind kind, Err *err) {
  Eval e = {.coco = gt, .kind = kind};
  memset(out, 0, sizeof *out);
  bool ok = gather_dts(&e, dt, out, err);
  if (ok) {
    gather_gts(&e, out);
    gather_cells(&e);
#pragma omp parallel for schedule(dynamic, 16)
    for (int i = 0; i < e.num_cells; i++) match_cell(&e, &e.cells[i]);
    CategoryFigures *figures = xcalloc((size_t)gt->num_categories, sizeof *figures);
    score_categories(&e, figures);
    summarize(out, gt, figures);
    free(figures);
  }
  free(e.gts);
  free(e.dts);
  free(e.cells);
  return ok;
}

void cocoeval_free(EvalSummary *s) {
  free(s->categories);
  memset(s, 0, sizeof *s);
}
