// The match of an anchor or RoI with the ground truth, and the quota of positives in a sample; shared by the CPU and
// CUDA.
#pragma once
#include "exact/geometry.h"

typedef struct Match { // a candidate's ground truth, as torchvision's Matcher assigns it
  real iou;            // the highest IoU; -1: there is no ground truth
  int truth;           // index in the image of the first object with that IoU
} Match;

// The largest number of positives in a sample of `batch`; rounded down, as in torchvision's
// BalancedPositiveNegativeSampler.
static inline HD int most_positives(int batch, float positive) { return (int)((float)batch * positive); }
