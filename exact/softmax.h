// The softmax of a row of logits as two numbers, from which every class's probability follows; shared by the CPU and
// CUDA.
#pragma once
#include "exact/geometry.h"

typedef struct Softmax { // p[c] = exp(x[c] - max) / sum
  real max, sum;
} Softmax;

// The probability of a class, equal to the bit on every device, because scores decide which detections survive.
static inline HD real softmax_prob(Softmax s, real logit) { return geometry_exp(logit - s.max) / s.sum; }
