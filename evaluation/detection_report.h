// The report on a detector's evaluation.
#pragma once
#include "evaluation/evaluate.h"
#include "evaluation/report.h"

// Fills `out`, zeroed: categories by ascending mask AP, precision over recall, the confusion of boxes
// (evaluation/detection_confusion.h), and the images with the lowest and the highest quality. Precision, recall and
// quality ignore detections below `least`. If an image has none with that score, those with a score of at least
// out->scores.opens_at are drawn if that is lower, and the caption says so.
//
// The quality of an image is sum(IoU of pairs) / (pairs + false positives / 2 + false negatives / 2), the panoptic
// quality of Kirillov et al. (CVPR 2019) with boxes for segments: a pair is a detection and an object of its category
// whose boxes overlap by at least 0.5, matched greedily by score as in COCO. Detections with half of their area in a
// crowd of their category are not counted. Images with neither objects nor detections have no quality.
void detection_report(const Dataset *d, const Evaluation *v, double score, EvaluationReport *out);

typedef struct ImageQuality {
  int image;         // index in the data set
  int pairs, fp, fn; //
  double quality;    // NaN: neither objects nor detections
} ImageQuality;
// The quality of image i, with its detections whose score is at least `least`.
ImageQuality image_quality(const Dataset *d, int i, const CocoResult *const *found, int n);
