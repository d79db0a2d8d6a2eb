#include "tools/study/table.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/record.h"

const double study_told_apart = 2;

enum { UNSAID = -2 }; // of a cell in which only some settings count

// ---- text -----------------------------------------------------------------------------------------------------------

// Digits behind the point with which `value` shows `figures` significant ones.
static int digits_for(double value, int figures) {
  if (!(fabs(value) > 0)) return 0;
  return MIN(MAX(figures - 1 - (int)floor(log10(fabs(value))), 0), 9);
}

char *study_figure_text(const StudyData *d, const StudyFigure *f, const StudyMeasure *m) {
  double error = study_error(d, f);
  if (isnan(f->value)) return xstrdup("–");
  if (error <= 1e-12 * fabs(f->value)) error = NAN; // runs that are equal, or a ratio to itself
  int digits = m->digits;
  if (digits < 0) digits = error > 0 ? digits_for(error, 2) : f->value == floor(f->value) ? 0 : digits_for(f->value, 4);
  if (isnan(error)) return xasprintf("%.*f", digits, f->value);
  return xasprintf("%.*f ± %.*f", digits, f->value, digits, error);
}

char *study_measure_title(const StudyMeasure *m) {
  return m->unit ? xasprintf("%s, %s", m->label, m->unit) : xstrdup(m->label);
}

// As the content of a table's cell.
static void print_content(FILE *f, const char *text) {
  for (; *text; text++) {
    if (*text == '|') fputc('\\', f);
    fputc(*text == '\n' ? ' ' : *text, f);
  }
}

// ---- parts of cells -------------------------------------------------------------------------------------------------

typedef struct CellParts {
  StudyCell *cells; // UNSAID but for the settings that it is about
  int n;
  size_t cap;
} CellParts;

static StudyCell part_of(const StudyCell *cell, const int *settings, int n) {
  StudyCell part;
  for (int s = 0; s < STUDY_MAX_SETTINGS; s++) part.value[s] = UNSAID;
  for (int i = 0; i < n; i++) part.value[settings[i]] = cell->value[settings[i]];
  return part;
}

static int compare_parts(const StudyCell *a, const StudyCell *b, const int *settings, int n) {
  for (int i = 0; i < n; i++) {
    const int difference = a->value[settings[i]] - b->value[settings[i]];
    if (difference) return difference;
  }
  return 0;
}

// In order of the values.
static void add_part(CellParts *p, const StudyCell *cell, const int *settings, int n) {
  const StudyCell part = part_of(cell, settings, n);
  int at = 0;
  while (at < p->n && compare_parts(&p->cells[at], &part, settings, n) < 0) at++;
  if (at < p->n && !compare_parts(&p->cells[at], &part, settings, n)) return;
  array_reserve((void **)&p->cells, &p->cap, (size_t)p->n + 1, sizeof *p->cells);
  memmove(&p->cells[at + 1], &p->cells[at], (size_t)(p->n - at) * sizeof *p->cells);
  p->cells[at] = part;
  p->n++;
}

static bool is_within(const StudyData *d, const StudyCell *cell, const StudyCell *part) {
  for (int s = 0; s < d->plan->num_settings; s++)
    if (part->value[s] != UNSAID && part->value[s] != cell->value[s]) return false;
  return true;
}

static bool in_list(const int *settings, int n, int setting) {
  for (int i = 0; i < n; i++)
    if (settings[i] == setting) return true;
  return false;
}

// The one part with values for what the other leaves unsaid.
static StudyCell overlay(const StudyCell *a, const StudyCell *b) {
  StudyCell out = *a;
  for (int s = 0; s < STUDY_MAX_SETTINGS; s++)
    if (b->value[s] != UNSAID) out.value[s] = b->value[s];
  return out;
}

// The cell that parts, and what a column asks for, come to; -1: there is none.
static int find_cell(const StudyData *d, StudyCell part, const StudyConditions *at) {
  if (part.value[STUDY_COMMAND] < 0) part.value[STUDY_COMMAND] = 0;
  part = study_cell_at(d->plan, &part, at);
  return study_cells_find(&d->cells, d->plan, &part);
}

