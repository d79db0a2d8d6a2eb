// What bias_shadow.cu does for conv.cu and for rungs: the gradient of the bias.
#pragma once
#include "cuda/common.cuh"

// db [channels] (+)= Σ partial [pieces, ldc].
void bias_reduce(Device *dev, const float *partial, int pieces, int ldc, int channels, float *db, bool accumulate);
// db[c] (+)= Σ over all n tensors, their valid rows and pixels. Takes workspace.
void column_sums(Device *dev, int n, const Tensor *dy, float *db, bool accumulate);
