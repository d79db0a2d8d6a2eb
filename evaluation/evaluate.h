// Evaluates a detector on a split: collects its detections and computes COCO's scores.
#pragma once
#include "data/coco/coco.h"
#include "data/coco/cocoeval.h"
#include "engine/detect.h"

extern const struct Task task_detection, task_boxes; // evaluation/detection_task.c

#define LIMIT_SCORE 0.5 // detections with lower scores may be cut off without harm

// What detections are scored on: boxes and, where both the model and the ground truth have them, masks.
typedef struct Scores {
  EvalSummary of[EVAL_SEGM + 1]; // by IouType
  int n;
} Scores;

// A model's detections on a data set, without images that could not be read.
typedef struct Evaluation {
  CocoResults found; // with the file's ids, boxes x y w h in original pixels, masks thresholded at 0.5
  bool boxes_alone;  // the detections have no masks
  bool *read;        // [num_images] which images of the data set were read
  int images;        // number of images read
  int left_out;      // images of the split that could not be read
  int limit;         // on detections per image; 0: images that reach it are not counted. Above 100, scores are at it
  int at_limit;      // images with that many detections of at least LIMIT_SCORE
  Scores scores;     // set once the task has scored
} Evaluation;

// An empty evaluation of such a model; `gathers`: on the rank that collects the results. Free with evaluation_free.
void evaluation_begin(Evaluation *v, const Dataset *d, const ModelConfig *model, bool gathers);
// Adds an image; takes ownership of `found`, malloc'ed.
void evaluation_add(Evaluation *v, int image, CocoResult *found, int n);
// Called when all images that could be read have been added: marks the others in the data set as bad, on any rank.
void evaluation_end(const Evaluation *v, const Dataset *d);

// Runs inference over the whole data set, with whose shapes the engine was opened, distributed over the engine's ranks:
// results do not depend on their number and are on rank 0; the others have an empty evaluation. Call evaluation_free
// whatever it returns. All ranks return the same: false with a message if an image stops a loader or none can be read,
// false with an empty one if `stopped`, asked before each batch, returned true; NULL: never.
bool evaluate_run(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Evaluation *out, Err *err);
void evaluation_free(Evaluation *v);

// The ground truth of the images that were read, its annotations renumbered: a shallow copy whose `images` the caller
// frees.
Coco evaluate_view(const Dataset *d, const Evaluation *v);
// Scores the detections against that ground truth. The last limit on detections is COCO's 100 or, if the model's is
// above that, the model's; AP at 100 is then in EvalSummary.stats, AP at the limit in ap_last.
bool evaluate_score(const Dataset *d, const Evaluation *v, Scores *out, Err *err);
void scores_free(Scores *s);
bool scores_defined(const Scores *s); // whether there was an object: otherwise AP is undefined
