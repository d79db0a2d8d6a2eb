// The probabilities of classes as a pipeline, as engine/detect.h has it for detections.
#pragma once
#include "engine/engine.h"
#include "engine/outputs.h"

enum { TOP_CLASSES = 5 };

// What came of a batch of the pipeline. It lies in the engine, until BATCHES_UNDER_WAY more have been started after the
// batch.
typedef struct Classified {
  const Batch *batch;
  const void *probs; // real [images, classes]
  double started;    // when the batch was: now_seconds()
} Classified;

// Starts a batch of the inference shapes, of which at most BATCHES_UNDER_WAY may be started and not handed out. It must
// stay as it is until it is.
void engine_classify(Engine *e, const Batch *batch);
// The oldest batch not handed out yet. False when there is none, or when it is not done and `wait` is false.
bool engine_classified(Engine *e, bool wait, Classified *out);
int engine_classifying(const Engine *e); // how many batches are started and not handed out
void engine_drop_classified(Engine *e);  // forgets them, of a device that has failed: the engine can be closed, no more

// The classes of an image by descending probability; ties by the lowest class, a NaN is larger than any number, as
// class_loss counts hits.
typedef struct ClassRow {
  int top[TOP_CLASSES]; // -1: there are no more
  float prob[TOP_CLASSES];
} ClassRow;
// Of the image at a place of the batch.
ClassRow classify_row(const Engine *e, const Classified *c, int position);

// Engine.results.
typedef struct ClassSlot {
  void *probs; // page-locked, real [images, classes]
  const Batch *batch;
  double started;
  void *mark; // reached when they are there
} ClassSlot;
typedef struct Classifier {
  size_t bytes;                      // of a slot's probabilities
  ClassSlot slot[BATCHES_UNDER_WAY]; // batch s uses slot s % BATCHES_UNDER_WAY
  int64_t started, handed_out;       // batches
} Classifier;

extern const Outputs outputs_probabilities;
