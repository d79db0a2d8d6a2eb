// Precision over recall of an evaluation, as JSON and as a picture: of all categories, and of each.
#pragma once
#include "data/coco/cocoeval.h"

// One line: {"iou": "bbox", "max_dets", "recall": [0, 0.01, … 1], "all": {CURVES}, "category": [{"id", "name", CURVES},
// …]}. CURVES are "AP" and, at these recalls, "precision_50", "precision_75" (at these IoUs) and "precision" (the mean
// of ten); null where no ground truth defines them. Numbers read back as the same doubles.
bool precision_recall_json(const char *path, const EvalSummary *s, Err *err);
// An SVG: a panel of all, and a small one of each category that has ground truth; of more than a hundred those with the
// lowest AP. It is readable on light and dark grounds.
bool precision_recall_svg(const char *path, const EvalSummary *s, Err *err);
// Both, as FOLDER/precision_recall.json and .svg. Each replaces what is there as a whole.
bool precision_recall_write(const char *folder, const EvalSummary *s, Err *err);
