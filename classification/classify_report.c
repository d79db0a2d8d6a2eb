#include "classification/classify_report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/pictures/thumbnail.h"

enum { SHOWN = 18, SIDE = 200 }; // number of images; longer side of a picture in pixels

// ---- classes --------------------------------------------------------------------------------------------------------

enum { IMAGES, RECALL, PRECISION, F1 };
static const char *const columns[] = {"images", "recall", "precision", "F1"};

static int by_recall(const void *a, const void *b) {
  const ReportCategory *p = a, *q = b;
  const double x = p->value[RECALL], y = q->value[RECALL];
  if (isnan(x) || isnan(y)) return isnan(x) - isnan(y);
  return (x > y) - (x < y);
}

static void fill_classes(EvaluationReport *out) {
  out->columns = COUNT(columns);
  for (int i = 0; i < COUNT(columns); i++) out->column[i] = xstrdup(columns[i]);
  out->categories = out->confusion.classes;
  out->category = xcalloc((size_t)out->categories, sizeof *out->category);
  ClassFigures *figures = confusion_figures(&out->confusion);
  for (int k = 0; k < out->categories; k++) {
    const ClassFigures f = figures[k];
    char number[CLASS_NUMBER];
    out->category[k] = (ReportCategory){
        .name = xstrdup(confusion_name(&out->confusion, k, number)),
        .value = {[IMAGES] = (double)f.images, [RECALL] = f.recall, [PRECISION] = f.precision, [F1] = f.f1}};
  }
  free(figures);
  qsort(out->category, (size_t)out->categories, sizeof *out->category, by_recall);
}

static void fill_confusion(const Dataset *d, const Classification *c, EvaluationReport *out) {
  const ConfusionCounts counts = classify_confusion(d, c);
  char **name = xcalloc((size_t)c->classes, sizeof *name);
  for (int i = 0; i < c->classes; i++) {
    const char *own = d->coco.categories[i].name;
    name[i] = xstrdup(own ? own : "");
  }
  out->confusion = (Confusion){.classes = c->classes,
                               .cells = counts.cells,
                               .cell = counts.cell,
                               .count = counts.count,
                               .name = (const char *const *)name};
  out->rule = xstrdup("Rows are true classes, columns are the predicted ones (highest probability).");
}

// ---- images ---------------------------------------------------------------------------------------------------------

typedef struct WrongImage {
  int image;
  float prob;
} WrongImage;

static int by_prob(const void *a, const void *b) {
  const WrongImage *p = a, *q = b;
  return p->prob != q->prob ? (p->prob < q->prob) - (p->prob > q->prob) : p->image - q->image;
}

static const char *class_name(const EvaluationReport *out, int class, char number[CLASS_NUMBER]) {
  return confusion_name(&out->confusion, class, number);
}

static void add_picture(const Dataset *d, const Classification *c, int image, EvaluationReport *out) {
  const ClassRow *row = &c->row[image];
  const char *file = d->coco.images[d->image[image]].file_name, *number = d->gray && file ? strrchr(file, '#') : NULL;
  char truth[CLASS_NUMBER], found[CLASS_NUMBER];
  Thumbnail t;
  if (!thumbnail_open(&t, d, image, SIDE, NULL)) return; // unlikely: it was read a moment ago
  out->picture[out->pictures++] = (ReportPicture){
      .group = "Most confident errors",
      .file = file ? xstrdup(number ? number : file) : xasprintf("number %d", d->image[image]),
      .caption = xasprintf("true %s, predicted %s (%.1f\u00a0%%)", class_name(out, d->object[image].label, truth),
                           class_name(out, row->top[0], found), 100 * (double)row->prob[0]),
      .truth = thumbnail_plain(&t)};
  thumbnail_close(&t);
}

static void fill_pictures(const Dataset *d, const Classification *c, EvaluationReport *out) {
  WrongImage *wrong = xmalloc((size_t)d->num_images * sizeof *wrong);
  int n = 0;
  for (int i = 0; i < d->num_images; i++)
    if (c->read[i] && c->row[i].top[0] != d->object[i].label && !isnan(c->row[i].prob[0]))
      wrong[n++] = (WrongImage){i, c->row[i].prob[0]};
  qsort(wrong, (size_t)n, sizeof *wrong, by_prob);
  out->picture = xcalloc(SHOWN, sizeof *out->picture);
  for (int k = 0; k < MIN(n, SHOWN); k++) add_picture(d, c, wrong[k].image, out);
  free(wrong);
}

void classify_report(const Dataset *d, const Classification *c, EvaluationReport *out) {
  fill_confusion(d, c, out);
  fill_classes(out);
  fill_pictures(d, c, out);
}
