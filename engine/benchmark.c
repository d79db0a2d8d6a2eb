#include "engine/benchmark.h"
#include <stdlib.h>
#include "base/latency.h"
#include "base/machine.h"
#include "base/record.h"
#include "nn/profile.h"

// ---- nodes --------------------------------------------------------------------------------------------------------

// All graphs of an engine, training first.
static int graphs(const Engine *e) {
  return (e->train ? e->train_shapes.canvases : 0) + (e->infer ? e->infer_shapes.canvases : 0);
}
static MaskRcnn *model(const Engine *e, int i) {
  int training = e->train ? e->train_shapes.canvases : 0;
  return i < training ? &e->train[i] : &e->infer[i - training];
}

void benchmark_time_nodes(Engine *e, bool on, Trace *trace) {
  for (int i = 0; i < graphs(e); i++) model(e, i)->graph.timing = on, model(e, i)->graph.trace = trace;
}

void benchmark_print_nodes(const Engine *e) {
  for (int i = 0; i < graphs(e); i++) {
    const MaskRcnn *m = model(e, i);
    if (!m->graph.walks) continue;
    printf("%s, canvas %d x %d (h x w), batch %d\n", m->graph.training ? "training" : "inference", m->canvas_h,
           m->canvas_w, m->images);
    profile_print(&m->graph, stdout);
  }
}

// ---- steps --------------------------------------------------------------------------------------------------------

typedef struct Sums { // over `steps`
  int steps;
  double seconds, wait, transfer, update, results, rois, positives;
  Latency latency; // of a step without the wait
} Sums;

static bool run_steps(const Stepper *stepper, int64_t first, int steps, bool timed, Sums *sum, Err *err) {
  *sum = (Sums){.steps = steps};
  double *each = xmalloc((size_t)steps * sizeof *each), start = now_seconds(), before = start;
  bool ok = true;
  for (int i = 0; ok && i < steps; i++) {
    BenchStep s = {0};
    ok = stepper->step(stepper->context, first + i, timed || i + 1 == steps, &s, err);
    double now = now_seconds();
    each[i] = now - before - s.wait;
    before = now;
    sum->wait += s.wait, sum->transfer += s.transfer, sum->update += s.update, sum->results += s.results;
    sum->rois += s.rois, sum->positives += s.positives;
  }
  sum->seconds = before - start;
  if (ok) sum->latency = latency_summary(each, steps);
  free(each);
  return ok;
}

// Of the timed steps: forward by part, backward. Seconds.
static void sum_nodes(const Engine *e, double forward[PARTS], double *backward) {
  for (int i = 0; i < graphs(e); i++) {
    const Graph *g = &model(e, i)->graph;
    for (int j = 0; j < g->nodes; j++) {
      forward[g->node[j]->part] += g->node[j]->seconds[0];
      *backward += g->node[j]->seconds[1];
    }
  }
}

// ---- record -------------------------------------------------------------------------------------------------------

static void record_setting(Record *j, const Engine *e, const BenchSetting *s) {
  const Shapes *shapes = e->train ? &e->train_shapes : &e->infer_shapes;
  record_str(j, "bench", s->bench);
  record_str(j, "gpu", e->dev->description);
  record_int(j, "batch", shapes->images);
  record_str(j, "amp", s->amp);
  record_bool(j, "tf32", s->tf32);
  record_str(j, "conv", s->conv ? s->conv : "auto");
  record_bool(j, "full_masks", s->full_masks);
  record_int(j, "depth", e->config.depth);
  record_int(j, "width", e->config.width);
  record_str(j, "norm", norm_names[e->config.norm]);
  record_int(j, "trainable_layers", e->config.trainable_layers);
  record_int(j, "canvas_h", shapes->canvas[0].h);
  record_int(j, "canvas_w", shapes->canvas[0].w);
  record_int(j, "peak_bytes", (int64_t)e->total_bytes);
}

