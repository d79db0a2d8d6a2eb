#include "training/sessions.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/output.h"
#include "base/wrap.h"
#include "data/batches/detection_limit.h"
#include "data/batches/repeat.h"
#include "engine/benchmark.h"
#include "engine/identity.h"
#include "training/anchors.h"
#include "training/data.h"
#include "training/identity.h"
#include "training/loading.h"
#include "training/loop.h"
#include "training/range.h"
#include "training/settings.h"
#include "training/setup.h"
#include "training/spec.h"
#include "training/start.h"
#include "training/step_benchmark.h"

// ---- set-up ---------------------------------------------------------------------------------------------------------

// The training data and, if there are any, the evaluation data: opened once, before ranks start.
typedef struct TrainingData {
  double began; // when the program did
  Dataset train, val;
  bool has_val;
  TrainExamined examined;
  char range[SAMPLE_RANGE_TEXT]; // of 16-bit images, if it was not given
} TrainingData;

static void open_data(TrainSpec *o, const Job *job, TrainingData *d) {
  d->has_val = train_open_data(o, &o->config, &d->train, &d->val);
  o->val_share = d->has_val ? (double)d->val.num_images / d->train.num_images : 0;
  train_fit_anchors(o, &d->train);
  if (o->repeat_threshold > 0) repeat_images(&d->train, float_decimal(o->repeat_threshold));
  if (!o->benchmark && !o->benchmark_loader)
    train_choose_range(o, job, &d->train, d->has_val ? &d->val : NULL, d->range);
  if (!o->plan && !o->benchmark && !o->benchmark_loader)
    train_examine(o, &d->train, d->has_val ? &d->val : NULL, &d->examined);
}

static void close_data(TrainingData *d) {
  train_examined_free(&d->examined);
  dataset_close(&d->train);
  if (d->has_val) dataset_close(&d->val);
}

// "ranks: 8, of 2 hosts; NCCL 2.28.9, 16 CTAs"
static void print_ranks(Comm *c) {
  CollectiveFacts facts;
  int hosts = 1;
  if (!c) return;
  for (int i = 1; i < comm_world(c); i++) hosts += strcmp(comm_host(c, i), comm_host(c, i - 1)) != 0;
  collective_facts(c, &facts);
  fprintf(stderr, "ranks: %d", comm_world(c));
  if (hosts > 1) fprintf(stderr, " on %d hosts", hosts);
  const int v = facts.nccl_version;
  if (v)
    fprintf(stderr, "; NCCL %d.%d.%d, %d CTAs at most\n", v / 10000, v / 100 % 100, v % 100, facts.ctas);
  else
    fprintf(stderr, "; over TCP (slow, for tests)\n");
  free(facts.variables);
}

// Notes images with as many objects as the limit on detections.
static void say_limit(const TrainingRun *r, const Dataset *d, const char *split) {
  if (!(model_of(&r->o.config)->traits & MODEL_DETECTOR)) return;
  char *text = detection_limit_data(d, r->o.config.detections);
  if (text) line_print(stderr, "%s: %s", split, text);
  free(text);
}

// Prints what the run will do; called once all options are checked, so that a mistake prints only its one line.
static void report(const TrainingRun *r) {
  if (!run_leads(r)) return;
  if (!r->o.benchmark && !r->rollbacks) settings_print_given(&r->o, wrap_columns(stderr), stderr);
  device_print(r->engine.dev, stderr);
  memory_print_sums(&r->engine.memory, r->engine.dev, stderr);
  print_ranks(r->comm);
  dataset_print(r->train, stderr);
  if (r->val) dataset_print_notes(r->val, stderr);
  if (r->examined->n && !r->rollbacks) train_examined_report(&r->o, r->examined, r->train, r->val);
  say_limit(r, r->train, r->o.train_split);
  if (r->val) say_limit(r, r->val, r->o.val_split);
}

static void open_engine(TrainingRun *r) {
  r->model = model_of(&r->o.config);
  const double start = now_seconds();
  setup_engine(&r->o, r->comm, r->train, r->val, &r->engine);
  r->build_seconds = now_seconds() - start;
}

static void close_run(TrainingRun *r) {
  engine_close(&r->engine);
  files_free(&r->files);
  free(r->identity);
  free(r->trained_on);
  free(r->held_out);
  record_free(&r->amended);
  record_free(&r->results);
}

// ---- one session ----------------------------------------------------------------------------------------------------

