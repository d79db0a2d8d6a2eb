#include "lab/study/queue.h"
#include <math.h>
#include <stdlib.h>

static bool was_run(const StudyPlan *p, const StudyRows *rows, const StudyCell *cell, int repeat) {
  for (int i = 0; i < rows->num_rows; i++)
    if (rows->rows[i].repeat == repeat && study_cell_same_run(p, &rows->rows[i].cell, cell)) return true;
  return false;
}

static bool was_left(const StudyPlan *p, const StudyRows *rows, const StudyCell *cell, int repeat) {
  for (int i = 0; i < rows->num_left; i++)
    if (rows->left[i].repeat == repeat && study_cell_same_run(p, &rows->left[i].cell, cell)) return true;
  return false;
}

StudyQueue study_queue(const StudyPlan *p, const StudyRows *rows, const StudyConditions *only) {
  StudyQueue q = {.cells = study_cells(p)};
  int n;
  q.runs = study_order(&q.cells, p, &n);
  for (int i = 0; i < n; i++) {
    const StudyCell *cell = &q.cells.cells[q.runs[i].cell];
    if (only && !study_conditions_hold(only, p, cell)) continue;
    q.all++;
    if (was_run(p, rows, cell, q.runs[i].repeat)) continue;
    q.runs[q.n] = q.runs[i];
    q.runs[q.n++].alone = was_left(p, rows, cell, q.runs[i].repeat);
  }
  return q;
}

void study_queue_free(StudyQueue *q) {
  study_cells_free(&q->cells);
  free(q->runs);
  *q = (StudyQueue){0};
}

int study_queue_turn(const StudyPlan *p, const StudyQueue *q, int from, StudyCell cells[STUDY_MAX_VALUES]) {
  const StudyCell *first = &q->cells.cells[q->runs[from].cell], first_unswept = study_cell_unswept(p, first);
  int n = 0;
  cells[n++] = *first;
  const bool sweeps = study_swept(p, first) != STUDY_COMMAND && !q->runs[from].alone;
  for (int i = from + 1; sweeps && i < q->n; i++) {
    const StudyCell *cell = &q->cells.cells[q->runs[i].cell], unswept = study_cell_unswept(p, cell);
    if (q->runs[i].alone || q->runs[i].repeat != q->runs[from].repeat || !study_cell_equal(p, &unswept, &first_unswept))
      break;
    cells[n++] = *cell;
  }
  return n;
}

static double seconds_of(const StudyPlan *p, const StudyRows *rows, const StudyCell *cell) {
  enum { SAME, COMMAND, ANY, KINDS };
  double sums[KINDS] = {0};
  int counts[KINDS] = {0};
  for (int i = 0; i < rows->num_rows; i++) {
    const StudyRow *row = &rows->rows[i];
    if (isnan(row->seconds)) continue;
    int kind = row->cell.value[STUDY_COMMAND] == cell->value[STUDY_COMMAND] ? COMMAND : ANY;
    if (study_cell_equal(p, &row->cell, cell)) kind = SAME;
    sums[kind] += row->seconds;
    counts[kind]++;
  }
  for (int i = 0; i < KINDS; i++)
    if (counts[i]) return sums[i] / counts[i];
  return NAN;
}

double study_seconds_left(const StudyPlan *p, const StudyRows *rows, const StudyQueue *q, int from) {
  double left = 0;
  for (int i = from; i < q->n; i++) left += seconds_of(p, rows, &q->cells.cells[q->runs[i].cell]);
  return left;
}
