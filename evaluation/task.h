// Task: what to compute from a model's results over a data set. A model's row points to its task.
#pragma once
#include "engine/engine.h"
#include "evaluation/metrics.h"
#include "evaluation/report.h"

enum { MAX_TASK_CURVES = 8, MAX_TASK_BEST = 2 };

typedef struct Task {
  const char *curve_title, *curve_unit; // title and unit of the panel with these curves:
  struct {
    const char *metric, *label;
  } curve[MAX_TASK_CURVES]; // metrics that are drawn over steps; ends with an empty name
  struct {
    const char *metric, *name; // metric, and the name of its file
  } best[MAX_TASK_BEST];       // metrics by which a run's best weights are kept; larger is better
  // Runs inference over the whole data set, whose categories are the engine's and with whose shapes it was opened, on
  // `threads` decoder threads, distributed over the engine's ranks. Rank 0 has the results; the others get empty
  // results that must be released. `stopped` is asked before each batch; NULL: never. All ranks return the same: NULL
  // with a message if an image stops a loader or none can be read, with an empty one if `stopped` returned true on any
  // of them.
  void *(*collect)(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Err *err);
  // Scores what was collected. Uses nothing else of the engine's, so it may run in a thread during training steps.
  bool (*score)(const Dataset *d, void *results, Metrics *out, Err *err);
  // Fills the zeroed report. For detections, those with a score of at least `least` count in precision and recall, and
  // in pictures.
  void (*report)(const Dataset *d, const void *results, double least, EvaluationReport *out);
  bool boxes_alone;     // of detectors: detections have no masks
  bool keeps_confusion; // whether the confusion also gets its own files: confusion_write
  void (*release)(void *results);
} Task;
