// What the wgrad of several rungs ends in: partial sums of the filter's gradient, added up in a fixed order.
#pragma once
#include "cuda/common.cuh"

// count matrices [k, taps · ldc] of float with the given distances in elements; rows past k are not read.
struct Slots {
  float *data;
  int count, pitch; // pitch: from row to row
  size_t stride;    // from slot to slot
};

// How many slots to cut `pixels` into when each takes `blocks` thread blocks: enough to fill a GPU, but of a length that
// is worth the extra pass. Depends on shapes alone, or the bits would differ from one GPU to the next.
int filter_grad_slots(size_t pixels, size_t blocks);

// dw (+)= scale · Σ slots.
void filter_grad_reduce(Device *dev, const Slots &slots, const FilterGrad *out);

// db[c] (+)= Σ over all n tensors, their valid rows and pixels. Takes scratch.
void column_sums(Device *dev, int n, const Tensor *dy, float *db, bool accumulate);
