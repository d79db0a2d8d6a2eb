// study: runs what a plan asks for, and writes its tables and plots. docs/studies.md is about plans.
#define _GNU_SOURCE // nftw
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cli.h"
#include "base/folder.h"
#include "base/interrupt.h"
#include "base/output.h"
#include "tools/study/chart.h"
#include "tools/study/pages.h"
#include "tools/study/results.h"
#include "tools/study/template.h"

enum { RERUN_NONE, RERUN_FAILED, RERUN_CHANGED };
static const char *const reruns[] = {"none", "failed", "changed", NULL};

// clang-format off
#define STUDY_OPTIONS(X)                                                                                               \
  X(STRING, out,   NULL,  "DIR",           "where results, tables and plots are; out/NAME for NAME.plan")              \
  X(STRING, set,   NULL,  "NAME=VALUE …",  "in place of what the plan gives")                                          \
  X(STRING, only,  NULL,  "SETTING=VALUE …", "runs these alone, as in batch=2,4")                                      \
  X(FLAG,   list,  false,                  "what would run, in its order; runs nothing")                               \
  X(FLAG,   table, false,                  "tables and plots from what is there; runs nothing")                        \
  X(FLAG,   merge, false,                  "the same, with the results of other machines, the files behind PLAN")      \
  X(CHOICE, rerun, RERUN_NONE, reruns,     "again, although they have been run: those that failed, or whose command "  \
                                           "has changed")                                                              \
  X(FLOAT,  limit, INFINITY, 0, INFINITY, "SECONDS", "begin no run after so long")
// clang-format on

typedef struct StudyOptions {
  OPTION_FIELDS(STUDY_OPTIONS)
} StudyOptions;

typedef struct Study {
  StudyPlan plan;
  StudyRows rows;
  char *folder, *results_path;
  bool has_only;
  StudyConditions only;
  double begin, limit;
} Study;

// ---- what is left to run --------------------------------------------------------------------------------------------

static int find_row(const Study *s, const StudyCells *cells, const StudyRun *run) {
  for (int i = 0; i < s->rows.num_rows; i++) {
    const StudyRow *row = &s->rows.rows[i];
    bool same = row->repeat == run->repeat;
    for (int k = 0; same && k < s->plan.num_settings; k++)
      same = s->plan.settings[k].path || row->cell.value[k] == cells->cells[run->cell].value[k];
    if (same) return i;
  }
  return -1;
}

static bool is_wanted(const Study *s, const StudyCells *cells, const StudyRun *run) {
  return !s->has_only || study_conditions_hold(&s->only, &s->plan, &cells->cells[run->cell]);
}

// From what this and similar runs have taken.
static double seconds_of(const Study *s, const StudyCell *cell) {
  double sums[3] = {0};
  int counts[3] = {0};
  for (int i = 0; i < s->rows.num_rows; i++) {
    const StudyRow *row = &s->rows.rows[i];
    const int closeness = study_cell_equal(&s->plan, &row->cell, cell)                   ? 0
                          : row->cell.value[STUDY_COMMAND] == cell->value[STUDY_COMMAND] ? 1
                                                                                         : 2;
    sums[closeness] += row->seconds;
    counts[closeness]++;
  }
  for (int i = 0; i < 3; i++)
    if (counts[i]) return sums[i] / counts[i];
  return NAN;
}

static void duration_text(double seconds, char *text, size_t room) {
  if (seconds < 120)
    snprintf(text, room, "%.0f s", seconds);
  else if (seconds < 7200)
    snprintf(text, room, "%.0f min", seconds / 60);
  else
    snprintf(text, room, "%.1f h", seconds / 3600);
}

// ---- a run ----------------------------------------------------------------------------------------------------------

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where) {
  (void)st;
  (void)kind;
  (void)where;
  return remove(path);
}

// The files of a run: those of one that a kill has ended go.
typedef struct RunFiles {
  char *name, *folder, *out, *errors; // folder: {out}
} RunFiles;

