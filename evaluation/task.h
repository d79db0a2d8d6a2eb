// Task: what is made of a model's results over a data set. A model's row points to its own.
#pragma once
#include "engine/engine.h"
#include "evaluation/metrics.h"
#include "evaluation/report.h"

enum { MAX_TASK_CURVES = 8, MAX_TASK_BEST = 2 };

typedef struct Task {
  const char *curve_title, *curve_unit; // of the panel of these:
  struct {
    const char *metric, *label;
  } curve[MAX_TASK_CURVES]; // metrics that are drawn over steps; no name at the end
  struct {
    const char *metric, *name; // of its file
  } best[MAX_TASK_BEST];       // metrics by which the best state of a run is kept, larger ones first
  // Runs inference over the whole data set, whose categories are the engine's and whose shapes it was opened with, on
  // `threads` decoder threads,
  // shared out over the engine's ranks. Results are rank 0's; the others get some that can only be released. `stopped`
  // is asked before each batch; NULL: never. All ranks return the same: NULL with a message when an image stops a
  // loader or none can be read, with an empty one when `stopped` said so on any of them.
  void *(*collect)(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Err *err);
  // Scores what was collected. Touches nothing else of the engine's: it may run in a thread beside training steps.
  bool (*score)(const Dataset *d, void *results, Metrics *out, Err *err);
  // What people want to know of what was scored: fills what is zeroed. Of detections those of at least `least` count in
  // precision and recall, and in pictures.
  void (*report)(const Dataset *d, const void *results, double least, EvaluationReport *out);
  bool keeps_confusion; // in files of its own, too: confusion_write
  void (*release)(void *results);
} Task;
