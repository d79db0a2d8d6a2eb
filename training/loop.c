#include "training/loop.h"
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log_read.h"
#include "base/output.h"
#include "training/run_record.h"
#include "training/step_results.h"
#include "training/stopping.h"
#include "training/targets.h"
#include "training/validate.h"

// Cores left for scoring: none on the CPU. With a GPU one core drives it; decoders are mostly idle, so unless their
// number was given they are counted as half of the cores.
static int spare_cores(const TrainingRun *r) {
  int cores = omp_get_num_procs(), decoders = r->o.from.threads == FROM_GIVEN ? r->o.threads : cores / 2;
  return r->engine.dev->gpu ? MAX(cores - decoders - 1, 0) : 0;
}

// Sets the context of messages of unforeseen failures from here on.
static void say_where(TrainingRun *r, int64_t step) {
  r->at = step;
  comm_at(r->comm, step);
  if (run_leads(r))
    die_context("step %lld; %s", (long long)step, r->files.kept);
  else
    die_context("step %lld", (long long)step);
}

static void keep_what_is_being_written(void *run) {
  TrainingRun *r = run;
  files_wait(&r->files);
  say_where(r, r->at);
}

static bool evaluation_due(const TrainingRun *r, int64_t step) {
  return r->val && step < r->steps && r->o.eval_every > 0 && step % r->o.eval_every == 0;
}

// Ends the run if something that runs concurrently with the steps failed.
static void expect(const TrainingRun *r, bool ok, const Err *err) {
  if (!ok) die(EXIT_RUN, "%s; %s", err->msg, r->files.kept);
}

// evaluated: the state is scored next.
static void save(TrainingRun *r, int64_t step, bool evaluated) {
  Err err;
  const double start = now_seconds();
  if (run_leads(r)) expect(r, files_save(&r->files, &r->engine, step, evaluated, &err), &err);
  run_time_add(&r->time, RUN_SAVING, start);
}

// False if a stop was requested.
static bool evaluate(TrainingRun *r, int64_t step) {
  Err err;
  const Task *task = r->engine.model->task;
  double start = now_seconds();
  Metrics losses = {0};
  Params *params = &r->engine.params;
  params_refresh(params); // folded and merged parameters, which steps do not update
  params_exchange_averages(params);
  void *results = NULL;
  if (!r->o.val_loss || validate_run(&r->engine, r->val, r->o.threads, interrupted, &losses, &err))
    results = task->collect(&r->engine, r->val, r->o.threads, interrupted, &err);
  params_exchange_averages(params);
  run_time_add(&r->time, RUN_EVALUATING, start);
  if (results && run_leads(r))
    expect(r, files_score(&r->files, task, r->val, results, spare_cores(r), step, start, &losses, &err), &err);
  else if (results)
    task->release(results);
  else if (*err.msg)
    err_set(&r->trouble, "evaluation: %s", err.msg);
  return results;
}

// False if there are unusable images.
bool train_stage(TrainingRun *r, Loader *l) {
  const Batch *b = loader_next(l, &r->trouble);
  if (b) engine_stage(&r->engine, b);
  return b;
}

static StepOptions step_options(const TrainingRun *r, int64_t step) {
  return (StepOptions){.step = step,
                       .learning_rate = (float)schedule_rate(&r->schedule, step),
                       .momentum = r->o.momentum,
                       .weight_decay = r->o.weight_decay,
                       .clip = r->o.clip_grad,
                       .stop = comm_stop_asked(r->comm),
                       .batchless = *r->trouble.msg};
}

// Updates run.json during the run. A failure to write it does not end the run.
static void write_record(TrainingRun *r, int64_t step) {
  Err err;
  if (run_leads(r) && !run_record_write(r, &(RunStanding){.state = RUN_GOES_ON, .step = step}, &err))
    log_note(&r->files.log, "%s", err.msg);
}

// With `whole` steps done, or under way on a GPU.
static bool stage_next(TrainingRun *r, Loader *loader, int64_t whole) {
  if (!r->stopping) return train_stage(r, loader);
  stopping_wait_begins(r->stopping, whole);
  const bool ok = train_stage(r, loader);
  stopping_wait_ends(r->stopping);
  return ok;
}

// Starts step number `step`, from 0, on the staged batch, and stages the next one if there are `more`.
void train_step(TrainingRun *r, Loader *loader, int64_t step, bool more) {
  StepOptions options = step_options(r, step);
  say_where(r, step + 1);
  engine_start(&r->engine, &options);
  if (more) stage_next(r, loader, step + 1);
}

