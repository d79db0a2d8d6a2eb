#include "lab/study/figures.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

static const double HALF_ULP = DBL_EPSILON / 2; // of numbers near 1

// ---- cells ----------------------------------------------------------------------------------------------------------

static bool has_found(const StudyPlan *p) {
  bool found = false;
  for (int s = 0; s < p->num_settings; s++) found |= p->settings[s].path != NULL;
  return found;
}

static StudyCell without_found(const StudyPlan *p, StudyCell cell) {
  for (int s = 0; s < p->num_settings; s++)
    if (p->settings[s].path) cell.value[s] = -1;
  return cell;
}

// In the plan's order; behind a cell of the plan, and in its place, what was found of it, by name.
static StudyCells all_cells(const StudyPlan *p, const StudyRows *rows) {
  StudyCells plain = study_cells(p), all = {0};
  for (int i = 0; i < plain.num_cells; i++) {
    const int before = all.num_cells;
    for (int r = 0; r < rows->num_rows; r++) {
      const StudyCell *cell = &rows->rows[r].cell, bare = without_found(p, *cell);
      if (study_cell_equal(p, &bare, &plain.cells[i]) && study_cells_find(&all, p, cell) < 0)
        study_cells_add(&all, cell, plain.skipped[i]);
    }
    if (all.num_cells == before) study_cells_add(&all, &plain.cells[i], plain.skipped[i]);
  }
  study_cells_free(&plain);
  return all;
}

static bool has_run(const StudyPlan *p, const StudyRows *rows, const StudyCell *cell) {
  for (int r = 0; r < rows->num_rows; r++)
    if (study_cell_equal(p, &rows->rows[r].cell, cell)) return true;
  return false;
}

static void keep_wanted(StudyCells *c, const StudyPlan *p, const StudyRows *rows, const StudyConditions *only) {
  int kept = 0;
  for (int i = 0; i < c->num_cells; i++) {
    if (!study_conditions_hold(only, p, &c->cells[i]) && !has_run(p, rows, &c->cells[i])) continue;
    c->cells[kept] = c->cells[i];
    c->skipped[kept++] = c->skipped[i];
  }
  c->num_cells = kept;
}

StudyData study_data(const StudyPlan *p, const StudyRows *rows, const StudyConditions *only) {
  StudyData d = {.plan = p, .rows = rows, .cells = has_found(p) ? all_cells(p, rows) : study_cells(p)};
  if (only) keep_wanted(&d.cells, p, rows, only);
  d.runs = xcalloc((size_t)d.cells.num_cells, sizeof *d.runs);
  d.num_runs = xcalloc((size_t)d.cells.num_cells, sizeof *d.num_runs);
  for (int i = 0; i < d.cells.num_cells; i++) {
    d.runs[i] = xcalloc((size_t)rows->num_rows + 1, sizeof *d.runs[i]);
    for (int r = 0; r < rows->num_rows; r++)
      if (study_cell_equal(p, &rows->rows[r].cell, &d.cells.cells[i])) d.runs[i][d.num_runs[i]++] = r;
  }
  return d;
}

void study_data_free(StudyData *d) {
  for (int i = 0; i < d->cells.num_cells; i++) free(d->runs[i]);
  free(d->runs);
  free(d->num_runs);
  study_cells_free(&d->cells);
  *d = (StudyData){0};
}

int study_cell_state(const StudyData *d, int cell) {
  int state = -1;
  for (int i = 0; i < d->num_runs[cell]; i++) {
    const int run = (int)d->rows->rows[d->runs[cell][i]].state;
    state = state < 0 || state == run ? run : STUDY_FAILED;
  }
  return state;
}

// ---- means ----------------------------------------------------------------------------------------------------------

static double value_of(const StudyData *d, int cell, int run, int measure) {
  return d->rows->rows[d->runs[cell][run]].values[measure];
}

// The mean is summed from the first value on, so that it is off by its own rounding alone.
StudySummary study_summary(const StudyData *d, int cell, int measure) {
  StudySummary s = {.mean = NAN, .error = NAN, .least = NAN, .most = NAN};
  double first = NAN, sum = 0, squares = 0;
  for (int i = 0; i < d->num_runs[cell]; i++) {
    const double v = value_of(d, cell, i, measure);
    if (isnan(v)) continue;
    if (!s.n++) first = v;
    sum += v - first;
    s.least = fmin(s.least, v);
    s.most = fmax(s.most, v);
  }
  if (!s.n) return s;
  s.mean = first + sum / s.n;
  for (int i = 0; i < d->num_runs[cell]; i++) {
    const double off = value_of(d, cell, i, measure) - s.mean;
    if (!isnan(off)) squares += off * off;
  }
  if (s.n > 1) s.error = sqrt(squares / ((double)s.n * (s.n - 1)));
  return s;
}

static StudyFigure constant(const StudyData *d, double value) {
  return (StudyFigure){.value = value, .moves = xcalloc((size_t)d->rows->num_rows + 1, sizeof(double))};
}

static StudyFigure mean(const StudyData *d, int cell, int measure) {
  const StudySummary s = study_summary(d, cell, measure);
  StudyFigure f = constant(d, s.mean);
  f.measured = s.n > 0;
  f.single = s.n == 1;
  f.rounding = HALF_ULP * fmax(fabs(s.least), fabs(s.most));
  for (int i = 0; i < d->num_runs[cell] && s.n > 1; i++) {
    const double off = value_of(d, cell, i, measure) - s.mean;
    if (!isnan(off)) f.moves[d->runs[cell][i]] = off / sqrt((double)s.n * (s.n - 1));
  }
  return f;
}

