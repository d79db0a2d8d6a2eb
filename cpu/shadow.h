// The shadow weights that an optimizer step writes along with the weights.
#pragma once
#include "cpu/reference.h"

// weight: the part's elements, updated.
static inline void shadow_write(const UpdatePart *part, const real *restrict weight) {
  real *restrict shadow = part->shadow;
  if (!shadow) return;
  for (int i = 0; i < part->n; i++)
    shadow[i] = part->scale ? ((const real *)part->scale)[(part->at + i) / part->row] * weight[i] : weight[i];
}
