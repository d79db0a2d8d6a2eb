// The softmax of a row of logits, held as two numbers from which every class's probability follows; on the CPU and
// CUDA.
#pragma once
#include "exact/geometry.h"

typedef struct Softmax { // p[c] = exp(x[c] - max) / sum
  real max, sum;
} Softmax;

// The probability of a class, portable to the bit: scores decide which detections survive.
static inline HD real softmax_prob(Softmax s, real logit) { return geometry_exp(logit - s.max) / s.sum; }
