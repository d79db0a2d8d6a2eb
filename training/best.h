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
    int64_t at;   // the step of that evaluation
    double kept;  // the value of the file, which may date from before a rollback
    int64_t step; // the file's step
    bool is_lost; // nothing has the weights of the best in the log: best_repair
  } of[MAX_TASK_BEST];
  int64_t warmup;   // warm-up steps, whose evaluations do not count as
  int without_gain; // consecutive evaluations without improvement
  ScoredSet set;    // the set on which all of these were scored
  bool is_changed;  // best.json has to be written again
} Best;

enum { BEST_CURVES = MAX_TASK_BEST + 3 };
// The keys of the log that best_open reads, key[BEST_CURVES]: the task's metrics and those above. Returns their number.
int best_keys(const Task *task, const char **key);
// Restores the state from the log, given as the curves of best_keys up to where the run continues, from best.json in
// `folder`, whose name must outlive it, and from the steps of the weights beside it. A best.json that is damaged or
// older than the weights is replaced by what the others say. False if it cannot be read. `warmup`: the run's warm-up
// steps.
bool best_open(Best *b, const Task *task, const char *folder, const Curve *of_log, int64_t warmup, Err *err);
// The step of an evaluation in the log that is better than the file of the best, or -1. best_repair gives the file at
// `state`, the weights after that step, the name of the best; NULL: there are none, and it is left as it is. best_write
// then brings best.json up to date.
int64_t best_missing(const Best *b);
bool best_repair(Best *b, int64_t step, const char *state, Err *err);
bool best_write(Best *b, Err *err);
// Compares what the metrics were scored on with that of the best so far.
SetChange best_set(const Best *b, const Metrics *m);
// Takes the metrics of an evaluation after `step`. Returns which files its weights should replace, as bits. An
// undefined metric is no improvement, and an evaluation with only undefined metrics is not counted.
unsigned best_take(Best *b, const Metrics *m, int64_t step);
// Links the file `from`, for which best_take returned bits, under the names of the best. False with the reason also in
// errno.
bool best_keep(Best *b, unsigned which, const char *from, Err *err);
// "best-bbox, best-segm": the names of the bits.
void best_names(const Best *b, unsigned which, char *text, size_t size);
