// Precision over recall of an evaluation as JSON: for all categories together, and for each.
#pragma once
#include "data/coco/cocoeval.h"

// One line: {"iou": "bbox", "max_dets", "recall": [0, 0.01, … 1], "all": {CURVES}, "category": [{"id", "name", CURVES},
// …]}. CURVES are "AP" and, at these recalls, "precision_50", "precision_75" (at these IoUs) and "precision" (the mean
// of ten); null if no ground truth defines them. Numbers read back as the same doubles.
bool precision_recall_json(const char *path, const EvalSummary *s, Err *err);