// a becomes `value`, which moves by da and db for what a and b do; b is freed.
static void combine(const StudyData *d, StudyFigure *a, StudyFigure *b, double value, double da, double db) {
  a->value = value;
  a->rounding = fabs(da) * a->rounding + fabs(db) * b->rounding + HALF_ULP * fabs(value);
  for (int i = 0; i < d->rows->num_rows; i++) a->moves[i] = da * a->moves[i] + db * b->moves[i];
  a->measured |= b->measured;
  a->single |= b->single;
  study_figure_free(b);
}

static void compute(const StudyData *d, StudyTermKind kind, StudyFigure *a, StudyFigure *b) {
  const double x = a->value, y = b->value;
  switch (kind) {
  case TERM_ADD: combine(d, a, b, x + y, 1, 1); break;
  case TERM_SUBTRACT: combine(d, a, b, x - y, 1, -1); break;
  case TERM_MULTIPLY: combine(d, a, b, x * y, y, x); break;
  default: combine(d, a, b, x / y, 1 / y, -x / (y * y)); break;
  }
  const bool sum = kind == TERM_ADD || kind == TERM_SUBTRACT;
  if (sum && isfinite(a->rounding) && fabs(a->value) <= a->rounding) a->value = 0; // its terms cancel
}

// ---- expressions ----------------------------------------------------------------------------------------------------

static StudyFigure evaluate(const StudyData *d, int cell, const StudyExpression *e);

static StudyFigure measured(const StudyData *d, int cell, int measure) {
  const StudyMeasure *m = &d->plan->measures[measure];
  return m->computed ? evaluate(d, cell, &m->value) : mean(d, cell, measure);
}

static StudyFigure term_value(const StudyData *d, int cell, const StudyTerm *t) {
  const StudyPlan *p = d->plan;
  const StudyCell *here = &d->cells.cells[cell];
  if (t->kind == TERM_NUMBER) return constant(d, t->number);
  if (t->kind == TERM_PUBLISHED) return constant(d, study_published_figure(p, t->block, here, t->index));
  if (t->kind == TERM_SETTING) {
    const int v = here->value[t->index];
    return constant(d, v < 0 ? NAN : p->settings[t->index].values[v].number);
  }
  if (t->at) {
    StudyCell there = study_cell_at(p, here, t->at);
    cell = study_cells_find(&d->cells, p, &there);
    if (cell < 0) return constant(d, NAN);
  }
  if (t->kind == TERM_MEASURE) return measured(d, cell, t->index);
  const StudySummary s = study_summary(d, cell, t->index);
  return constant(d, t->kind == TERM_LEAST ? s.least : t->kind == TERM_MOST ? s.most : s.n);
}

static StudyFigure evaluate(const StudyData *d, int cell, const StudyExpression *e) {
  StudyFigure *stack = xcalloc((size_t)e->depth + 1, sizeof *stack);
  int n = 0;
  for (int i = 0; i < e->num_terms; i++) {
    const StudyTerm *t = &e->terms[i];
    if (t->kind == TERM_NEGATE) {
      StudyFigure zero = constant(d, 0);
      combine(d, &stack[n - 1], &zero, -stack[n - 1].value, -1, 0);
    } else if (t->kind >= TERM_ADD) {
      compute(d, t->kind, &stack[n - 2], &stack[n - 1]);
      n--;
    } else {
      stack[n++] = term_value(d, cell, t);
    }
  }
  StudyFigure result = stack[0];
  free(stack);
  return result;
}

StudyFigure study_figure(const StudyData *d, int cell, int measure) {
  const StudyMeasure *m = &d->plan->measures[measure];
  StudyFigure f = measured(d, cell, measure);
  f.runs = f.of_runs = d->num_runs[cell];
  if (!m->computed) f.runs = study_summary(d, cell, measure).n;
  if (!isfinite(f.value) || !(m->of >> d->cells.cells[cell].value[STUDY_COMMAND] & 1)) f.value = NAN;
  return f;
}

StudyFigure study_difference(const StudyData *d, const StudyFigure *a, const StudyFigure *b) {
  StudyFigure f = constant(d, a->value), other = constant(d, b->value);
  memcpy(f.moves, a->moves, (size_t)d->rows->num_rows * sizeof *f.moves);
  memcpy(other.moves, b->moves, (size_t)d->rows->num_rows * sizeof *f.moves);
  f.measured = a->measured;
  other.measured = b->measured;
  f.single = a->single;
  f.rounding = a->rounding;
  other.rounding = b->rounding;
  other.single = b->single;
  compute(d, TERM_SUBTRACT, &f, &other);
  return f;
}

double study_error(const StudyData *d, const StudyFigure *f) {
  double squares = 0;
  if (!f->measured || f->single || isnan(f->value)) return NAN;
  for (int i = 0; i < d->rows->num_rows; i++) squares += f->moves[i] * f->moves[i];
  const double error = sqrt(squares);
  return error <= f->rounding ? 0 : error;
}

void study_figure_free(StudyFigure *f) {
  free(f->moves);
  f->moves = NULL;
}
