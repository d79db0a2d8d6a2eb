#include "training/run_files.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/clock.h"
#include "base/folder.h"
#include "base/json_lines.h"
#include "base/own_files.h"
#include "base/regular.h"
#include "base/run_folder.h"
#include "training/numbered.h"

static const double PATIENCE = 30; // seconds to retry on a full disk

// ---- whether a checkpoint is good -------------------------------------------------------------------------------

enum { FIRST = 10 }; // steps of a run whose losses are taken for usual

// False for a loss more than ten times the largest of the first steps: the weights before it, and the checkpoint that
// holds them, have begun to diverge. The first step after a checkpoint shows it.
static bool is_usual(RunFiles *f, double loss) {
  enum { FACTOR = 10 };
  const bool usual = f->seen == 0 || loss <= FACTOR * f->usual_loss;
  if (usual && f->seen < FIRST) {
    f->usual_loss = fmax(f->usual_loss, loss);
    f->seen++;
  }
  return usual;
}

int64_t files_last(const RunFiles *f) { return f->saver.under_way ? f->saver.state.step : f->newest; }

static void judge(RunFiles *f, int64_t step, double loss) {
  const bool good = is_usual(f, loss);
  if (step == files_last(f) + 1) f->newest_is_good = good;
}

// A kill may have come before the weights of the best evaluation got their name.
static bool repair_best(RunFiles *f, Err *err) {
  bool ok = true;
  for (int64_t step; ok && (step = best_missing(&f->best)) >= 0;) {
    char *numbered = numbered_name(f->folder, step);
    const char *const states[] = {f->evaluated, f->checkpoint, f->previous, numbered};
    const char *found = NULL;
    for (int i = 0; !found && i < COUNT(states); i++)
      if (checkpoint_whole_step(states[i]) == step) found = states[i];
    ok = best_repair(&f->best, step, found, err);
    free(numbered);
  }
  return ok && best_write(&f->best, err);
}

// Likewise before a checkpoint got its number.
static bool repair_numbered(const RunFiles *f, Err *err) {
  if (!f->keep || f->newest < 0) return true;
  char *name = numbered_name(f->folder, f->newest);
  const bool ok = checkpoint_step(name) == f->newest || file_link(f->checkpoint, name, err);
  free(name);
  return ok;
}

static bool take_loss(Json *record, void *files) {
  RunFiles *f = files;
  const char *key;
  if (!json_begin_object(record)) return true;
  while ((key = json_key(record)))
    if (!strcmp(key, "loss") && json_peek(record) == JSON_NUMBER)
      is_usual(f, json_number(record));
    else
      json_skip(record);
  return f->seen < FIRST;
}

// Reads the log up to where the run continues: the first losses and, if the run evaluates, the best so far. What is in
// memory grows with the evaluations, not with the steps.
static bool read_log(RunFiles *f, const Task *task, Err *err) {
  const char *key[BEST_CURVES];
  Curve curve[COUNT(key)] = {0};
  const int n = task ? best_keys(task, key) : 0;
  char *path = xasprintf("%s/log.jsonl", f->folder);
  const bool ok = json_lines(path, take_loss, f, err) && curves_read(path, key, n, curve, err) &&
                  (!task || (best_open(&f->best, task, f->folder, curve, f->warmup, err) && repair_best(f, err)));
  curves_free(curve, n);
  free(path);
  return ok;
}

// ---- the folder -------------------------------------------------------------------------------------------------

void files_name(RunFiles *f, const char *folder) {
  f->folder = folder;
  f->checkpoint = xasprintf("%s/checkpoint.safetensors", folder);
  f->previous = xasprintf("%s/checkpoint-previous.safetensors", folder);
  f->final = xasprintf("%s/model.safetensors", folder);
  f->evaluated = xasprintf("%s/checkpoint-evaluated.safetensors", folder);
  snprintf(f->kept, sizeof f->kept, "there is no checkpoint yet");
}

void files_free(RunFiles *f) {
  free(f->checkpoint);
  free(f->previous);
  free(f->final);
  free(f->evaluated);
  free(f->numbered);
}

static bool begins_with(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

// Removes temporary files of a killed run: checkpoint-00001200.safetensors.tmp, best-bbox.safetensors.tmp,
// best.json.tmp.
static void clean_further_names(const char *folder) {
  DIR *dir = opendir(folder);
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    const char *name = entry->d_name, *end = strrchr(name, '.');
    const bool kept = begins_with(name, "checkpoint-") || begins_with(name, "best-") || begins_with(name, "best.json");
    if (!kept || !end || strcmp(end, ".tmp")) continue;
    char *of = xasprintf("%s/%.*s", folder, (int)(end - name), name);
    file_clean(of);
    free(of);
  }
  if (dir) closedir(dir);
}

