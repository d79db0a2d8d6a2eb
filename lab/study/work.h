// What is run of a plan, one process after another: their folders, what prepares them, and their lines in the results.
#pragma once
#include "lab/study/results.h"

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

// Where a turn's files are: {out}, what it prints and what it complains of. Free each.
typedef struct StudyRunFiles {
  char *name, *folder, *out, *errors;
} StudyRunFiles;
StudyRunFiles study_run_files(const StudyPlan *p, const char *folder, const StudyCell *cells, int n, int repeat);
void study_run_files_free(StudyRunFiles *f);

// A turn: one process of a command, for one run or, where it sweeps, for several.
typedef struct StudyTurn {
  StudyCell cells[STUDY_MAX_VALUES];
  int n, repeat, number; // number: of the first of them, among all
  // What has come of it.
  bool done;            // false: an interrupt has ended it, and nothing of it is kept
  StudyOutcome outcome; // seconds: each run's share; NaN where a sweep failed
  StudyVerdict verdicts[STUDY_MAX_VALUES];
  bool left[STUDY_MAX_VALUES]; // runs without their figures, of a sweep that failed
  char *failure;               // of a sweep; NULL: it came to a good end
} StudyTurn;

// plan, folder: stay the caller's. Close it in any case.
bool study_work_open(StudyWork *w, const StudyPlan *p, const char *folder, Err *err);
void study_work_close(StudyWork *w);
// Runs what the turn's first members say and keeps what it has come to. False only where files cannot be
// written or processes not started. Release the turn in any case.
bool study_work_run(StudyWork *w, StudyTurn *t, Err *err);
void study_turn_free(StudyTurn *t);
