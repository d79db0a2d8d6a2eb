// The file that a study writes: a line for each run, which stays when anything ends the program after it.
#pragma once
#include "lab/study/verdict.h"

typedef struct StudyResults {
  int file;
  char *path;
  char *machine; // of runs that do not print it: members of a record, "date" to "machine"; NULL: not asked yet
} StudyResults;

// Opens FOLDER/results.jsonl to add to it, and cuts off a last line that a kill has left. If the plan is not the one
// that was written there last, it is written. The folder is this program's (base/folder.h).
bool study_results_open(StudyResults *r, const StudyPlan *p, const char *folder, Err *err);
// Adds a run as a line, and waits for the disk. order: how many were run before by this plan.
bool study_results_add(StudyResults *r, const StudyPlan *p, const StudyCell *cell, int repeat, int order,
                       const char *name, const StudyOutcome *o, const StudyVerdict *v, Err *err);
// Adds that a run of a sweep is left to run by itself, and why.
bool study_results_leave(StudyResults *r, const StudyPlan *p, const StudyCell *cell, int repeat, const char *name,
                         const char *why, Err *err);
void study_results_close(StudyResults *r);
