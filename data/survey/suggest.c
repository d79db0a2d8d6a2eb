#include "data/survey/suggest.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "data/batches/augment.h"
#include "data/batches/detection_limit.h"

// ---- the rules ------------------------------------------------------------------------------------------------------

// Whether the data's pictures have an up, by the directions of their objects: on nuclei 0.07 and 0.09, on COCO's 92
// pictures 0.48 and 0.54.
typedef enum ViewKind { VIEW_WITHOUT_UP, VIEW_WITH_UP, VIEW_UNKNOWN } ViewKind;
enum { LEAST_LONG = 40 }; // objects; of fewer directions drawn at random the mean is often longer than …
static const double ALIGNED = 0.25;

static const struct {
  AugmentPreset preset;
  const char *why; // with the number of long objects, and how much they are aligned
} augment_for[] = {
    [VIEW_WITHOUT_UP] =
        {AUGMENT_ANY_ORIENTATION,
         "orientations of %d elongated objects are random (alignment %.2f of 1): rotations and flips are safe"},
    [VIEW_WITH_UP] =
        {AUGMENT_STANDARD,
         "%d elongated objects lie along the image's sides (alignment %.2f of 1): images should not be rotated"},
    [VIEW_UNKNOWN] = {AUGMENT_STANDARD,
                      "elongated objects with masks: %d, too few to tell whether images can be rotated"},
};

// How many images training shows the network, with repetition, and how many epochs at least: results/augment-h100.txt.
typedef struct Length {
  int images, epochs;
} Length;
static const Length from_scratch = {20000, 24}, from_weights = {5000, 12};

// How much images of small objects are enlarged at most: results/augment-h100.txt has AP at 2, 2.5, 2.75 and 3 times.
static const double MOST_ENLARGED = 2.75;

// Pixels of a batch: four images of 800 x 1333 on their canvas. Eight of 704 x 704 took 6.3 GB in bf16.
static const double BATCH_PIXELS = 4 * 832 * 1344.0;
enum { MOST_BATCH = 8 }; // images; of 16 small ones, half as many steps learn less: results/augment-h100.txt

// ---- options --------------------------------------------------------------------------------------------------------

static void PRINTF_LIKE(2, 3) add_reason(Suggestion *s, const char *fmt, ...) {
  char text[512];
  CHECK(s->reasons < COUNT(s->reason));
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  s->reason[s->reasons++] = xstrdup(text);
}

static int round32(double pixels) { return MAX(32 * (int)lround(pixels / 32), 32); }

// The size at which nine in ten objects are not tiny, up to twice the requested size or the images' own; or, if images
// are enlarged more than twice, one that enlarges MOST_ENLARGED times at most.
static int suit_size(const Split *t) {
  const Survey *s = &t->survey;
  const int size = t->data.resize.size;
  if (s->objects == 0) return size;
  double need = (double)SURVEY_TINY / (double)s->size10, stored = size / (double)s->scale50;
  if (need > 1) return MAX(round32(fmin(size * fmin(need, 2), 2 * stored)), size);
  return s->scale50 <= 2 ? size : round32(stored * fmin((double)s->scale50, MOST_ENLARGED));
}

// The fewest canvases whose padding is nearly as small as with the maximum number.
static int suit_canvases(const Survey *s, int asked) {
  int n = 1;
  while (s->padding[n - 1] > s->padding[MAX_CANVASES - 1] + 0.05) n++;
  return MAX(n, asked);
}

// Of the largest canvas, at another shorter side than the one that the data set was opened with.
static double largest_pixels(const Split *t, int size) {
  const double grow = (double)size / t->data.resize.size;
  double largest = 1;
  for (int k = 0; k < t->data.num_canvases; k++)
    largest = fmax(largest, grow * grow * t->data.canvas[k].h * t->data.canvas[k].w);
  return largest;
}

// As large a batch as has at most BATCH_PIXELS, but no larger than the data set.
static int suit_batch(const Split *t, int size, int images) {
  int batch = 1;
  while (batch < MOST_BATCH && 2 * batch * largest_pixels(t, size) <= BATCH_PIXELS && 2 * batch <= images) batch *= 2;
  return batch;
}

// Epochs after which as many images were shown as the rules say; the last batch of an epoch is filled up.
static int suit_epochs(int images, int batch, bool weights) {
  const Length least = weights ? from_weights : from_scratch;
  const int each = (images + batch - 1) / batch * batch;
  return MAX((least.images + each - 1) / each, least.epochs);
}

// "" if the default limit is enough.
static const char *suit_detections(const Split *t, const Split *v, char flag[32]) {
  const int most = MAX(t->data.max_objects, v ? v->data.max_objects : 0);
  *flag = '\0';
  if (most >= USUAL_DETECTIONS) snprintf(flag, 32, " --detections %d", detection_limit_for(most));
  return flag;
}

