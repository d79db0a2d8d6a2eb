// What the mask predictor's backward pass (conv/05_own_predictor.cu) takes from own_logits.cu.
#pragma once
#include "cuda/common.cuh"

// Gradients of the logits' filter and bias, from the logits' input x, a ReLU's output; and db_x [channels] (+)= what
// x's own gradient sums up to, the bias' of the layer before.
void own_logits_sums(Device *dev, const RoiTargets *targets, const Tensor *x, const Tensor *w, const Tensor *dlogits,
                     const FilterGrad *out, float *db_x, bool accumulate_x);
