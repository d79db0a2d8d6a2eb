#include "lab/study/pages.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/record.h"
#include "lab/study/best.h"
#include "lab/study/figure_text.h"
#include "lab/study/table.h"

enum { MOST_LINES = 60 };

// ---- differences ----------------------------------------------------------------------------------------------------

// The setting in which alone two cells differ; -1: none, or several. What one of two commands does not use is no
// difference.
static int differing(const StudyPlan *p, const StudyCell *a, const StudyCell *b) {
  int found = -1, n = 0;
  const bool other_command = a->value[STUDY_COMMAND] != b->value[STUDY_COMMAND];
  for (int s = 0; s < p->num_settings; s++) {
    if (a->value[s] == b->value[s] || (other_command && (a->value[s] < 0 || b->value[s] < 0))) continue;
    found = s;
    n++;
  }
  return n == 1 && a->value[found] >= 0 && b->value[found] >= 0 ? found : -1;
}

typedef struct Compared {
  int pairs, single, close; // all; of which nobody knows the error; that are not told apart
} Compared;

static void print_pair(FILE *f, const StudyData *d, int a, int b, int setting, const StudyMeasure *m,
                       const StudyFigure *figures, const StudyFigure *difference, double error) {
  const StudyPlan *p = d->plan;
  StudyCell rest = d->cells.cells[a];
  rest.value[setting] = -1;
  char *left = study_figure_text(d, &figures[a], m), *right = study_figure_text(d, &figures[b], m);
  char *shown = study_figure_text(d, difference, m);
  fprintf(f, "- %s, %s %s and %s", m->label, p->settings[setting].label,
          study_value_name(p, &d->cells.cells[a], setting), study_value_name(p, &d->cells.cells[b], setting));
  if (p->num_commands == 1) rest.value[STUDY_COMMAND] = -1;
  char *others = study_cell_label(p, &rest, true);
  if (*others) fprintf(f, " (%s)", others);
  fprintf(f, ": %s and %s, a difference of %s%s%s, smaller than %sits error\n", left, right, shown, m->unit ? " " : "",
          m->unit ? m->unit : "", fabs(difference->value) < error ? "" : "twice ");
  free(others);
  free(shown);
  free(right);
  free(left);
}

static void compare(FILE *f, const StudyData *d, int measure, Compared *all) {
  const StudyMeasure *m = &d->plan->measures[measure];
  StudyFigure *figures = xcalloc((size_t)d->cells.num_cells, sizeof *figures);
  for (int i = 0; i < d->cells.num_cells; i++) figures[i] = study_figure(d, i, measure);
  for (int a = 0; a < d->cells.num_cells; a++) {
    for (int b = a + 1; b < d->cells.num_cells; b++) {
      const int setting = differing(d->plan, &d->cells.cells[a], &d->cells.cells[b]);
      if (setting < 0 || isnan(figures[a].value) || isnan(figures[b].value)) continue;
      StudyFigure difference = study_difference(d, &figures[a], &figures[b]);
      const double error = study_error(d, &difference);
      all->pairs++;
      all->single += isnan(error);
      const bool close = fabs(difference.value) < study_told_apart * error;
      all->close += close;
      if (close && all->close <= MOST_LINES) print_pair(f, d, a, b, setting, m, figures, &difference, error);
      study_figure_free(&difference);
    }
  }
  for (int i = 0; i < d->cells.num_cells; i++) study_figure_free(&figures[i]);
  free(figures);
}

static bool is_shown(const StudyPlan *p, int measure) {
  for (int t = 0; t < p->num_tables; t++)
    for (int i = 0; i < p->tables[t].shows.n; i++)
      if (p->tables[t].shows.items[i].measure == measure) return true;
  return false;
}

