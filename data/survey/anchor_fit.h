// Which anchor sizes suit a data set.
#pragma once
#include "data/batches/dataset.h"

enum { FIT_LEVELS = 5, ANCHOR_RATIOS = 3 };

typedef struct AnchorFit {
  float size[FIT_LEVELS]; // square roots of the areas of anchors, P2 first, pixels of the resized images; doubling
  double iou, iou_before; // mean over objects of the IoU with the best anchor: of these, and of those before
  double most_before;     // the largest of them, of those before
} AnchorFit;

// The sizes whose anchors overlap the objects best, by the mean of the best IoU where centers coincide (Redmon and
// Farhadi, YOLO9000, 2017, section 2): P2's is sought from 4 to 128 pixels in steps of an eighth of an octave, the
// first of equals. Boxes are those of resized images; of more than 20,000 objects so many, evenly spaced, count.
// `before` and `ratio` (height / width) are those of a model. False, and sizes as before, if there are no objects.
bool anchor_fit(AnchorFit *fit, const Dataset *d, const float before[FIT_LEVELS], const float ratio[ANCHOR_RATIOS]);
