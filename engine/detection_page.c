#include "engine/detection_page.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data/formats/cocoeval_confusion.h"
#include "data/reports/thumbnail.h"

enum { SHOWN = 6, SIDE = 440 }; // images of each kind; pixels of a picture's longer side
static const double OVERLAP = 0.5;

// ---- categories -----------------------------------------------------------------------------------------------------

enum { OBJECTS, BOX_AP, BOX_AP50, MASK_AP, MASK_AP50, MASK_AR, PRECISION, RECALL };
static const char *const columns[] = {"objects",   "box AP",  "box AP50",  "mask AP",
                                      "mask AP50", "mask AR", "precision", "recall"};

static double defined(double value) { return value < 0 ? NAN : value; }

static int by_mask_ap(const void *a, const void *b) {
  const PageCategory *p = a, *q = b;
  const double x = p->value[MASK_AP], y = q->value[MASK_AP];
  if (isnan(x) || isnan(y)) return isnan(x) - isnan(y);
  return (x > y) - (x < y);
}

// AP first where it is lowest; precision and recall are those of the confusion.
static void fill_categories(const Scores *s, PageEvaluation *out) {
  out->columns = COUNT(columns);
  for (int i = 0; i < COUNT(columns); i++) out->column[i] = xstrdup(columns[i]);
  out->categories = s->bbox.num_categories;
  out->category = xcalloc((size_t)out->categories, sizeof *out->category);
  for (int k = 0; k < out->categories; k++) {
    const EvalCategory *box = &s->bbox.categories[k], *mask = &s->segm.categories[k];
    const ClassFigures f = confusion_figures(&out->confusion, k);
    char number[CLASS_NUMBER];
    out->category[k] = (PageCategory){.name = xstrdup(confusion_name(&out->confusion, k, number)),
                                      .value = {[OBJECTS] = (double)f.images,
                                                [BOX_AP] = defined(box->ap),
                                                [BOX_AP50] = defined(box->ap50),
                                                [MASK_AP] = defined(mask->ap),
                                                [MASK_AP50] = defined(mask->ap50),
                                                [MASK_AR] = defined(mask->ar_100),
                                                [PRECISION] = f.precision,
                                                [RECALL] = f.recall}};
  }
  qsort(out->category, (size_t)out->categories, sizeof *out->category, by_mask_ap);
}

// ---- confusion ------------------------------------------------------------------------------------------------------

static void fill_confusion(const Dataset *d, const Coco *view, const Evaluation *v, double score, PageEvaluation *out) {
  Err err;
  const int n = view->num_categories;
  int64_t *count = eval_confusion(view, &v->found, EVAL_BBOX, score, OVERLAP, &err);
  if (!count) return; // what cannot be matched has not been scored either
  char **name = xcalloc((size_t)n + 1, sizeof *name);
  for (int i = 0; i < n; i++) name[i] = xstrdup(d->coco.categories[i].name ? d->coco.categories[i].name : "");
  name[n] = xstrdup("background");
  out->confusion = (Confusion){.classes = n + 1, .count = count, .name = (const char *const *)name, .background = true};
  out->rule = xasprintf("Objects by their category (rows) and what they were taken for (columns). Detections with a "
                        "score of %g or more count, the highest first: each is paired with the free object of its "
                        "category whose box it overlaps most, by an IoU of %g or more, and those that are left over "
                        "in the same way with what is left of other categories. What has no partner is paired with "
                        "the background: a false detection in its row, a missed object in its column.",
                        score, OVERLAP);
}

// ---- quality of images ----------------------------------------------------------------------------------------------

// x1 y1 x2 y2; `whole`: the share of a's area instead of the union's.
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

// The free object that a detection takes; -1: none.
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
  q.quality = sum / (q.pairs + 0.5 * q.fp + 0.5 * q.fn); // NaN where there is nothing
  free(taken);
  return q;
}

// ---- images ---------------------------------------------------------------------------------------------------------

// What was found in each image of the data set, by descending score.
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

// The worst first; of equal ones that with more mistakes, or fewer objects that were found.
static int by_quality(const void *a, const void *b) {
  const ImageQuality *p = a, *q = b;
  if (p->quality != q->quality) return (p->quality > q->quality) - (p->quality < q->quality);
  const int wrong = q->fp + q->fn - p->fp - p->fn, pairs = p->pairs - q->pairs;
  return wrong ? wrong : pairs ? pairs : p->image - q->image;
}

static void add_picture(const Dataset *d, const ImageQuality *q, const Grouped *g, const char *kind,
                        PageEvaluation *out) {
  const int first = g->first[q->image], n = g->first[q->image + 1] - first;
  const char *file = d->coco.images[d->image[q->image]].file_name;
  Thumbnail t;
  if (!thumbnail_open(&t, d, q->image, SIDE, NULL)) return; // it could be read a moment ago
  out->picture[out->pictures++] = (PagePicture){
      .group = xstrdup(kind),
      .file = xstrdup(file ? file : ""),
      .caption = xasprintf("quality %.2f: %d found, %d missed, %d false", q->quality, q->pairs, q->fn, q->fp),
      .truth = thumbnail_truth(&t, d, q->image),
      .found = thumbnail_found(&t, d, g->result + first, n)};
  thumbnail_close(&t);
}

static void fill_pictures(const Dataset *d, const Evaluation *v, double score, PageEvaluation *out) {
  Grouped g = group(d, v, score);
  ImageQuality *all = xmalloc((size_t)d->num_images * sizeof *all);
  int n = 0;
  for (int i = 0; i < d->num_images; i++) {
    if (!v->read[i]) continue;
    const ImageQuality q = image_quality(d, i, g.result + g.first[i], g.first[i + 1] - g.first[i]);
    if (!isnan(q.quality)) all[n++] = q;
  }
  qsort(all, (size_t)n, sizeof *all, by_quality);
  const int worst = MIN(SHOWN, (n + 1) / 2), best = MIN(SHOWN, n - worst);
  out->picture = xcalloc(2 * SHOWN, sizeof *out->picture);
  for (int k = 0; k < worst && all[k].quality < 1; k++) add_picture(d, &all[k], &g, "The worst", out);
  for (int k = n - 1; k >= n - best && all[k].quality > 0; k--) add_picture(d, &all[k], &g, "The best", out);
  free(all);
  free(g.result);
  free(g.first);
}

// ---- all ------------------------------------------------------------------------------------------------------------

void detection_page(const Dataset *d, const Evaluation *v, double score, PageEvaluation *out) {
  Coco view = evaluate_view(d, v);
  fill_confusion(d, &view, v, score, out);
  if (out->confusion.count) fill_categories(&v->scores, out);
  fill_pictures(d, v, score, out);
  free(view.images);
}
