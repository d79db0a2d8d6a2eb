#include "training/benchmarks/nets.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/latency.h"
#include "base/machine.h"
#include "base/record.h"
#include "base/rng.h"
#include "data/batches/augment.h"
#include "engine/benchmark.h"
#include "engine/step.h"
#include "nn/fault.h"
#include "nn/timing.h"

typedef struct NetSetting {
  const char *net; // the name of --model
  const char *amp; // the value of --amp
  int runs;        // measured runs of each pass, after half as many for warm-up
  bool forward_only;
  bool plan;    // only print the memory of each batch size
  bool profile; // also print a row per node
  Trace *trace; // receives the steps that are timed node by node; NULL = none
} NetSetting;

// ---- made-up images -----------------------------------------------------------------------------------------------

static Shapes shapes_for(const ModelConfig *c, int images) {
  return (Shapes){.canvases = 1,
                  .canvas = {{.h = c->size, .w = c->size}},
                  .images = images,
                  .max_objects = 1,
                  .max_bytes = (int64_t)3 * c->size * c->size,
                  .measured = true};
}

// Images of noise with random classes; seeded.
static Batch made_up(const ModelConfig *c, const Shapes *s, uint64_t seed) {
  const Size size = {s->canvas[0].h, s->canvas[0].w};
  const uint64_t key = rng_key(seed, RNG_TEST);
  Batch b = {.images = s->images, .used = s->images, .capacity = s->max_objects, .num_bytes = s->images * s->max_bytes};
  const BatchSize room = batch_size(&b);
  b.index = xcalloc((size_t)s->images, sizeof *b.index);
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++)
    batch_set_array(&b, a, xcalloc(batch_elements(&room, a), batch_layout[a].element));
  for (int64_t i = 0; i < b.num_bytes; i++) b.bytes[i] = (uint8_t)rng_u32(key, (uint64_t)i);
  for (int i = 0; i < s->images; i++) {
    b.index[i] = i;
    b.info[i] = (ImageInfo){.offset = i * s->max_bytes,
                            .h = size.h,
                            .w = size.w,
                            .rh = size.h,
                            .rw = size.w,
                            .key = rng_key(key, (uint64_t)i)};
    b.label[i] = (int)(rng_u32(b.info[i].key, 0) % (uint32_t)c->classes);
    b.count[i] = 1;
    const AugmentMap whole = augment_classifier(NULL, 1, 0, size, size);
    memcpy(b.info[i].view.map, whole.map, sizeof whole.map);
  }
  return b;
}

static void free_batch(Batch *b) {
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++) free(batch_array(b, a));
  free(b->index);
}

// ---- walks --------------------------------------------------------------------------------------------------------

static void queue_forward(Engine *e, Network *n) {
  (void)e;
  graph_forward(&n->graph);
}

static void queue_both(Engine *e, Network *n) {
  graph_forward(&n->graph);
  graph_backward(&n->graph);
  (void)e;
}

typedef struct Walk {
  const char *key, *title;
  void (*queue)(Engine *e, Network *n);
} Walk;
static const Walk walks[] = {
    {"fwd", "forward", queue_forward}, {"fwdbwd", "forward and backward", queue_both}, {"step", "step", queue_step}};

// Records what the walk queues as a program; NULL: it runs kernel by kernel, as on the CPU or with an observer.
static void *record_walk(Engine *e, Network *n, const Walk *w) {
  w->queue(e, n); // because libraries and modules load lazily
  if (graph_watched(&n->graph) || !device_record(e->dev)) return NULL;
  w->queue(e, n);
  return device_record_end(e->dev);
}

static Latency time_walk(Engine *e, const Walk *w, int runs) {
  const Timing *timing = e->dev->memory->timing;
  Network *n = &e->train.network[0];
  Mark before = {0}, after = {0};
  double *seconds = xmalloc((size_t)runs * sizeof *seconds);
  fault_context(false, "timed runs of %s", w->title);
  void *recorded = record_walk(e, n, w);
  for (int i = -runs / 2; i < runs; i++) {
    timing->mark(e->dev, &before);
    if (recorded)
      device_replay(e->dev, recorded);
    else
      w->queue(e, n);
    timing->mark(e->dev, &after);
    const double took = timing->elapsed(e->dev, &before, &after);
    if (i >= 0) seconds[i] = took;
  }
  device_forget(e->dev, recorded);
  timing->forget(e->dev, &before);
  timing->forget(e->dev, &after);
  const Latency l = latency_summary(seconds, runs);
  free(seconds);
  return l;
}

