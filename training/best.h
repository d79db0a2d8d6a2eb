// Keeps the best weights of a run by each of its task's metrics in files of their own, and counts evaluations without
// improvement.
#pragma once
#include "base/log_read.h"
#include "evaluation/task.h"

typedef struct Best {
  const Task *task;
  const char *folder;
  struct {
    double value; // the best in the log so far; before the first, below every value
    double kept;  // the value of the file, which may be from the course of the run before a rollback
    int64_t step; // the file's step
  } of[MAX_TASK_BEST];
  int64_t warmup;   // warm-up steps, whose evaluations do not count as
  int without_gain; // consecutive evaluations without improvement
  int64_t set;      // what all of these were scored on (Metrics.set): the first evaluation's; 0: nothing says
} Best;

#define BEST_SET "scored_set" // the key of the log behind those of the metrics

// The task's metrics, as keys of the log; key[MAX_TASK_BEST]. Returns their number.
int best_metrics(const Task *task, const char **key);
// Restores the state from the log, given as the curves of these metrics and of BEST_SET up to where the run continues,
// and from best.json in `folder`, whose name must outlive it. False if that cannot be read. `warmup`: the run's warm-up
// steps.
bool best_open(Best *b, const Task *task, const char *folder, const Curve *of_log, int64_t warmup, Err *err);
// Whether the metrics are of other images or annotations than the best so far: they are not compared.
bool best_is_of_another_set(const Best *b, const Metrics *m);
// Takes the metrics of an evaluation after `step`. Returns which files its weights should replace, as bits. An
// undefined metric is no improvement, and an evaluation with only undefined metrics is not counted.
unsigned best_take(Best *b, const Metrics *m, int64_t step);
// Gives the file `from`, for which best_take returned bits, the names of the best. False with the reason also in errno.
bool best_keep(const Best *b, unsigned which, const char *from, Err *err);
// "best-bbox, best-segm": the names of the bits.
void best_names(const Best *b, unsigned which, char *text, size_t size);