static void record_speed(Record *j, const Engine *e, const Sums *sum) {
  int images = e->train ? e->train_shapes.images : e->infer_shapes.images;
  record_int(j, "steps", sum->steps);
  record_num(j, "img_s", sum->steps * images / sum->seconds);
  record_num(j, "step_ms", 1e3 * sum->seconds / sum->steps);
  record_num(j, "data_wait_ms", 1e3 * sum->wait / sum->steps);
  record_num(j, "data_wait_percent", 100 * sum->wait / sum->seconds);
  record_num(j, "latency_ms", 1e3 * sum->latency.mean);
  record_num(j, "latency_ms_p50", 1e3 * sum->latency.median);
  record_num(j, "latency_ms_p99", 1e3 * sum->latency.p99);
  record_num(j, "rois", sum->rois / sum->steps);
  record_num(j, "positives", sum->positives / sum->steps);
}

static void record_parts(Record *j, const Engine *e, const Sums *sum) {
  static const char *const keys[PARTS] = {"forward_input_ms", "forward_backbone_ms", "forward_fpn_ms", "forward_rpn_ms",
                                          "forward_roi_ms"};
  double forward[PARTS] = {0}, backward = 0, ms = 1e3 / sum->steps;
  sum_nodes(e, forward, &backward);
  record_int(j, "timed_steps", sum->steps);
  record_num(j, "transfer_ms", ms * sum->transfer);
  for (int p = 0; p < PARTS; p++) record_num(j, keys[p], ms * forward[p]);
  if (e->train) {
    record_num(j, "backward_ms", ms * backward);
    record_num(j, "update_ms", ms * sum->update);
  } else {
    record_num(j, "results_ms", ms * sum->results);
  }
}

bool benchmark_run(Engine *e, const BenchSetting *s, const Stepper *stepper, Err *err) {
  Sums warm, whole, timed;
  commit_warn();
  if (!run_steps(stepper, 0, s->steps / 2, false, &warm, err) ||
      !run_steps(stepper, warm.steps, s->steps, false, &whole, err))
    return false;
  benchmark_time_nodes(e, true, s->trace);
  bool ok = run_steps(stepper, warm.steps + whole.steps, MAX(s->steps / 10, 2), true, &timed, err);
  benchmark_time_nodes(e, false, NULL);
  if (!ok) return false;
  Record j = {0};
  record_begin(&j);
  record_setting(&j, e, s);
  record_speed(&j, e, &whole);
  record_parts(&j, e, &timed);
  device_origin(e->dev, &j);
  puts(record_end(&j));
  record_free(&j);
  if (s->profile) benchmark_print_nodes(e);
  return true;
}

// ---- inference ----------------------------------------------------------------------------------------------------

typedef struct Rounds { // over a data set
  Engine *e;
  const Dataset *d;
  LoaderOptions options;
  Loader *loader; // NULL: the next batch begins a round
} Rounds;

static const Batch *next_batch(Rounds *r, Err *err) {
  while (r->loader || (r->loader = loader_open(r->d, &r->options, err))) {
    const Batch *batch = loader_next(r->loader, err);
    if (batch || err->msg[0]) return batch;
    loader_close(r->loader);
    r->loader = NULL;
  }
  return NULL;
}

static bool infer_step(void *context, int64_t i, bool wait, BenchStep *out, Err *err) {
  (void)i, (void)wait;
  Rounds *r = context;
  Detections found;
  double start = now_seconds();
  const Batch *batch = next_batch(r, err);
  if (!batch) return false;
  double ready = now_seconds();
  engine_infer(r->e, batch);
  double computed = now_seconds();
  engine_detections(r->e, batch, 0.5f, &found);
  const MaskRcnn *m = &r->e->infer[batch->canvas];
  *out = (BenchStep){.wait = ready - start,
                     .transfer = m->graph.walk_start[0] - ready,
                     .results = now_seconds() - computed,
                     .positives = found.n};
  device_download(r->e->dev, &out->rois, m->rois.count, sizeof out->rois);
  detections_free(&found);
  return true;
}

bool benchmark_infer(Engine *e, const BenchSetting *s, const Dataset *d, int threads, Err *err) {
  Rounds r = {
      .e = e, .d = d, .options = {.batch = e->infer_shapes.images, .world = 1, .threads = threads, .prefetch = 2}};
  bool ok = benchmark_run(e, s, &(Stepper){infer_step, &r}, err);
  loader_close(r.loader);
  return ok;
}
