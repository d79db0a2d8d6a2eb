// What a session's wall time was spent on, besides steps.
#pragma once
#include "base/record.h"

typedef enum RunActivity { RUN_STARTING, RUN_EVALUATING, RUN_SAVING, RUN_ACTIVITIES } RunActivity;

typedef struct RunTime {
  double began; // now_seconds() when the program, or the session after a rollback, began
  double spent[RUN_ACTIVITIES];
} RunTime;

// Adds the seconds since `start`, in which the steps waited.
void run_time_add(RunTime *t, RunActivity activity, double start);
// Adds `time`: [{name, seconds}], of which the first is training, what the rest leaves of the time so far.
void run_time_record(Record *j, const RunTime *t);