bool files_lock(const RunFiles *f, bool resumes, bool force, Err *err) {
  const OwnName written[] = {{RUN_LOG, OWN_LOG},
                             {RUN_RECORD, OWN_RECORD},
                             {RUN_EVALUATION, resumes ? OWN_DAMAGED : OWN_EVALUATION}, // both are made anew
                             {"best.json", resumes ? OWN_DAMAGED : OWN_BEST},
                             {"time-to-target.json", OWN_TARGETS},
                             {"confusion.txt", OWN_CONFUSION_TEXT},
                             {"confusion.json", OWN_CONFUSION},
                             {"report.html", OWN_PAGE},
                             {RUN_DEFECTS, OWN_DEFECTS},
                             {"model.safetensors", OWN_WEIGHTS}};
  if (!folder_is_own(f->folder, written, COUNT(written), force, err) || !folder_take(f->folder, err)) return false;
  static const char *const facts[] = {RUN_RECORD, RUN_EVALUATION, "time-to-target.json", "confusion.txt",
                                      "confusion.json"};
  const char *all[] = {f->checkpoint, f->previous, f->final, f->evaluated};
  for (int i = 0; i < COUNT(all); i++) file_clean(all[i]);
  for (int i = 0; i < COUNT(facts); i++) {
    char *path = xasprintf("%s/%s", f->folder, facts[i]);
    file_clean(path);
    free(path);
  }
  clean_further_names(f->folder);
  return true;
}

// Reports the existing checkpoint, and that --resume continues it.
static void set_kept(RunFiles *f) {
  char before[256] = "";
  if (f->older >= 0 && f->older != f->newest)
    snprintf(before, sizeof before, ", and %s has step %lld", strrchr(f->previous, '/') + 1, (long long)f->older);
  snprintf(f->kept, sizeof f->kept, "%s has step %lld%s; continue with --resume", f->checkpoint, (long long)f->newest,
           before);
}

// Replaces the last checkpoint, or the target of a symbolic link there, by the previous one.
static bool go_back(const RunFiles *f, Err *err) {
  char *target = path_follow(f->checkpoint);
  const bool ok = target ? file_link(f->previous, target, err)
                         : err_set(err, "%s is another user's symbolic link; remove it", f->checkpoint);
  free(target);
  return ok;
}

static void find_checkpoints(RunFiles *f) {
  f->newest = checkpoint_step(f->checkpoint);
  f->older = checkpoint_step(f->previous);
  if (f->newest >= 0) set_kept(f);
}

void files_describe(RunFiles *f, char *text, size_t room) {
  find_checkpoints(f);
  snprintf(text, room, "%s", f->kept);
}

// Removes evaluation results of steps after the one at which the run continues.
static void forget_later(const RunFiles *f, int64_t first) {
  char *path = xasprintf("%s/" RUN_EVALUATION, f->folder);
  if (report_step(path) > first) report_remove(f->folder, RUN_EVALUATION, "step-");
  free(path);
}

bool files_open(RunFiles *f, const char *run, int64_t first, bool rolled_back, const Task *task, Err *err) {
  f->run = run;
  if (rolled_back && !go_back(f, err)) return false; // before the log is cut, so that it always covers the checkpoint
  forget_later(f, first);
  find_checkpoints(f);
  f->newest_is_good = true;
  if (!log_open(&f->log, f->folder, first, err) || !read_log(f, task, err) || !repair_numbered(f, err)) return false;
  unlink(f->evaluated); // made again where it is needed
  return true;
}

// ---- the log ----------------------------------------------------------------------------------------------------

void files_record_step(RunFiles *f, const Engine *e, int64_t step, double rate, const StepResult *s) {
  judge(f, step, s->total);
  const Model *m = e->model;
  Record *j = log_begin(&f->log, step, "train");
  record_num(j, "lr", rate);
  record_num(j, "loss", s->total);
  for (int i = 0; i < model_losses(m); i++) record_num(j, m->loss[i].name, s->loss[i]);
  record_num(j, "grad_norm", s->grad_norm);
  for (int i = 0; i < model_counters(m); i++) record_int(j, m->counter[i], s->counter[i]);
  if (e->params.shadow_dtype == F16) {
    record_num(j, "loss_scale", s->scale[0]);
    record_int(j, "skipped", (int64_t)s->scale[2]);
  }
  record_num(j, "img_s", f->log.images_per_second > 0 ? f->log.images_per_second : NAN); // null until known
  record_num(j, "wait", s->wait_seconds);
  record_num(j, "seconds", now_seconds() - f->log.opened);
  if (f->log.session) record_int(j, "session", f->log.session);
  log_commit(&f->log);
}

