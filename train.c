// train: flags → data → step loop → log, checkpoint, evaluation.
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "base/interrupt.h"
#include "base/threads.h"
#include "data/batches/sampler.h"
#include "engine/benchmark.h"
#include "engine/curves.h"
#include "engine/engine.h"
#include "engine/loader_benchmark.h"
#include "engine/run_files.h"
#include "engine/train_options.h"
#include "engine/train_setup.h"
#include "nn/optim.h"

// ---- set-up -----------------------------------------------------------------------------------------------------

typedef struct TrainingRun {
  TrainOptions o;
  const Model *model;
  Engine engine;
  Dataset train, val;
  bool has_val;
  int64_t steps, first, last, per_epoch; // of the whole run; of this call
  Schedule schedule;
  char *identity; // what a resumed run must share
  RunFiles files;
  Err trouble; // what ends the run once its state is saved, such as images that cannot be read; "" = nothing
} TrainingRun;

// Shown once nothing can be wrong any more with what was asked for: a mistake gets its one line alone.
static void report(const TrainingRun *r) {
  if (!r->o.benchmark) fprintf(stderr, "configuration:\n%s", r->o.resolved);
  device_print(r->engine.dev, stderr);
  dataset_print(&r->train, stderr);
}

static void open_run(TrainingRun *r) {
  ModelConfig config = setup_model(&r->o);
  r->model = model_of(&config);
  r->has_val = setup_data(&r->o, &config, &r->train, &r->val);
  setup_engine(&r->o, config, &r->train, r->has_val ? &r->val : NULL, &r->engine);
}

static void close_run(TrainingRun *r) {
  engine_close(&r->engine);
  dataset_close(&r->train);
  if (r->has_val) dataset_close(&r->val);
  free(r->o.resolved);
  files_free(&r->files);
  free(r->identity);
}

// ---- the loop ---------------------------------------------------------------------------------------------------

// Cores that training leaves to scores: none on the CPU. On a GPU one core drives it; decoders rest most of the time
// unless their number was chosen, and are taken for half of the cores.
static int spare_cores(const TrainingRun *r) {
  int cores = omp_get_num_procs(), decoders = r->o.threads > 0 ? r->o.threads : cores / 2;
  return r->engine.dev->gpu ? MAX(cores - decoders - 1, 0) : 0;
}

// For failures from here on that nobody can foresee.
static void say_where(const TrainingRun *r, int64_t step) {
  die_context("step %lld; %s", (long long)step, r->files.kept);
}

static bool evaluation_due(const TrainingRun *r, int64_t step) {
  return r->has_val && step < r->steps && r->o.eval_every > 0 && step % r->o.eval_every == 0;
}

// A failure of what goes on beside the steps.
static void expect(const TrainingRun *r, bool ok, const Err *err) {
  if (!ok) die(EXIT_RUN, "%s; %s", err->msg, r->files.kept);
}

static void save(TrainingRun *r, int64_t step) {
  Err err;
  expect(r, files_save(&r->files, &r->engine, step, &err), &err);
}

// False when it was told to stop.
static bool evaluate(TrainingRun *r, int64_t step) {
  Err err;
  const TaskRow *task = task_of(r->engine.model);
  double start = now_seconds();
  params_refresh(&r->engine.params); // running statistics have moved
  void *results = task->collect(&r->engine, &r->val, r->o.threads, interrupted, &err);
  if (results)
    expect(r, files_score(&r->files, task, &r->val, results, spare_cores(r), step, start, &err), &err);
  else if (*err.msg)
    err_set(&r->trouble, "evaluation: %s", err.msg);
  return results;
}

// Names the step, the losses and the images.
_Noreturn static void stop_not_finite(TrainingRun *r, int64_t step, const StepResult *s) {
  const Model *m = r->engine.model;
  char losses[256] = "", files[1024] = "";
  for (int i = 0; i < model_losses(m); i++)
    snprintf(losses + strlen(losses), sizeof losses - strlen(losses), "%s%s %g", i ? ", " : "", m->loss[i].name,
             s->loss[i]);
  for (int i = 0; i < r->o.batch; i++)
    if (s->index[i] >= 0)
      snprintf(files + strlen(files), sizeof files - strlen(files), "%s%s", *files ? ", " : "",
               r->train.coco.images[r->train.image[s->index[i]]].file_name);
  Err err;
  expect(r, files_settle(&r->files, &err), &err);
  log_close(&r->files.log, &err);
  die(EXIT_RUN,
      "step %lld: not finite (%s, gradient norm %g) on %s; nothing was updated, %s; a smaller --lr, a longer "
      "--warmup or --clip-grad may help",
      (long long)step, losses, s->grad_norm, files, r->files.kept);
}

