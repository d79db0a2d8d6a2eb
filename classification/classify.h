// TASK_CLASSIFICATION: probabilities as a pipeline, as engine/detect.h has it for detections, and the classes of a data
// set's images with what is scored of them.
#pragma once
#include "evaluation/task.h"

extern const TaskRow task_classification;

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
ClassRow classify_row(const Engine *e, const Classified *c, int place);

// What a model makes of a data set. Images that cannot be read are left out.
typedef struct Classification {
  int classes;
  ClassRow *row; // [num_images] of the data set
  bool *read;    // [num_images] which of them it is about
  int images;    // how many these are
  int left_out;  // of the split's, because they could not be read
} Classification;

// Runs inference over the whole data set, whose shapes the engine was opened with, as TaskRow.collect does. Free with
// classification_free, whatever is returned.
bool classify_run(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Classification *out, Err *err);
void classification_free(Classification *c);
// How many of the images that were read have their class first, or among the first five.
typedef struct ClassScores {
  int64_t top1, top5, images;
} ClassScores;
ClassScores classify_score(const Dataset *d, const Classification *c);
// count [classes, classes]: the images of class `row` whose first is `column`.
void classify_confusion(const Dataset *d, const Classification *c, int64_t *count);
// Whether the classes of a data set are a model's [classes], name by name.
bool classify_accepts(const Category *category, int classes, const Dataset *d, Err *err);

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