// With the range of 16-bit images, so that the run does not depend on a measurement.
static const char *suit_range(const Split *t, char flag[32]) {
  char range[SAMPLE_RANGE_TEXT];
  *flag = '\0';
  sample_range_text(t->data.range, range);
  if (t->ranges.deep) snprintf(flag, 32, " --range %s", range);
  return flag;
}

static int objects_with_masks(const Split *t) {
  const Dataset *d = &t->data;
  int n = 0;
  for (int o = 0; o < d->first_object[d->num_images]; o++) n += d->coco.anns[d->object[o].ann].type != SEG_NONE;
  return n;
}

static ViewKind view_of(const Orientation *o) {
  if (o->objects < LEAST_LONG) return VIEW_UNKNOWN;
  return o->aligned < ALIGNED ? VIEW_WITHOUT_UP : VIEW_WITH_UP;
}

// ---- the whole ------------------------------------------------------------------------------------------------------

static void give_reasons(Suggestion *s, const Split *t, const SuggestFor *how, int size, int epochs, ViewKind view,
                         const Orientation *o, int images) {
  const double grow = (double)size / t->data.resize.size;
  const bool small = s->batch * largest_pixels(t, size) <= BATCH_PIXELS;
  if (t->survey.objects)
    add_reason(s, "--size %d: images are resized %.2gx (median), and nine in ten objects have at least %.0f pixels",
               size, grow * (double)t->survey.scale50, grow * (double)t->survey.size10);
  if (small && how->gpu && t->data.max_objects <= SURVEY_CROWDED)
    add_reason(s, "--batch %d: fits a 12 GB GPU with --amp", s->batch);
  else if (small && how->gpu)
    add_reason(s, "--batch %d: at most the pixels of four images of 800 x 1333; --plan prints the memory needed",
               s->batch);
  else if (!small)
    add_reason(s, "--batch %d: a single image has more pixels than four of 800 x 1333; --plan prints the memory needed",
               s->batch);
  const int each = (images + s->batch - 1) / s->batch * s->batch;
  add_reason(s, "--epochs %d: %lld images are shown to the network, which starts from %s", epochs,
             (long long)epochs * each, how->weights ? "weights" : "scratch");
  char why[256];
  snprintf(why, sizeof why, augment_for[view].why, o->objects, o->aligned);
  add_reason(s, "--augment %s: %s", augment_presets[augment_for[view].preset], why);
  if (!how->weights)
    add_reason(s, "--anchors auto: anchor sizes are fitted to the objects");
  else if (how->pastes_whole && objects_with_masks(t))
    add_reason(s,
               "--set mask_paste_exact=true: these weights paste masks over whole pixels, as torchvision does, which "
               "makes those of small objects inexact");
  if (how->is_suggested) add_reason(s, "%s: there is no split to evaluate on", how->holdout + 1);
  if (how->unscored) add_reason(s, "nothing is evaluated: there is no val split, and too few images to hold some out");
}

void suggest(Suggestion *s, const Split *t, const Split *v, const SuggestFor *how) {
  *s = (Suggestion){0};
  const int size = suit_size(t), canvases = suit_canvases(&t->survey, how->canvases);
  const Resize *r = &t->data.resize;
  const Orientation o = orientation_of(&t->data);
  const ViewKind view = view_of(&o);
  const bool adds_empty =
      !how->keep_empty && !how->few_classes && 10 * t->data.without_objects >= t->data.coco.num_images;
  const int all = t->data.num_images + (adds_empty ? t->data.without_objects : 0);
  const int images = how->is_suggested ? all - all / 5 : all; // a fifth is held out
  s->batch = suit_batch(t, size, images);
  char longer[32] = "", detections[32], range[32];
  if (r->max_size != r->size * 5 / 3) // the default that follows from --size
    snprintf(longer, sizeof longer, " --max-size %d", (int)((int64_t)r->max_size * size / r->size));
  const int epochs = suit_epochs(images, s->batch, how->weights);
  const bool pastes = how->pastes_whole && objects_with_masks(t);
  const char *start = !how->weights ? " --anchors auto" : pastes ? " --set mask_paste_exact=true" : "";
  const bool takes_boxes = 2 * t->defects.of_type[DEFECT_BOX_APART].count > objects_with_masks(t);
  s->flags = xasprintf("--size %d%s --canvases %d --batch %d --epochs %d --augment %s%s%s%s%s%s%s%s%s", size, longer,
                       canvases, s->batch, epochs, augment_presets[augment_for[view].preset], start,
                       suit_detections(t, v, detections), suit_range(t, range), t->data.upright ? " --exif yes" : "",
                       how->keep_empty || adds_empty ? " --keep-empty" : "", takes_boxes ? " --boxes mask" : "",
                       t->data.box_areas || (v && v->data.box_areas) ? " --areas mask" : "", how->holdout);
  give_reasons(s, t, how, size, epochs, view, &o, images);
}

void suggestion_free(Suggestion *s) {
  for (int i = 0; i < s->reasons; i++) free(s->reason[i]);
  free(s->flags);
  *s = (Suggestion){0};
}
