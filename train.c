// train: flags → data → step loop → log, checkpoint, evaluation.
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "base/interrupt.h"
#include "base/output.h"
#include "base/threads.h"
#include "data/batches/sampler.h"
#include "engine/benchmark.h"
#include "engine/curves.h"
#include "engine/divergence.h"
#include "engine/engine.h"
#include "engine/loader_benchmark.h"
#include "engine/run_files.h"
#include "engine/train_options.h"
#include "engine/train_setup.h"
#include "engine/train_start.h"
#include "engine/validate.h"
#include "nn/optim.h"

// ---- set-up -----------------------------------------------------------------------------------------------------

typedef struct TrainingRun {
  TrainOptions o; // its texts are main's
  int rollbacks;  // before this session
  double left;    // the rate of the session before, which diverged
  const Model *model;
  Engine engine;
  Dataset train, val;
  bool has_val;
  int64_t steps, first, last, per_epoch; // of the whole run; of this call
  int64_t done;                          // when the loop ended
  Schedule schedule;
  char *identity; // what a resumed run must share
  Record amended; // what --amend changed of it
  RunFiles files;
  int64_t at;  // the step under way, for messages
  Err trouble; // what ends the run once its state is saved, such as images that cannot be read; "" = nothing
  bool diverged;
  Divergence divergence;
} TrainingRun;

typedef enum Outcome { RUN_COMPLETE, RUN_STOPPED, RUN_DIVERGED } Outcome;

enum { MAX_ROLLBACKS = 3 };

// Shown once nothing can be wrong any more with what was asked for: a mistake gets its one line alone.
static void report(const TrainingRun *r) {
  if (!r->o.benchmark && !r->rollbacks) fprintf(stderr, "configuration:\n%s", r->o.resolved);
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
  files_free(&r->files);
  free(r->identity);
  record_free(&r->amended);
}

// ---- the loop ---------------------------------------------------------------------------------------------------

// Cores that training leaves to scores: none on the CPU. On a GPU one core drives it; decoders rest most of the time
// unless their number was chosen, and are taken for half of the cores.
static int spare_cores(const TrainingRun *r) {
  int cores = omp_get_num_procs(), decoders = r->o.threads > 0 ? r->o.threads : cores / 2;
  return r->engine.dev->gpu ? MAX(cores - decoders - 1, 0) : 0;
}

// For failures from here on that nobody can foresee.
static void say_where(TrainingRun *r, int64_t step) {
  r->at = step;
  die_context("step %lld; %s", (long long)step, r->files.kept);
}

static void keep_what_is_being_written(void *run) {
  TrainingRun *r = run;
  files_wait(&r->files);
  say_where(r, r->at);
}

static bool evaluation_due(const TrainingRun *r, int64_t step) {
  return r->has_val && step < r->steps && r->o.eval_every > 0 && step % r->o.eval_every == 0;
}

// A failure of what goes on beside the steps.
static void expect(const TrainingRun *r, bool ok, const Err *err) {
  if (!ok) die(EXIT_RUN, "%s; %s", err->msg, r->files.kept);
}

// evaluated: the state is scored next.
static void save(TrainingRun *r, int64_t step, bool evaluated) {
  Err err;
  expect(r, files_save(&r->files, &r->engine, step, evaluated, &err), &err);
}

