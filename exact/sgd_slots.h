// The slots of the small arrays that control the optimizer's step, laid out as in nn/ops.h (Sgd, Adam, grad_stats,
// loss_scale_update), and the factors derived from them; shared by the CPU and CUDA.
#pragma once
#include "base/rng.h" // HD
#include "exact/real.h"

enum { LEARNING_RATE, MOMENTUM, DECAY, LIMIT, INV_SCALE }; // hyper[]
enum { NORM, FINITE };                                     // stats[]
enum { SCALE, CLEAN, SKIPPED };                            // state[] of the loss scaler
enum { UPDATES, FIRST_CORRECTION, SECOND_CORRECTION };     // state[] of Adam

// The factor applied to gradients: the inverse loss scale, times the clipping factor.
static inline HD real gradient_clip(const real *hyper, const real *stats) {
  real share = hyper[LIMIT] / (stats[NORM] + (real)1e-6);
  return hyper[LIMIT] > 0 && share < 1 ? hyper[INV_SCALE] * share : hyper[INV_SCALE];
}
