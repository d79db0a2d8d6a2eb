#include "evaluation/detection_report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/pictures/thumbnail.h"
#include "evaluation/detection_confusion.h"

// Images of each group; pixels of the longer side; best detections drawn.
enum { SHOWN = 6, SIDE = 440, MOST_DRAWN = 40 };
static const double OVERLAP = 0.5;

// ---- categories -----------------------------------------------------------------------------------------------------

static const char *const things[] = {[EVAL_BBOX] = "box", [EVAL_SEGM] = "mask"};

static double defined(double value) { return value < 0 ? NAN : value; }

typedef struct RankedCategory {
  double ap;
  int index;
} RankedCategory;

static int by_ap(const void *a, const void *b) {
  const RankedCategory *p = a, *q = b;
  if (isnan(p->ap) || isnan(q->ap))
    return isnan(p->ap) != isnan(q->ap) ? isnan(p->ap) - isnan(q->ap) : p->index - q->index;
  return p->ap != q->ap ? (p->ap > q->ap) - (p->ap < q->ap) : p->index - q->index;
}

// Masks or, where only boxes are scored, these.
static const EvalSummary *last_of(const Scores *s) { return &s->of[s->n - 1]; }

// The categories' indices by ascending AP of the last, undefined ones last. Caller frees.
static int *rank_categories(const Scores *s) {
  const EvalSummary *last = last_of(s);
  const int n = last->num_categories;
  RankedCategory *all = xmalloc((size_t)n * sizeof *all);
  int *index = xmalloc((size_t)n * sizeof *index);
  for (int k = 0; k < n; k++) all[k] = (RankedCategory){defined(last->categories[k].ap), k};
  qsort(all, (size_t)n, sizeof *all, by_ap);
  for (int k = 0; k < n; k++) index[k] = all[k].index;
  free(all);
  return index;
}

static void name_columns(const Scores *s, double score, EvaluationReport *out) {
  char **to = out->column;
  *to++ = xstrdup("objects");
  for (int k = 0; k < s->n; k++) {
    *to++ = xasprintf("%s AP", things[k]);
    *to++ = xasprintf("%s AP50", things[k]);
  }
  *to++ = xasprintf("%s AR", things[s->n - 1]);
  *to++ = xasprintf("precision @%g", score);
  *to++ = xasprintf("recall @%g", score);
  out->columns = (int)(to - out->column);
}

// The row of category k of the data: what name_columns names. Precision and recall are those of the confusion, which
// counts detections of at least the report's score.
static void fill_row(const Scores *s, int k, const ClassFigures *f, double *to) {
  *to++ = (double)f->images;
  for (int i = 0; i < s->n; i++) {
    *to++ = defined(s->of[i].categories[k].ap);
    *to++ = defined(s->of[i].categories[k].ap50);
  }
  *to++ = defined(last_of(s)->categories[k].ar);
  *to++ = f->precision;
  *to++ = f->recall;
}

static void fill_categories(const Scores *s, const int *index, double score, EvaluationReport *out) {
  name_columns(s, score, out);
  out->categories = last_of(s)->num_categories;
  out->category = xcalloc((size_t)out->categories, sizeof *out->category);
  ClassFigures *figures = confusion_figures(&out->confusion);
  for (int i = 0; i < out->categories; i++) {
    char number[CLASS_NUMBER];
    out->category[i].name = xstrdup(confusion_name(&out->confusion, index[i], number));
    fill_row(s, index[i], &figures[index[i]], out->category[i].value);
  }
  free(figures);
}

// ---- precision over recall ------------------------------------------------------------------------------------------

static void add_curve(ReportChart *p, const char *label, const double precision[EVAL_RECALLS]) {
  if (precision[0] < 0) return; // not defined by any ground truth
  const ReportCurve *c = report_curve_add(p, label, EVAL_RECALLS);
  for (int i = 0; i < EVAL_RECALLS; i++) {
    c->x[i] = i / (double)(EVAL_RECALLS - 1);
    c->y[i] = round(1e5 * precision[i]) / 1e5; // short, because it is only drawn
  }
}

static void add_overall(ReportCharts *to, const char *title, const EvalSummary *s) {
  static const char *const label[EVAL_CURVES] = {
      [CURVE_50] = "IoU 0.50", [CURVE_75] = "IoU 0.75", [CURVE_MEAN] = "IoU 0.50:0.95"};
  ReportChart *p = report_chart_add(to, title);
  for (int c = 0; c < EVAL_CURVES; c++) add_curve(p, label[c], s->precision[s->num_categories][c]);
}

