// Which categories a detector takes for which: COCO's matching at one IoU, as a matrix for each of some scores.
#pragma once
#include "data/coco/cocoeval.h"

// Counts [n + 1, n + 1, scores] of the n categories in the ground truth's order: first the truth, then what was
// detected, and the last of both is the background. `score` ascends and has one or more; `iou` is above 0. Caller
// frees. NULL where cocoeval_run would be false.
//
// At each score the detections that reach it take part, of each image and category the best 100. First they are matched
// as COCO does it, category by category, the highest scores first, each with the free object of its category and image
// that it overlaps most, by `iou` or more: the diagonal is COCO's true positives. Then, again from the highest score
// down, those that are left take, in the same way, what is left of the objects of other categories: one for the other.
// A detection that still has none is counted in the background's row, an object that nobody took in its column. What
// matched a crowd of its category is not counted, nor are crowds. Other than in COCO's figures an object with id 0
// counts like any other.
int64_t *eval_confusion(const Coco *gt, const CocoResults *dt, IouType type, const double *score, int scores,
                        double iou, Err *err);
