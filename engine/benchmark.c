#include "engine/benchmark.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/latency.h"
#include "base/machine.h"
#include "base/record.h"
#include "comm/rank_sum.h"
#include "engine/outputs.h"
#include "nn/node_energy.h"

// ---- nodes --------------------------------------------------------------------------------------------------------

static void print_timelines(const Program *p) {
  for (int i = 0; p->network && i < p->shapes.canvases; i++) {
    if (!p->timeline[i].walks) continue;
    const Canvas *c = &p->shapes.canvas[i];
    printf("training as it is recorded, canvas %d x %d (h x w), batch %d\n", c->h, c->w, p->shapes.images);
    timeline_print(&p->timeline[i], stdout);
  }
}

static void print_nodes(const Program *p, const char *purpose) {
  for (int i = 0; p->network && i < p->shapes.canvases; i++) {
    if (!p->profile[i].walks) continue;
    const Canvas *c = &p->shapes.canvas[i];
    printf("%s, canvas %d x %d (h x w), batch %d\n", purpose, c->h, c->w, p->shapes.images);
    profile_print(&p->profile[i], &p->network[i].graph, stdout);
  }
}

void benchmark_print_nodes(const Engine *e) {
  print_nodes(&e->train, "training");
  print_nodes(&e->infer, "inference");
  print_timelines(&e->train);
}

// The graphs whose steps are measured.
static const Program *measured(const Engine *e) { return e->train.network ? &e->train : &e->infer; }

// ---- steps --------------------------------------------------------------------------------------------------------

typedef struct Sums { // sums over `steps` steps
  int steps;
  int64_t images; // images of all ranks
  int64_t own;    // images of this rank
  double seconds, wait, transfer, update, results, pixels, counter[MAX_COUNTERS];
  Latency latency; // of steps, without waiting for the loader
} Sums;

// `single`: each step ends before the next starts.
static bool run_steps(const Stepper *stepper, int64_t first, int steps, bool single, Sums *sum, Err *err) {
  *sum = (Sums){.steps = steps};
  comm_barrier(stepper->comm);
  double *each = xmalloc((size_t)steps * sizeof *each), start = now_seconds(), before = start;
  bool ok = true;
  for (int i = 0; ok && i < steps; i++) {
    BenchStep s = {0};
    ok = stepper->step(stepper->context, first + i, single || i + 1 == steps, &s, err);
    double now = now_seconds();
    each[i] = now - before - s.wait;
    before = now;
    sum->images += s.images;
    sum->wait += s.wait;
    sum->transfer += s.transfer;
    sum->update += s.update;
    sum->results += s.results;
    sum->pixels += s.pixels;
    for (int k = 0; k < MAX_COUNTERS; k++) sum->counter[k] += s.counter[k];
  }
  comm_barrier(stepper->comm); // the measurement ends with the slowest rank
  sum->seconds = now_seconds() - start;
  sum->own = sum->images;
  sum->images = rank_sum(stepper->comm, sum->images);
  if (ok) sum->latency = latency_summary(each, steps);
  free(each);
  return ok;
}

// Seconds spent in a part's nodes during the timed steps; part NULL: in all parts.
static double node_seconds(const Program *p, Pass pass, const char *part) {
  double sum = 0;
  for (int i = 0; i < p->shapes.canvases; i++)
    for (int j = 0; j < p->network[i].graph.nodes; j++) {
      const Node *n = p->network[i].graph.node[j];
      if (p->profile[i].node && (!part || !strcmp(n->part, part))) sum += p->profile[i].node[j].seconds[pass];
    }
  return sum;
}

// ---- record -------------------------------------------------------------------------------------------------------

static void record_reduction(Record *j, const Engine *e, const BenchSetting *s, Comm *comm) {
  const Reduction *r = &e->reduction;
  CollectiveFacts facts;
  collective_facts(comm, &facts);
  record_int(j, "local_world", comm_launch(comm)->local_world);
  record_str(j, "transport", facts.transport);
  record_int(j, "nccl", facts.nccl_version);
  record_int(j, "ctas", facts.ctas);
  record_raw(j, "variables", facts.variables);
  record_str(j, "reduce", reduce_names[r->o.type]);
  record_num(j, "bucket_mb", r->o.bucket_mb);
  record_int(j, "buckets", r->buckets);
  record_bool(j, "same_images", s->same_images);
  free(facts.variables);
}

static void record_setting(Record *j, const Engine *e, const BenchSetting *s, Comm *comm) {
  const Shapes *shapes = &measured(e)->shapes;
  record_str(j, "bench", s->bench);
  record_str(j, "model", e->model->name);
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
  record_int(j, "world", comm_world(comm));
  record_int(j, "reserve", e->reduction.o.reserve);
  if (comm) record_reduction(j, e, s, comm);
  record_int(j, "peak_bytes", (int64_t)memory_sum(&e->memory, ON_DEVICE));
}

static void record_speed(Record *j, const Engine *e, const Sums *sum, const Latency *latency) {
  record_int(j, "steps", sum->steps);
  record_int(j, "images", sum->images);
  record_num(j, "img_s", (double)sum->images / sum->seconds);
  record_num(j, "step_ms", 1e3 * sum->seconds / sum->steps);
  record_num(j, "data_wait_ms", 1e3 * sum->wait / sum->steps);
  record_num(j, "data_wait_percent", 100 * sum->wait / sum->seconds);
  record_num(j, "latency_ms", 1e3 * latency->mean);
  record_num(j, "latency_ms_p50", 1e3 * latency->median);
  record_num(j, "latency_ms_p90", 1e3 * latency->p90);
  record_num(j, "latency_ms_p95", 1e3 * latency->p95);
  record_num(j, "latency_ms_p99", 1e3 * latency->p99);
  if (!e->train.network && e->model->outputs->pixels)
    record_num(j, e->model->outputs->pixels, sum->pixels / (double)MAX(sum->own, 1));
  for (int i = 0; i < model_counters(e->model); i++)
    if (measured(e)->network[0].counter[i]) record_num(j, e->model->counter[i], sum->counter[i] / sum->steps);
}

