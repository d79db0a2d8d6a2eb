#include "training/step_benchmark.h"
#include <string.h>
#include "base/alloc.h"
#include "engine/benchmark.h"
#include "training/loop.h"
#include "training/step_results.h"

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
      return err_set(err, "step %lld: loss or gradient is not finite (%s)", (long long)s.step + 1,
                     b->r->divergence.losses);
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