// ---- record -------------------------------------------------------------------------------------------------------

static const char *dtype_name(const Device *dev, const NetSetting *s, const Engine *e) {
  if (e->params.shadow_dtype == BF16 || e->params.shadow_dtype == F16) return s->amp;
  return dev->real == F64 ? "fp64" : dev->tf32 ? "tf32" : "fp32";
}

static void record_walk_times(Record *j, const char *key, const Latency *l) {
  Record times = {0};
  record_begin(&times);
  record_num(&times, "mean", 1e3 * l->mean);
  record_num(&times, "median", 1e3 * l->median);
  record_num(&times, "stderr", 1e3 * l->standard_error);
  record_num(&times, "min", 1e3 * l->min);
  record_int(&times, "runs", l->n);
  record_raw(j, key, record_end(&times));
  record_free(&times);
}

// Times are in milliseconds. `why`: what did not fit into memory; NULL: everything fitted.
static void print_record(const Engine *e, const Compute *compute, const NetSetting *s, int images, const Latency *l,
                         int n, const char *why) {
  Record j = {0};
  record_begin(&j);
  record_str(&j, "bench", "net");
  record_str(&j, "net", s->net);
  record_str(&j, "gpu", e->dev->description);
  record_int(&j, "batch", images);
  record_str(&j, "dtype", dtype_name(e->dev, s, e));
  record_str(&j, "conv", compute->conv ? compute->conv : "auto");
  record_int(&j, "classes", e->config.classes);
  record_int(&j, "canvas_h", e->config.size);
  record_int(&j, "canvas_w", e->config.size);
  record_bool(&j, "out_of_memory", why);
  if (why) record_str(&j, "why", why);
  for (int i = 0; i < n; i++) record_walk_times(&j, walks[i].key, &l[i]);
  if (n) record_num(&j, "img_s", images / l[n - 1].mean); // of the longest pass
  record_int(&j, "peak_bytes", (int64_t)memory_sum(&e->memory, ON_DEVICE));
  device_origin(e->dev, &j);
  puts(record_end(&j));
  fflush(stdout);
  record_free(&j);
}

static void tell(const Engine *e, const NetSetting *s, int images, const Latency *l, int n) {
  fprintf(stderr, "%s, %s, batch %d:", s->net, dtype_name(e->dev, s, e), images);
  for (int i = 0; i < n; i++) {
    fprintf(stderr, "%s %s %.3f ", i ? "," : "", walks[i].title, 1e3 * l[i].mean);
    if (l[i].n > 1) fprintf(stderr, "± %.3f ", 1e3 * l[i].standard_error);
    fprintf(stderr, "ms");
  }
  fprintf(stderr, "; %.1f img/s, %.2f GiB\n", images / l[n - 1].mean,
          (double)memory_sum(&e->memory, ON_DEVICE) / (1 << 30));
}

// ---- a batch size -------------------------------------------------------------------------------------------------

// Plain SGD, as in articles and other programs; the values do not affect the time of a step.
static const StepOptions rates = {.learning_rate = 1e-3f, .momentum = 0.9f, .weight_decay = 1e-4f};

// Makes a few steps with the engine itself, to check that the timed network computes finite losses.
static bool make_step(Engine *e, const Batch *b, StepResult *r, Err *err) {
  engine_step(e, b, &rates, r);
  return isfinite(r->total) || err_set(err, "the loss on random images is not finite");
}

// Bytes of the update: for each trained parameter, the gradient, the master and the momentum are read; master, momentum
// and the copy for convolutions are written.
static void print_update(const Engine *e, double seconds, int steps) {
  const Params *p = &e->params;
  const size_t real = dtype_size(e->dev->real),
               copy = p->shadow_dtype == e->dev->real ? 0 : dtype_size(p->shadow_dtype);
  Ceiling c;
  e->dev->memory->timing->ceiling(e->dev, &c);
  printf("%.3f ms per update (mean of %d); %.3f ms at the limits\n", 1e3 * seconds, steps,
         1e3 * (double)(p->trainable * (5 * real + copy)) / c.bytes);
}

