// A split of a data set: what a detector finds in it, and its scores as COCO computes them.
#pragma once
#include "data/coco/coco.h"
#include "data/coco/cocoeval.h"
#include "engine/detect.h"

extern const struct Task task_detection; // evaluation/detection_task.c

#define LIMIT_SCORE 0.5 // less is cut off without harm

typedef struct Scores {
  EvalSummary bbox, segm;
} Scores;

// What a model found in a data set. Images that cannot be read are left out of it, objects and all.
typedef struct Evaluation {
  CocoResults found; // in the file's ids, boxes x y w h in original pixels, masks cut at 0.5
  bool *read;        // [num_images] of the data set: which of them it is about
  int images;        // how many these are
  int left_out;      // of the split's, because they could not be read
  int limit;         // on detections per image; 0: images that reach it are not counted
  int at_limit;      // images with so many, of scores of at least LIMIT_SCORE
  Scores scores;     // the task's, once it has scored
} Evaluation;

// An evaluation of no image yet; `gathers`: on the rank that gets them. Free with evaluation_free.
void evaluation_begin(Evaluation *v, const Dataset *d, bool gathers);
void evaluation_add(Evaluation *v, int image, CocoResult *found, int n); // of an image; takes `found`, malloc'ed
// All that could be read are there: the data set learns which could not, on whichever rank.
void evaluation_end(const Evaluation *v, const Dataset *d);

// Runs inference over the whole data set, whose shapes the engine was opened with, shared out over the engine's ranks:
// results are the same whatever their number, and stand on rank 0; the others have an empty evaluation. Free with
// evaluation_free, whatever is returned, which is the same on all ranks: false with a message when an image stops a
// loader or none can be read, false with an empty one when `stopped`, asked before each batch, said so; NULL: never.
bool evaluate_run(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Evaluation *out, Err *err);
void evaluation_free(Evaluation *v);

// The ground truth of the images that were read, its annotations numbered anew: a shallow copy whose `images` are the
// caller's to free.
Coco evaluate_view(const Dataset *d, const Evaluation *v);
// Against that.
bool evaluate_score(const Dataset *d, const Evaluation *v, Scores *out, Err *err);
void scores_free(Scores *s);
bool scores_defined(const Scores *s); // whether there was an object to find: else no AP is a score
