#include "classification/class_result_type.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "classification/classify.h"
#include "classification/data/classes.h"
#include "data/batches/augment.h"
#include "lib/results.h"

static bool check(const maskrcnn_options *o, Err *err) {
  if (o->detections_per_image || o->proposals_per_image)
    return err_set(err, "%s_per_image is for detectors, but the weights are a classifier's: leave it at 0",
                   o->detections_per_image ? "detections" : "proposals");
  if (o->nms >= 0) return err_set(err, "nms is for detectors, but the weights are a classifier's: leave it at -1");
  if (!o->max_image_size && !o->num_canvases) return true;
  return err_set(err, "%s is for detectors: a classifier's input is square, with image_size as its side",
                 o->num_canvases ? "canvases" : "max_image_size");
}

static void describe(const ModelConfig *c, maskrcnn_description *d) {
  (void)c;
  (void)d; // this model detects no objects
}

static void map_image(const ModelConfig *c, Size image, Size canvas, float map[6]) {
  const AugmentMap whole = augment_classifier(NULL, c->view, 0, image, canvas);
  memcpy(map, whole.map, sizeof whole.map);
}

// [classes] probabilities of the image at that index, as floats.
static void copy_probs(const Engine *e, const Classified *c, int slot, float *to) {
  const size_t classes = (size_t)e->config.classes, first = (size_t)slot * classes;
  for (size_t k = 0; k < classes; k++)
    to[k] = e->dev->real == F64 ? (float)((const double *)c->probs)[first + k] : ((const float *)c->probs)[first + k];
}

static bool finish(Engine *e, const StagedBatch *b, int top, bool wait, const maskrcnn_result **result, int *counter) {
  Classified c;
  if (!engine_classified(e, wait, &c)) return false;
  CHECK(c.batch == &b->batch);
  float *prob = xmalloc((size_t)e->config.classes * sizeof *prob);
  for (int i = 0; i < b->batch.used; i++) {
    copy_probs(e, &c, i, prob);
    result[i] = results_of_classes(prob, e->config.classes, top, b->slot[i].h, b->slot[i].w, e->category);
  }
  free(prob);
  memset(counter, 0, MAX_COUNTERS * sizeof *counter);
  return true;
}

enum { USUAL_CANVASES = 12 }; // photographs are two to four times larger per side

const ResultType result_classes = {.kind = MASKRCNN_CLASSES,
                                   .check = check,
                                   .describe = describe,
                                   .usual_canvases = USUAL_CANVASES,
                                   .shrink = classes_shrink,
                                   .map = map_image,
                                   .begin = engine_classify,
                                   .finish = finish,
                                   .drop = engine_drop_classified};
