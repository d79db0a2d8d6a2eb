#define _GNU_SOURCE // nftw
#include "lab/study/work.h"
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/output.h"
#include "lab/study/template.h"

// ---- folders --------------------------------------------------------------------------------------------------------

StudyRunFiles study_run_files(const StudyPlan *p, const char *folder, const StudyCell *cells, int n, int repeat) {
  StudyRunFiles f = {.name = study_run_name(p, cells, n, repeat)};
  f.folder = xasprintf("%s/runs/%s", folder, f.name);
  f.out = xasprintf("%s.stdout", f.folder);
  f.errors = xasprintf("%s.stderr", f.folder);
  return f;
}

void study_run_files_free(StudyRunFiles *f) {
  free(f->name);
  free(f->folder);
  free(f->out);
  free(f->errors);
  *f = (StudyRunFiles){0};
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where) {
  (void)st;
  (void)kind;
  (void)where;
  return remove(path);
}

// What a run that was ended has left in its folder goes.
static bool make_folder(const StudyWork *w, const char *run, const StudyRunFiles *f, Err *err) {
  enum { OPEN_AT_ONCE = 16 };
  char *runs = xasprintf("%s/runs", w->folder);
  bool ok = dirs_make(runs, err);
  free(runs);
  if (ok && nftw(f->folder, remove_entry, OPEN_AT_ONCE, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
    ok = err_set(err, "cannot remove %s: %s", f->folder, strerror(errno));
  return ok && (!strstr(run, "{out}") || dirs_make(f->folder, err));
}

// The text for all cells of the turn. malloc'ed.
static char *expand(const StudyWork *w, const StudyTurn *t, const char *text, const char *folder) {
  char *swept = study_swept_text(w->plan, t->cells, t->n);
  char *command = study_template_expand(w->plan, text, (StudyFill){t->cells, t->repeat, folder, w->folder, swept});
  free(swept);
  return command;
}

// ---- what is prepared -----------------------------------------------------------------------------------------------

static bool run_prepare(StudyWork *w, StudyPrepared *prepared, double timeout, StudyOutcome *o, Err *err) {
  const int number = w->num_prepared;
  char *out = xasprintf("%s/runs/prepare-%d.stdout", w->folder, number);
  char *errors = xasprintf("%s/runs/prepare-%d.stderr", w->folder, number);
  line_print(stderr, "prepare: %s", prepared->command);
  const bool ok = study_run(prepared->command, out, errors, timeout, o, err);
  if (ok && (o->exit || o->signal || o->late)) {
    char *line = study_last_line(out, errors);
    prepared->failure = xasprintf("prepare failed: %s", line);
    free(line);
  }
  free(out);
  free(errors);
  return ok;
}

// *why: the failure of what the run needs; NULL: it is there.
static bool prepare(StudyWork *w, const StudyTurn *t, const char *folder, const char **why, Err *err) {
  const StudyCommand *c = &w->plan->commands[t->cells->value[STUDY_COMMAND]];
  StudyOutcome o;
  *why = NULL;
  if (!c->prepare) return true;
  char *command = expand(w, t, c->prepare, folder);
  for (int i = 0; i < w->num_prepared; i++) {
    if (strcmp(w->prepared[i].command, command)) continue;
    free(command);
    *why = w->prepared[i].failure;
    return true;
  }
  array_reserve((void **)&w->prepared, &w->cap, (size_t)w->num_prepared + 1, sizeof *w->prepared);
  StudyPrepared *prepared = &w->prepared[w->num_prepared++];
  *prepared = (StudyPrepared){.command = command};
  const bool ok = run_prepare(w, prepared, c->timeout, &o, err);
  *why = prepared->failure;
  return ok;
}

// ---- a run ----------------------------------------------------------------------------------------------------------

bool study_work_open(StudyWork *w, const StudyPlan *p, const char *folder, Err *err) {
  *w = (StudyWork){.plan = p, .folder = folder};
  return study_results_open(&w->results, p, folder, err);
}

void study_work_close(StudyWork *w) {
  for (int i = 0; i < w->num_prepared; i++) {
    free(w->prepared[i].command);
    free(w->prepared[i].failure);
  }
  free(w->prepared);
  study_results_close(&w->results);
}

static bool run_command(const StudyWork *w, StudyTurn *t, const StudyRunFiles *f, Err *err) {
  const StudyCommand *c = &w->plan->commands[t->cells->value[STUDY_COMMAND]];
  char *command = expand(w, t, c->run, f->folder);
  const bool ok = study_run(command, f->out, f->errors, c->timeout, &t->outcome, err);
  free(command);
  return ok;
}

// Of a sweep that fails, the runs that have their figures are kept: at which of the others it failed nobody knows.
static void judge(const StudyWork *w, StudyTurn *t, const StudyRunFiles *f, const char *unprepared) {
  const StudyOutcome *o = &t->outcome;
  const bool failed = t->n > 1 && (unprepared || o->exit || o->signal || o->late || o->interrupted);
  if (failed) t->failure = unprepared ? xstrdup(unprepared) : study_why_failed(o, f->out, f->errors);
  for (int i = 0; i < t->n; i++) {
    StudyVerdict *v = &t->verdicts[i];
    *v = unprepared ? (StudyVerdict){.state = STUDY_FAILED, .why = xstrdup(unprepared)}
                    : study_verdict(w->plan, &t->cells[i], t->repeat, o, failed, f->out, f->errors);
    t->left[i] = failed && v->state != STUDY_OK && v->state != STUDY_OUT_OF_MEMORY;
  }
  t->outcome.seconds = failed ? NAN : o->seconds / t->n;
}

static bool keep(StudyWork *w, const StudyTurn *t, const char *name, Err *err) {
  bool ok = true;
  for (int i = 0, number = t->number; ok && i < t->n; i++) {
    if (!t->left[i])
      ok = study_results_add(&w->results, w->plan, &t->cells[i], t->repeat, number++, name, &t->outcome,
                             &t->verdicts[i], err);
    else if (!t->outcome.interrupted)
      ok = study_results_leave(&w->results, w->plan, &t->cells[i], t->repeat, name, t->failure, err);
  }
  return ok;
}

// A sweep that an interrupt ends has the runs that it has printed.
static bool is_done(const StudyTurn *t, bool ran) {
  if (!ran) return !interrupted();
  return !t->outcome.interrupted || t->n > 1;
}

bool study_work_run(StudyWork *w, StudyTurn *t, Err *err) {
  StudyRunFiles files = study_run_files(w->plan, w->folder, t->cells, t->n, t->repeat);
  const char *unprepared = NULL;
  bool ok = make_folder(w, w->plan->commands[t->cells->value[STUDY_COMMAND]].run, &files, err) &&
            prepare(w, t, files.folder, &unprepared, err);
  const bool runs = ok && !unprepared && !interrupted();
  if (runs) ok = run_command(w, t, &files, err);
  t->done = ok && is_done(t, runs);
  if (t->done) judge(w, t, &files, unprepared);
  if (t->done) ok = keep(w, t, files.name, err);
  study_run_files_free(&files);
  return ok;
}

void study_turn_free(StudyTurn *t) {
  for (int i = 0; i < t->n; i++) study_verdict_free(&t->verdicts[i]);
  free(t->failure);
}
