// The best states of a run by the metrics that its task names, kept as files of their own, and how long there has been
// no gain.
#pragma once
#include "base/log_read.h"
#include "evaluation/task.h"

typedef struct Best {
  const Task *task;
  const char *folder;
  struct {
    double value; // the best in the log so far; nothing yet: below every value
    double kept;  // that of the file, which a run that was rolled back may have made later in its former course
    int64_t step; // of the file
  } of[MAX_TASK_BEST];
  int64_t warmup;   // steps, whose evaluations do not count as
  int without_gain; // evaluations in a row
  int64_t set;      // what all of these were scored on (Metrics.set): the first evaluation's; 0: nothing says
} Best;

#define BEST_SET "scored_set" // the key of the log behind those of the metrics

// The metrics of the task, as keys of the log; key[MAX_TASK_BEST]. How many there are.
int best_metrics(const Task *task, const char **key);
// Takes up what the log says, as the curves of these metrics and of BEST_SET up to where the run goes on, and best.json
// in `folder`, whose name must outlive it. False when that cannot be read. `warmup`: the run's steps of it.
bool best_open(Best *b, const Task *task, const char *folder, const Curve *of_log, int64_t warmup, Err *err);
// Whether the metrics are of other images or annotations than the best so far: they are not compared.
bool best_is_of_another_set(const Best *b, const Metrics *m);
// Takes the metrics of an evaluation after `step`. Returns which files its state should replace, a bit for each. One
// that is undefined is no gain, and an evaluation without any other counts for nothing.
unsigned best_take(Best *b, const Metrics *m, int64_t step);
// Gives the state in the file `from`, which best_take spoke of, the names of the best. False with the reason in errno,
// too.
bool best_keep(const Best *b, unsigned which, const char *from, Err *err);
// "best-bbox, best-segm": the names behind the bits.
void best_names(const Best *b, unsigned which, char *text, size_t size);
