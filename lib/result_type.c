#include "lib/result_type.h"
#include <string.h>
#include "engine/detect.h"
#include "lib/results.h"

static bool check(const maskrcnn_options *o, Err *err) {
  (void)o;
  (void)err;
  return true;
}

static void describe(const ModelConfig *c, maskrcnn_description *d) { d->detections_per_image = c->detections; }

static bool finish(Engine *e, const StagedBatch *b, int top, bool wait, const maskrcnn_result **result, int *counter) {
  (void)top;
  BatchDetections f;
  if (!engine_next_detections(e, wait, &f)) return false;
  CHECK(f.batch == &b->batch);
  const Detection *found = f.detections.items;
  for (int i = 0, first = 0, n; i < b->batch.used; i++, first += n) {
    for (n = 0; first + n < f.detections.n && found[first + n].image == i;) n++;
    result[i] = results_of_detections(&found[first], n, b->slot[i].h, b->slot[i].w, e->category);
  }
  memcpy(counter, f.counter, sizeof f.counter);
  return true;
}

const ResultType result_detections = {.kind = MASKRCNN_DETECTIONS,
                                      .check = check,
                                      .describe = describe,
                                      .usual_canvases = 1,
                                      .begin = engine_start_detection,
                                      .finish = finish,
                                      .drop = engine_drop};
