#include "data/survey/advice.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/batches/detection_limit.h"

enum { FEW = 10, MANY_NAMES = 8 }; // few objects; most names in a sentence

static void PRINTF_LIKE(2, 3) add_concern(Advice *a, const char *fmt, ...) {
  CHECK(a->num_concerns < COUNT(a->concerns));
  char text[1024];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  a->concerns[a->num_concerns++] = xstrdup(text);
}

static double percent(int part, int whole) { return whole ? 100.0 * part / whole : 0; }

// A sentence's list of categories: the first few by name with a number each, and how many more.
typedef struct NameSentence {
  char text[768];
  int n;
} NameSentence;

static void PRINTF_LIKE(2, 3) add_name(NameSentence *l, const char *fmt, ...) {
  size_t used = strlen(l->text);
  if (l->n++ >= MANY_NAMES) return;
  if (l->n > 1) used += (size_t)snprintf(l->text + used, sizeof l->text - used, ", ");
  va_list args;
  va_start(args, fmt);
  vsnprintf(l->text + used, sizeof l->text - used, fmt, args);
  va_end(args);
}

static const char *names_end(NameSentence *l) {
  size_t used = strlen(l->text);
  if (l->n > MANY_NAMES) snprintf(l->text + used, sizeof l->text - used, " and %d more", l->n - MANY_NAMES);
  return l->text;
}

// ---- concerns -------------------------------------------------------------------------------------------------------

static void advise_sizes(Advice *a, const Split *t) {
  const Survey *s = &t->survey;
  const Coco *c = &t->data.coco;
  const int size = t->data.resize.size;
  if (s->objects == 0) add_concern(a, "no objects to train on: all images are background");
  if (s->objects && s->size90 / s->scale50 <= 1)
    add_concern(
        a, "90 %% of the boxes are at most a pixel in size: are they normalized to 0..1? COCO boxes are in pixels");
  if (s->tiny) {
    NameSentence names = {0};
    for (int k = 0; k < c->num_categories; k++)
      if (2 * s->category[k].tiny > s->category[k].objects)
        add_name(&names, "%.40s %d of %d", c->categories[k].name, s->category[k].tiny, s->category[k].objects);
    add_concern(a, "objects smaller than %d pixels at --size %d, which are hard to learn: %d of %d (%.1f %%)%s%s",
                SURVEY_TINY, size, s->tiny, s->objects, percent(s->tiny, s->objects), names.n ? "; most of " : "",
                names_end(&names));
  }
  if (s->objects && s->scale50 > 2 && s->size10 >= SURVEY_AMPLE)
    add_concern(a,
                "--size %d upscales the images %.1fx, to objects of which nine in ten have at least %.0f pixels: a "
                "smaller size takes less time",
                size, (double)s->scale50, (double)s->size10);
  if (s->large)
    add_concern(
        a,
        "images with at least 4 times as many pixels as training uses: %d, the largest %d x %d; downscaled files "
        "decode faster",
        s->large, s->image100.w, s->image100.h);
}

static void advise_categories(Advice *a, const Split *t, const Split *v) {
  const Coco *c = &t->data.coco;
  NameSentence few = {0}, untrained = {0}, unscored = {0};
  int most = 0;
  for (int k = 0; k < c->num_categories; k++) {
    const char *name = c->categories[k].name;
    int n = t->survey.category[k].objects,
        other = v && !*v->stop.msg ? coco_find_category(&v->data.coco, c->categories[k].id) : -1;
    int scored = other >= 0 ? v->survey.category[other].objects : 0;
    if (n > 0 && n < FEW) add_name(&few, "%.40s %d", name, n);
    if (n == 0 && scored) add_name(&untrained, "%.40s %d", name, scored);
    if (n > 0 && v && !*v->stop.msg && !scored) add_name(&unscored, "%.40s", name);
    if (n > t->survey.category[most].objects) most = k;
  }
  if (few.n)
    add_concern(a, "categories with fewer than %d objects in %s: %d (%s)", FEW, t->name, few.n, names_end(&few));
  if (untrained.n)
    add_concern(a, "categories with objects in %s but none in %s: %d (%s)", v->name, t->name, untrained.n,
                names_end(&untrained));
  if (unscored.n)
    add_concern(a, "categories without objects in %s, which are not scored: %d (%s)", v->name, unscored.n,
                names_end(&unscored));
  for (int i = 0; i < t->data.notes.n; i++) add_concern(a, "%s", t->data.notes.line[i]);
  for (int i = 0; v && i < v->data.notes.n; i++) add_concern(a, "%s", v->data.notes.line[i]);
  int n = c->num_categories ? t->survey.category[most].objects : 0;
  if (t->survey.used > 1 && n > t->survey.objects / 2)
    add_concern(a, "%.0f %% of all objects belong to one category, %.40s", percent(n, t->survey.objects),
                c->categories[most].name);
}

