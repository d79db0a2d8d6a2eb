// Classifies a data set's images and scores the result.
#pragma once
#include "classification/class_outputs.h"
#include "data/coco/confusion_counts.h"

extern const struct Task task_classification; // classification/class_task.c

// A model's results on a data set. Images that cannot be read are left out.
typedef struct Classification {
  int classes;
  ClassRow *row; // [num_images] of the data set
  bool *read;    // [num_images] whether the image could be read
  int images;    // number of images read
  int left_out;  // images of the split that could not be read
} Classification;

// Runs inference over the whole data set, with whose shapes the engine was opened; see Task.collect
// (evaluation/task.h). Call classification_free whatever it returns.
bool classify_run(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Classification *out, Err *err);
void classification_free(Classification *c);
// How many of the images read have their true class first, or among the first five.
typedef struct ClassScores {
  int64_t top1, top5, images;
} ClassScores;
ClassScores classify_score(const Dataset *d, const Classification *c);
// Counts the images read, with the true class as row and the first as column. Free with confusion_counts_free.
ConfusionCounts classify_confusion(const Dataset *d, const Classification *c);
