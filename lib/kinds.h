// Kinds: what a handle makes of a batch, a row for each of include/maskrcnn.h's.
#pragma once
#include "lib/opened.h"
#include "lib/staging.h"

typedef struct KindRow {
  maskrcnn_kind kind;
  void (*begin)(Engine *e, const Batch *batch); // into the engine's pipeline
  // The oldest batch, which is `b`: a result for each of its images, and the model's counters. False when it is not
  // done and `wait` is false.
  bool (*finish)(Opened *o, const StagedBatch *b, bool wait, const maskrcnn_result **result, int *counter);
  void (*drop)(Engine *e); // forgets what is under way on a device that has failed
} KindRow;

const KindRow *kind_of(const Model *m);