static void advise_limit(Advice *a, const Split *s) {
  char *text = detection_limit_data(&s->data, USUAL_DETECTIONS);
  if (text) add_concern(a, "%s: %s", s->name, text);
  free(text);
}

static void advise_samples(Advice *a, const Split *t, int sampled) {
  const Dataset *d = &t->data;
  int images = 0;
  for (int i = 0; i < d->num_images; i++) images += d->first_object[i + 1] - d->first_object[i] > sampled;
  if (images)
    add_concern(
        a,
        "images with more objects than a training step samples of an image, %d: %d; --set roi_batch samples more, "
        "which takes time and memory, and may be left out",
        sampled, images);
}

static void advise_room(Advice *a, const Split *t, int canvases) {
  const Survey *s = &t->survey;
  const Dataset *d = &t->data;
  if (s->crowded)
    add_concern(a,
                "images with more than %d objects: %d; %.80s has the most, %d; each image of a batch then "
                "reserves %.1f MB (%.1f MB for masks), twice on the device and three times on the host",
                SURVEY_CROWDED, s->crowded, d->coco.images[d->image[s->fullest]].file_name, d->max_objects,
                1e-6 * (double)s->slot_bytes, 1e-6 * (double)s->mask_bytes);
  advise_limit(a, t);
  double now = s->padding[canvases - 1], best = s->padding[MAX_CANVASES - 1];
  if (now > 0.1 && lround(100 * best) < lround(100 * now))
    add_concern(a, "padding: %.0f %% of all pixels with --canvases %d, %.0f %% with %d", 100 * now, canvases,
                100 * best, MAX_CANVASES);
}

static int compare_keys(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

// The keys of a split's files that were read, sorted. Caller frees.
static uint64_t *sorted_keys(const Split *s, int *n) {
  uint64_t *keys = xmalloc((size_t)s->data.num_images * sizeof *keys);
  *n = 0;
  for (int i = 0; i < s->data.num_images; i++)
    if (s->defects.file_key[i]) keys[(*n)++] = s->defects.file_key[i];
  qsort(keys, (size_t)*n, sizeof *keys, compare_keys);
  return keys;
}

static void advise_files(Advice *a, const Split *t) {
  int n, again = 0;
  uint64_t *keys = sorted_keys(t, &n);
  for (int i = 1; i < n; i++) again += keys[i] == keys[i - 1];
  free(keys);
  if (again) add_concern(a, "duplicate image files in %s: %d", t->name, again);
}

// Returns the number of images with an orientation that is not applied, unless they are reported as a defect.
static int turned_images(const Split *s) {
  return s->defects.of_type[DEFECT_TURNED].count || s->data.upright ? 0 : s->defects.turned;
}

static void advise_orientation(Advice *a, const Split *t, const Split *v) {
  const int train = turned_images(t), val = v ? turned_images(v) : 0;
  if (train + val == 0) return;
  char of_val[128] = "";
  if (v) snprintf(of_val, sizeof of_val, ", %d in %.80s", val, v->name);
  add_concern(
      a,
      "images with an EXIF orientation, which training ignores as torchvision does: %d in %s%s; if --html shows "
      "misplaced masks, give --exif yes to doctor and train",
      train, t->name, of_val);
}

static void advise_amount(Advice *a, const Split *t, bool keep_empty, bool weights) {
  const Dataset *d = &t->data;
  if (d->num_images < 1000 && !weights)
    add_concern(a, "only %d training image%s: start from pretrained weights (--weights FILE --reset-heads)",
                d->num_images, d->num_images == 1 ? "" : "s");
  if (10 * d->without_objects >= d->coco.num_images && !keep_empty)
    add_concern(a, "images without objects, which are left out: %d of %d; train --keep-empty uses them as background",
                d->without_objects, d->coco.num_images);
}

static void advise_ids(Advice *a, const Split *s) {
  const Coco *c = &s->data.coco;
  int zero = 0;
  for (int i = 0; i < c->num_anns; i++) zero += c->anns[i].id == 0;
  if (zero)
    add_concern(a,
                "annotations of %s with id 0: %d; cocoeval and pycocotools count detections that match one as false "
                "positives (train and infer do not); number annotations from 1",
                s->name, zero);
}

// ---- all ------------------------------------------------------------------------------------------------------------

void advice_write(Advice *a, const Split *train, const Split *val, bool keep_empty, int canvases, int sampled,
                  bool weights) {
  *a = (Advice){0};
  advise_sizes(a, train);
  advise_categories(a, train, val);
  advise_room(a, train, canvases);
  if (sampled) advise_samples(a, train, sampled);
  advise_files(a, train);
  advise_orientation(a, train, val);
  advise_amount(a, train, keep_empty, weights);
  advise_ids(a, train);
  if (val) advise_ids(a, val);
  if (val) advise_limit(a, val);
}

void advice_free(Advice *a) {
  for (int i = 0; i < a->num_concerns; i++) free(a->concerns[i]);
  *a = (Advice){0};
}