// Which files the weights that were scored replace.
static void take_scores(RunFiles *f) {
  const Metrics *m = &f->scoring.metrics;
  const long long step = (long long)f->scoring.step;
  f->is_taken = true;
  if (!f->scoring.ok || !f->best.task) return;
  const SetChange change = best_set(&f->best, m);
  if (change == SET_OTHER)
    log_note(&f->log, "step %lld: evaluated on other data than the best so far (now %d images); not compared with it",
             step, m->images);
  if (change == SET_MORE_COMPLETE)
    log_note(&f->log, "step %lld: more images were readable than before (now %d); the best result starts over", step,
             m->images);
  f->best_due = best_take(&f->best, m, f->scoring.step);
}

// Links the scored state under the names of the best. If the disk is full, retries for `patience` seconds; with 0 it
// returns true at once, and best_due stays.
static bool keep_best(RunFiles *f, double patience, Err *err) {
  char names[128];
  if (!f->best_due) return true;
  for (const double begin = now_seconds(); !best_keep(&f->best, f->best_due, f->evaluated, err);
       usleep(RETRY_MICROSECONDS)) {
    const bool may_pass = saver_may_pass(errno);
    if (may_pass && !f->is_retrying) log_note(&f->log, "step %lld: %s; retrying", (long long)f->scoring.step, err->msg);
    f->is_retrying = may_pass;
    if (may_pass && patience == 0) return true;
    if (!may_pass || now_seconds() - begin >= patience) return false;
  }
  best_names(&f->best, f->best_due, names, sizeof names);
  f->best_due = 0;
  f->is_retrying = false;
  log_note(&f->log, "step %lld: best so far, saved as %s", (long long)f->scoring.step, names);
  return true;
}

static bool end_save(RunFiles *f, Err *err);

// Each part is on disk before what names it: the scored state, the best, the record of the scores. After a kill in
// between the run repeats the evaluation.
static bool end_scoring(RunFiles *f, double patience, Err *err) {
  Err why;
  if (!f->scoring.under_way) return true;
  if (f->saver.state.step == f->scoring.step && !end_save(f, err)) return false;
  scoring_wait(&f->scoring, &f->log);
  if (!f->is_taken) take_scores(f);
  if (!keep_best(f, patience, err)) return false;
  if (f->best_due) return true; // tried again at the next poll
  f->is_taken = false;
  return scoring_end(&f->scoring, &f->log, &why) || err_set(err, "evaluation: %s", why.msg);
}

bool files_score(RunFiles *f, const Task *task, const Dataset *d, void *results, int cores, int64_t step, double start,
                 const Metrics *before, Err *err) {
  bool ok = end_scoring(f, PATIENCE, err);
  if (ok)
    scoring_start(&f->scoring, task, d, results, (ReportTo){f->folder, f->trained_on, f->least_score, f->page}, cores,
                  &f->log, step, start, before);
  else
    task->release(results);
  return ok;
}

// ---- checkpoints ------------------------------------------------------------------------------------------------

// Where the folder is that was moved while the run lives, by its log; malloc'ed. NULL: it is where it was, or is gone.
static char *moved_to(const RunFiles *f) {
  char link[64], path[4096];
  if (path_is_dir(f->folder)) return NULL;
  snprintf(link, sizeof link, "/proc/self/fd/%d", f->log.file);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  if (n <= 0) return NULL;
  path[n] = '\0';
  *strrchr(path, '/') = '\0';
  return path_is_dir(path) ? xstrdup(path) : NULL;
}

static bool explain_move(RunFiles *f, const char *folder, Err *err) {
  char *word = cli_word(folder);
  snprintf(f->kept, sizeof f->kept, "continue with --resume --out %s", word);
  if (f->newest < 0) snprintf(f->kept, sizeof f->kept, "there is no checkpoint yet");
  free(word);
  return err_set(err, "step %lld: the checkpoint could not be written: %s was moved to %s during the run",
                 (long long)f->saver.state.step, f->folder, folder);
}