static void plan_steps(TrainingRun *r) {
  const TrainSpec *o = &r->o;
  r->per_epoch = o->per_epoch;
  r->steps = o->iters;
  r->schedule = setup_schedule(o, o->rate);
  r->files.warmup = r->schedule.warmup;
  r->identity = run_identity(o, r->train, &r->schedule);
}

// Logs the rate change of a rollback to the beginning, which no checkpoint records.
static void amend_beginning(TrainingRun *r) {
  char was[NUMBER_TEXT], is[NUMBER_TEXT];
  number_text(r->left, was);
  number_text(r->schedule.base, is);
  char *both = xasprintf("[%s,%s]", was, is);
  record_raw(&r->amended, "lr", both);
  free(both);
}

// Checks that ranks train the same model on the same data.
static void agree(const TrainingRun *r) {
  Err err;
  if (comm_alone(r->comm)) return;
  char *text = run_agreement(r->identity, &r->engine.config, r->train, r->val);
  if (!comm_agree(r->comm, text, identity_agrees, &err)) die(EXIT_USAGE, "%s", err.msg);
  free(text);
}

// Opens rank 0's files, and copies its weights to every rank.
static void begin(TrainingRun *r) {
  const TrainSpec *o = &r->o;
  record_begin(&r->amended);
  agree(r);
  if (run_leads(r)) {
    r->first = start_weights(o, &r->start, &r->engine, r->train, &r->files, r->identity, &r->trained_on, &r->amended);
    r->files.trained_on = r->trained_on;
    r->files.held_out = r->held_out = r->train->holdout ? holdout_text(r->train->holdout) : NULL;
  }
  if (r->rollbacks && !r->first) amend_beginning(r);
  if (r->first > r->steps)
    die(EXIT_USAGE, "%s is already at step %lld, past the %lld steps of this run: increase --epochs or --iters", o->out,
        (long long)r->first, (long long)r->steps);
  comm_broadcast_bytes(r->comm, &r->first, sizeof r->first);
  engine_share_state(&r->engine);
  engine_get_scale(&r->engine, r->scale);
  r->last = o->stop_after ? MIN(r->steps, r->first + o->stop_after) : r->steps;
}

// From opened data to the end of the loop. Details of a divergence are in `divergence` and `trouble`.
static Outcome session(TrainingRun *r) {
  const TrainSpec *o = &r->o;
  Outcome outcome = RUN_COMPLETE;
  Err err;
  files_name(&r->files, o->out);
  r->files.keep = o->keep;
  r->files.least_score = float_decimal(o->report_score);
  r->files.page = r->page;
  if (o->plan && run_leads(r)) {
    printf("settings:\n");
    settings_print(o, true, stdout);
  }
  open_engine(r);
  if (o->plan) return outcome;
  plan_steps(r);
  begin(r);
  const bool traces = o->trace && run_leads(r);
  Trace *trace = traces ? trace_open(o->trace, &err) : NULL;
  if (traces && !trace) die(EXIT_USAGE, "--trace: %s", err.msg);
  report(r);
  Loader *loader = run_loader(r);
  if (o->benchmark) {
    benchmark_steps(r, loader, trace);
  } else {
    engine_time_nodes(&r->engine, o->profile || trace, trace);
    outcome = train_run(r, loader);
    if (o->profile && run_leads(r)) benchmark_print_nodes(&r->engine);
  }
  loader_close(loader);
  if (!trace_close(trace, &err)) die(EXIT_RUN, "--trace: %s", err.msg);
  return outcome;
}

// ---- one after another ----------------------------------------------------------------------------------------------

// Locks the folder until the program ends.
static void take_folder(const TrainSpec *o) {
  Err err;
  RunFiles f = {0};
  files_name(&f, o->out);
  if (!files_lock(&f, o->resume, o->force, &err)) die(EXIT_USAGE, "%s", err.msg);
  files_free(&f);
}

// Whether a session that diverged is followed by another with half the rate, which depends on rank 0's files; then sets
// how it starts.
static bool roll_back(const TrainingRun *r, SessionStart *start) {
  SessionStart next = {0};
  if (r->o.on_divergence != DIVERGENCE_ROLLBACK || r->rollbacks == MAX_ROLLBACKS) return false;
  const bool again = run_as_first(r, run_leads(r) && divergence_roll_back(&r->divergence, &r->files, &next));
  comm_broadcast_bytes(r->comm, &next.resume, sizeof next.resume); // by members: padding is not sent
  comm_broadcast_bytes(r->comm, &next.amend, sizeof next.amend);
  comm_broadcast_bytes(r->comm, &next.lr, sizeof next.lr);
  if (again) *start = next;
  return again;
}