// Of measures that are read, or say what is better.
static void print_differences(FILE *f, const StudyData *d) {
  Compared all = {0};
  fputs(
      "\n## What is not told apart\n\nFigures are means over runs ± their standard error. Settings that differ in one "
      "value are compared; the error of a difference is the square root of the sum of both errors' squares.\n\n",
      f);
  for (int m = 0; m < d->plan->num_measures; m++)
    if (is_shown(d->plan, m) && (!d->plan->measures[m].computed || d->plan->measures[m].better)) compare(f, d, m, &all);
  if (all.close > MOST_LINES) fprintf(f, "- and %d more\n", all.close - MOST_LINES);
  if (all.close) fputc('\n', f);
  fprintf(f, "%d of %d differences are smaller than twice their error", all.close, all.pairs);
  if (all.single) fprintf(f, "; of %d nobody knows the error, as a side has one run alone", all.single);
  fputs(".\n", f);
}

// ---- what failed, and where it ran ----------------------------------------------------------------------------------

static void print_failures(FILE *f, const StudyData *d) {
  const char *title = "\n## Runs without figures\n\n";
  for (int c = 0; c < d->cells.num_cells; c++) {
    for (int i = 0; i < d->num_runs[c]; i++) {
      const StudyRow *row = &d->rows->rows[d->runs[c][i]];
      bool told = row->state == STUDY_OK;
      for (int k = 0; k < i && !told; k++) {
        const StudyRow *before = &d->rows->rows[d->runs[c][k]];
        told = before->state == row->state && before->why && row->why && !strcmp(before->why, row->why);
      }
      if (told) continue;
      int times = 0;
      for (int k = 0; k < d->num_runs[c]; k++) {
        const StudyRow *other = &d->rows->rows[d->runs[c][k]];
        times += other->state == row->state && !strcmp(other->why ? other->why : "", row->why ? row->why : "");
      }
      char *label = study_cell_label(d->plan, &d->cells.cells[c], true);
      fprintf(f, "%s- %s: %s, %d of %d runs: %s\n", title, label, study_states[row->state], times, d->num_runs[c],
              row->why ? row->why : "");
      free(label);
      title = "";
    }
  }
}

typedef struct Names {
  const char *names[32];
  int runs[32], n;
} Names;

static void count_name(Names *all, const char *name) {
  int i = 0;
  while (i < all->n && strcmp(all->names[i], name)) i++;
  if (i == COUNT(all->names)) return;
  if (i == all->n) all->names[all->n++] = name;
  all->runs[i]++;
}

static const char *machine_of(const StudyRow *row) { return row->machine; }
static const char *commit_of(const StudyRow *row) { return row->commit; }

// What the runs of one cell should have in common, by what a setting would read to tell them apart.
static const struct {
  const char *plural, *read;
  const char *(*of)(const StudyRow *row); // NULL: not known
} in_common[] = {{"machines", "machine.…", machine_of}, {"commits", "commit", commit_of}};

static void print_mixed(FILE *f, const StudyData *d, int cell) {
  for (int k = 0; k < COUNT(in_common); k++) {
    Names found = {0};
    for (int i = 0; i < d->num_runs[cell]; i++) {
      const StudyRow *row = &d->rows->rows[d->runs[cell][i]];
      const char *name = in_common[k].of(row);
      if (row->state == STUDY_OK && name) count_name(&found, name);
    }
    if (found.n < 2) continue;
    char *label = study_cell_label(d->plan, &d->cells.cells[cell], true);
    fprintf(f, "- **%s is a mean over %d %s**; a setting with \"read: %s\" tells them apart\n", label, found.n,
            in_common[k].plural, in_common[k].read);
    free(label);
  }
}

static void print_machines(FILE *f, const StudyData *d) {
  Names machines = {0}, commits = {0};
  for (int i = 0; i < d->rows->num_rows; i++) {
    count_name(&machines, d->rows->rows[i].machine);
    if (d->rows->rows[i].commit) count_name(&commits, d->rows->rows[i].commit);
  }
  fputs("\n## Machines\n\n", f);
  for (int i = 0; i < machines.n; i++) fprintf(f, "- %s: %d runs\n", machines.names[i], machines.runs[i]);
  fputs(commits.n ? "- commit" : "", f);
  for (int i = 0; i < commits.n; i++) fprintf(f, "%s %s", i ? "," : "", commits.names[i]);
  fputs(commits.n ? "\n" : "", f);
  for (int c = 0; c < d->cells.num_cells; c++) print_mixed(f, d, c);
}