// False when it was told to stop.
static bool evaluate(TrainingRun *r, int64_t step) {
  Err err;
  const TaskRow *task = task_of(r->engine.model);
  double start = now_seconds();
  Metrics losses = {0};
  params_refresh(&r->engine.params); // running statistics have moved
  void *results = NULL;
  if (!r->o.val_loss || validate_run(&r->engine, &r->val, r->o.threads, interrupted, &losses, &err))
    results = task->collect(&r->engine, &r->val, r->o.threads, interrupted, &err);
  if (results)
    expect(r, files_score(&r->files, task, &r->val, results, spare_cores(r), step, start, &losses, &err), &err);
  else if (*err.msg)
    err_set(&r->trouble, "evaluation: %s", err.msg);
  return results;
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

// Whether a step, counted from 1, went wrong for good; then the run ends.
static bool diverged(TrainingRun *r, int64_t step, const StepResult *s) {
  if (s->finite || may_skip(r, s)) return false;
  r->diverged = true;
  divergence_take(&r->divergence, r->model, &r->train, r->o.batch, step, r->schedule.base, s);
  return true;
}

// What steps have left behind so far; with `wait`, all of them. False when one diverged.
static bool take_results(TrainingRun *r, bool wait) {
  for (StepResult s; engine_result(&r->engine, wait, &s);) {
    int64_t done = r->first + s.step + 1;
    if (diverged(r, done, &s)) return false;
    double rate = schedule_rate(&r->schedule, done - 1);
    log_progress(&r->files.log, &(Progress){.step = done,
                                            .steps = r->steps,
                                            .images = (done - r->first) * r->o.batch,
                                            .loss = s.total,
                                            .learning_rate = rate});
    files_record_step(&r->files, &r->engine, done, rate, &s);
  }
  return true;
}

// Starts the step with number `step`, from 0, on the staged batch, and stages the next one if there are `more`.
static void make_step(TrainingRun *r, Loader *loader, int64_t step, bool more) {
  StepOptions options = step_options(r, step);
  say_where(r, step + 1);
  engine_start(&r->engine, &options);
  if (more) stage_next(r, loader);
}

static bool told_to_stop(const TrainingRun *r) { return interrupted() || *r->trouble.msg; }

// Whether evaluations have been without a gain for as long as --patience allows. Scores are waited for, so that a run
// ends at the same step whatever the machine.
static bool out_of_patience(TrainingRun *r) {
  Err err;
  if (!r->o.patience) return false;
  expect(r, files_settle(&r->files, &err), &err);
  if (r->files.best.without_gain < r->o.patience) return false;
  log_note(&r->files.log, "ended: %d evaluations without a gain; the best are kept as best-*.safetensors",
           r->files.best.without_gain);
  return true;
}

// Of a run that goes on where an evaluation fell due that no record tells of. False when it was told to stop.
static bool evaluate_again(TrainingRun *r, int64_t step) {
  Err err;
  expect(r, files_reuse(&r->files, &err), &err);
  return evaluate(r, step);
}

// The steps of this call, with what falls due between them. A checkpoint comes before an evaluation, which may take
// long, or fail.
static Outcome train(TrainingRun *r, Loader *loader) {
  Err err;
  const TrainOptions *o = &r->o;
  const int64_t save_every = o->checkpoint_every ? o->checkpoint_every : MAX(r->per_epoch, 100);
  const bool scored = r->files.log.evaluated >= r->first; // before this call
  if (r->first > 0 && evaluation_due(r, r->first) && !scored) evaluate_again(r, r->first);
  bool enough = r->first > 0 && out_of_patience(r), stop = enough || told_to_stop(r);
  if (r->first < r->last && !stop) stop = !stage_next(r, loader);
  int64_t done = r->first;
  while (done < r->last && !stop) { // told to stop between two steps, it ends after the next one, which is saved
    make_step(r, loader, done, done + 1 < r->last);
    done++;
    stop = told_to_stop(r);
    const bool score = evaluation_due(r, done) && !stop, last = done == r->steps && r->has_val;
    const bool keep = done % save_every == 0 || done == r->last || score || stop;
    if (!take_results(r, keep)) break;
    if (keep) save(r, done, score || last);
    if (score) stop = !evaluate(r, done) || (enough = out_of_patience(r));
    expect(r, files_poll(&r->files, &err), &err);
  }
  bool complete = !r->diverged && (done == r->steps || enough);
  if (complete && !enough && r->has_val && !(scored && r->first == done))
    complete = done > r->first ? evaluate(r, done) : evaluate_again(r, done);
  expect(r, files_settle(&r->files, &err), &err);
  r->done = done;
  return r->diverged ? RUN_DIVERGED : complete ? RUN_COMPLETE : RUN_STOPPED;
}

static void note_bad_images(TrainingRun *r) {
  int bad = dataset_bad_images(&r->train), bad_val = r->has_val ? dataset_bad_images(&r->val) : 0;
  if (bad || bad_val)
    log_note(&r->files.log, "bad images: %d of %d in training, replaced; %d in evaluation, left out", bad,
             r->train.num_images + r->train.bad_images, bad_val);
}

// What is said at the end, and what stands beside the checkpoint by then: final model, learning curves.
static void finish(TrainingRun *r, Outcome outcome) {
  Err err;
  RunFiles *f = &r->files;
  if (outcome == RUN_COMPLETE) expect(r, files_export(f, &r->engine, r->done, &err), &err);
  if (outcome == RUN_STOPPED && !*r->trouble.msg) log_note(&f->log, "stopped: %s", f->kept);
  note_bad_images(r);
  if (!log_close(&f->log, &err) || !curves_draw(r->o.out, r->engine.model, &err)) die(EXIT_RUN, "%s", err.msg);
  if (outcome == RUN_DIVERGED) divergence_explain(&r->divergence, &r->o, f, &r->trouble);
  if (outcome == RUN_STOPPED && *r->trouble.msg) die(err_exit(&r->trouble), "%s; %s", r->trouble.msg, f->kept);
  if (outcome == RUN_COMPLETE) line_print(stderr, "done: %s, %s/curves.svg", f->final, r->o.out);
}

// What is different from here on, for people and in the log.
static void record_amendments(TrainingRun *r) {
  const char *changes = record_end(&r->amended);
  if (!strcmp(changes, "{}")) return;
  Record *j = log_begin(&r->files.log, r->first, "amend");
  if (r->rollbacks) record_int(j, "rollback", r->rollbacks);
  record_raw(j, "changes", changes);
  log_commit(&r->files.log);
  log_note(&r->files.log, "amended at step %lld: %s", (long long)r->first, changes);
}

// The loop and what stands around it.
static Outcome run(TrainingRun *r, Loader *loader) {
  Err err;
  const TaskRow *task = r->has_val ? task_of(r->model) : NULL;
  if (!files_open(&r->files, r->identity, r->first ? r->first : -1, r->o.resume == RESUME_PREVIOUS, task, &err))
    die(EXIT_USAGE, "%s", err.msg);
  if (r->first)
    log_note(&r->files.log, "resuming %s at step %lld of %lld", r->o.out, (long long)r->first, (long long)r->steps);
  record_amendments(r);
  interrupt_catch();
  die_first(keep_what_is_being_written, r);
  const Outcome outcome = train(r, loader);
  die_first(NULL, NULL); // nothing goes on beside it from here
  finish(r, outcome);
  return outcome;
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
    if (diverged(b->r, s.step + 1, &s))
      return err_set(err, "step %lld: not finite (%s)", (long long)s.step + 1, b->r->divergence.losses);
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

// ---- one session, and the program -----------------------------------------------------------------------------------

static void plan_steps(TrainingRun *r) {
  const TrainOptions *o = &r->o;
  r->per_epoch = steps_per_epoch(r);
  r->steps = o->iters ? o->iters : o->epochs * r->per_epoch;
  r->schedule = setup_schedule(o, r->steps, r->per_epoch);
  r->identity = setup_identity(o, &r->train, &r->schedule);
}

// A rollback to the beginning leaves no checkpoint to tell what has changed.
static void amend_beginning(TrainingRun *r) {
  char was[NUMBER_TEXT], is[NUMBER_TEXT];
  number_text(r->left, was);
  number_text(r->schedule.base, is);
  char *both = xasprintf("[%s,%s]", was, is);
  record_raw(&r->amended, "lr", both);
  free(both);
}

static void begin(TrainingRun *r) {
  const TrainOptions *o = &r->o;
  record_begin(&r->amended);
  r->first = start_weights(o, &r->engine, &r->files, r->identity, &r->amended);
  if (r->rollbacks && !r->first) amend_beginning(r);
  if (r->first > r->steps)
    die(EXIT_USAGE, "%s stands at step %lld already, past the %lld of this run: give more --epochs or --iters", o->out,
        (long long)r->first, (long long)r->steps);
  r->last = o->stop_after ? MIN(r->steps, r->first + o->stop_after) : r->steps;
}

// From opened data to closed files. What it leaves of a divergence is in `divergence` and `found`.
static Outcome session(TrainingRun *r) {
  const TrainOptions *o = &r->o;
  Outcome outcome = RUN_COMPLETE;
  Err err;
  files_name(&r->files, o->out);
  r->files.keep = o->keep;
  open_run(r);
  if (o->plan) return outcome;
  plan_steps(r);
  begin(r);
  Trace *trace = o->trace ? trace_open(o->trace, &err) : NULL;
  if (o->trace && !trace) die(EXIT_USAGE, "--trace: %s", err.msg);
  report(r);
  Loader *loader = start_loader(r, &r->engine);
  if (o->benchmark) {
    benchmark(r, loader, trace);
  } else {
    engine_time_nodes(&r->engine, o->profile || trace, trace);
    outcome = run(r, loader);
    if (o->profile) benchmark_print_nodes(&r->engine);
  }
  loader_close(loader);
  if (!trace_close(trace, &err)) die(EXIT_RUN, "--trace: %s", err.msg);
  return outcome;
}

// The folder is this program's until it ends.
static void take_folder(const TrainOptions *o) {
  Err err;
  RunFiles f = {0};
  files_name(&f, o->out);
  if (!files_lock(&f, &err)) die(EXIT_USAGE, "%s", err.msg);
  files_free(&f);
}

// Sessions, of which each that diverges is followed by one with half the rate, where --on-divergence says so.
static void train_all(TrainOptions *o) {
  double left = 0;
  for (int rollbacks = 0;; rollbacks++) {
    TrainingRun r = {.o = *o, .rollbacks = rollbacks, .left = left};
    const Outcome outcome = session(&r);
    const bool again = outcome == RUN_DIVERGED && o->on_divergence == DIVERGENCE_ROLLBACK &&
                       rollbacks < MAX_ROLLBACKS && divergence_roll_back(&r.divergence, o, &r.files);
    if (outcome == RUN_DIVERGED && !again) die(EXIT_RUN, "%s", r.trouble.msg);
    if (again) fprintf(stderr, "%s\nrolling back, %d of %d\n", r.trouble.msg, rollbacks + 1, MAX_ROLLBACKS);
    left = r.schedule.base;
    close_run(&r);
    if (!again) return;
  }
}

int main(int argc, char **argv) {
  threads_wait_briefly(argv);
  interrupt_by_writing();
  TrainOptions o = train_options(argc, argv);
  if (o.benchmark_loader) {
    TrainingRun r = {.o = o};
    run_loader_benchmark(&r);
    close_run(&r);
  } else {
    setup_find_data(&o);
    if (!o.plan && !o.benchmark) take_folder(&o);
    train_all(&o);
  }
  train_options_free(&o);
  stdout_close();
  return interrupted() ? EXIT_RUN : 0;
}