// "batch/GPU 4", or the value alone where it is no number.
static void print_value(FILE *f, const StudyData *d, const StudyCell *part, int setting) {
  const StudySetting *s = &d->plan->settings[setting];
  const int v = part->value[setting];
  const bool number = v >= 0 && isfinite(s->values[v].number);
  const char *name = v >= 0 && setting == STUDY_COMMAND ? s->values[v].text : study_value_name(d->plan, part, setting);
  if (number) fprintf(f, "%s ", s->label);
  print_content(f, name);
  if (number && s->unit) fprintf(f, " %s", s->unit);
}

// ---- a table --------------------------------------------------------------------------------------------------------

typedef struct TableColumn {
  const StudyShown *shown;
  StudyCell part;
  int block; // of published figures; -1: ours
} TableColumn;

typedef struct TableLayout {
  const StudyData *d;
  const StudyTable *t;
  int others[STUDY_MAX_SETTINGS], num_others; // settings that are neither rows nor columns
  CellParts rows;
  TableColumn *columns;
  int num_columns;
  size_t cap;
} TableLayout;

static bool any_published(const StudyData *d, const StudyCell *cell) {
  for (int b = 0; b < d->plan->num_published; b++)
    for (int m = 0; m < d->plan->num_measures; m++)
      if (!isnan(study_published_figure(d->plan, b, cell, m))) return true;
  return false;
}

// What is left out of the plan is shown only where others have a figure.
static bool is_shown(const StudyData *d, int cell) {
  return !d->cells.skipped[cell] || any_published(d, &d->cells.cells[cell]);
}

static void add_column(TableLayout *l, const StudyShown *shown, const StudyCell *part, int block) {
  array_reserve((void **)&l->columns, &l->cap, (size_t)l->num_columns + 1, sizeof *l->columns);
  l->columns[l->num_columns++] = (TableColumn){shown, *part, block};
}

// Whether any row has a figure of the block there.
static bool block_has(const TableLayout *l, const StudyCell *group, const StudyShown *shown, const StudyCell *part,
                      int block) {
  for (int i = 0; i < l->rows.n; i++) {
    StudyCell row = overlay(group, &l->rows.cells[i]);
    const int cell = find_cell(l->d, overlay(&row, part), &shown->at);
    if (cell >= 0 && !isnan(study_published_figure(l->d->plan, block, &l->d->cells.cells[cell], shown->measure)))
      return true;
  }
  return false;
}

// Whether a measure is shown for this part of the columns.
static bool wants(const TableLayout *l, const StudyShown *shown, const StudyCell *part) {
  const int command = part->value[STUDY_COMMAND];
  if (command >= 0 && !(l->d->plan->measures[shown->measure].of >> command & 1)) return false;
  for (int i = 0; i < l->t->num_columns; i++) {
    const int s = l->t->columns[i];
    if (study_conditions_name(&shown->at, s) && (part->value[s] < 0 || !(shown->at.allowed[s] >> part->value[s] & 1)))
      return false;
  }
  return true;
}

static void lay_out(TableLayout *l, const StudyCell *group) {
  const StudyData *d = l->d;
  const StudyTable *t = l->t;
  CellParts parts = {0};
  for (int i = 0; i < d->cells.num_cells; i++) {
    const StudyCell *cell = &d->cells.cells[i];
    if (!is_shown(d, i) || !is_within(d, cell, group)) continue;
    add_part(&l->rows, cell, t->rows, t->num_rows);
    add_part(&parts, cell, t->columns, t->num_columns);
  }
  for (int i = 0; i < t->shows.n; i++) {
    for (int c = 0; c < parts.n; c++) {
      if (!wants(l, &t->shows.items[i], &parts.cells[c])) continue;
      add_column(l, &t->shows.items[i], &parts.cells[c], -1);
      for (int b = 0; b < d->plan->num_published; b++)
        if (block_has(l, group, &t->shows.items[i], &parts.cells[c], b))
          add_column(l, &t->shows.items[i], &parts.cells[c], b);
    }
  }
  free(parts.cells);
}

// A row of one command's stands beside another that has no use for the setting: the other's figure is in every row, and
// needs none of its own.
static bool is_covered(const TableLayout *l, const StudyCell *row) {
  bool unused = false;
  for (int i = 0; i < l->t->num_rows; i++) unused |= row->value[l->t->rows[i]] < 0;
  if (!unused || in_list(l->t->rows, l->t->num_rows, STUDY_COMMAND)) return false;
  for (int k = 0; k < l->rows.n; k++) {
    const StudyCell *other = &l->rows.cells[k];
    bool covers = other != row;
    for (int i = 0; covers && i < l->t->num_rows; i++) {
      const int mine = row->value[l->t->rows[i]], theirs = other->value[l->t->rows[i]];
      covers = theirs >= 0 && (mine < 0 || mine == theirs);
    }
    if (covers) return true;
  }
  return false;
}

