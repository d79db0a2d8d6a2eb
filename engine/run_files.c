#include "engine/run_files.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/lock.h"

static const double PATIENCE = 30; // seconds, for a disk that is full

// ---- the folder -------------------------------------------------------------------------------------------------

void files_name(RunFiles *f, const char *folder) {
  f->folder = folder;
  f->checkpoint = xasprintf("%s/checkpoint.safetensors", folder);
  f->previous = xasprintf("%s/checkpoint-previous.safetensors", folder);
  f->final = xasprintf("%s/model.safetensors", folder);
  snprintf(f->kept, sizeof f->kept, "no checkpoint yet");
}

void files_free(RunFiles *f) {
  free(f->checkpoint);
  free(f->previous);
  free(f->final);
}

bool files_lock(const RunFiles *f, Err *err) {
  if (!dirs_make(f->folder, err) || !folder_lock(f->folder, err)) return false;
  char *curves = xasprintf("%s/curves.svg", f->folder);
  const char *all[] = {f->checkpoint, f->previous, f->final, curves};
  for (int i = 0; i < COUNT(all); i++) file_clean(all[i]);
  free(curves);
  return true;
}

static void set_kept(RunFiles *f, int64_t step) {
  snprintf(f->kept, sizeof f->kept, "%s holds step %lld, --resume continues", f->checkpoint, (long long)step);
}

bool files_open(RunFiles *f, const char *run, int64_t first, Err *err) {
  f->run = run;
  if (first >= 0) set_kept(f, first);
  return log_open(&f->log, f->folder, first, err);
}

// ---- the log ----------------------------------------------------------------------------------------------------

void files_record_step(RunFiles *f, const Engine *e, int64_t step, double rate, const StepResult *s) {
  const Model *m = e->model;
  Record *j = log_begin(&f->log, step, "train");
  record_num(j, "lr", rate);
  record_num(j, "loss", s->total);
  for (int i = 0; i < model_losses(m); i++) record_num(j, m->loss[i].name, s->loss[i]);
  record_num(j, "grad_norm", s->grad_norm);
  for (int i = 0; i < model_counters(m); i++) record_int(j, m->counter[i], s->counter[i]);
  if (e->params.shadow_dtype == F16) {
    record_num(j, "loss_scale", s->loss_scale);
    record_int(j, "skipped", s->skipped);
  }
  record_num(j, "img_s", f->log.images_per_second);
  record_num(j, "wait", s->wait_seconds);
  record_num(j, "seconds", now_seconds() - f->log.opened);
  log_commit(&f->log);
}

static bool end_scoring(RunFiles *f, Err *err) {
  Err why;
  return scoring_end(&f->scoring, &f->log, &why) || err_set(err, "evaluation: %s", why.msg);
}

bool files_score(RunFiles *f, const TaskRow *task, const Dataset *d, void *results, int cores, int64_t step,
                 double start, Err *err) {
  bool ok = end_scoring(f, err);
  if (ok)
    scoring_start(&f->scoring, task, d, results, cores, &f->log, step, start);
  else
    task->release(results);
  return ok;
}

// ---- checkpoints ------------------------------------------------------------------------------------------------

static bool explain(const RunFiles *f, const Err *why, Err *err) {
  return err_set(err, "step %lld: the checkpoint could not be written: %s", (long long)f->saver.state.step, why->msg);
}

// Whether the log has all records that come before those of later steps. An evaluation of the very same step may still
// be under way: a run that ends before it is done makes it again when it resumes.
static bool log_complete(const RunFiles *f) { return !f->scoring.under_way || f->scoring.step >= f->saver.state.step; }

// Begins to write what was taken, if its log is complete. One that cannot be written at the moment is tried again until
// `deadline`.
static bool begin_writing(RunFiles *f, double deadline, Err *err) {
  Err why;
  if (!f->saver.under_way || f->saver.writing || !log_complete(f)) return true;
  if (!log_written(&f->log, &why)) {
    if (saver_may_pass(errno) && now_seconds() < deadline) return true;
    return explain(f, &why, err);
  }
  saver_write(&f->saver, &(SaveOrder){.file = {.path = f->checkpoint, .previous = f->previous, .momentum = true},
                                      .log = f->log.file,
                                      .patience = PATIENCE});
  return true;
}

static bool end_save(RunFiles *f, Err *err) {
  Err why;
  if (!f->saver.under_way) return true;
  if (!log_complete(f) && !end_scoring(f, err)) return false;
  for (double deadline = now_seconds() + PATIENCE; !f->saver.writing; usleep(RETRY_MICROSECONDS))
    if (!begin_writing(f, deadline, err)) return false;
  if (!saver_end(&f->saver, &why)) return explain(f, &why, err);
  set_kept(f, f->saver.state.step);
  return true;
}

bool files_save(RunFiles *f, Engine *e, int64_t step, Err *err) {
  if (!end_save(f, err)) return false;
  saver_take(&f->saver, e, &(RunState){.step = step, .run = f->run});
  return begin_writing(f, INFINITY, err);
}

bool files_export(const RunFiles *f, Engine *e, int64_t step, Err *err) {
  CHECK(!f->saver.under_way); // the snapshot is its
  RunState state = {.step = step, .run = f->run};
  state_take(e, &state);
  return state_write(e, &state, &(StateFile){.path = f->final}, err);
}

// ---- beside the steps -------------------------------------------------------------------------------------------

bool files_poll(RunFiles *f, Err *err) {
  if (scoring_ready(&f->scoring) && !end_scoring(f, err)) return false;
  if (!begin_writing(f, INFINITY, err)) return false;
  return !saver_ready(&f->saver) || end_save(f, err);
}

bool files_settle(RunFiles *f, Err *err) {
  Err other;
  bool saved = end_save(f, err), scored = end_scoring(f, saved ? err : &other);
  return saved && scored;
}