// Fills the chart of the categories in the order of the table, given by `index`.
static void fill_precision(const Scores *s, const int *index, EvaluationReport *out) {
  static const char *const title[] = {[EVAL_BBOX] = "Boxes, all categories", [EVAL_SEGM] = "Masks, all categories"};
  static const char *const at_50[] = {[EVAL_BBOX] = "boxes, IoU 0.50", [EVAL_SEGM] = "masks, IoU 0.50"};
  static const char *const mean[] = {[EVAL_BBOX] = "boxes, IoU 0.50:0.95", [EVAL_SEGM] = "masks, IoU 0.50:0.95"};
  for (int k = 0; k < s->n; k++) add_overall(&out->charts, title[k], &s->of[k]);
  for (int i = 0; i < MIN(out->categories, REPORT_CATEGORY_CHARTS); i++) {
    ReportChart *p = report_chart_add(&out->category_charts, out->category[i].name);
    for (int k = 0; k < s->n; k++) add_curve(p, at_50[k], s->of[k].precision[index[i]][CURVE_50]);
    add_curve(p, mean[s->n - 1], last_of(s)->precision[index[i]][CURVE_MEAN]);
  }
}

// ---- quality of images ----------------------------------------------------------------------------------------------

// IoU of boxes x1 y1 x2 y2; `whole`: the intersection as a fraction of a's area instead.
static double overlap(const double a[4], const double b[4], bool whole) {
  const double w = fmin(a[2], b[2]) - fmax(a[0], b[0]), h = fmin(a[3], b[3]) - fmax(a[1], b[1]);
  const double both = w > 0 && h > 0 ? w * h : 0;
  const double of_a = (a[2] - a[0]) * (a[3] - a[1]), of_b = (b[2] - b[0]) * (b[3] - b[1]);
  const double all = whole ? of_a : of_a + of_b - both;
  return all > 0 ? both / all : 0;
}

static void corners(const double xywh[4], double box[4]) {
  const double all[] = {xywh[0], xywh[1], xywh[0] + xywh[2], xywh[1] + xywh[3]};
  memcpy(box, all, sizeof all);
}

static bool in_crowd(const Dataset *d, int i, int category, const double box[4]) {
  const CocoImage *im = &d->coco.images[d->image[i]];
  for (int k = 0; k < im->anns; k++) {
    const CocoAnn *a = &d->coco.anns[im->first_ann + k];
    double crowd[4];
    corners(a->bbox, crowd);
    if (a->crowd && a->category == category && overlap(box, crowd, true) >= OVERLAP) return true;
  }
  return false;
}

// The free object that a detection matches; -1: none.
static int take(const Dataset *d, int first, int n, const bool *taken, int category, const double box[4],
                double *best) {
  int found = -1;
  *best = OVERLAP;
  for (int k = 0; k < n; k++) {
    const Object *o = &d->object[first + k];
    const double truth[] = {o->box[0], o->box[1], o->box[2], o->box[3]};
    const double iou = taken[k] || o->label != category + 1 ? -1 : overlap(box, truth, false);
    if (iou < *best) continue;
    *best = iou;
    found = k;
  }
  return found;
}

ImageQuality image_quality(const Dataset *d, int i, const CocoResult *const *found, int n) {
  const int first = d->first_object[i], objects = d->first_object[i + 1] - first;
  ImageQuality q = {.image = i};
  double sum = 0;
  bool *taken = xcalloc((size_t)objects, sizeof *taken);
  for (int k = 0; k < n; k++) {
    const int category = coco_find_category(&d->coco, found[k]->category_id);
    double box[4], iou;
    corners(found[k]->bbox, box);
    const int object = take(d, first, objects, taken, category, box, &iou);
    if (object >= 0) {
      taken[object] = true;
      sum += iou;
      q.pairs++;
    } else {
      q.fp += !in_crowd(d, i, category, box);
    }
  }
  q.fn = objects - q.pairs;
  q.quality = sum / (q.pairs + 0.5 * q.fp + 0.5 * q.fn); // NaN without objects and detections
  free(taken);
  return q;
}

// ---- images ---------------------------------------------------------------------------------------------------------

// The detections of each image of the data set, by descending score.
typedef struct Grouped {
  const CocoResult **result;
  int *first; // [num_images + 1]
} Grouped;

static int by_score(const void *a, const void *b) {
  const CocoResult *p = *(const CocoResult *const *)a, *q = *(const CocoResult *const *)b;
  return p->score != q->score ? (p->score < q->score) - (p->score > q->score) : (p > q) - (p < q);
}

