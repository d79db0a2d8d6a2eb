// The confusion matrix of a detector, at the scores that a page offers.
#pragma once
#include "evaluation/evaluate.h"
#include "evaluation/report.h"

// Fills the confusion of boxes at an IoU of at least 0.5, its rule and its scores: 0.05, 0.10 … 0.95 and `least`, for
// which out->confusion is. `view`: the ground truth of the images that were read. Leaves `out` unchanged if nothing can
// be matched.
void detection_confusion(const Coco *view, const CocoResults *found, double least, EvaluationReport *out);
