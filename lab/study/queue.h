// Which runs are left, and how long they may take.
#pragma once
#include "lab/study/rows.h"

typedef struct StudyQueue {
  StudyCells cells;
  StudyRun *runs; // that are left, in their order
  int n, all;     // all: with those that are there
} StudyQueue;

// only: the cells that are wanted; NULL: all.
StudyQueue study_queue(const StudyPlan *p, const StudyRows *rows, const StudyConditions *only);
void study_queue_free(StudyQueue *q);
// The cells that one process of a command is to measure: the queue's at `from`, and those behind it that the command
// sweeps. Returns how many.
int study_queue_turn(const StudyPlan *p, const StudyQueue *q, int from, StudyCell cells[STUDY_MAX_VALUES]);
// Of the runs from `from` on, by what the same setting, or else command, has taken; NaN: nothing has run yet.
double study_seconds_left(const StudyPlan *p, const StudyRows *rows, const StudyQueue *q, int from);