static bool explain(RunFiles *f, const Err *why, Err *err) {
  char *folder = moved_to(f);
  if (folder) {
    explain_move(f, folder, err);
    free(folder);
    return false;
  }
  return err_set(err, "step %lld: the checkpoint could not be written: %s", (long long)f->saver.state.step, why->msg);
}

// Whether the log has all records that precede those of later steps. An evaluation of the same step may still be
// running: a run that ends before it is done repeats it when it resumes.
static bool log_complete(const RunFiles *f) { return !f->scoring.under_way || f->scoring.step >= f->saver.state.step; }

// Starts writing the state that was taken, if its log is complete. On a temporary failure retries until `deadline`.
static bool begin_writing(RunFiles *f, double deadline, Err *err) {
  Err why;
  if (!f->saver.under_way || f->saver.writing || !log_complete(f)) return true;
  if (!log_written(&f->log, &why)) {
    if (saver_may_pass(errno) && now_seconds() < deadline) return true;
    return explain(f, &why, err);
  }
  const char *previous = f->rotates ? f->previous : NULL;
  saver_write(&f->saver, &(SaveOrder){.file = {.path = f->checkpoint, .previous = previous, .momentum = true},
                                      .links = f->links,
                                      .log = f->log.file,
                                      .patience = PATIENCE});
  return true;
}

// Called when the state that was taken is on disk.
static void set_newest(RunFiles *f) {
  if (f->rotates && f->newest >= 0) f->older = f->newest;
  f->newest = f->saver.state.step;
  set_kept(f);
}

static bool end_save(RunFiles *f, Err *err) {
  Err why;
  if (!f->saver.under_way) return true;
  if (!log_complete(f) && !end_scoring(f, PATIENCE, err)) return false;
  for (double deadline = now_seconds() + PATIENCE; !f->saver.writing; usleep(RETRY_MICROSECONDS))
    if (!begin_writing(f, deadline, err)) return false;
  if (!saver_end(&f->saver, &why)) return explain(f, &why, err);
  set_newest(f);
  if (f->numbered) numbered_prune(f->folder, f->newest, f->keep);
  return true;
}

void files_wait(RunFiles *f) {
  saver_wait(&f->saver);
  if (saver_ready(&f->saver) && f->saver.ok) set_newest(f);
}

// Sets the further names of the state after `step`.
static void set_links(RunFiles *f, int64_t step, bool evaluated) {
  int n = 0;
  free(f->numbered);
  f->numbered = f->keep ? numbered_name(f->folder, step) : NULL;
  if (f->numbered) f->links[n++] = f->numbered;
  if (evaluated) f->links[n++] = f->evaluated;
  f->links[n] = NULL;
}

bool files_save(RunFiles *f, Engine *e, int64_t step, bool evaluated, Err *err) {
  if (!end_save(f, err) || (evaluated && !end_scoring(f, PATIENCE, err))) return false;
  set_links(f, step, evaluated);
  f->rotates = f->newest_is_good;
  f->newest_is_good = true; // until the next step's loss is known
  saver_take(&f->saver, e,
             &(RunState){.step = step, .run = f->run, .trained_on = f->trained_on, .held_out = f->held_out});
  return begin_writing(f, INFINITY, err);
}

bool files_export(const RunFiles *f, Engine *e, int64_t step, Err *err) {
  CHECK(!f->saver.under_way); // the snapshot is in use by the saver
  RunState state = {.step = step, .run = f->run, .trained_on = f->trained_on, .held_out = f->held_out};
  state_take(e, &state);
  return state_write(e, &state, &(StateFile){.path = f->final}, err);
}

bool files_saving(const RunFiles *f) { return saver_busy(&f->saver); }

bool files_reuse(RunFiles *f, Err *err) { return file_link(f->checkpoint, f->evaluated, err); }

// ---- beside the steps -------------------------------------------------------------------------------------------

bool files_poll(RunFiles *f, Err *err) {
  const bool is_saved = !saver_busy(&f->saver) || f->saver.state.step != f->scoring.step;
  if (scoring_ready(&f->scoring) && is_saved && !end_scoring(f, 0, err)) return false;
  return begin_writing(f, INFINITY, err) && (!saver_ready(&f->saver) || end_save(f, err));
}

bool files_settle(RunFiles *f, Err *err) {
  Err other;
  const bool saved = end_save(f, err), scored = end_scoring(f, PATIENCE, saved ? err : &other);
  if (scored) unlink(f->evaluated);
  return saved && scored;
}