// What the figures are of: the data, among others.
static void print_givens(FILE *f, const StudyPlan *p) {
  for (int i = 0; i < p->num_givens; i++)
    fprintf(f, "%s%s=%s", i ? ", " : "\nGiven: ", p->givens[i].name, p->givens[i].value);
  fputs(p->num_givens ? ".\n" : "", f);
}

static void print_state(FILE *f, const StudyData *d) {
  int runs = 0, of_runs = 0;
  for (int c = 0; c < d->cells.num_cells; c++) {
    runs += d->num_runs[c];
    of_runs += d->cells.skipped[c] ? d->num_runs[c] : MAX(d->num_runs[c], d->plan->repeats);
  }
  fprintf(f, "\nBy `build/study` from %d of %d runs", runs, of_runs);
  if (d->rows->of_others) fprintf(f, "; %d lines are of settings that the plan does not have", d->rows->of_others);
  if (d->rows->changed) fprintf(f, "; %d runs had another command or value than the plan has", d->rows->changed);
  fputs(".\n", f);
}

bool study_tables_write(const StudyData *d, const char *path, Err *err) {
  AtomicFile out;
  if (!file_begin(&out, path, err)) return false;
  fprintf(out.f, "# %s\n", d->plan->title);
  if (d->plan->about) fprintf(out.f, "\n%s\n", d->plan->about);
  print_givens(out.f, d->plan);
  print_state(out.f, d);
  for (int i = 0; i < d->plan->num_tables; i++) study_table_print(out.f, d, &d->plan->tables[i]);
  for (int i = 0; i < d->plan->num_plots; i++)
    fprintf(out.f, "%s![%s](%s.svg)\n", i ? "" : "\n", d->plan->plots[i].title, d->plan->plots[i].name);
  print_differences(out.f, d);
  print_failures(out.f, d);
  print_machines(out.f, d);
  return file_commit(&out, err);
}

// ---- records --------------------------------------------------------------------------------------------------------

static void add_measure(Record *j, const StudyData *d, int cell, int measure) {
  const StudyMeasure *m = &d->plan->measures[measure];
  StudyFigure figure = study_figure(d, cell, measure);
  Record r = {0};
  record_begin(&r);
  record_num(&r, "mean", figure.value);
  record_num(&r, "error", study_error(d, &figure));
  if (!m->computed) {
    const StudySummary s = study_summary(d, cell, measure);
    record_num(&r, "least", s.least);
    record_num(&r, "most", s.most);
    record_int(&r, "runs", s.n);
  }
  record_str(&r, "unit", m->unit);
  record_raw(j, m->name, record_end(&r));
  record_free(&r);
  study_figure_free(&figure);
}

static void print_cell(FILE *f, const StudyData *d, int cell) {
  const StudyPlan *p = d->plan;
  const StudyCell *c = &d->cells.cells[cell];
  const int state = study_cell_state(d, cell);
  Record j = {0}, part = {0};
  record_begin(&j);
  record_str(&j, "study", p->title);
  record_str(&j, "command", study_value_name(p, c, STUDY_COMMAND));
  record_begin(&part);
  for (int s = 1; s < p->num_settings; s++)
    if (c->value[s] >= 0) record_str(&part, p->settings[s].name, study_value_name(p, c, s));
  record_raw(&j, "settings", record_end(&part));
  record_str(&j, "state", state < 0 ? "not run" : study_states[state]);
  record_begin(&part);
  for (int m = 0; m < p->num_measures; m++)
    if (p->measures[m].of >> c->value[STUDY_COMMAND] & 1) add_measure(&part, d, cell, m);
  record_raw(&j, "measures", record_end(&part));
  if (d->num_runs[cell]) record_str(&j, "machine", d->rows->rows[d->runs[cell][0]].machine);
  fprintf(f, "%s\n", record_end(&j));
  record_free(&j);
  record_free(&part);
}

bool study_cells_write(const StudyData *d, const char *path, Err *err) {
  AtomicFile out;
  if (!file_begin(&out, path, err)) return false;
  for (int i = 0; i < d->cells.num_cells; i++)
    if (!d->cells.skipped[i]) print_cell(out.f, d, i);
  return file_commit(&out, err);
}