static LoaderOptions loader_options(const TrainingRun *r) {
  const TrainOptions *o = &r->o;
  return (LoaderOptions){.batch = o->batch,
                         .rank = 0,
                         .world = o->gpus,
                         .seed = (uint64_t)o->seed,
                         .train = true,
                         .flip = o->flip,
                         .threads = o->threads,
                         .prefetch = PREFETCH,
                         .masks = r->model->targets & BATCH_BIT(BATCH_BITS),
                         .strict = o->strict,
                         .first_step = r->first};
}

static Loader *start_loader(const TrainingRun *r, Engine *engine) {
  Err err;
  LoaderOptions options = loader_options(r);
  options.memory = ring_memory(&engine->train.ring);
  Loader *l = loader_open(&r->train, &options, &err);
  if (!l) die(EXIT_RUN, "%s", err.msg);
  return l;
}

static int64_t steps_per_epoch(const TrainingRun *r) {
  Sampler s;
  SamplerOptions options = {.batch = r->o.batch, .world = r->o.gpus, .seed = (uint64_t)r->o.seed, .train = true};
  sampler_open(&s, r->train.image_canvas, r->train.num_images, r->train.num_canvases, &options);
  int64_t steps = s.steps;
  sampler_close(&s);
  return steps;
}

// False when there are images that cannot be used.
static bool stage_next(TrainingRun *r, Loader *l) {
  const Batch *b = loader_next(l, &r->trouble);
  if (b) engine_stage(&r->engine, b);
  return b;
}

static StepOptions step_options(const TrainingRun *r, int64_t step) {
  return (StepOptions){.learning_rate = (float)schedule_rate(&r->schedule, step),
                       .momentum = r->o.momentum,
                       .weight_decay = r->o.weight_decay,
                       .clip = r->o.clip_grad};
}

// With fp16, gradients that overflow are part of finding the loss scale; the step changed nothing but that.
static bool may_skip(const TrainingRun *r, const StepResult *s) {
  return r->engine.params.shadow_dtype == F16 && isfinite(s->total) && s->loss_scale >= 1;
}

// What steps have left behind so far; with `wait`, all of them.
static void take_results(TrainingRun *r, bool wait) {
  for (StepResult s; engine_result(&r->engine, wait, &s);) {
    int64_t done = r->first + s.step + 1;
    if (!s.finite && !may_skip(r, &s)) stop_not_finite(r, done, &s);
    double rate = schedule_rate(&r->schedule, done - 1);
    log_progress(&r->files.log, &(Progress){.step = done,
                                            .steps = r->steps,
                                            .images = (done - r->first) * r->o.batch,
                                            .loss = s.total,
                                            .learning_rate = rate});
    files_record_step(&r->files, &r->engine, done, rate, &s);
  }
}

// Starts the step with number `step`, from 0, on the staged batch, and stages the next one if there are `more`.
static void make_step(TrainingRun *r, Loader *loader, int64_t step, bool more) {
  StepOptions options = step_options(r, step);
  say_where(r, step + 1);
  engine_start(&r->engine, &options);
  if (more) stage_next(r, loader);
}

static bool told_to_stop(const TrainingRun *r) { return interrupted() || *r->trouble.msg; }

// True when the run is complete, false when it was stopped before. A checkpoint comes before an evaluation, which may
// take long, or fail.
static bool train(TrainingRun *r, Loader *loader) {
  Err err;
  const TrainOptions *o = &r->o;
  const int64_t save_every = o->checkpoint_every ? o->checkpoint_every : MAX(r->per_epoch, 100);
  const bool scored = r->files.log.evaluated >= r->first; // before this call
  if (r->first > 0 && evaluation_due(r, r->first) && !scored) evaluate(r, r->first);
  if (r->first < r->last && !told_to_stop(r)) stage_next(r, loader);
  int64_t done = r->first;
  for (bool stop = told_to_stop(r); done < r->last && !stop;) {
    make_step(r, loader, done, done + 1 < r->last);
    done++;
    stop = told_to_stop(r);
    bool score = evaluation_due(r, done) && !stop, keep = done % save_every == 0 || done == r->last || stop;
    take_results(r, score || keep);
    if (keep) save(r, done);
    if (score && !evaluate(r, done)) {
      stop = true;
      if (!keep) save(r, done);
    }
    expect(r, files_poll(&r->files, &err), &err);
  }
  bool complete = done == r->steps;
  if (complete && r->has_val && !(scored && r->first == done)) complete = evaluate(r, done);
  expect(r, files_settle(&r->files, &err), &err);
  return complete;
}

