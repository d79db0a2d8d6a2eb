// What an evaluation of a detector tells people.
#pragma once
#include "evaluation/evaluate.h"
#include "evaluation/report.h"

// Fills `out`, zeroed: categories by ascending mask AP, precision over recall, the confusion of boxes
// (evaluation/detection_confusion.h), and the images with the worst and the best quality. Of precision, recall and
// quality detections of less than `score` are no part. Where an image has none of that score, those from
// out->scores.opens_at on are drawn if that is lower, and the caption says so.
//
// The quality of an image is sum(IoU of pairs) / (pairs + false positives / 2 + false negatives / 2), which is the
// panoptic quality of Kirillov et al. (CVPR 2019) with boxes for segments: a pair is a detection and an object of its
// category whose boxes overlap by 0.5 or more, taken greedily by score as COCO matches. What lies in a crowd of its
// category by half of its area is not counted. Images with neither objects nor detections have none.
void detection_report(const Dataset *d, const Evaluation *v, double score, EvaluationReport *out);

typedef struct ImageQuality {
  int image;         // of the data set
  int pairs, fp, fn; //
  double quality;    // NaN: there is nothing
} ImageQuality;
// Of image i with its detections of at least that score.
ImageQuality image_quality(const Dataset *d, int i, const CocoResult *const *found, int n);
