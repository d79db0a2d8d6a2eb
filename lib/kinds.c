#include "lib/kinds.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "classification/classify.h"
#include "engine/detect.h"
#include "lib/results.h"

static bool finish_detections(Opened *o, const StagedBatch *b, bool wait, const maskrcnn_result **result,
                              int *counter) {
  Found f;
  if (!engine_found(&o->engine, wait, &f)) return false;
  CHECK(f.batch == &b->batch);
  const Detection *found = f.detections.items;
  for (int i = 0, first = 0, n; i < b->batch.used; i++, first += n) {
    for (n = 0; first + n < f.detections.n && found[first + n].image == i;) n++;
    result[i] = results_of_detections(&found[first], n, b->place[i].h, b->place[i].w, o->engine.category);
  }
  memcpy(counter, f.counter, sizeof f.counter);
  return true;
}

// [classes] of the image at that place, as floats.
static void copy_probs(const Engine *e, const Classified *c, int place, float *to) {
  const size_t classes = (size_t)e->config.classes, first = (size_t)place * classes;
  for (size_t k = 0; k < classes; k++)
    to[k] = e->dev->real == F64 ? (float)((const double *)c->probs)[first + k] : ((const float *)c->probs)[first + k];
}

static bool finish_classes(Opened *o, const StagedBatch *b, bool wait, const maskrcnn_result **result, int *counter) {
  Classified c;
  const Engine *e = &o->engine;
  if (!engine_classified(&o->engine, wait, &c)) return false;
  CHECK(c.batch == &b->batch);
  float *prob = xmalloc((size_t)e->config.classes * sizeof *prob);
  for (int i = 0; i < b->batch.used; i++) {
    copy_probs(e, &c, i, prob);
    result[i] = results_of_classes(prob, e->config.classes, o->top, b->place[i].h, b->place[i].w, e->category);
  }
  free(prob);
  memset(counter, 0, MAX_COUNTERS * sizeof *counter);
  return true;
}

static const KindRow detections = {MASKRCNN_DETECTIONS, engine_find, finish_detections, engine_drop};
static const KindRow classes = {MASKRCNN_CLASSES, engine_classify, finish_classes, engine_drop_classified};

const KindRow *kind_of(const Model *m) { return m->traits & MODEL_CLASSIFIER ? &classes : &detections; }