// Ranks agree to stop within a step; its result says so.
static bool told_to_stop(const TrainingRun *r) { return r->comm ? r->asked : interrupted() || *r->trouble.msg; }

// Waits until what evaluations found is scored and recorded.
static void settle(TrainingRun *r) {
  Err err;
  const double start = now_seconds();
  if (run_leads(r)) expect(r, files_settle(&r->files, &err), &err);
  run_time_add(&r->time, RUN_EVALUATING, start);
}

// Whether there was no improvement for as many evaluations as --patience allows. Waits for scores, so that a run ends
// at the same step on any machine.
static bool out_of_patience(TrainingRun *r) {
  if (!r->o.patience) return false;
  settle(r);
  if (!run_as_first(r, run_leads(r) && r->files.best.without_gain >= r->o.patience)) return false;
  if (run_leads(r))
    log_note(&r->files.log, "stopped early: no improvement in %d evaluations; best weights: best-*.safetensors",
             r->files.best.without_gain);
  return true;
}

// Whether an evaluation has reached the run's targets. Waits for scores, as above.
static bool targets_met(TrainingRun *r) {
  Err err;
  const TimeToTarget *t = &r->targets.time;
  const Targets targets = targets_of(&r->o);
  if (!targets.n) return false;
  settle(r);
  if (run_leads(r)) expect(r, targets_read(&targets, r->o.out, &r->targets, &err), &err);
  if (!run_as_first(r, t->reached)) return false;
  if (run_leads(r))
    log_note(&r->files.log, "stopped early: step %lld reached the targets, %s", (long long)t->step, t->summary);
  return true;
}

static bool ended_by_scores(TrainingRun *r) { return out_of_patience(r) || targets_met(r); }

// Evaluates when a run resumes at a step whose evaluation was due but has no record. False if a stop was requested.
static bool evaluate_again(TrainingRun *r, int64_t step) {
  Err err;
  if (run_leads(r)) expect(r, files_reuse(&r->files, &err), &err);
  return evaluate(r, step);
}

// Between two steps: finishes what has completed concurrently.
static void poll_files(TrainingRun *r) {
  Err err;
  if (run_leads(r)) expect(r, files_poll(&r->files, &err), &err);
}

// The run's result, including scores.
static void report(TrainingRun *r, const RunStanding *s) {
  Err err;
  expect(r, run_record_read(r, s->step, &err) && run_record_write(r, s, &err), &err);
}

static void report_phase(TrainingRun *r, int64_t step) {
  if (!run_leads(r) || step == r->steps || !run_record_phase_ends(r, step)) return;
  settle(r);
  report(r, &(RunStanding){.state = RUN_GOES_ON, .step = step});
}

// A void step has changed fp16's scale, which is restored, and running statistics, which cannot be restored; so the
// state before the step is saved, unless an older checkpoint exists.
static void save_before_void(TrainingRun *r, int64_t done) {
  engine_set_scale(&r->engine, r->scale);
  const bool saved = run_leads(r) && files_last(&r->files) == done;
  if (!saved && !config_batch_norm(&r->engine.config)) save(r, done, false);
}

// Stages the first batch; the run ends before it begins if a rank has none.
static bool stage_first(TrainingRun *r, Loader *loader) {
  if (stage_next(r, loader, r->first)) return true;
  if (r->comm) die(err_exit(&r->trouble), "%s", r->trouble.msg);
  return false;
}

// Called before a step is started: times the parts of some steps.
static void time_parts(TrainingRun *r, int64_t done) {
  if (step_parts_before(&r->step_parts, &r->engine, done - r->first, r->last - r->first)) write_record(r, done);
}

