// study: runs what a plan asks for, and writes its tables and plots. docs/studies.md is about plans.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/interrupt.h"
#include "base/output.h"
#include "lab/study/chart.h"
#include "lab/study/pages.h"
#include "lab/study/queue.h"
#include "lab/study/template.h"
#include "lab/study/work.h"

enum { RERUN_NONE, RERUN_FAILED, RERUN_CHANGED };
static const char *const reruns[] = {"none", "failed", "changed", NULL};

// clang-format off
#define STUDY_OPTIONS(X)                                                                                               \
  X(STRING, out, NULL, "DIR", "folder of results, tables and plots", .usual = "out/NAME for NAME.plan")                \
  X(STRING, set, NULL, "NAME=VALUE …", "replace values of the plan")                                                   \
  X(STRING, only, NULL, "SETTING=VALUE …", "run and show only these, such as batch=2,4")                               \
  X(FLAG, list, false, "list what would run, in order, and run nothing")                                               \
  X(FLAG, table, false, "make tables and plots of the results there are, and run nothing")                             \
  X(FLAG, merge, false, "the same, with results of other machines: the files behind PLAN")                             \
  X(CHOICE, rerun, RERUN_NONE, reruns, "run again those that failed, or also those whose command has changed")         \
  X(FLOAT, limit, INFINITY, 0, INFINITY, "SECONDS", "start no run after this time", .usual = "no limit")
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
  double begin, limit; // seconds; of now_seconds
} Study;

// ---- results that are there -----------------------------------------------------------------------------------------

static bool refuse_row(const Study *s, const StudyRow *row, Err *err) {
  const StudyPlan *p = &s->plan;
  const StudyCommand *c = &p->commands[row->cell.value[STUDY_COMMAND]];
  const char *do_what = "--rerun changed runs those again, another --out keeps both";
  char *now = study_template_kept(p, &row->cell, row->repeat);
  if (strcmp(now, row->ran))
    study_fail(&p->text, c->line, err,
               "the command has changed since it ran: %s:%d has \"%.600s\", here it is \"%.600s\"; %s", row->file,
               row->number, row->ran, now, do_what);
  else
    study_fail(&p->text, p->settings[c->sweep].line, err,
               "the text of %s has changed since it ran: %s:%d has \"%.100s\", here it is \"%.100s\"; %s",
               study_value_name(p, &row->cell, c->sweep), row->file, row->number, row->swept,
               p->settings[c->sweep].values[row->cell.value[c->sweep]].text, do_what);
  free(now);
  return false;
}