static void print_head(FILE *f, const TableLayout *l) {
  const StudyPlan *p = l->d->plan;
  fputc('|', f);
  for (int i = 0; i < l->t->num_rows; i++) {
    const StudySetting *s = &p->settings[l->t->rows[i]];
    fputc(' ', f);
    print_content(f, s->label);
    fprintf(f, s->unit ? ", %s |" : " |", s->unit);
  }
  for (int c = 0; c < l->num_columns; c++) {
    const TableColumn *column = &l->columns[c];
    char *title = study_measure_title(&p->measures[column->shown->measure]);
    fputc(' ', f);
    print_content(f, title);
    free(title);
    for (int i = 0; i < l->t->num_columns; i++) {
      fputs(", ", f);
      print_value(f, l->d, &column->part, l->t->columns[i]);
    }
    if (column->block >= 0) {
      fputs(": ", f);
      print_content(f, p->published[column->block].label);
    }
    fputs(" |", f);
  }
  fputs("\n|", f);
  for (int i = 0; i < l->t->num_rows; i++) fputs("---|", f);
  for (int c = 0; c < l->num_columns; c++) fputs("---:|", f);
  fputc('\n', f);
}

static char *content_of(const StudyData *d, int cell, const TableColumn *column) {
  char number[NUMBER_TEXT];
  const StudyPlan *p = d->plan;
  const int m = column->shown->measure;
  if (cell < 0) return xstrdup("");
  if (column->block >= 0) {
    const double v = study_published_figure(p, column->block, &d->cells.cells[cell], m);
    return xstrdup(isnan(v) ? "" : number_text(v, number));
  }
  if (!(p->measures[m].of >> d->cells.cells[cell].value[STUDY_COMMAND] & 1)) return xstrdup("");
  const int state = study_cell_state(d, cell);
  StudyFigure figure = study_figure(d, cell, m);
  char *text;
  if (d->num_runs[cell] && !isnan(figure.value)) {
    char *bare = study_figure_text(d, &figure, &p->measures[m]);
    text = figure.runs < p->repeats && !p->measures[m].computed
               ? xasprintf("%s (%d of %d)", bare, figure.runs, MAX(p->repeats, figure.of_runs))
               : xstrdup(bare);
    free(bare);
  } else {
    text = xstrdup(d->cells.skipped[cell] ? "left out" : state < 0 ? "not run" : state ? study_states[state] : "–");
  }
  study_figure_free(&figure);
  return text;
}

static void print_rows(FILE *f, const TableLayout *l, const StudyCell *group) {
  const StudyPlan *p = l->d->plan;
  for (int i = 0; i < l->rows.n; i++) {
    const StudyCell *row = &l->rows.cells[i], part = overlay(group, row);
    if (is_covered(l, row)) continue;
    fputc('|', f);
    for (int s = 0; s < l->t->num_rows; s++) {
      const int setting = l->t->rows[s], v = row->value[setting];
      fputc(' ', f);
      print_content(f, setting == STUDY_COMMAND && v >= 0 ? p->settings[setting].values[v].text
                                                          : study_value_name(p, row, setting));
      fputs(" |", f);
    }
    for (int c = 0; c < l->num_columns; c++) {
      const int cell = find_cell(l->d, overlay(&part, &l->columns[c].part), &l->columns[c].shown->at);
      char *text = content_of(l->d, cell, &l->columns[c]);
      fprintf(f, " %s |", text);
      free(text);
    }
    fputc('\n', f);
  }
}

// ---- the best -------------------------------------------------------------------------------------------------------

static bool not_told_apart(const StudyData *d, const StudyFigure *a, const StudyFigure *b) {
  StudyFigure difference = study_difference(d, a, b);
  const double error = study_error(d, &difference);
  const bool close = !(fabs(difference.value) >= study_told_apart * error); // of unknown error, too
  study_figure_free(&difference);
  return close;
}

