// Pipelined inference of class probabilities, as engine/detect.h does it for detections.
#pragma once
#include "engine/engine.h"
#include "engine/outputs.h"

enum { TOP_CLASSES = 5 };

// The results of one batch. They stay in the engine's memory until BATCHES_UNDER_WAY more batches have been started.
typedef struct Classified {
  const Batch *batch;
  const void *probs; // real [images, classes]
  double started;    // when the batch was started: now_seconds()
} Classified;

// Starts a batch of the inference shapes. At most BATCHES_UNDER_WAY may be started and not yet handed out, and the
// batch must not change until its results are.
void engine_classify(Engine *e, const Batch *batch);
// Hands out the results of the oldest batch. False when there is none, or when it is not done and `wait` is false.
bool engine_classified(Engine *e, bool wait, Classified *out);
int engine_classifying(const Engine *e); // number of batches started and not handed out
void engine_drop_classified(
    Engine *e); // after a device failure: forgets all batches; the engine can then only be closed

// The classes of an image by descending probability. Ties go to the lower class; NaN sorts above every number, as
// class_loss counts hits.
typedef struct ClassRow {
  int top[TOP_CLASSES]; // -1 past the last class
  float prob[TOP_CLASSES];
} ClassRow;
// The classes of the image at an index of the batch.
ClassRow classify_row(const Engine *e, const Classified *c, int position);

// Engine.results.
typedef struct ClassSlot {
  void *probs; // page-locked, real [images, classes]
  const Batch *batch;
  double started;
  void *mark; // reached when the probabilities have arrived
} ClassSlot;
typedef struct Classifier {
  size_t bytes;                      // of one slot's probabilities
  ClassSlot slot[BATCHES_UNDER_WAY]; // batch s uses slot s % BATCHES_UNDER_WAY
  int64_t started, handed_out;       // batches
} Classifier;

extern const Outputs outputs_probabilities;
