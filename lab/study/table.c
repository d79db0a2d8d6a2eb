#include "lab/study/table.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "lab/study/best.h"
#include "lab/study/figure_text.h"
#include "lab/study/parts.h"

// As the content of a table's cell.
static void print_content(FILE *f, const char *text) {
  for (; *text; text++) {
    if (*text == '|') fputc('\\', f);
    fputc(*text == '\n' ? ' ' : *text, f);
  }
}

// The cell that parts, and what a column asks for, come to; -1: there is none.
static int find_cell(const StudyData *d, StudyCell part, const StudyConditions *at) {
  if (part.value[STUDY_COMMAND] < 0) part.value[STUDY_COMMAND] = 0;
  part = study_cell_at(d->plan, &part, at);
  return study_cells_find(&d->cells, d->plan, &part);
}

// "batch/GPU 4", or the value alone where it is no number; "driver unknown" of what no record has told.
static void print_value(FILE *f, const StudyData *d, const StudyCell *part, int setting) {
  const StudySetting *s = &d->plan->settings[setting];
  const int v = part->value[setting];
  const bool number = v >= 0 && isfinite(s->values[v].number);
  const char *name = v >= 0 && setting == STUDY_COMMAND ? s->values[v].text : study_value_name(d->plan, part, setting);
  if (number || (v < 0 && s->path)) fprintf(f, "%s ", s->label);
  print_content(f, v < 0 && s->path ? "unknown" : name);
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
  StudyParts rows;
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
    StudyCell row = study_overlay(group, &l->rows.cells[i]);
    const int cell = find_cell(l->d, study_overlay(&row, part), &shown->at);
    if (cell >= 0 && !isnan(study_published_figure(l->d->plan, block, &l->d->cells.cells[cell], shown->measure)))
      return true;
  }
  return false;
}

// Whether the block's figures stand there already, beside a value that it does not tell from this one.
static bool is_repeated(const TableLayout *l, const StudyShown *shown, const StudyCell *part, int block) {
  for (int c = 0; c < l->num_columns; c++) {
    bool same = l->columns[c].shown == shown && l->columns[c].block == block;
    for (int i = 0; same && i < l->t->num_columns; i++) {
      const int s = l->t->columns[i];
      same = l->columns[c].part.value[s] == part->value[s] || !study_published_names(l->d->plan, block, s);
    }
    if (same) return true;
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
  StudyParts parts = {0};
  for (int i = 0; i < d->cells.num_cells; i++) {
    const StudyCell *cell = &d->cells.cells[i];
    if (!is_shown(d, i) || !study_within(d->plan, cell, group)) continue;
    study_parts_add(&l->rows, cell, t->rows, t->num_rows);
    study_parts_add(&parts, cell, t->columns, t->num_columns);
  }
  for (int i = 0; i < t->shows.n; i++) {
    for (int c = 0; c < parts.n; c++) {
      if (!wants(l, &t->shows.items[i], &parts.cells[c])) continue;
      add_column(l, &t->shows.items[i], &parts.cells[c], -1);
      for (int b = 0; b < d->plan->num_published; b++)
        if (block_has(l, group, &t->shows.items[i], &parts.cells[c], b) &&
            !is_repeated(l, &t->shows.items[i], &parts.cells[c], b))
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
  if (!unused || study_listed(l->t->rows, l->t->num_rows, STUDY_COMMAND)) return false;
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
      const int s = l->t->columns[i];
      if (column->block >= 0 && !study_published_names(p, column->block, s)) continue;
      if (column->part.value[s] < 0 && !p->settings[s].path) continue; // the command does not use it
      fputs(", ", f);
      print_value(f, l->d, &column->part, s);
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
  const StudyPlan *p = d->plan;
  const int m = column->shown->measure;
  if (cell < 0) return xstrdup("");
  if (column->block >= 0) {
    const char *theirs = study_published_text(p, column->block, &d->cells.cells[cell], m);
    return xstrdup(theirs ? theirs : "");
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
    const StudyCell *row = &l->rows.cells[i], part = study_overlay(group, row);
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
      const int cell = find_cell(l->d, study_overlay(&part, &l->columns[c].part), &l->columns[c].shown->at);
      char *text = content_of(l->d, cell, &l->columns[c]);
      fprintf(f, " %s |", text);
      free(text);
    }
    fputc('\n', f);
  }
}

// ---- all of it ------------------------------------------------------------------------------------------------------

void study_table_print(FILE *f, const StudyData *d, const StudyTable *t) {
  TableLayout l = {.d = d, .t = t};
  StudyParts groups = {0};
  for (int s = d->plan->num_commands > 1 ? 0 : 1; s < d->plan->num_settings; s++)
    if (!study_listed(t->rows, t->num_rows, s) && !study_listed(t->columns, t->num_columns, s))
      l.others[l.num_others++] = s;
  for (int i = 0; i < d->cells.num_cells; i++)
    if (is_shown(d, i)) study_parts_add(&groups, &d->cells.cells[i], l.others, l.num_others);
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
    if (t->num_best) study_best_print(f, d, t, &groups.cells[g]);
    free(l.rows.cells);
    free(l.columns);
    l.rows = (StudyParts){0};
    l.columns = NULL;
    l.num_columns = 0;
    l.cap = 0;
  }
  free(groups.cells);
}
