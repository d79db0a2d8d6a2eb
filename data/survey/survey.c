#include "data/survey/survey.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "nn/batch.h"

// An object's label and size; sorted by label, then size, to get medians.
typedef struct Sized {
  int label;
  float size; // square root of the box's area, pixels at the training size
} Sized;

static int compare_floats(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static int compare_sized(const void *a, const void *b) {
  const Sized *p = a, *q = b;
  return p->label != q->label ? compare_int(&p->label, &q->label) : compare_floats(&p->size, &q->size);
}

static const CocoImage *image_of(const Dataset *d, int i) { return &d->coco.images[d->image[i]]; }

// Writes the objects of image i and counts them; seen_in: the image in which each category was seen last.
static int measure_objects(const Dataset *d, int i, int *seen_in, Survey *s, Sized *out) {
  const CocoImage *im = image_of(d, i);
  int rh, rw, n = 0;
  resize_shape(&d->resize, im->h, im->w, &rh, &rw);
  for (int k = d->first_object[i]; k < d->first_object[i + 1]; k++) {
    const Object *o = &d->object[k];
    float w = (o->box[2] - o->box[0]) * (float)rw / (float)im->w,
          h = (o->box[3] - o->box[1]) * (float)rh / (float)im->h;
    out[n] = (Sized){o->label, sqrtf(w * h)};
    CategorySurvey *c = &s->category[o->label - 1];
    c->objects++;
    c->tiny += out[n].size < SURVEY_TINY;
    s->tiny += out[n++].size < SURVEY_TINY;
    c->images += seen_in[o->label - 1] != i;
    seen_in[o->label - 1] = i;
  }
  return n;
}

static void survey_objects(Survey *s, const Dataset *d) {
  const int categories = d->coco.num_categories;
  s->objects = d->first_object[d->num_images];
  Sized *sized = xmalloc((size_t)s->objects * sizeof *sized);
  float *size = xmalloc((size_t)s->objects * sizeof *size);
  int *seen_in = xmalloc((size_t)categories * sizeof *seen_in);
  for (int c = 0; c < categories; c++) seen_in[c] = -1;
  for (int i = 0, n = 0; i < d->num_images; i++) n += measure_objects(d, i, seen_in, s, sized + n);
  qsort(sized, (size_t)s->objects, sizeof *sized, compare_sized);
  for (int c = 0, first = 0; c < categories; first += s->category[c++].objects) {
    if (s->category[c].objects == 0) continue;
    s->used++;
    s->category[c].size = sized[first + s->category[c].objects / 2].size;
  }
  for (int i = 0; i < s->objects; i++) size[i] = sized[i].size;
  qsort(size, (size_t)s->objects, sizeof *size, compare_floats);
  if (s->objects) {
    s->size10 = size[s->objects / 10];
    s->size50 = size[s->objects / 2];
    s->size90 = size[(int64_t)s->objects * 9 / 10];
  }
  free(sized);
  free(size);
  free(seen_in);
}

static int compare_area(const void *a, const void *b) {
  const Size *p = a, *q = b;
  int64_t x = (int64_t)p->h * p->w, y = (int64_t)q->h * q->w;
  return x != y ? (x > y) - (x < y) : compare_int(&p->h, &q->h);
}

static void survey_images(Survey *s, const Dataset *d) {
  const int n = d->num_images;
  Size *stored = xmalloc((size_t)n * sizeof *stored), *resized = xmalloc((size_t)n * sizeof *resized);
  float *scale = xmalloc((size_t)n * sizeof *scale);
  for (int i = 0; i < n; i++) {
    Size in = {image_of(d, i)->h, image_of(d, i)->w}, *out = &resized[i];
    stored[i] = in;
    resize_shape(&d->resize, in.h, in.w, &out->h, &out->w);
    scale[i] = (float)MIN(out->h, out->w) / (float)MIN(in.h, in.w);
    s->large += (int64_t)in.h * in.w >= 4 * (int64_t)out->h * out->w;
    int objects = d->first_object[i + 1] - d->first_object[i];
    s->crowded += objects > SURVEY_CROWDED;
    if (objects > d->first_object[s->fullest + 1] - d->first_object[s->fullest]) s->fullest = i;
  }
  uint8_t *canvas_of = xmalloc((size_t)n);
  for (int max = 1; max <= MAX_CANVASES; max++) {
    Canvas canvas[MAX_CANVASES];
    double pixels = 0, padded = 0;
    canvas_choose(canvas, max, resized, n, canvas_of);
    for (int i = 0; i < n; i++) {
      pixels += (double)resized[i].h * resized[i].w;
      padded += (double)canvas[canvas_of[i]].h * canvas[canvas_of[i]].w;
    }
    s->padding[max - 1] = 1 - pixels / padded;
  }
  qsort(stored, (size_t)n, sizeof *stored, compare_area);
  qsort(scale, (size_t)n, sizeof *scale, compare_floats);
  s->image50 = stored[n / 2];
  s->image100 = stored[n - 1];
  s->scale50 = scale[n / 2];
  s->mask_bytes = d->max_words * (int64_t)sizeof(uint32_t);
  s->slot_bytes =
      d->max_bytes + s->mask_bytes + d->max_objects * (int64_t)(4 * sizeof(float) + sizeof(int) + sizeof(Bitmap));
  free(stored);
  free(resized);
  free(scale);
  free(canvas_of);
}

void survey_take(Survey *s, const Dataset *d) {
  *s = (Survey){.category = xcalloc((size_t)d->coco.num_categories, sizeof *s->category)};
  survey_objects(s, d);
  survey_images(s, d);
}

void survey_free(Survey *s) {
  free(s->category);
  *s = (Survey){0};
}
