// What bias_shadow.cu does for the ops of conv.cu: the gradient of the bias, for rungs that do not sum it themselves.
#pragma once
#include "cuda/common.cuh"

// db[c] (+)= Σ over all n tensors, their valid rows and pixels. Takes workspace.
void column_sums(Device *dev, int n, const Tensor *dy, float *db, bool accumulate);
