// train: flags → data → step loop → log, checkpoint, evaluation.
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/interrupt.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/threads.h"
#include "data/batches/sampler.h"
#include "engine/benchmark.h"
#include "engine/curves.h"
#include "engine/engine.h"
#include "engine/loader_benchmark.h"
#include "engine/scoring.h"
#include "engine/state.h"
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
  char *identity;           // what a resumed run must share
  char *checkpoint, *final; // files of the run
  char kept[512];           // for messages: which checkpoint a failure leaves
  Log log;
  Scoring scoring;
} TrainingRun;

// Shown once nothing can be wrong any more with what was asked for: a mistake gets its one line alone.
static void report(const TrainingRun *r) {
  if (!r->o.benchmark) fprintf(stderr, "configuration:\n%s", r->o.resolved);
  fprintf(stderr, "device: %s\n", r->engine.dev->description);
  dataset_print(&r->train, stderr);
}

// Makes the folder this run's alone and removes what a killed one had not finished.
static void take_folder(const TrainingRun *r) {
  Err err;
  if (!dirs_make(r->o.out, &err) || !folder_lock(r->o.out, &err)) die(EXIT_USAGE, "%s", err.msg);
  static const char *const files[] = {"checkpoint.safetensors", "model.safetensors", "curves.svg"};
  for (int i = 0; i < COUNT(files); i++) {
    char *path = xasprintf("%s/%s", r->o.out, files[i]);
    file_clean(path);
    free(path);
  }
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
  free(r->checkpoint);
  free(r->final);
  free(r->identity);
}

// ---- the loop ---------------------------------------------------------------------------------------------------

// Cores that training leaves to scores: none on the CPU. On a GPU one core drives it; decoders rest most of the time
// unless their number was chosen, and are taken for half of the cores.
static int spare_cores(const TrainingRun *r) {
  int cores = omp_get_num_procs(), decoders = r->o.threads > 0 ? r->o.threads : cores / 2;
  return r->engine.dev->gpu ? MAX(cores - decoders - 1, 0) : 0;
}

static void end_scoring(TrainingRun *r) {
  Err err;
  if (!scoring_end(&r->scoring, &r->log, &err)) die(EXIT_RUN, "evaluation: %s", err.msg);
}

static bool evaluation_due(const TrainingRun *r, int64_t step) {
  return r->has_val && step < r->steps && r->o.eval_every > 0 && step % r->o.eval_every == 0;
}

static void evaluate(TrainingRun *r, int64_t step) {
  Err err;
  const TaskRow *task = task_of(r->engine.model);
  double start = now_seconds();
  end_scoring(r);
  params_refresh(&r->engine.params); // running statistics have moved
  void *results = task->collect(&r->engine, &r->val, r->o.threads, NULL, &err);
  if (!results) die(EXIT_RUN, "evaluation: %s", err.msg);
  scoring_start(&r->scoring, task, &r->val, results, spare_cores(r), &r->log, step, start);
}

// The checkpoint keeps the log up to its step. An evaluation of that very step may still be under way: a run that ends
// before it is done makes it again when it resumes.
static void save(TrainingRun *r, int64_t step) {
  Err err;
  RunState state = {.step = step, .run = r->identity};
  if (r->scoring.step < step) end_scoring(r);
  engine_get_scale(&r->engine, state.scale);
  if (!log_written(&r->log, &err) || fsync(r->log.file) || !state_save(&r->engine, r->checkpoint, &state, true, &err))
    die(EXIT_RUN, "step %lld: the checkpoint could not be written: %s; %s", (long long)step, err.msg, r->kept);
  snprintf(r->kept, sizeof r->kept, "%s holds step %lld, --resume continues", r->checkpoint, (long long)step);
}

static void record_step(TrainingRun *r, int64_t step, double lr, const StepResult *s) {
  const Model *m = r->engine.model;
  Record *j = log_begin(&r->log, step, "train");
  record_num(j, "lr", lr);
  record_num(j, "loss", s->total);
  for (int i = 0; i < model_losses(m); i++) record_num(j, m->loss[i].name, s->loss[i]);
  record_num(j, "grad_norm", s->grad_norm);
  for (int i = 0; i < model_counters(m); i++) record_int(j, m->counter[i], s->counter[i]);
  if (r->engine.params.shadow_dtype == F16) {
    record_num(j, "loss_scale", s->loss_scale);
    record_int(j, "skipped", s->skipped);
  }
  record_num(j, "img_s", r->log.images_per_second);
  record_num(j, "wait", s->wait_seconds);
  record_num(j, "seconds", now_seconds() - r->log.opened);
  log_commit(&r->log);
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
  end_scoring(r);
  log_close(&r->log, &err);
  die(EXIT_RUN,
      "step %lld: not finite (%s, gradient norm %g) on %s; nothing was updated, %s; a smaller --lr, a longer "
      "--warmup or --clip-grad may help",
      (long long)step, losses, s->grad_norm, files, r->kept);
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

static const Batch *next_batch(Loader *l) {
  Err err;
  const Batch *b = loader_next(l, &err);
  if (!b) die(EXIT_USAGE, "%s", err.msg); // images that cannot be used
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
    log_progress(&r->log, &(Progress){.step = done,
                                      .steps = r->steps,
                                      .images = (done - r->first) * r->o.batch,
                                      .loss = s.total,
                                      .learning_rate = rate});
    record_step(r, done, rate, &s);
  }
}

