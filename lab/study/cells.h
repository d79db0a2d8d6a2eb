// The cells of a plan, and the order in which they are run.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "lab/study/plan.h"

typedef struct StudyCells {
  StudyCell *cells; // of each command all combinations of the settings that it uses
  bool *skipped;    // by the plan
  int num_cells;
  size_t cap;
} StudyCells;

typedef struct StudyRun {
  int cell, repeat; // repeat: from 1
  bool alone;       // it is not swept with others: a sweep of it has failed
} StudyRun;

StudyCells study_cells(const StudyPlan *p);
void study_cells_add(StudyCells *c, const StudyCell *cell, bool skipped);
void study_cells_free(StudyCells *c);
int study_cells_find(const StudyCells *c, const StudyPlan *p, const StudyCell *cell); // -1: none
// All runs of cells that are not skipped, by repeats, and within each in a random order that follows from the plan's
// seed and the cell alone; what one command sweeps stays together. *n: how many. malloc'ed.
StudyRun *study_order(const StudyCells *c, const StudyPlan *p, int *n);

// The cell with -1 for the setting that its command sweeps: all cells that have this in common may run as one.
StudyCell study_cell_unswept(const StudyPlan *p, const StudyCell *cell);
// "1,2,4": the texts of the swept setting, of cells of one command. malloc'ed; NULL: it sweeps none.
char *study_swept_text(const StudyPlan *p, const StudyCell *cells, int n);

// "gpus=1 batch=2", with the command in front where the plan has several. found: with settings that are found in
// records. malloc'ed.
char *study_cell_label(const StudyPlan *p, const StudyCell *cell, bool found);
// The same for the cells of one sweep, with "batch=1,2,4".
char *study_turn_label(const StudyPlan *p, const StudyCell *cells, int n);
// What the files of a run of these cells are called: letters, digits, '.', '_', '+', '=' and '-' alone. malloc'ed.
char *study_run_name(const StudyPlan *p, const StudyCell *cells, int n, int repeat);