// "batch=4, 12.0 ± 1.2", of the settings among which the best is named.
static void print_place(FILE *f, const StudyData *d, const StudyTable *t, int cell, const StudyFigure *figure,
                        const StudyMeasure *m, const char *open, const char *close) {
  const StudyCell place = part_of(&d->cells.cells[cell], t->best, t->num_best);
  char *label = study_cell_label(d->plan, &place, true), *text = study_figure_text(d, figure, m);
  fprintf(f, "%s%s%s%s", label, open, text, close);
  free(label);
  free(text);
}

// Among the cells within `part`.
static void print_best(FILE *f, const StudyData *d, const StudyTable *t, const StudyShown *shown,
                       const StudyCell *part) {
  const StudyMeasure *m = &d->plan->measures[shown->measure];
  StudyFigure *figures = xcalloc((size_t)d->cells.num_cells, sizeof *figures);
  int best = -1, n = 0;
  for (int i = 0; i < d->cells.num_cells; i++) {
    const StudyCell *cell = &d->cells.cells[i];
    figures[i] = study_figure(d, i, shown->measure);
    if (!d->num_runs[i] || !is_within(d, cell, part) || !study_conditions_hold(&shown->at, d->plan, cell))
      figures[i].value = NAN;
    if (isnan(figures[i].value)) continue;
    n++;
    if (best < 0 || m->better * (figures[i].value - figures[best].value) > 0) best = i;
  }
  if (n > 1) {
    StudyCell others = *part;
    if (d->plan->num_commands == 1) others.value[STUDY_COMMAND] = UNSAID;
    char *rest = study_cell_label(d->plan, &others, true);
    fprintf(f, *rest ? "\nBest %s (%s): " : "\nBest %s: ", m->label, rest);
    free(rest);
    print_place(f, d, t, best, &figures[best], m, ", ", m->unit ? " " : "");
    fputs(m->unit ? m->unit : "", f);
    const char *before = "; not told apart from it: ";
    for (int i = 0; i < d->cells.num_cells; i++) {
      if (i == best || isnan(figures[i].value) || !not_told_apart(d, &figures[best], &figures[i])) continue;
      fputs(before, f);
      print_place(f, d, t, i, &figures[i], m, " (", ")");
      before = ", ";
    }
    fputs(".\n", f);
  }
  for (int i = 0; i < d->cells.num_cells; i++) study_figure_free(&figures[i]);
  free(figures);
}

// For each combination of the settings that the best is not among.
static void print_all_best(FILE *f, const StudyData *d, const StudyTable *t, const StudyCell *group) {
  int rest[STUDY_MAX_SETTINGS], n = 0;
  CellParts parts = {0};
  for (int s = 0; s < d->plan->num_settings; s++)
    if (!in_list(t->best, t->num_best, s)) rest[n++] = s;
  for (int i = 0; i < d->cells.num_cells; i++)
    if (is_within(d, &d->cells.cells[i], group)) add_part(&parts, &d->cells.cells[i], rest, n);
  for (int i = 0; i < t->shows.n; i++)
    for (int k = 0; k < parts.n && d->plan->measures[t->shows.items[i].measure].better; k++)
      print_best(f, d, t, &t->shows.items[i], &parts.cells[k]);
  free(parts.cells);
}

void study_table_print(FILE *f, const StudyData *d, const StudyTable *t) {
  TableLayout l = {.d = d, .t = t};
  CellParts groups = {0};
  for (int s = d->plan->num_commands > 1 ? 0 : 1; s < d->plan->num_settings; s++)
    if (!in_list(t->rows, t->num_rows, s) && !in_list(t->columns, t->num_columns, s)) l.others[l.num_others++] = s;
  for (int i = 0; i < d->cells.num_cells; i++)
    if (is_shown(d, i)) add_part(&groups, &d->cells.cells[i], l.others, l.num_others);
  for (int g = 0; g < groups.n; g++) {
    fprintf(f, "\n## %s", t->title);
    for (int i = 0; i < l.num_others; i++) {
      fputs(i ? ", " : ": ", f);
      print_value(f, d, &groups.cells[g], l.others[i]);
    }
    fputs("\n\n", f);
    lay_out(&l, &groups.cells[g]);
    print_head(f, &l);
    print_rows(f, &l, &groups.cells[g]);
    if (t->num_best) print_all_best(f, d, t, &groups.cells[g]);
    free(l.rows.cells);
    free(l.columns);
    l.rows = (CellParts){0};
    l.columns = NULL;
    l.num_columns = 0;
    l.cap = 0;
  }
  free(groups.cells);
}
