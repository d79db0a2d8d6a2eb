#include "inference/benchmark.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "engine/benchmark.h"
#include "inference/batches.h"
#include "inference/networks.h"
#include "lib/inspect.h"

typedef struct Repetition { // repeated passes over a data set
  maskrcnn *handle;
  const Engine *engine; // the handle's; changes only while a batch is in flight
  BatchQueue *queue;
  const Dataset *d;
  LoaderOptions options;
  Loader *loader; // NULL: the next batch starts a new pass
  char *text;     // memory for the strings of a batch's masks
  size_t room;
  int64_t counter[MAX_COUNTERS]; // counters of all previous batches
} Repetition;

// ---- results ----------------------------------------------------------------------------------------------------

static Rle rle_of(const maskrcnn_rle *m) {
  return (Rle){.h = m->height, .w = m->width, .n = m->num_counts, .runs = (uint32_t *)m->counts};
}

// Writes the COCO strings of an image's masks, one after the other, into reused memory; returns the total of their
// pixels. Single-threaded: the loader uses the other cores, and waiting for one would take longer than the work.
static double write_strings(Repetition *r, const maskrcnn_detections *found) {
  size_t need = 0, at = 0;
  double pixels = 0;
  for (int i = 0; i < found->n; i++) {
    const Rle mask = rle_of(found->masks[i]);
    need += rle_string_room(&mask);
  }
  array_reserve((void **)&r->text, &r->room, need, 1);
  for (int i = 0; i < found->n; i++) {
    const Rle mask = rle_of(found->masks[i]);
    at += maskrcnn_mask_string(found->masks[i], r->text + at, r->room - at) + 1;
    pixels += (double)rle_area(&mask);
  }
  return pixels;
}

// Converts a batch's results; classes need no conversion.
static void finish_batch(Repetition *r, BenchStep *out) {
  QueuedBatch *b = batches_next(r->queue);
  for (int i = 0; i < b->images; i++) {
    const maskrcnn_detections *found = networks_result(b->results, i)->detections;
    if (!found) continue;
    const double ready = now_seconds();
    out->pixels += write_strings(r, found);
    out->results += now_seconds() - ready;
  }
  queue_release(r->queue, b);
}

static void take_counters(Repetition *r, BenchStep *out) {
  int64_t counter[MAX_COUNTERS];
  inspect_counters(r->handle, counter);
  for (int k = 0; k < MAX_COUNTERS; k++) {
    out->counter[k] = (int)(counter[k] - r->counter[k]);
    r->counter[k] = counter[k];
  }
}

// ---- steps ------------------------------------------------------------------------------------------------------

static const Batch *next_batch(Repetition *r, Err *err) {
  while (r->loader || (r->loader = loader_open(r->d, &r->options, err))) {
    const Batch *batch = loader_next(r->loader, err);
    if (batch || err->msg[0]) return batch;
    loader_close(r->loader); // the handle has copied the batches in flight
    r->loader = NULL;
  }
  return NULL;
}

// A batch is started before the results of earlier ones are taken, so that the device does not wait for the host. When
// latency is measured, it is started once the decoders sleep, so that the images are in memory.
static bool step(void *context, int64_t i, bool wait, BenchStep *out, Err *err) {
  (void)i;
  Repetition *r = context;
  const double start = now_seconds();
  const Batch *batch = next_batch(r, err);
  if (!batch) return false;
  if (wait) loader_settle(r->loader);
  const double ready = now_seconds();
  *out = (BenchStep){.images = batch->used, .wait = ready - start};
  if (batch->used) batches_begin(r->queue, batch);
  while (r->queue->under_way > (wait ? 0 : NETWORKS_UNDER_WAY - 1)) finish_batch(r, out);
  if (wait) out->transfer = r->engine->infer.profile[batch->canvas].walk_start[PASS_FORWARD] - ready;
  take_counters(r, out);
  return true;
}

static bool on_engine(void *context, void (*what)(Engine *e, void *argument), void *argument, Err *err) {
  const Repetition *r = context;
  maskrcnn_error why;
  return inspect_engine(r->handle, what, argument, &why) == MASKRCNN_OK || err_set(err, "%s", why.message);
}

static void see_engine(Engine *e, void *context) { *(Engine **)context = e; }

bool infer_benchmark(BatchQueue *q, maskrcnn *handle, const InferOptions *o, Comm *comm, const Dataset *d, Err *err) {
  const BenchSetting setting = {.bench = "infer",
                                .amp = amp_names[o->amp],
                                .tf32 = o->tf32,
                                .conv = o->conv,
                                .steps = o->benchmark,
                                .profile = o->profile,
                                .energy = o->energy};
  Engine *engine = NULL;
  maskrcnn_error why;
  Repetition r = {.handle = handle, .queue = q, .d = d};
  if (inspect_engine(r.handle, see_engine, &engine, &why) != MASKRCNN_OK) return err_set(err, "%s", why.message);
  r.engine = engine;
  r.options = (LoaderOptions){.batch = o->batch,
                              .rank = comm_rank(comm),
                              .world = comm_world(comm),
                              .threads = o->threads,
                              .prefetch = PREFETCH,
                              .held = NETWORKS_UNDER_WAY};
  const Stepper stepper = {.step = step, .on_engine = on_engine, .context = &r, .comm = comm, .overlapped = true};
  const bool ok = benchmark_run(engine, &setting, &stepper, err);
  loader_close(r.loader);
  free(r.text);
  return ok;
}