// What is said at the end, and what stands beside the checkpoint by then: final model, learning curves.
static void finish(TrainingRun *r, bool complete) {
  Err err;
  RunFiles *f = &r->files;
  if (complete) expect(r, files_export(f, &r->engine, r->steps, &err), &err);
  if (!complete && !*r->trouble.msg) log_note(&f->log, "stopped: %s", f->kept);
  int bad = dataset_bad_images(&r->train), bad_val = r->has_val ? dataset_bad_images(&r->val) : 0;
  if (bad || bad_val)
    log_note(&f->log, "bad images: %d of %d in training, replaced; %d in evaluation, left out", bad,
             r->train.num_images + r->train.bad_images, bad_val);
  if (!log_close(&f->log, &err) || !curves_draw(r->o.out, r->engine.model, &err)) die(EXIT_RUN, "%s", err.msg);
  if (*r->trouble.msg) die(err_exit(&r->trouble), "%s; %s", r->trouble.msg, f->kept);
  if (complete) fprintf(stderr, "done: %s, %s/curves.svg\n", f->final, r->o.out);
}

// The loop and what stands around it.
static void run(TrainingRun *r, Loader *loader) {
  Err err;
  if (!files_open(&r->files, r->identity, r->first ? r->first : -1, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (r->first)
    log_note(&r->files.log, "resuming %s at step %lld of %lld", r->o.out, (long long)r->first, (long long)r->steps);
  interrupt_catch();
  finish(r, train(r, loader));
}

// ---- looking inside ---------------------------------------------------------------------------------------------

typedef struct BenchRun {
  TrainingRun *r;
  Loader *loader;
} BenchRun;

static bool bench_step(void *context, int64_t i, bool wait, BenchStep *out, Err *err) {
  const BenchRun *b = context;
  Engine *e = &b->r->engine;
  if (i == 0) stage_next(b->r, b->loader);
  if (!*b->r->trouble.msg) make_step(b->r, b->loader, i, true);
  if (*b->r->trouble.msg) return err_set(err, "%s", b->r->trouble.msg);
  for (StepResult s; engine_result(e, wait, &s);) {
    if (!s.finite && !may_skip(b->r, &s)) stop_not_finite(b->r, s.step + 1, &s);
    out->images += b->r->o.batch;
    out->wait += s.wait_seconds;
    out->transfer += s.transfer_seconds;
    out->update += s.update_seconds;
    for (int k = 0; k < MAX_COUNTERS; k++) out->counter[k] += s.counter[k];
  }
  return true;
}

static void benchmark(TrainingRun *r, Loader *loader, Trace *trace) {
  const TrainOptions *o = &r->o;
  BenchSetting setting = {.bench = "train",
                          .amp = amp_names[o->amp],
                          .conv = o->conv,
                          .tf32 = o->tf32,
                          .full_masks = o->full_masks,
                          .steps = o->benchmark,
                          .profile = o->profile,
                          .trace = trace};
  Err err;
  if (!benchmark_run(&r->engine, &setting, &(Stepper){bench_step, &(BenchRun){r, loader}}, &err))
    die(*r->trouble.msg ? err_exit(&r->trouble) : EXIT_RUN, "%s", err.msg);
}

static void run_loader_benchmark(TrainingRun *r) {
  Err err;
  ModelConfig config = setup_model(&r->o);
  r->model = model_of(&config);
  r->has_val = setup_data(&r->o, &config, &r->train, &r->val);
  dataset_print(&r->train, stderr);
  LoaderOptions options = loader_options(r);
  if (!loader_benchmark(&r->train, &options, r->o.benchmark_loader, &err)) die(EXIT_USAGE, "%s", err.msg);
}

int main(int argc, char **argv) {
  threads_wait_briefly(argv);
  interrupt_by_writing();
  TrainingRun r = {.o = train_options(argc, argv)};
  const TrainOptions *o = &r.o;
  Err err;
  if (o->benchmark_loader) {
    run_loader_benchmark(&r);
    close_run(&r);
    return 0;
  }
  setup_find_data(o);
  files_name(&r.files, o->out);
  if (!o->plan && !o->benchmark && !files_lock(&r.files, &err)) die(EXIT_USAGE, "%s", err.msg);
  open_run(&r);
  if (o->plan) return 0;
  r.per_epoch = steps_per_epoch(&r);
  r.steps = o->iters ? o->iters : o->epochs * r.per_epoch;
  r.schedule = setup_schedule(o, r.steps, r.per_epoch);
  r.identity = setup_identity(o, &r.train, &r.schedule);
  r.first = setup_weights(o, &r.engine, r.files.checkpoint, r.identity);
  Trace *trace = o->trace ? trace_open(o->trace, &err) : NULL;
  if (o->trace && !trace) die(EXIT_USAGE, "--trace: %s", err.msg);
  report(&r);
  r.last = o->stop_after ? MIN(r.steps, r.first + o->stop_after) : r.steps;
  Loader *loader = start_loader(&r, &r.engine);
  if (o->benchmark) {
    benchmark(&r, loader, trace);
  } else {
    engine_time_nodes(&r.engine, o->profile || trace, trace);
    run(&r, loader);
    if (o->profile) benchmark_print_nodes(&r.engine);
  }
  loader_close(loader);
  if (!trace_close(trace, &err)) die(EXIT_RUN, "--trace: %s", err.msg);
  close_run(&r);
  return interrupted() ? EXIT_RUN : 0;
}
