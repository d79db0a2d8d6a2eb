// Keeps the best weights of a run by each of its task's metrics in files of their own, and counts evaluations without
// improvement.
#pragma once
#include "base/log_read.h"
#include "evaluation/task.h"

// What an evaluation was scored on, by its record in the log.
typedef struct ScoredSet {
  int64_t set;          // Metrics.set; 0: unknown
  int images, left_out; // Metrics.images, left_out
} ScoredSet;

typedef enum SetChange {
  SET_SAME,
  SET_MORE_COMPLETE, // the same set, of which more images could be read
  SET_OTHER,         // other images or annotations: not compared
} SetChange;

#define BEST_SET "scored_set" // keys of the log
#define SET_IMAGES "images"
#define SET_LEFT_OUT "left_out"

// Scores are compared on one set: the first evaluation's, until a more complete one replaces it. `known` is zero before
// the first.
SetChange scored_set_take(ScoredSet *known, const ScoredSet *of);

typedef struct Best {
  const Task *task;
  const char *folder;
  struct {
    double value; // the best in the log so far; -∞ before the first
    double kept;  // the value of the file, which may date from before a rollback
    int64_t step; // the file's step
  } of[MAX_TASK_BEST];
  int64_t warmup;   // warm-up steps, whose evaluations do not count as
  int without_gain; // consecutive evaluations without improvement
  ScoredSet set;    // the set on which all of these were scored
} Best;

enum { BEST_CURVES = MAX_TASK_BEST + 3 };
// The keys of the log that best_open reads, key[BEST_CURVES]: the task's metrics and those above. Returns their number.
int best_keys(const Task *task, const char **key);
// Restores the state from the log, given as the curves of best_keys up to where the run continues, and from best.json
// in `folder`, whose name must outlive it. False if that cannot be read. `warmup`: the run's warm-up steps.
bool best_open(Best *b, const Task *task, const char *folder, const Curve *of_log, int64_t warmup, Err *err);
// Compares what the metrics were scored on with that of the best so far.
SetChange best_set(const Best *b, const Metrics *m);
// Takes the metrics of an evaluation after `step`. Returns which files its weights should replace, as bits. An
// undefined metric is no improvement, and an evaluation with only undefined metrics is not counted.
unsigned best_take(Best *b, const Metrics *m, int64_t step);
// Links the file `from`, for which best_take returned bits, under the names of the best. False with the reason also in
// errno.
bool best_keep(const Best *b, unsigned which, const char *from, Err *err);
// "best-bbox, best-segm": the names of the bits.
void best_names(const Best *b, unsigned which, char *text, size_t size);
