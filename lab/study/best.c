#include "lab/study/best.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "lab/study/figure_text.h"
#include "lab/study/parts.h"

const double study_told_apart = 2;

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
  const StudyCell place = study_part(&d->cells.cells[cell], t->best, t->num_best);
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
    if (!d->num_runs[i] || !study_within(d->plan, cell, part) || !study_conditions_hold(&shown->at, d->plan, cell))
      figures[i].value = NAN;
    if (isnan(figures[i].value)) continue;
    n++;
    if (best < 0 || m->better * (figures[i].value - figures[best].value) > 0) best = i;
  }
  if (n > 1) {
    StudyCell others = *part;
    if (d->plan->num_commands == 1) others.value[STUDY_COMMAND] = STUDY_UNSAID;
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

void study_best_print(FILE *f, const StudyData *d, const StudyTable *t, const StudyCell *group) {
  int rest[STUDY_MAX_SETTINGS], n = 0;
  StudyParts parts = {0};
  for (int s = 0; s < d->plan->num_settings; s++)
    if (!study_listed(t->best, t->num_best, s)) rest[n++] = s;
  for (int i = 0; i < d->cells.num_cells; i++)
    if (study_within(d->plan, &d->cells.cells[i], group)) study_parts_add(&parts, &d->cells.cells[i], rest, n);
  for (int i = 0; i < t->shows.n; i++)
    for (int k = 0; k < parts.n && d->plan->measures[t->shows.items[i].measure].better; k++)
      print_best(f, d, t, &t->shows.items[i], &parts.cells[k]);
  free(parts.cells);
}
