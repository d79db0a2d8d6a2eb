// What the wgrad of several rungs ends in: partial sums of the filter's gradient, added up in a fixed order.
#pragma once
#include "cuda/conv/walk.cuh"

// count matrices [k, taps · ldc] of float with the given distances in elements; rows past k are not read.
struct Slots {
  float *data;
  int count, pitch; // pitch: from row to row
  size_t stride;    // from slot to slot
};

static inline size_t slots_bytes(const Slots &s) { return s.count * s.stride * sizeof(float); }

// What one launch of a wgrad by slots computes: tiles of dyᵀ · unrolled x, each over one slot of the pixels.
struct FilterPart {
  Gather x;
  const void *dy;
  int first_slot;
};
struct FilterProduct {
  FilterPart part[CONV_MAX_PAIRS];
  int parts, pixels;   // of a slot
  int m, down, across; // dy's channels; tiles
  Slots slots;
  // Rung 04's:
  FilterGrad out;
  bool whole; // there is one slot, which is dw: scaled, and added to what is there where that is asked for
};
static_assert(sizeof(FilterProduct) <= 4096, "a kernel's arguments");

// In tiles of rows × columns over about so many slots, whose memory is left to the caller.
FilterProduct filter_product(const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out,
                             int rows, int columns, int slots);
static inline size_t filter_pixels(int pairs, const Tensor *dy) {
  size_t pixels = 0;
  for (int i = 0; i < pairs; i++) pixels += tensor_pixels(&dy[i]);
  return pixels;
}
__device__ __forceinline__ const FilterPart &filter_part(const FilterProduct &p, int slot) {
  int i = 0;
  while (i + 1 < p.parts && slot >= p.part[i + 1].first_slot) i++;
  return p.part[i];
}

// How many slots to cut `pixels` into when each takes `blocks` thread blocks: enough to fill a GPU, but of a length that
// is worth the extra pass. Depends on shapes alone, or the bits would differ from one GPU to the next.
int filter_grad_slots(size_t pixels, size_t blocks);

// dw (+)= scale · Σ slots.
void filter_grad_reduce(Device *dev, const Slots &slots, const FilterGrad *out);

// db[c] (+)= Σ over all n tensors, their valid rows and pixels. Takes scratch.
void column_sums(Device *dev, int n, const Tensor *dy, float *db, bool accumulate);
