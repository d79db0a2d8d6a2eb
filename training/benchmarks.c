#include "training/benchmarks.h"
#include <string.h>
#include "base/alloc.h"
#include "engine/benchmark.h"
#include "training/data.h"
#include "training/loader_benchmark.h"
#include "training/loading.h"
#include "training/loop.h"
#include "training/net_benchmark.h"
#include "training/setup.h"

// ---- steps ----------------------------------------------------------------------------------------------------------

typedef struct BenchRun {
  TrainingRun *r;
  Loader *loader;
} BenchRun;

static bool bench_step(void *context, int64_t i, bool wait, BenchStep *out, Err *err) {
  const BenchRun *b = context;
  Engine *e = &b->r->engine;
  if (i == 0) train_stage(b->r, b->loader);
  if (!*b->r->trouble.msg) train_step(b->r, b->loader, i, true);
  if (*b->r->trouble.msg) return err_set(err, "%s", b->r->trouble.msg);
  for (StepResult s; engine_result(e, wait, &s);) {
    if (train_diverged(b->r, s.step + 1, &s))
      return err_set(err, "step %lld: not finite (%s)", (long long)s.step + 1, b->r->divergence.losses);
    out->images += b->r->o.batch;
    out->wait += s.wait_seconds;
    out->transfer += s.transfer_seconds;
    out->update += s.update_seconds;
    for (int k = 0; k < MAX_COUNTERS; k++) out->counter[k] += s.counter[k];
  }
  return true;
}

void benchmark_steps(TrainingRun *r, Loader *loader, Trace *trace) {
  const TrainSpec *o = &r->o;
  BenchSetting setting = {.bench = "train",
                          .amp = amp_names[o->amp],
                          .conv = o->conv,
                          .tf32 = o->tf32,
                          .full_masks = o->full_masks,
                          .same_images = o->same_images,
                          .steps = o->benchmark,
                          .profile = o->profile,
                          .trace = trace};
  Err err;
  if (!benchmark_run(&r->engine, &setting,
                     &(Stepper){.step = bench_step, .context = &(BenchRun){r, loader}, .comm = r->comm}, &err))
    die(*r->trouble.msg ? err_exit(&r->trouble) : EXIT_RUN, "%s", err.msg);
}

// ---- parts of them --------------------------------------------------------------------------------------------------

void benchmark_loading(const TrainSpec *o) {
  Err err;
  Dataset train, val;
  TrainSpec alone = *o; // this process, whatever --gpus says
  alone.gpus = 1;
  const bool has_val = train_open_data(o, &o->config, &train, &val);
  const TrainingRun r = {.o = alone, .model = model_of(&o->config), .train = &train};
  dataset_print(r.train, stderr);
  const LoaderOptions options = run_loader_options(&r);
  if (!loader_benchmark(r.train, &options, o->benchmark_loader, &err)) die(EXIT_USAGE, "%s", err.msg);
  dataset_close(&train);
  if (has_val) dataset_close(&val);
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
