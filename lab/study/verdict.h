// What a run has come to, from how it ended and what it printed.
#pragma once
#include "lab/study/rows.h"
#include "lab/study/runner.h"

typedef struct StudyVerdict {
  StudyState state;
  char *why; // NULL: all is well
  char **records;
  int num_records; // those that measures are read from; at least the last that was printed, and one with a machine
} StudyVerdict;

// out, errors: the files with what it printed; a record may have several lines. sweep_failed: the command was to
// measure other cells, too, and came to no good end, which may be theirs: records alone count, and not their time.
StudyVerdict study_verdict(const StudyPlan *p, const StudyCell *cell, int repeat, const StudyOutcome *o,
                           bool sweep_failed, const char *out, const char *errors);
// "exit status 3: the last line". malloc'ed.
char *study_why_failed(const StudyOutcome *o, const char *out, const char *errors);
void study_verdict_free(StudyVerdict *v);
// The last line that was printed, on standard error or else on standard output, of at most 400 bytes; "it printed
// nothing" where there is none. malloc'ed.
char *study_last_line(const char *out, const char *errors);