// Starts the step with number `step`, from 0, on the staged batch, and stages the next one if there are `more`.
static void make_step(TrainingRun *r, Loader *loader, int64_t step, bool more) {
  StepOptions options = step_options(r, step);
  die_context("step %lld; %s", (long long)step + 1, r->kept);
  engine_start(&r->engine, &options);
  if (more) engine_stage(&r->engine, next_batch(loader));
  die_context(NULL);
}

// True when the run is complete, false when it was stopped before.
static bool train(TrainingRun *r, Loader *loader) {
  const TrainOptions *o = &r->o;
  int64_t save_every = o->checkpoint_every ? o->checkpoint_every : MAX(r->per_epoch, 100), saved = r->first;
  if (r->first > 0 && evaluation_due(r, r->first) && r->log.evaluated < r->first) evaluate(r, r->first);
  if (r->first < r->last) engine_stage(&r->engine, next_batch(loader));
  bool stop = interrupted();
  for (int64_t step = r->first; step < r->last && !stop; step++) {
    const int64_t done = step + 1;
    make_step(r, loader, step, done < r->last);
    bool score = evaluation_due(r, done);
    stop = interrupted();
    bool keep = done % save_every == 0 || done == r->last || stop;
    take_results(r, score || keep);
    if (score) evaluate(r, done);
    if (scoring_ready(&r->scoring)) end_scoring(r);
    if (keep) {
      save(r, done);
      saved = done;
    }
  }
  end_scoring(r);
  if (saved < r->steps) {
    log_note(&r->log, "stopped: %s", r->kept);
    return false;
  }
  if (r->has_val) evaluate(r, r->steps);
  end_scoring(r);
  return true;
}

// The loop and what stands around it: log, final model, learning curves.
static void run(TrainingRun *r, Loader *loader) {
  Err err;
  if (!log_open(&r->log, r->o.out, r->first ? r->first : -1, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (r->first)
    log_note(&r->log, "resuming %s at step %lld of %lld", r->o.out, (long long)r->first, (long long)r->steps);
  interrupt_catch();
  bool complete = train(r, loader);
  RunState state = {.step = r->steps, .scale = {1}, .run = r->identity};
  if (complete && !state_save(&r->engine, r->final, &state, false, &err)) die(EXIT_RUN, "%s; %s", err.msg, r->kept);
  int bad = dataset_bad_images(&r->train), bad_val = r->has_val ? dataset_bad_images(&r->val) : 0;
  if (bad || bad_val)
    log_note(&r->log, "bad images: %d of %d in training, replaced; %d in evaluation, left out", bad,
             r->train.num_images + r->train.bad_images, bad_val);
  if (!log_close(&r->log, &err) || !curves_draw(r->o.out, r->engine.model, &err)) die(EXIT_RUN, "%s", err.msg);
  if (complete) fprintf(stderr, "done: %s, %s/curves.svg\n", r->final, r->o.out);
}

// ---- looking inside ---------------------------------------------------------------------------------------------

typedef struct BenchRun {
  TrainingRun *r;
  Loader *loader;
} BenchRun;

static bool bench_step(void *context, int64_t i, bool wait, BenchStep *out, Err *err) {
  (void)err; // a failure ends the program
  const BenchRun *b = context;
  Engine *e = &b->r->engine;
  if (i == 0) engine_stage(e, next_batch(b->loader));
  make_step(b->r, b->loader, i, true);
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
    die(EXIT_RUN, "%s", err.msg);
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
  if (!o->plan && !o->benchmark) take_folder(&r);
  open_run(&r);
  if (o->plan) return 0;
  r.checkpoint = xasprintf("%s/checkpoint.safetensors", o->out);
  r.final = xasprintf("%s/model.safetensors", o->out);
  r.per_epoch = steps_per_epoch(&r);
  r.steps = o->iters ? o->iters : o->epochs * r.per_epoch;
  r.schedule = setup_schedule(o, r.steps, r.per_epoch);
  r.identity = setup_identity(o, &r.train, &r.schedule);
  r.first = setup_weights(o, &r.engine, r.checkpoint, r.identity);
  if (r.first)
    snprintf(r.kept, sizeof r.kept, "%s holds step %lld, --resume continues", r.checkpoint, (long long)r.first);
  else
    snprintf(r.kept, sizeof r.kept, "no checkpoint yet");
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
