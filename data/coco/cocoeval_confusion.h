// The confusion matrix of a detector: COCO's matching at one IoU, as a matrix for each of several scores.
#pragma once
#include "data/coco/cocoeval.h"
#include "data/coco/confusion_counts.h"

// Counts at each score the cells of a matrix [n + 1, n + 1] of n categories: the row is the true, the column the
// detected category, both in the order of the ground truth; the last index is the background. `score` has one or more
// ascending values; `iou` is above 0. Free with confusion_counts_free. False where cocoeval_run fails.
//
// At each score, the 100 best detections per image and category that reach it take part. First they are matched as in
// COCO, category by category, in descending order of score, each with the free object of its category and image that it
// overlaps most, by `iou` or more: the diagonal is COCO's true positives. Then the remaining detections are matched in
// the same way, again in descending order of score, with the remaining objects of other categories. A detection without
// a match is counted in the background's row, an object without one in its column. Matches of a crowd of the same
// category are not counted, nor are crowds. Unlike in COCO's metrics an object with id 0 counts like any other.
bool eval_confusion(ConfusionCounts *out, const Coco *gt, const CocoResults *dt, IouType type, const double *score,
                    int scores, double iou, Err *err);
