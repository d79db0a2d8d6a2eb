// Which categories a detector takes for which: COCO's matching at one score and one IoU, as a matrix.
#pragma once
#include "data/coco/cocoeval.h"

// Counts [n + 1, n + 1] of the n categories in the ground truth's order: the row is the truth, the column what was
// detected, and the last of both is the background. `iou` is above 0. Caller frees. NULL where cocoeval_run would be
// false.
//
// Of the detections whose score is `score` or more the best 100 of each image and category take part. First they are
// matched as COCO does it, category by category, the highest scores first, each with the free object of its category
// and image that it overlaps most, by `iou` or more: the diagonal is COCO's true positives. Then, again from the
// highest score down, those that are left take, in the same way, what is left of the objects of other categories: one
// for the other. A detection that still has none is counted in the background's row, an object that nobody took in its
// column. What matched a crowd of its category is not counted, nor are crowds. Other than in COCO's figures an object
// with id 0 counts like any other.
int64_t *eval_confusion(const Coco *gt, const CocoResults *dt, EvalKind kind, double score, double iou, Err *err);
