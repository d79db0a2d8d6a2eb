#include "classification/class_outputs.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/clock.h"

// ---- memory -----------------------------------------------------------------------------------------------------

static void plan(Engine *e) {
  Classifier *c = e->results = xcalloc(1, sizeof *c);
  c->bytes = (size_t)e->infer.shapes.images * (size_t)e->config.classes * dtype_size(e->dev->real);
  memory_add(&e->memory, "probabilities of in-flight batches", ON_HOST_LOCKED, BATCHES_UNDER_WAY * c->bytes, "--batch");
}

static bool allocate(Engine *e, Err *err) {
  Classifier *c = e->results;
  for (int i = 0; i < BATCHES_UNDER_WAY; i++) {
    ClassSlot *s = &c->slot[i];
    if (!(s->probs = device_host_alloc(e->dev, c->bytes)))
      return err_memory(err, BATCHES_UNDER_WAY * c->bytes, "the probabilities of in-flight batches", "--batch");
    s->mark = device_mark_open(e->dev);
  }
  return true;
}

static size_t room_bytes(const Engine *e, int64_t pixels) {
  (void)e;
  (void)pixels;
  return 0;
}

static bool make_room(Engine *e, int64_t pixels) {
  (void)e;
  (void)pixels;
  return true;
}

static void close_results(Engine *e) {
  Classifier *c = e->results;
  if (!c) return;
  if (engine_classifying(e)) device_sync(e->dev); // steps in flight write into the slots
  for (int i = 0; i < BATCHES_UNDER_WAY; i++) {
    if (c->slot[i].mark) device_mark_close(e->dev, c->slot[i].mark);
    device_host_free(e->dev, c->slot[i].probs);
  }
  free(c);
  e->results = NULL;
}

// ---- the pipeline -----------------------------------------------------------------------------------------------

// Only copies: probabilities are the network's last node.
static void queue(Engine *e, const Network *n) {
  (void)e;
  (void)n;
}

void engine_classify(Engine *e, const Batch *batch) {
  Classifier *c = e->results;
  CHECK(engine_classifying(e) < BATCHES_UNDER_WAY);
  ClassSlot *s = &c->slot[c->started++ % BATCHES_UNDER_WAY];
  s->started = now_seconds();
  s->batch = batch;
  engine_queue_inference(e, batch, e->timing);
  device_fetch(e->dev, s->probs, e->infer.network[batch->canvas].result[CLASS_PROBS]->x.data, c->bytes);
  device_mark_set(e->dev, s->mark);
}

bool engine_classified(Engine *e, bool wait, Classified *out) {
  Classifier *c = e->results;
  if (!engine_classifying(e)) return false;
  const ClassSlot *s = &c->slot[c->handed_out % BATCHES_UNDER_WAY];
  if (!wait && !device_mark_reached(e->dev, s->mark)) return false;
  device_mark_wait(e->dev, s->mark);
  c->handed_out++;
  *out = (Classified){.batch = s->batch, .probs = s->probs, .started = s->started};
  return true;
}

int engine_classifying(const Engine *e) {
  const Classifier *c = e->results;
  return (int)(c->started - c->handed_out);
}

void engine_drop_classified(Engine *e) {
  Classifier *c = e->results;
  if (c) c->handed_out = c->started;
}

static bool before(float a, float b) { return isnan(a) ? !isnan(b) : a > b; }

ClassRow classify_row(const Engine *e, const Classified *c, int position) {
  const int classes = e->config.classes;
  const size_t first = (size_t)position * (size_t)classes;
  ClassRow row;
  for (int i = 0; i < TOP_CLASSES; i++) row.top[i] = -1;
  for (int k = 0; k < classes; k++) {
    const size_t at = first + (size_t)k;
    const float prob = e->dev->real == F64 ? (float)((const double *)c->probs)[at] : ((const float *)c->probs)[at];
    int to = TOP_CLASSES;
    while (to > 0 && (row.top[to - 1] < 0 || before(prob, row.prob[to - 1]))) to--;
    for (int i = TOP_CLASSES - 1; i > to; i--) {
      row.top[i] = row.top[i - 1];
      row.prob[i] = row.prob[i - 1];
    }
    if (to == TOP_CLASSES) continue;
    row.top[to] = k;
    row.prob[to] = prob;
  }
  for (int i = classes; i < TOP_CLASSES; i++) row.prob[i] = 0;
  return row;
}

// ---- the row ----------------------------------------------------------------------------------------------------

static size_t result_bytes(const ModelConfig *c, int images) {
  (void)c;
  return (size_t)images * (sizeof(ClassRow) + sizeof(bool));
}

const Outputs outputs_probabilities = {.plan = plan,
                                       .allocate = allocate,
                                       .make_room = make_room,
                                       .room_bytes = room_bytes,
                                       .close = close_results,
                                       .result_bytes = result_bytes,
                                       .queue = queue};
