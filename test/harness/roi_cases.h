// The pyramid that RoIAlign is tested on, for the reference against its definition and for the kernels against it.
#pragma once
#include "nn/device.h"
#include "nn/ops.h"

enum { ROI_LEVELS = 3 };

// Levels meet where √area is 16 and 32.
static inline RoiAlign roi_pyramid(int size, int sampling, bool aligned) {
  return (RoiAlign){.size = size,
                    .sampling = sampling,
                    .aligned = aligned,
                    .levels = ROI_LEVELS,
                    .first_level = 2,
                    .scale = {.25f, .125f, .0625f},
                    .canonical_size = 32,
                    .canonical_level = 4,
                    .level_eps = 1e-6f};
}
