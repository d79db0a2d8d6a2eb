// The slots of the small arrays that steer the optimiser's step, as nn/ops.h lays them out (Sgd, Adam, grad_stats,
// loss_scale_update), and what follows from them for every element; on the CPU and CUDA.
#pragma once
#include "base/rng.h" // HD
#include "exact/real.h"

enum { LEARNING_RATE, MOMENTUM, DECAY, LIMIT, INV_SCALE }; // hyper[]
enum { NORM, FINITE };                                     // stats[]
enum { SCALE, CLEAN, SKIPPED };                            // state[] of the loss scale
enum { UPDATES, FIRST_CORRECTION, SECOND_CORRECTION };     // state[] of Adam

// What gradients are multiplied by: the loss scale's inverse, and as much as brings their norm to the limit.
static inline HD real gradient_clip(const real *hyper, const real *stats) {
  real share = hyper[LIMIT] / (stats[NORM] + (real)1e-6);
  return hyper[LIMIT] > 0 && share < 1 ? hyper[INV_SCALE] * share : hyper[INV_SCALE];
}
