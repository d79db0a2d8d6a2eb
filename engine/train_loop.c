#include "engine/train_loop.h"
#include <math.h>
#include <omp.h>
#include <string.h>
#include "base/interrupt.h"
#include "base/output.h"
#include "engine/curves.h"
#include "engine/validate.h"

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

// False when there are images that cannot be used.
bool train_stage(TrainingRun *r, Loader *l) {
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
bool train_diverged(TrainingRun *r, int64_t step, const StepResult *s) {
  if (s->finite || may_skip(r, s)) return false;
  r->diverged = true;
  divergence_take(&r->divergence, r->model, &r->train, r->o.batch, step, r->schedule.base, s);
  return true;
}

// What steps have left behind so far; with `wait`, all of them. False when one diverged.
static bool take_results(TrainingRun *r, bool wait) {
  for (StepResult s; engine_result(&r->engine, wait, &s);) {
    int64_t done = r->first + s.step + 1;
    if (train_diverged(r, done, &s)) return false;
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
void train_step(TrainingRun *r, Loader *loader, int64_t step, bool more) {
  StepOptions options = step_options(r, step);
  say_where(r, step + 1);
  engine_start(&r->engine, &options);
  if (more) train_stage(r, loader);
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
static Outcome make_steps(TrainingRun *r, Loader *loader) {
  Err err;
  const TrainOptions *o = &r->o;
  const int64_t save_every = o->checkpoint_every ? o->checkpoint_every : MAX(r->per_epoch, 100);
  const bool scored = r->files.log.evaluated >= r->first; // before this call
  if (r->first > 0 && evaluation_due(r, r->first) && !scored) evaluate_again(r, r->first);
  bool enough = r->first > 0 && out_of_patience(r), stop = enough || told_to_stop(r);
  if (r->first < r->last && !stop) stop = !train_stage(r, loader);
  int64_t done = r->first;
  while (done < r->last && !stop) { // told to stop between two steps, it ends after the next one, which is saved
    train_step(r, loader, done, done + 1 < r->last);
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
Outcome train_run(TrainingRun *r, Loader *loader) {
  Err err;
  const TaskRow *task = r->has_val ? task_of(r->model) : NULL;
  if (!files_open(&r->files, r->identity, r->first ? r->first : -1, r->o.resume == RESUME_PREVIOUS, task, &err))
    die(EXIT_USAGE, "%s", err.msg);
  if (r->first)
    log_note(&r->files.log, "resuming %s at step %lld of %lld", r->o.out, (long long)r->first, (long long)r->steps);
  record_amendments(r);
  interrupt_catch();
  die_first(keep_what_is_being_written, r);
  const Outcome outcome = make_steps(r, loader);
  die_first(NULL, NULL); // nothing goes on beside it from here
  finish(r, outcome);
  return outcome;
}