static Grouped group(const Dataset *d, const Evaluation *v, double score) {
  Grouped g = {.result = xcalloc((size_t)v->found.n, sizeof *g.result),
               .first = xcalloc((size_t)d->num_images + 2, sizeof *g.first)};
  int *image_of = xmalloc((size_t)d->coco.num_images * sizeof *image_of),
      *of = xmalloc((size_t)v->found.n * sizeof *of);
  for (int i = 0; i < d->coco.num_images; i++) image_of[i] = -1;
  for (int i = 0; i < d->num_images; i++) image_of[d->image[i]] = i;
  for (int k = 0; k < v->found.n; k++) {
    const int at = v->found.items[k].score >= score ? coco_find_image(&d->coco, v->found.items[k].image_id) : -1;
    of[k] = at < 0 ? -1 : image_of[at];
    if (of[k] >= 0) g.first[of[k] + 2]++;
  }
  for (int i = 0; i < d->num_images; i++) g.first[i + 2] += g.first[i + 1];
  for (int k = 0; k < v->found.n; k++)
    if (of[k] >= 0) g.result[g.first[of[k] + 1]++] = &v->found.items[k];
  for (int i = 0; i < d->num_images; i++)
    qsort(g.result + g.first[i], (size_t)(g.first[i + 1] - g.first[i]), sizeof *g.result, by_score);
  free(image_of);
  free(of);
  return g;
}

// The worst first; ties by more mistakes, then by fewer detected objects.
static int by_quality(const void *a, const void *b) {
  const ImageQuality *p = a, *q = b;
  if (p->quality != q->quality) return (p->quality > q->quality) - (p->quality < q->quality);
  const int wrong = q->fp + q->fn - p->fp - p->fn, pairs = p->pairs - q->pairs;
  return wrong ? wrong : pairs ? pairs : p->image - q->image;
}

// The number of detections of image i that reach a score.
static int reaching(const Grouped *g, int i, double score) {
  int n = 0;
  while (g->first[i] + n < g->first[i + 1] && g->result[g->first[i] + n]->score >= score) n++;
  return n;
}

// If nothing in an image reaches the score, detections that reach the lower one, used for `g`, are shown.
static ReportPicture picture_of(const Dataset *d, const ImageQuality *q, const Grouped *g, double score, double lower,
                                const char *type) {
  const int first = g->first[q->image], all = g->first[q->image + 1] - first, n = reaching(g, q->image, score);
  const char *file = d->coco.images[d->image[q->image]].file_name;
  Thumbnail t;
  if (!thumbnail_open(&t, d, q->image, SIDE, NULL)) return (ReportPicture){0}; // unlikely: it was read a moment ago
  char drawn[80] = "";
  if (!n && all) snprintf(drawn, sizeof drawn, "; none reaches %g, so those ≥ %g are drawn", score, lower);
  const ReportPicture p = {.group = type,
                           .file = xstrdup(file ? file : ""),
                           .caption =
                               xasprintf("quality %.2f: %d correct, %d missed, %d false positive%s (score ≥ %g)%s",
                                         q->quality, q->pairs, q->fn, q->fp, q->fp == 1 ? "" : "s", score, drawn),
                           .truth = thumbnail_truth(&t, d, q->image),
                           .found = thumbnail_detections(&t, d, g->result + first, MIN(n ? n : all, MOST_DRAWN))};
  thumbnail_close(&t);
  return p;
}

static const char worst_group[] =
    "Worst images (quality: mean IoU of the matches, lowered by misses and false positives)";

static void fill_pictures(const Dataset *d, const Evaluation *v, double score, EvaluationReport *out) {
  const double lower = out->scores.n ? fmin(score, out->scores.opens_at) : score; // NaN yields the other value
  Grouped g = group(d, v, lower);
  ImageQuality *all = xmalloc((size_t)d->num_images * sizeof *all);
  int n = 0;
  for (int i = 0; i < d->num_images; i++) {
    if (!v->read[i]) continue;
    const ImageQuality q = image_quality(d, i, g.result + g.first[i], reaching(&g, i, score));
    if (!isnan(q.quality)) all[n++] = q;
  }
  qsort(all, (size_t)n, sizeof *all, by_quality);
  const int worst = MIN(SHOWN, (n + 1) / 2), best = MIN(SHOWN, n - worst);
  ReportPicture made[2 * SHOWN] = {0};
#pragma omp parallel for schedule(dynamic)
  for (int k = 0; k < worst + best; k++) {
    const bool bad = k < worst;
    const ImageQuality *q = &all[bad ? k : n - 1 - (k - worst)];
    if (bad ? q->quality < 1 : q->quality > 0)
      made[k] = picture_of(d, q, &g, score, lower, bad ? worst_group : "Best images");
  }
  out->picture = xcalloc(2 * SHOWN, sizeof *out->picture);
  for (int k = 0; k < worst + best; k++)
    if (made[k].truth.bytes) out->picture[out->pictures++] = made[k];
  free(all);
  free(g.result);
  free(g.first);
}

// ---- all ------------------------------------------------------------------------------------------------------------

void detection_report(const Dataset *d, const Evaluation *v, double score, EvaluationReport *out) {
  Coco view = evaluate_view(d, v);
  detection_confusion(&view, &v->found, score, out);
  if (out->confusion.count) {
    int *index = rank_categories(&v->scores);
    fill_categories(&v->scores, index, score, out);
    fill_precision(&v->scores, index, out);
    free(index);
  }
  fill_pictures(d, v, score, out);
  free(view.images);
}
