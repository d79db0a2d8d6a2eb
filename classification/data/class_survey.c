#include "classification/data/class_survey.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/digest.h"
#include "data/batches/file_key.h"

const ClassDefectInfo class_defects[CLASS_DEFECTS] = {
    [CLASS_UNREADABLE] = {"image files that cannot be decoded",
                          "replaced by another in training, left out in evaluation"},
    [CLASS_CONFLICT] = {"identical images with different classes", "each is used with its class"},
    [CLASS_SHARED] = {"val images that are also in train", "scores on val will be too high"},
};

// Per-image results that the pass over the images collects.
typedef struct ClassLook {
  double ms;
  char *reason; // why it cannot be decoded; NULL if it can
} ClassLook;

static uint64_t key_of_pixels(const Dataset *d, int i) {
  const CocoImage *im = &d->coco.images[d->image[i]];
  const size_t pixels = (size_t)im->h * im->w;
  const uint8_t *p = d->gray + (size_t)d->image[i] * pixels;
  return digest_all(p, pixels) | 1;
}

static void look_at_image(ClassSurvey *s, const Dataset *d, const Ranges *ranges, int i, ClassLook *look) {
  Err err;
  if (!ranges_try_image(ranges, d, i, &look->ms, &err)) look->reason = xstrdup(err.msg);
  char *path = dataset_path(d, i);
  s->key[i] = file_key_of(path);
  free(path);
}

static int compare_double(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void look_at_images(ClassSurvey *s, const Dataset *d, const Ranges *ranges,
                           void (*progress)(int done, int total)) {
  ClassLook *look = xcalloc((size_t)d->num_images, sizeof *look);
  double *ms = xmalloc((size_t)d->num_images * sizeof *ms);
  int done = 0, decoded = 0;
#pragma omp parallel for schedule(dynamic)
  for (int i = 0; i < d->num_images; i++) {
    look_at_image(s, d, ranges, i, &look[i]);
#pragma omp critical
    if (progress) progress(++done, d->num_images);
  }
  for (int i = 0; i < d->num_images; i++) {
    if (!look[i].reason) {
      ms[decoded++] = look[i].ms;
      continue;
    }
    s->wrong[d->image[i]] |= 1u << CLASS_UNREADABLE;
    if (s->unreadable++ > 0) {
      free(look[i].reason);
      continue;
    }
    s->first_unreadable = i;
    s->reason = look[i].reason;
  }
  qsort(ms, (size_t)decoded, sizeof *ms, compare_double);
  if (decoded) s->decode_ms = ms[decoded / 2];
  free(ms);
  free(look);
}

// ---- equal images ---------------------------------------------------------------------------------------------------

typedef struct Keyed {
  uint64_t key;
  int image;
} Keyed;

static int compare_keyed(const void *a, const void *b) {
  const Keyed *p = a, *q = b;
  return p->key != q->key ? (p->key > q->key) - (p->key < q->key) : compare_int(&p->image, &q->image);
}

// Ascending by key, then image; caller frees.
static Keyed *keys_sorted(const ClassSurvey *s, const Dataset *d) {
  Keyed *k = xmalloc((size_t)d->num_images * sizeof *k);
  for (int i = 0; i < d->num_images; i++) k[i] = (Keyed){s->key[i], i};
  qsort(k, (size_t)d->num_images, sizeof *k, compare_keyed);
  return k;
}

static void keep_first(int first[2], int image, int equal) {
  if (first[0] >= 0 && first[0] < image) return;
  first[0] = image;
  first[1] = equal;
}

static void find_copies(ClassSurvey *s, const Dataset *d) {
  Keyed *k = keys_sorted(s, d);
  for (int i = 1, first = 0; i < d->num_images; i++) {
    if (k[i].key == 0 || k[i].key != k[i - 1].key) {
      first = i;
      continue;
    }
    s->copies++;
    keep_first(s->copy, k[i].image, k[first].image);
    if (d->object[k[i].image].label == d->object[k[first].image].label) continue;
    s->conflicts++;
    s->wrong[d->image[k[i].image]] |= 1u << CLASS_CONFLICT;
    s->wrong[d->image[k[first].image]] |= 1u << CLASS_CONFLICT;
    keep_first(s->conflict, k[i].image, k[first].image);
  }
  free(k);
}

int class_survey_shared(const ClassSurvey *a, const Dataset *of_a, ClassSurvey *b, const Dataset *of_b, int first[2]) {
  Keyed *x = keys_sorted(a, of_a), *y = keys_sorted(b, of_b);
  int shared = 0;
  first[0] = first[1] = -1;
  for (int i = 0, k = 0; i < of_b->num_images; i++) {
    while (k < of_a->num_images && x[k].key < y[i].key) k++;
    if (y[i].key == 0 || k == of_a->num_images || x[k].key != y[i].key) continue;
    shared++;
    b->wrong[of_b->image[y[i].image]] |= 1u << CLASS_SHARED;
    keep_first(first, y[i].image, x[k].image);
  }
  free(x);
  free(y);
  return shared;
}

// ---- sizes ----------------------------------------------------------------------------------------------------------

static int compare_sizes(const void *a, const void *b) {
  const Size *p = a, *q = b;
  const int64_t x = (int64_t)p->h * p->w, y = (int64_t)q->h * q->w;
  return x != y ? (x > y) - (x < y) : compare_int(&p->h, &q->h);
}

static void measure_sizes(ClassSurvey *s, const Dataset *d) {
  Size *size = xmalloc((size_t)d->num_images * sizeof *size);
  for (int i = 0; i < d->num_images; i++) {
    const CocoImage *im = &d->coco.images[d->image[i]];
    size[i] = (Size){im->h, im->w};
    s->small += 2 * im->h < d->canvas[0].h || 2 * im->w < d->canvas[0].w;
  }
  qsort(size, (size_t)d->num_images, sizeof *size, compare_sizes);
  s->least = size[0];
  s->median = size[d->num_images / 2];
  s->most = size[d->num_images - 1];
  free(size);
}

void class_survey_take(ClassSurvey *s, const Dataset *d, bool files, const Ranges *ranges,
                       void (*progress)(int done, int total)) {
  *s = (ClassSurvey){.count = xcalloc((size_t)d->classes, sizeof *s->count),
                     .wrong = xcalloc((size_t)d->coco.num_images, sizeof *s->wrong),
                     .key = xcalloc((size_t)d->num_images, sizeof *s->key),
                     .first_unreadable = -1,
                     .copy = {-1, -1},
                     .conflict = {-1, -1}};
  classes_count(d, s->count);
  measure_sizes(s, d);
  if (d->gray)
    for (int i = 0; i < d->num_images; i++) s->key[i] = key_of_pixels(d, i);
  else if (files)
    look_at_images(s, d, ranges, progress);
  find_copies(s, d);
}

void class_survey_free(ClassSurvey *s) {
  free(s->count);
  free(s->wrong);
  free(s->key);
  free(s->reason);
  *s = (ClassSurvey){0};
}