// After a restart: continues with the last attempt's rate, even if the checkpoint is older than that.
static void go_on_rolled_back(const Job *job, SessionStart *start, int *rollbacks, double *left) {
  rollback_of_note(job->left, rollbacks, &start->lr);
  *left = 2 * float_decimal(start->lr);
  start->amend = true;
}

// Ends without naming a rank: losses are means over ranks, so the cause is not a single rank.
static NORETURN void end_by_divergence(TrainingRun *r) {
  if (run_leads(r)) job_over(r->job);
  comm_broadcast_text(r->comm, r->trouble.msg, sizeof r->trouble.msg);
  comm_all_know(r->comm);
  die(EXIT_RUN, "%s", r->trouble.msg);
}

// A session's identity: after a rollback the rate differs, and the run's record says so.
static TrainSpec session_spec(const TrainSpec *o, const SessionStart *start) {
  TrainSpec of = *o;
  if (start->lr > 0) {
    of.lr = start->lr;
    of.rate = float_decimal(start->lr);
  }
  return of;
}

// Runs sessions; after one that diverges the next has half the rate, if --on-divergence says so.
static void train_all(const TrainSpec *o, Job *job, TrainingData *data, DrawFolder page) {
  SessionStart start = {.resume = job->attempt ? RESUME_LAST : o->resume, .amend = o->amend};
  double left = 0;
  int rollbacks = 0;
  if (job->left) go_on_rolled_back(job, &start, &rollbacks, &left);
  for (;; rollbacks++) {
    TrainingRun r = {.o = session_spec(o, &start),
                     .start = start,
                     .page = page,
                     .job = job,
                     .comm = job->comm,
                     .train = &data->train,
                     .val = data->has_val ? &data->val : NULL,
                     .examined = &data->examined,
                     .rollbacks = rollbacks,
                     .time = {.began = rollbacks ? now_seconds() : data->began},
                     .left = left};
    const Outcome outcome = session(&r);
    const bool again = outcome == RUN_DIVERGED && roll_back(&r, &start);
    if (outcome == RUN_DIVERGED && !again) end_by_divergence(&r);
    if (again && run_leads(&r))
      fprintf(stderr, "%s\nrolling back, %d of %d\n", r.trouble.msg, rollbacks + 1, MAX_ROLLBACKS);
    left = r.schedule.base;
    close_run(&r);
    if (!again) return;
  }
}

static void keep_text(void *spec, char *text, size_t room) {
  const TrainSpec *o = spec;
  RunFiles f = {0};
  files_name(&f, o->out);
  files_describe(&f, text, room);
  files_free(&f);
}

bool sessions_run(const TrainSpec *o, DrawFolder page) {
  Err err;
  Job job;
  TrainingData data = {.began = now_seconds()};
  const JobOptions options = {.gpus = o->gpus,
                              .device = o->device,
                              .rendezvous = o->rendezvous,
                              .timeout = o->timeout,
                              .rendezvous_timeout = o->rendezvous_timeout,
                              .restarts = o->restarts,
                              .kept = keep_text,
                              .context = (void *)o};
  job_begin(&job, &options);
  char *settings = settings_text(o);
  if (!comm_agree(job.comm, settings, settings_same, &err)) die(EXIT_USAGE, "%s", err.msg);
  free(settings);
  train_find_data(o, &o->config);
  if (!o->plan && !o->benchmark && job.launch.rank == 0) take_folder(o);
  comm_barrier(job.comm); // wait until the folder exists
  TrainSpec opened = *o;
  open_data(&opened, &job, &data);
  if (!o->plan) job_start(&job, &options);
  const int ranks = job.comm ? job.launch.world : job.ranks;
  TrainSpec spec = train_spec_complete(&opened, ranks, run_steps_per_epoch(o, ranks, &data.train));
  spec.device = job.device;
  train_all(&spec, &job, &data, page);
  close_data(&data);
  bool stopped = interrupted() || comm_stop_asked(job.comm);
  comm_broadcast_bytes(job.comm, &stopped, sizeof stopped);
  if (stopped) job_stopped(&job);
  job_end(&job);
  return stopped;
}