static RunFiles run_files(const Study *s, const StudyCell *cell, int repeat) {
  RunFiles f = {.name = study_run_name(&s->plan, cell, repeat)};
  f.folder = xasprintf("%s/runs/%s", s->folder, f.name);
  f.out = xasprintf("%s.stdout", f.folder);
  f.errors = xasprintf("%s.stderr", f.folder);
  return f;
}

static bool make_folder(const Study *s, const char *run, const RunFiles *f, Err *err) {
  char *runs = xasprintf("%s/runs", s->folder);
  bool ok = dirs_make(runs, err);
  free(runs);
  if (ok && nftw(f->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
    ok = err_set(err, "cannot remove %s: %s", f->folder, strerror(errno));
  return ok && (!strstr(run, "{out}") || dirs_make(f->folder, err));
}

static void run_files_free(RunFiles *f) {
  free(f->name);
  free(f->folder);
  free(f->out);
  free(f->errors);
}

// What commands are prepared by, each once in a call of this program.
typedef struct Prepared {
  char **commands, **failures; // why it failed; NULL: it did not
  int n;
  size_t cap, cap_failures;
} Prepared;

// *why: of its failure, for all runs that need it. False: interrupted, or err.
static bool prepare(const Study *s, Prepared *all, const StudyCell *cell, int repeat, const char *folder,
                    const char **why, Err *err) {
  const StudyCommand *c = &s->plan.commands[cell->value[STUDY_COMMAND]];
  *why = NULL;
  if (!c->prepare) return true;
  char *command = study_template_expand(&s->plan, c->prepare, cell, repeat, folder, s->folder);
  int i = 0;
  while (i < all->n && strcmp(all->commands[i], command)) i++;
  if (i < all->n) {
    free(command);
    *why = all->failures[i];
    return true;
  }
  char *out = xasprintf("%s/runs/prepare-%d.stdout", s->folder, i + 1);
  char *errors = xasprintf("%s/runs/prepare-%d.stderr", s->folder, i + 1);
  StudyOutcome o;
  line_print(stderr, "prepare: %s", command);
  const bool ok = study_run(command, out, errors, c->timeout, &o, err);
  array_reserve((void **)&all->commands, &all->cap, (size_t)i + 1, sizeof *all->commands);
  array_reserve((void **)&all->failures, &all->cap_failures, (size_t)i + 1, sizeof *all->failures);
  all->commands[i] = command;
  all->failures[i] = NULL;
  all->n++;
  if (ok && (o.exit || o.signal || o.late)) {
    char *line = study_last_line(out, errors);
    all->failures[i] = xasprintf("prepare failed: %s", line);
    free(line);
  }
  *why = all->failures[i];
  free(out);
  free(errors);
  return ok;
}

static void prepared_free(Prepared *all) {
  for (int i = 0; i < all->n; i++) {
    free(all->commands[i]);
    free(all->failures[i]);
  }
  free(all->commands);
  free(all->failures);
}

// "[7 of 96] gpus=1 batch=4, repeat 2: 12.3 s, throughput 180.2 img/s; 14 min left"
static void tell(const Study *s, const StudyCell *cell, int repeat, int number, int of, const StudyOutcome *o,
                 const StudyVerdict *v, double left) {
  Err why;
  char duration[32], *label = study_cell_label(&s->plan, cell, false);
  fprintf(stderr, "%s[%d of %d] %s, repeat %d: %.1f s", isatty(2) ? "\r\33[K" : "", number, of, label, repeat,
          o->seconds);
  if (v->state != STUDY_OK) text_print(stderr, ", %s: %s", study_states[v->state], v->why ? v->why : "");
  for (int m = 0, told = 0; v->state == STUDY_OK && m < s->plan.num_measures && told < 2; m++) {
    const StudyMeasure *measure = &s->plan.measures[m];
    if (measure->computed || !(measure->of >> cell->value[STUDY_COMMAND] & 1)) continue;
    const double value = study_measure_value(&s->plan, m, cell, repeat, v->records, v->num_records, o->seconds, &why);
    text_print(stderr, ", %s %.6g%s%s", measure->label, value, measure->unit ? " " : "",
               measure->unit ? measure->unit : "");
    told++;
  }
  duration_text(left, duration, sizeof duration);
  fprintf(stderr, number < of && isfinite(left) ? "; %s left\n" : "\n", duration);
  free(label);
}

// One run, and its line in the results. *done: false, it was interrupted.
static bool make_run(Study *s, StudyResults *results, Prepared *prepared, const StudyCell *cell, int repeat, int number,
                     StudyOutcome *o, StudyVerdict *v, bool *done, Err *err) {
  const StudyCommand *c = &s->plan.commands[cell->value[STUDY_COMMAND]];
  RunFiles files = run_files(s, cell, repeat);
  const char *unprepared = NULL;
  *v = (StudyVerdict){0};
  *o = (StudyOutcome){0};
  bool ok = make_folder(s, c->run, &files, err) && prepare(s, prepared, cell, repeat, files.folder, &unprepared, err);
  *done = ok && !interrupted();
  if (*done && unprepared) {
    v->state = STUDY_FAILED;
    v->why = xstrdup(unprepared);
  } else if (*done) {
    char *command = study_template_expand(&s->plan, c->run, cell, repeat, files.folder, s->folder);
    ok = study_run(command, files.out, files.errors, c->timeout, o, err);
    free(command);
    *done = ok && !o->interrupted && !interrupted();
    if (*done) *v = study_verdict(&s->plan, cell, repeat, o, files.out, files.errors);
  }
  if (*done) ok = study_results_add(results, &s->plan, cell, repeat, number, files.name, o, v, err);
  run_files_free(&files);
  return ok;
}

// ---- all runs -------------------------------------------------------------------------------------------------------

static bool refuse_changed(const Study *s, Err *err) {
  for (int i = 0; i < s->rows.num_rows; i++) {
    const StudyRow *row = &s->rows.rows[i];
    if (!study_row_changed(&s->plan, row)) continue;
    const StudyCommand *c = &s->plan.commands[row->cell.value[STUDY_COMMAND]];
    char *now = study_template_expand(&s->plan, c->run, &row->cell, row->repeat, "{out}", "{study}");
    study_fail(&s->plan.text, c->line, err,
               "the command has changed since it ran: %s:%d has \"%.600s\", here it is \"%.600s\"; --rerun changed "
               "runs those again, another --out keeps both",
               row->file, row->number, row->ran, now);
    free(now);
    return false;
  }
  return true;
}

static bool drop_failed(const StudyPlan *p, const StudyRow *row) {
  (void)p;
  return row->state == STUDY_FAILED || row->state == STUDY_NO_VALUE;
}

static bool read_rows(Study *s, int rerun, Err *err) {
  if (!path_is_file(s->results_path)) return true;
  if (!study_rows_read(&s->rows, &s->plan, s->results_path, err)) return false;
  if (rerun == RERUN_FAILED) study_rows_drop(&s->rows, &s->plan, drop_failed);
  if (rerun == RERUN_CHANGED) study_rows_drop(&s->rows, &s->plan, study_row_changed);
  return true;
}

typedef struct Queue {
  StudyCells cells;
  StudyRun *runs; // that are left, in their order
  int n, all;     // all: with those that are there
} Queue;

static Queue queue_of(const Study *s) {
  Queue q = {.cells = study_cells(&s->plan)};
  int n;
  q.runs = study_order(&q.cells, &s->plan, &n);
  for (int i = 0; i < n; i++) {
    if (!is_wanted(s, &q.cells, &q.runs[i])) continue;
    q.all++;
    if (find_row(s, &q.cells, &q.runs[i]) < 0) q.runs[q.n++] = q.runs[i];
  }
  return q;
}

static void queue_free(Queue *q) {
  study_cells_free(&q->cells);
  free(q->runs);
}

static double seconds_left(const Study *s, const Queue *q, int from) {
  double left = 0;
  for (int i = from; i < q->n; i++) left += seconds_of(s, &q->cells.cells[q->runs[i].cell]);
  return left;
}

// So that what is left is told by what this call has seen, too.
static void note_row(Study *s, const StudyCell *cell, int repeat, double seconds) {
  array_reserve((void **)&s->rows.rows, &s->rows.cap, (size_t)s->rows.num_rows + 1, sizeof *s->rows.rows);
  s->rows.rows[s->rows.num_rows++] = (StudyRow){.cell = *cell, .repeat = repeat, .seconds = seconds};
}

static bool run_all(Study *s, Err *err) {
  Queue q = queue_of(s);
  Prepared prepared = {0};
  StudyResults results = {.file = -1};
  bool ok = study_results_open(&results, &s->plan, s->folder, err);
  interrupt_catch();
  for (int i = 0; ok && i < q.n; i++) {
    const StudyRun *run = &q.runs[i];
    const StudyCell *cell = &q.cells.cells[run->cell];
    if (interrupted()) break;
    if (now_seconds() - s->begin > s->limit) {
      line_print(stderr, "--limit: %d of %d runs are left", q.n - i, q.all);
      break;
    }
    if (isatty(2)) {
      char *label = study_cell_label(&s->plan, cell, false);
      fprintf(stderr, "\r\33[K[%d of %d] %s, repeat %d …", q.all - q.n + i + 1, q.all, label, run->repeat);
      fflush(stderr);
      free(label);
    }
    StudyOutcome o;
    StudyVerdict v;
    bool done;
    ok = make_run(s, &results, &prepared, cell, run->repeat, q.all - q.n + i + 1, &o, &v, &done, err);
    if (ok && !done)
      line_print(stderr, "%sinterrupted: %d of %d runs are left; the same call goes on", isatty(2) ? "" : "", q.n - i,
                 q.all);
    if (ok && done) {
      note_row(s, cell, run->repeat, o.seconds);
      tell(s, cell, run->repeat, q.all - q.n + i + 1, q.all, &o, &v, seconds_left(s, &q, i + 1));
    }
    study_verdict_free(&v);
    if (!done) break;
  }
  prepared_free(&prepared);
  study_results_close(&results);
  queue_free(&q);
  return ok;
}

static void list_runs(const Study *s) {
  Queue q = queue_of(s);
  for (int i = 0; i < q.n; i++) {
    const StudyCell *cell = &q.cells.cells[q.runs[i].cell];
    RunFiles files = run_files(s, cell, q.runs[i].repeat);
    char *label = study_cell_label(&s->plan, cell, false);
    char *command = study_template_expand(&s->plan, s->plan.commands[cell->value[STUDY_COMMAND]].run, cell,
                                          q.runs[i].repeat, files.folder, s->folder);
    line_print(stdout, "%s, repeat %d: %s", label, q.runs[i].repeat, command);
    free(command);
    free(label);
    run_files_free(&files);
  }
  line_print(stdout, "%d of %d runs are left", q.n, q.all);
  queue_free(&q);
}

// ---- what comes of it -----------------------------------------------------------------------------------------------

// A line for each command that has never given a figure, and for each measure that none of a command's records has.
// Returns how many runs lack figures, out of memory apart.
static int tell_failures(const Study *s) {
  int lacking = 0;
  for (int c = 0; c < s->plan.num_commands; c++) {
    const StudyRow *last = NULL;
    int runs = 0, bad = 0;
    for (int i = 0; i < s->rows.num_rows; i++) {
      const StudyRow *row = &s->rows.rows[i];
      if (row->cell.value[STUDY_COMMAND] != c) continue;
      const bool lacks = row->state == STUDY_FAILED || row->state == STUDY_NO_VALUE;
      runs++;
      bad += lacks;
      if (lacks) last = row;
    }
    lacking += bad;
    if (!bad) continue;
    const StudyCommand *command = &s->plan.commands[c];
    line_print(stderr, "%s:%d: the command %s gave no figures in %s%d of its %d runs; the last one: %s: %s",
               s->plan.text.path, command->line, command->name, bad == runs ? "all, " : "", bad, runs,
               study_states[last->state], last->why ? last->why : "");
  }
  return lacking;
}

static bool write_all(Study *s, Err *err) {
  study_rows_sort_values(&s->rows, &s->plan);
  StudyData d = study_data(&s->plan, &s->rows);
  char *tables = xasprintf("%s/tables.md", s->folder), *cells = xasprintf("%s/cells.jsonl", s->folder);
  bool ok = study_tables_write(&d, tables, err) && study_cells_write(&d, cells, err);
  for (int i = 0; ok && i < s->plan.num_plots; i++) {
    char *path = xasprintf("%s/%s.svg", s->folder, s->plan.plots[i].name);
    ok = study_chart_write(&d, &s->plan.plots[i], path, err);
    free(path);
  }
  if (ok) line_print(stdout, "%s", tables);
  free(cells);
  free(tables);
  study_data_free(&d);
  return ok;
}

// out/NAME for a/NAME.plan.
static char *folder_of(const char *plan) {
  const char *slash = strrchr(plan, '/'), *name = slash ? slash + 1 : plan, *dot = strrchr(name, '.');
  return xasprintf("out/%.*s", (int)(dot && dot > name ? dot - name : (long)strlen(name)), name);
}

static bool read_only(Study *s, const char *only, Err *err) {
  Err why;
  if (!only) return true;
  char *copy = xstrdup(only);
  s->has_only = study_conditions_read(&s->only, &s->plan, copy, &why);
  free(copy);
  return s->has_only || err_set(err, "--only %s: %s", only, why.msg);
}

int main(int argc, char **argv) {
  StudyOptions o = {OPTION_DEFAULTS(STUDY_OPTIONS)};
  OPTION_TABLE(table, StudyOptions, STUDY_OPTIONS);
  Cli cli = {.usage = "PLAN [options] [--merge RESULTS.jsonl …]",
             .about = "Runs what a plan asks for, and writes its tables and plots; docs/studies.md.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o,
             .positional = "PLAN"};
  cli_parse_or_exit(&cli, argc, argv);
  if (!cli.num_args) die(EXIT_USAGE, "needs a plan; --help shows the usage, docs/studies.md the language");
  if (o.merge != (cli.num_args > 1))
    die(EXIT_USAGE, o.merge ? "--merge needs files of results behind the plan" : "one plan; --merge takes results");
  Study s = {.begin = now_seconds(), .limit = o.limit};
  Err err;
  if (!study_plan_read(&s.plan, cli.args[0], o.set, &err) || !read_only(&s, o.only, &err))
    die(EXIT_USAGE, "%s", err.msg);
  s.folder = o.out ? xstrdup(o.out) : folder_of(cli.args[0]);
  s.results_path = xasprintf("%s/results.jsonl", s.folder);
  const bool runs = !o.list && !o.table && !o.merge;
  if (!o.list && !folder_take(s.folder, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!read_rows(&s, o.rerun, &err)) die(EXIT_USAGE, "%s", err.msg);
  if ((runs || o.list) && !refuse_changed(&s, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (o.list) list_runs(&s);
  if (runs && !run_all(&s, &err)) die(EXIT_RUN, "%s", err.msg);
  int lacking = 0;
  if (!o.list) {
    study_rows_free(&s.rows);
    if (!read_rows(&s, RERUN_NONE, &err)) die(EXIT_USAGE, "%s", err.msg);
    for (int i = 1; i < cli.num_args; i++)
      if (!study_rows_read(&s.rows, &s.plan, cli.args[i], &err)) die(EXIT_USAGE, "%s", err.msg);
    lacking = tell_failures(&s);
    if (!write_all(&s, &err)) die(EXIT_RUN, "%s", err.msg);
  }
  study_rows_free(&s.rows);
  free(s.results_path);
  free(s.folder);
  study_plan_free(&s.plan);
  stdout_close();
  return lacking || interrupted() ? EXIT_RUN : 0;
}