static bool refuse_changed(const Study *s, Err *err) {
  for (int i = 0; i < s->rows.num_rows; i++)
    if (study_row_changed(&s->plan, &s->rows.rows[i])) return refuse_row(s, &s->rows.rows[i], err);
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

static StudyQueue queue_of(const Study *s) { return study_queue(&s->plan, &s->rows, s->has_only ? &s->only : NULL); }

static bool has_runs(const Study *s, Err *err) {
  StudyQueue q = queue_of(s);
  const bool some = q.all > 0;
  study_queue_free(&q);
  return some || err_set(err, "%s: nothing to run: %s all combinations of settings out", s->plan.text.path,
                         s->has_only ? "--only, or [skip] with it, leaves" : "[skip] leaves");
}

static void list_runs(const Study *s) {
  StudyQueue q = queue_of(s);
  StudyCell cells[STUDY_MAX_VALUES];
  for (int i = 0, n; i < q.n; i += n) {
    n = study_queue_turn(&s->plan, &q, i, cells);
    StudyRunFiles files = study_run_files(&s->plan, s->folder, cells, n, q.runs[i].repeat);
    char *label = study_turn_label(&s->plan, cells, n), *swept = study_swept_text(&s->plan, cells, n);
    const StudyFill fill = {cells, q.runs[i].repeat, files.folder, s->folder, swept};
    char *command = study_template_expand(&s->plan, s->plan.commands[cells->value[STUDY_COMMAND]].run, fill);
    line_print(stdout, "%s, repeat %d: %s", label, q.runs[i].repeat, command);
    free(command);
    free(swept);
    free(label);
    study_run_files_free(&files);
  }
  line_print(stdout, "%d of %d runs are left", q.n, q.all);
  study_queue_free(&q);
}

// ---- running --------------------------------------------------------------------------------------------------------

static void duration_text(double seconds, char *text, size_t room) {
  if (seconds < 120)
    snprintf(text, room, "%.0f s", seconds);
  else if (seconds < 7200)
    snprintf(text, room, "%.0f min", seconds / 60);
  else
    snprintf(text, room, "%.1f h", seconds / 3600);
}

// "gpus=1 batch=4, repeat 2: 12.3 s, throughput 180.2 img/s": the first measures, of a run that is done.
static void tell_run(const Study *s, const StudyCell *cell, int repeat, const StudyOutcome *o, const StudyVerdict *v) {
  enum { MOST = 2 };
  Err why;
  char *label = study_cell_label(&s->plan, cell, false);
  text_print(stderr, isnan(o->seconds) ? "%s, repeat %d" : "%s, repeat %d: %.1f s", label, repeat, o->seconds);
  free(label);
  if (v->state != STUDY_OK) text_print(stderr, ", %s: %s", study_states[v->state], v->why ? v->why : "");
  for (int m = 0, told = 0; v->state == STUDY_OK && m < s->plan.num_measures && told < MOST; m++) {
    const StudyMeasure *of = &s->plan.measures[m];
    if (of->computed || !(of->of >> cell->value[STUDY_COMMAND] & 1)) continue;
    const double value = study_measure_value(&s->plan, m, cell, repeat, v->records, v->num_records, o->seconds, &why);
    text_print(stderr, ", %s %.6g%s%s", of->label, value, of->unit ? " " : "", of->unit ? of->unit : "");
    told++;
  }
}

// The line of a terminal that the run under way has, which its result replaces.
static void begin_line(const Study *s, const StudyTurn *t, int all) {
  if (!isatty(STDERR_FILENO)) return;
  char *label = study_turn_label(&s->plan, t->cells, t->n);
  fprintf(stderr, "[%d of %d] %s, repeat %d …", t->number, all, label, t->repeat);
  fflush(stderr);
  free(label);
}

static void clear_line(void) {
  if (isatty(STDERR_FILENO)) fputs("\r\33[K", stderr);
}

// So that what is left is told by what has run meanwhile.
static void note_seconds(Study *s, const StudyCell *cell, int repeat, double seconds) {
  array_reserve((void **)&s->rows.rows, &s->rows.cap, (size_t)s->rows.num_rows + 1, sizeof *s->rows.rows);
  s->rows.rows[s->rows.num_rows++] = (StudyRow){.cell = *cell, .repeat = repeat, .seconds = seconds};
}

// "n=1,2,4, repeat 1: exit status 9: no device; 2 of its 3 values run by themselves"
static void tell_sweep(const Study *s, const StudyTurn *t, int left) {
  char *label = study_turn_label(&s->plan, t->cells, t->n);
  line_print(stderr, left ? "%s, repeat %d: %s; %d of its %d values run by themselves" : "%s, repeat %d: %s", label,
             t->repeat, t->failure, left, t->n);
  free(label);
}

// What has its figures comes first, and is told; what is left of a sweep stays in the queue behind it, each run by
// itself. Returns how many are done.
static int take_turn(Study *s, StudyQueue *q, int i, const StudyTurn *t) {
  StudyRun left[STUDY_MAX_VALUES];
  int ran = 0, num_left = 0;
  char duration[32];
  for (int k = 0; k < t->n; k++) {
    if (t->left[k])
      left[num_left++] = (StudyRun){q->runs[i + k].cell, t->repeat, true};
    else
      q->runs[i + ran++] = q->runs[i + k];
    if (!t->left[k]) note_seconds(s, &t->cells[k], t->repeat, t->outcome.seconds);
  }
  for (int k = 0; k < num_left; k++) q->runs[i + ran + k] = left[k];
  duration_text(study_seconds_left(&s->plan, &s->rows, q, i + ran), duration, sizeof duration);
  for (int k = 0, told = 0; k < t->n; k++) {
    if (t->left[k]) continue;
    fprintf(stderr, "[%d of %d] ", t->number + told++, q->all);
    tell_run(s, &t->cells[k], t->repeat, &t->outcome, &t->verdicts[k]);
    fprintf(stderr, i + ran < q->n && told == ran ? "; %s left\n" : "\n", duration);
  }
  if (t->failure && !t->outcome.interrupted) tell_sweep(s, t, num_left);
  return ran;
}

// *ran: how many of the queue's are done.
static bool run_next(Study *s, StudyWork *work, StudyQueue *q, int i, int *ran, Err *err) {
  StudyTurn t = {.repeat = q->runs[i].repeat, .number = q->all - q->n + i + 1};
  t.n = study_queue_turn(&s->plan, q, i, t.cells);
  begin_line(s, &t, q->all);
  const bool ok = study_work_run(work, &t, err);
  clear_line();
  *ran = ok && t.done ? take_turn(s, q, i, &t) : 0;
  study_turn_free(&t);
  return ok;
}

// *left: how many runs are to be made yet.
static bool run_all(Study *s, int *left, Err *err) {
  StudyQueue q = queue_of(s);
  StudyWork work;
  bool ok = study_work_open(&work, &s->plan, s->folder, err);
  int i = 0, ran;
  interrupt_catch();
  while (ok && i < q.n && !interrupted() && now_seconds() - s->begin <= s->limit) {
    ok = run_next(s, &work, &q, i, &ran, err);
    i += ran;
  }
  *left = q.n - i;
  if (ok && *left)
    line_print(stderr, "%s: %d of %d runs are left; the same call goes on", interrupted() ? "interrupted" : "--limit",
               *left, q.all);
  study_work_close(&work);
  study_queue_free(&q);
  return ok;
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
    line_print(
        stderr,
        "%s:%d: the command %s gave no figures in %s%d of its %d runs, which --rerun failed runs again; the last one: "
        "%s: %s",
        s->plan.text.path, command->line, command->name, bad == runs ? "all, " : "", bad, runs,
        study_states[last->state], last->why ? last->why : "");
  }
  return lacking;
}

