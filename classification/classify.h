// A data set's images, each with the classes that a classifier gives it, and what is scored of them.
#pragma once
#include "classification/class_outputs.h"

extern const struct Task task_classification; // classification/class_task.c

// What a model makes of a data set. Images that cannot be read are left out.
typedef struct Classification {
  int classes;
  ClassRow *row; // [num_images] of the data set
  bool *read;    // [num_images] which of them it is about
  int images;    // how many these are
  int left_out;  // of the split's, because they could not be read
} Classification;

// Runs inference over the whole data set, whose shapes the engine was opened with, as Task.collect does
// (evaluation/task.h). Free with classification_free, whatever is returned.
bool classify_run(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Classification *out, Err *err);
void classification_free(Classification *c);
// How many of the images that were read have their class first, or among the first five.
typedef struct ClassScores {
  int64_t top1, top5, images;
} ClassScores;
ClassScores classify_score(const Dataset *d, const Classification *c);
// count [classes, classes]: the images of class `row` whose first is `column`.
void classify_confusion(const Dataset *d, const Classification *c, int64_t *count);
