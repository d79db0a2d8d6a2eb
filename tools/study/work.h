// Runs of a plan, one by one: their folders, what prepares them, and their lines in the results.
#pragma once
#include "tools/study/results.h"

typedef struct StudyPrepared {
  char *command, *failure; // why it failed; NULL: it did not
} StudyPrepared;

typedef struct StudyWork {
  const StudyPlan *plan;
  const char *folder; // of the study
  StudyResults results;
  StudyPrepared *prepared; // since this was opened, each command once
  int num_prepared;
  size_t cap;
} StudyWork;

// Where a run's files are: {out}, what it prints and what it complains of. Free each.
typedef struct StudyRunFiles {
  char *name, *folder, *out, *errors;
} StudyRunFiles;
StudyRunFiles study_run_files(const StudyPlan *p, const char *folder, const StudyCell *cell, int repeat);
void study_run_files_free(StudyRunFiles *f);

// plan, folder: stay the caller's. Close it in any case.
bool study_work_open(StudyWork *w, const StudyPlan *p, const char *folder, Err *err);
void study_work_close(StudyWork *w);
// Makes a run and keeps what it has come to. number: its place among all. *done false: an interrupt has ended it, and
// nothing is kept. False only where files cannot be written or processes not started.
bool study_work_run(StudyWork *w, const StudyCell *cell, int repeat, int number, StudyOutcome *o, StudyVerdict *v,
                    bool *done, Err *err);