static bool write_all(Study *s, Err *err) {
  study_rows_sort_values(&s->rows, &s->plan);
  StudyData d = study_data(&s->plan, &s->rows, s->has_only ? &s->only : NULL);
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

static bool read_all(Study *s, const Cli *cli, Err *err) {
  study_rows_free(&s->rows);
  bool ok = read_rows(s, RERUN_NONE, err);
  for (int i = 0; i < s->rows.num_rows; i++) s->rows.changed += study_row_changed(&s->plan, &s->rows.rows[i]);
  for (int i = 1; ok && i < cli->num_args; i++) ok = study_rows_read(&s->rows, &s->plan, cli->args[i], err);
  if (ok && cli->num_args > 1 && !s->rows.num_rows)
    return err_set(err, "--merge %s: no run of %s; give the results.jsonl of studies of that plan", cli->args[1],
                   cli->args[0]);
  return ok;
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
  if (o.table && !path_is_file(s.results_path))
    die(EXIT_USAGE, "%s is not there; the plan without --table makes it", s.results_path);
  if (!o.list && !folder_take(s.folder, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!read_rows(&s, o.rerun, &err)) die(EXIT_USAGE, "%s", err.msg);
  if ((runs || o.list) && !refuse_changed(&s, &err)) die(EXIT_USAGE, "%s", err.msg);
  int lacking = 0, left = 0;
  if ((runs || o.list) && !has_runs(&s, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (o.list) list_runs(&s);
  if (runs && !run_all(&s, &left, &err)) die(EXIT_RUN, "%s", err.msg);
  if (!o.list) {
    if (!read_all(&s, &cli, &err)) die(EXIT_USAGE, "%s", err.msg);
    lacking = tell_failures(&s);
    if (!write_all(&s, &err)) die(EXIT_RUN, "%s", err.msg);
  }
  study_rows_free(&s.rows);
  free(s.results_path);
  free(s.folder);
  study_plan_free(&s.plan);
  stdout_close();
  return lacking || left ? EXIT_RUN : 0;
}