// Adds the forward time of each part: "forward_rpn_ms".
static void record_parts(Record *j, const Program *p, double ms) {
  const Graph *g = &p->network[0].graph; // every canvas has the same nodes
  for (int i = 0; i < g->nodes; i++) {
    const char *part = g->node[i]->part;
    if (!graph_begins_part(g, i)) continue;
    char key[64];
    snprintf(key, sizeof key, "forward_%s_ms", part);
    record_num(j, key, ms * node_seconds(p, PASS_FORWARD, part));
  }
}

static void record_times(Record *j, const Engine *e, const Sums *sum) {
  const double ms = 1e3 / sum->steps;
  record_int(j, "timed_steps", sum->steps);
  record_num(j, "transfer_ms", ms * sum->transfer);
  record_parts(j, measured(e), ms);
  if (e->train.network) {
    record_num(j, "backward_ms", ms * node_seconds(&e->train, PASS_BACKWARD, NULL));
    record_num(j, "update_ms", ms * sum->update);
  } else {
    record_num(j, "results_ms", ms * sum->results);
  }
}

static bool on_engine(const Stepper *stepper, Engine *e, void (*what)(Engine *, void *), void *argument, Err *err) {
  if (stepper->on_engine) return stepper->on_engine(stepper->context, what, argument, err);
  what(e, argument);
  return true;
}

typedef struct NodeTiming {
  bool on;
  Trace *trace;
} NodeTiming;

static void set_timing(Engine *e, void *argument) {
  const NodeTiming *t = argument;
  engine_time_nodes(e, t->on, t->trace);
}

static bool time_nodes(const Stepper *stepper, Engine *e, bool on, Trace *trace, Err *err) {
  NodeTiming t = {on, trace};
  return on_engine(stepper, e, set_timing, &t, err);
}

static void set_stamping(Engine *e, void *argument) { engine_stamp_steps(e, *(const bool *)argument); }

// Stamps some recorded steps; the record does not have them.
static bool stamp_steps(const Stepper *stepper, Engine *e, int64_t first, int steps, Err *err) {
  Sums sums;
  bool on = true, off = false;
  return on_engine(stepper, e, set_stamping, &on, err) && run_steps(stepper, first, steps, true, &sums, err) &&
         on_engine(stepper, e, set_stamping, &off, err);
}

// ---- energy -------------------------------------------------------------------------------------------------------

typedef struct Metering {
  double seconds;
  bool prints;
  NodeEnergy *of; // [infer.shapes.canvases] measurements of each canvas
} Metering;

static void start_metering(Engine *e, void *argument) {
  Metering *m = argument;
  m->of = xcalloc((size_t)e->infer.shapes.canvases, sizeof *m->of);
  for (int i = 0; i < e->infer.shapes.canvases; i++)
    node_energy_start(&m->of[i], &e->infer.network[i].graph, m->seconds);
}

static void stop_metering(Engine *e, void *argument) {
  Metering *m = argument;
  for (int i = 0; i < e->infer.shapes.canvases; i++) {
    if (m->prints) node_energy_print(&m->of[i], &e->infer.network[i].graph, stdout);
    node_energy_free(&m->of[i], &e->infer.network[i].graph);
  }
  free(m->of);
}

// Measures the energy of the next inference step. Every rank makes the step; rank 0's measurement counts.
static bool measure_energy(Engine *e, const BenchSetting *s, const Stepper *stepper, int64_t step, Err *err) {
  Metering m = {.seconds = s->energy, .prints = comm_rank(stepper->comm) == 0};
  Sums sums;
  return on_engine(stepper, e, start_metering, &m, err) && run_steps(stepper, step, 1, true, &sums, err) &&
         on_engine(stepper, e, stop_metering, &m, err);
}

// ---- the benchmark ------------------------------------------------------------------------------------------------

bool benchmark_run(Engine *e, const BenchSetting *s, const Stepper *stepper, Err *err) {
  Sums warm, whole, single, timed;
  commit_warn();
  if (!run_steps(stepper, 0, s->steps / 2, false, &warm, err) ||
      !run_steps(stepper, warm.steps, s->steps, false, &whole, err))
    return false;
  int64_t steps = warm.steps + whole.steps;
  single = whole;
  if (stepper->overlapped) {
    if (!run_steps(stepper, steps, s->steps, true, &single, err)) return false;
    steps += single.steps;
  }
  if (!time_nodes(stepper, e, true, s->trace, err) ||
      !run_steps(stepper, steps, MAX(s->steps / 10, 2), true, &timed, err) || !time_nodes(stepper, e, false, NULL, err))
    return false;
  if (s->energy > 0 && !measure_energy(e, s, stepper, steps + timed.steps, err)) return false;
  if (s->profile && e->train.network && !stamp_steps(stepper, e, steps + timed.steps, timed.steps, err)) return false;
  if (comm_rank(stepper->comm) > 0) return true;
  Record j = {0};
  record_begin(&j);
  record_setting(&j, e, s, stepper->comm);
  record_speed(&j, e, &whole, &single.latency);
  record_times(&j, e, &timed);
  device_origin(e->dev, &j);
  puts(record_end(&j));
  record_free(&j);
  if (s->profile) benchmark_print_nodes(e);
  return true;
}