// Makes the steps of this call, and whatever is due between them. A checkpoint comes before an evaluation, which may
// take long, or fail.
static Outcome make_steps(TrainingRun *r, Loader *loader) {
  const TrainSpec *o = &r->o;
  const bool punctual = o->from.checkpoint_every == FROM_GIVEN; // … rather than as soon as the previous one is written
  const bool scored = run_as_first(r, run_leads(r) && r->files.log.evaluated >= r->first); // before this call
  if (r->first > 0 && evaluation_due(r, r->first) && !scored) evaluate_again(r, r->first);
  bool enough = r->first > 0 && ended_by_scores(r), stop = enough || told_to_stop(r);
  if (r->first < r->last && !stop) stop = !stage_first(r, loader);
  run_time_add(&r->time, RUN_STARTING, r->time.began);
  int64_t done = r->first;
  bool due = false; // a checkpoint by default, which is postponed while the previous one is being written
  // a stop requested between two steps takes effect after the next one, which is saved.
  while (done < r->last && !stop) {
    time_parts(r, done);
    train_step(r, loader, done, done + 1 < r->last);
    done++;
    stop = told_to_stop(r);
    const bool score = evaluation_due(r, done) && !stop, last = done == r->steps && r->val;
    due |= done % o->checkpoint_every == 0;
    const bool in_turn = due && (punctual || !files_saving(&r->files));
    const bool keep = in_turn || done == r->last || score || stop;
    if (!results_take(r, r->last, keep, &done)) break;
    if (keep) {
      save(r, done, score || last);
      due = false;
    }
    if (score) stop = !evaluate(r, done) || (enough = ended_by_scores(r));
    if (!stop) report_phase(r, done);
    poll_files(r);
  }
  if (r->is_void) save_before_void(r, done);
  bool complete = !r->diverged && !r->is_void && (done == r->steps || enough);
  if (complete && !enough && r->val && !(scored && r->first == done))
    complete = done > r->first ? evaluate(r, done) : evaluate_again(r, done);
  settle(r);
  r->done = done;
  return r->diverged ? RUN_DIVERGED : complete ? RUN_COMPLETE : RUN_STOPPED;
}

// Adds the bad training images of other ranks on rank 0; for evaluation each exchange includes them.
static void gather_bad_images(TrainingRun *r) {
  const Dataset *d = r->train;
  const int n = d->num_images, world = comm_world(r->comm);
  CommPart *part = xcalloc((size_t)world, sizeof *part);
  char *mine = xmalloc((size_t)n);
  for (int i = 0; i < n; i++) mine[i] = (char)atomic_load(&d->reported[i]);
  const bool gathered = comm_gather_equal(r->comm, mine, (size_t)n, part);
  for (int k = 0; gathered && k < world; k++) {
    for (int i = 0; i < n; i++)
      if (part[k].data[i]) dataset_tell_bad(d, i, NULL, "another process could not read it");
    free(part[k].data);
  }
  free(part);
  free(mine);
}

static void note_bad_images(TrainingRun *r) {
  const char *list = bad_images_path(r->train->bad);
  int bad = dataset_bad_images(r->train), bad_val = r->val ? dataset_bad_images(r->val) : 0;
  if (bad || bad_val)
    log_note(&r->files.log,
             "unreadable images: %d of %d in training (replaced by others), %d in evaluation (left out)%s%s", bad,
             r->train->num_images + r->train->bad_images, bad_val, list ? "; listed in " : "", list ? list : "");
}

static const char *state_of(Outcome outcome) {
  static const char *const states[] = {
      [RUN_COMPLETE] = RUN_IS_COMPLETE, [RUN_STOPPED] = "stopped", [RUN_DIVERGED] = "diverged"};
  return states[outcome];
}

// Reports the end; by then the final model and learning curves are next to the checkpoint.
static void finish(TrainingRun *r, Outcome outcome) {
  Err err;
  RunFiles *f = &r->files;
  const double start = now_seconds();
  if (outcome == RUN_COMPLETE) expect(r, files_export(f, &r->engine, r->done, &err), &err);
  run_time_add(&r->time, RUN_SAVING, start);
  if (outcome == RUN_STOPPED && !*r->trouble.msg && !r->is_void) log_note(&f->log, "stopped: %s", f->kept);
  note_bad_images(r);
  if (!log_close(&f->log, &err)) die(EXIT_RUN, "%s", err.msg);
  char *repair = NULL;
  if (outcome == RUN_DIVERGED) {
    divergence_explain(&r->divergence, f, &r->trouble);
    char *why =
        r->o.on_divergence == DIVERGENCE_ROLLBACK ? divergence_no_roll_back(&r->divergence, r->rollbacks, f) : NULL;
    if (why) {
      const Err said = r->trouble;
      err_set(&r->trouble, "%s; %s", said.msg, why);
      free(why);
    }
    repair = divergence_command(&r->divergence, &r->o, f);
  }
  report(r, &(RunStanding){state_of(outcome), *r->trouble.msg ? r->trouble.msg : NULL, repair, r->done});
  if (repair) {
    const Err said = r->trouble;
    err_set(&r->trouble, "%s; to retry with half the learning rate: %s", said.msg, repair);
    free(repair);
  }
  if (outcome == RUN_COMPLETE && r->val) expect(r, targets_report(r, &err), &err);
  const bool drawn = f->page.draw_page && f->page.draw_page(f->page.context, r->o.out, &err);
  if (f->page.draw_page && !drawn) line_print(stderr, "warning: could not write the run's report: %s", err.msg);
  if (outcome != RUN_COMPLETE) return;
  if (drawn)
    line_print(stderr, "done: %s, %s/report.html", f->final, r->o.out);
  else
    line_print(stderr, "done: %s", f->final);
}

