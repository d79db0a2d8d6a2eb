// The confusion matrix of a detector: COCO's matching at one IoU, as a matrix for each of several scores.
#pragma once
#include "data/coco/cocoeval.h"

// The cells of a matrix [n + 1, n + 1] of n categories that are not 0 at every score: the row is the true, the column
// the detected category, both in the order of the ground truth; the last index is the background. All cells would take
// gigabytes where there are thousands of categories.
typedef struct EvalConfusion {
  size_t cells;
  int64_t *cell;  // [cells] row * (n + 1) + column, ascending
  int64_t *count; // [cells, scores]
} EvalConfusion;

// `score` has one or more ascending values; `iou` is above 0. Free with eval_confusion_free. False where cocoeval_run
// fails.
//
// At each score, the 100 best detections per image and category that reach it take part. First they are matched as in
// COCO, category by category, in descending order of score, each with the free object of its category and image that it
// overlaps most, by `iou` or more: the diagonal is COCO's true positives. Then the remaining detections are matched in
// the same way, again in descending order of score, with the remaining objects of other categories. A detection without
// a match is counted in the background's row, an object without one in its column. Matches of a crowd of the same
// category are not counted, nor are crowds. Unlike in COCO's metrics an object with id 0 counts like any other.
bool eval_confusion(EvalConfusion *out, const Coco *gt, const CocoResults *dt, IouType type, const double *score,
                    int scores, double iou, Err *err);
void eval_confusion_free(EvalConfusion *c);