// Times each node, and the update.
static bool profile(Engine *e, const Batch *b, const NetSetting *s, Err *err) {
  const int steps = MAX(s->runs / 10, 2);
  double update = 0;
  StepResult r;
  bool ok = true;
  engine_time_nodes(e, true, s->trace);
  for (int i = 0; ok && i < steps; i++) {
    ok = make_step(e, b, &r, err);
    update += r.update_seconds;
  }
  engine_time_nodes(e, false, NULL);
  if (!ok) return false;
  if (s->profile) benchmark_print_nodes(e);
  if (s->profile) print_update(e, update / steps, steps);
  return true;
}

static bool measure(Engine *e, const Compute *compute, const NetSetting *s, Err *err) {
  const int images = e->train.shapes.images, n = s->forward_only ? 1 : COUNT(walks);
  Latency l[COUNT(walks)];
  StepResult r;
  Batch b = made_up(&e->config, &e->train.shapes, compute->seed);
  params_randomise(&e->params, compute->seed);
  bool ok = make_step(e, &b, &r, err); // copies the batch and the learning rate to the device
  for (int i = 0; ok && i < n; i++) l[i] = time_walk(e, &walks[i], s->runs);
  ok = ok && make_step(e, &b, &r, err);
  if (ok) {
    print_record(e, compute, s, images, l, n, NULL);
    tell(e, s, images, l, n);
    if (s->profile || s->trace) ok = profile(e, &b, s, err);
  }
  free_batch(&b);
  return ok;
}

// Measures a batch size. If the engine does not fit into memory, the record says only that.
static bool run(const Compute *compute, const ModelConfig *config, const Category *category, int images,
                const NetSetting *s, Err *err) {
  Engine e;
  const Shapes train = shapes_for(config, images), none = {0};
  bool ok = engine_open(&e, compute, model_of(config), config, category, &train, &none, s->plan, err);
  if (ok && !s->plan) {
    ok = measure(&e, compute, s, err);
  } else if (!ok && e.memory.rows > 0) {
    print_record(&e, compute, s, images, NULL, 0, err->msg);
    fprintf(stderr, "%s, batch %d: %s\n", s->net, images, err->msg);
    ok = true;
  }
  engine_close(&e);
  return ok;
}

static bool net_benchmark(const Compute *compute, const ModelConfig *config, const BatchList *batches,
                          const NetSetting *s, Err *err) {
  const int names = model_names(config);
  Category *category = xcalloc((size_t)names, sizeof *category);
  for (int i = 0; i < names; i++) {
    category[i].id = i;
    snprintf(category[i].name, sizeof category[i].name, "%d", i);
  }
  bool ok = true;
  if (!s->plan) commit_warn();
  for (int i = 0; ok && i < batches->n; i++) ok = run(compute, config, category, batches->size[i], s, err);
  free(category);
  return ok;
}

void benchmark_net(const TrainSpec *o) {
  Err err;
  ModelConfig config = o->config, named;
  const BatchList sizes = o->batches ? o->batch_sizes : (BatchList){1, {o->batch}};
  config.aux_weight = 0; // without auxiliary heads
  if (!config.classes) config.classes = config_init(&named, o->model, &err) ? named.classes : 0;
  const Compute compute = {.device = o->device,
                           .amp = amp_types[o->amp],
                           .tf32 = o->tf32,
                           .conv = o->conv,
                           .sync_nodes = o->sync_nodes,
                           .seed = (uint64_t)o->seed};
  Trace *trace = o->trace ? trace_open(o->trace, &err) : NULL;
  if (o->trace && !trace) die(EXIT_USAGE, "--trace: %s", err.msg);
  const NetSetting setting = {.net = o->model,
                              .amp = amp_names[o->amp],
                              .runs = o->benchmark,
                              .forward_only = o->forward_only,
                              .plan = o->plan,
                              .profile = o->profile,
                              .trace = trace};
  if (!net_benchmark(&compute, &config, &sizes, &setting, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!trace_close(trace, &err)) die(EXIT_RUN, "--trace: %s", err.msg);
}
