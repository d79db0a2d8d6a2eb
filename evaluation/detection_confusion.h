// Which categories a detector takes for which, at the scores that a page lets people choose from.
#pragma once
#include "evaluation/evaluate.h"
#include "evaluation/report.h"

// Fills the confusion of boxes at an IoU of 0.5 or more, its rule and its scores: 0.05, 0.10 … 0.95 and `least`, at
// which out->confusion is. `view`: the ground truth of the images that were read. Leaves `out` as it is where nothing
// can be matched.
void detection_confusion(const Coco *view, const CocoResults *found, double least, EvaluationReport *out);
