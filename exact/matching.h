// The match of an anchor or a RoI with the ground truth, and the quota of positives in a sample; on the CPU and CUDA.
#pragma once
#include "exact/geometry.h"

typedef struct Match { // a candidate's ground truth, as torchvision's Matcher assigns it
  real iou;            // the highest; -1: there is no ground truth
  int truth;           // the first object that has it; its number in the image
} Match;

// The most positives in a sample of `batch`; torchvision's BalancedPositiveNegativeSampler truncates as well.
static inline HD int most_positives(int batch, float positive) { return (int)((float)batch * positive); }