// Ends the run if any rank reports trouble, once the pending state is saved.
static void end_by_trouble(TrainingRun *r) {
  comm_broadcast_text(r->comm, r->files.kept, sizeof r->files.kept);
  if (*r->trouble.msg) die(err_exit(&r->trouble), "%s; %s", r->trouble.msg, r->files.kept);
  comm_barrier(r->comm); // the others end here, together with the rank in trouble
}

// Reports what changes from here on, as text and in the log.
static void record_amendments(TrainingRun *r) {
  const char *changes = record_end(&r->amended);
  // It may be there of a run that was killed before its next checkpoint.
  if (!strcmp(changes, "{}") || amendment_is_logged(r->files.log.path, r->first, changes)) return;
  Record *j = log_begin(&r->files.log, r->first, "amend");
  if (r->rollbacks) record_int(j, "rollback", r->rollbacks);
  record_raw(j, "changes", changes);
  log_commit(&r->files.log);
  log_note(&r->files.log, "amended at step %lld: %s", (long long)r->first, changes);
}

// Records the ranks, to explain the speed of a run later.
static void record_ranks(TrainingRun *r) {
  if (!r->comm) return;
  CollectiveFacts facts;
  collective_facts(r->comm, &facts);
  Record *j = log_begin(&r->files.log, r->first, "ranks");
  record_int(j, "world", comm_world(r->comm));
  record_str(j, "started_by", comm_launch(r->comm)->by);
  record_str(j, "transport", facts.transport);
  record_int(j, "nccl", facts.nccl_version);
  record_int(j, "ctas", facts.ctas);
  record_int(j, "reserve", r->engine.reduction.o.reserve);
  record_num(j, "bucket_mb", r->engine.reduction.o.bucket_mb);
  record_str(j, "reduce", reduce_names[r->engine.reduction.o.type]);
  record_raw(j, "variables", facts.variables);
  log_commit(&r->files.log);
  free(facts.variables);
}

static void open_files(TrainingRun *r) {
  Err err;
  const Task *task = r->val ? r->model->task : NULL;
  if (!files_open(&r->files, r->identity, r->first ? r->first : -1, r->start.resume == RESUME_PREVIOUS, task, &err))
    die(EXIT_USAGE, "%s", err.msg);
  if (r->first)
    log_note(&r->files.log, "resuming %s at step %lld of %lld", r->o.out, (long long)r->first, (long long)r->steps);
  if (r->rollbacks) job_leave(r->job, rollback_note(r->rollbacks, r->start.lr)); // the files have been rolled back
  record_amendments(r);
  record_ranks(r);
  if (!run_record_read(r, r->first, &err)) die(EXIT_USAGE, "%s", err.msg);
  write_record(r, r->first);
  die_first(keep_what_is_being_written, r);
  comm_last(r->comm, keep_what_is_being_written, r);
}

// The loop, its setup and its end.
Outcome train_run(TrainingRun *r, Loader *loader) {
  if (run_leads(r)) open_files(r);
  interrupt_catch();
  Stopping stopping;
  r->stopping = &stopping;
  stopping_begin(&stopping, r);
  const Outcome outcome = make_steps(r, loader);
  die_first(NULL, NULL); // nothing runs concurrently from here on
  comm_last(r->comm, NULL, NULL);
  gather_bad_images(r);
  if (run_leads(r)) finish(r, outcome);
  stopping_end(&stopping);
  r->stopping = NULL;
  if (run_as_first(r, outcome == RUN_STOPPED && (*r->trouble.msg || r->is_void))) end_by_trouble(r);
  return outcome;
}
