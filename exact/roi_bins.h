// RoIAlign's sampling (He et al., "Mask R-CNN", 2017, section 3): the FPN level of a RoI, its bins, their sampling
// points, and the pixels around a sampling point. Shared by features and mask targets, forward and backward, CPU and
// CUDA.
#pragma once
#include "base/basics.h"
#include "exact/geometry.h"
#include "exact/tap.h"

// limit[l] = the smallest √area, in canvas pixels, that belongs to x[l] or above (l ≥ 1): Lin et al., "Feature Pyramid
// Networks", 2017, eq. 1, solved for the area. The host takes the logarithm once: a comparison per RoI gives the same
// level on every device.
static inline void roi_level_limits(const RoiAlign *p, real limit[MAX_LEVELS]) {
  for (int l = 0; l < p->levels; l++) {
    double ratio = exp2(p->first_level + l - (double)p->canonical_level - p->level_eps);
    limit[l] = (real)(p->canonical_size * (ratio - p->size_eps));
  }
}

// Index into x[…] of the FPN level that a RoI reads.
static inline HD int roi_level(const RoiAlign *p, const real *limit, Box roi) {
  real side = real_sqrt(box_area(box_span(roi, p->extra)));
  int l = 0;
  while (l + 1 < p->levels && side >= limit[l + 1]) l++;
  return l;
}

typedef struct RoiAxis { // one axis of a RoI's grid, in pixels of the map it reads
  real start, bin;       // first edge; length of a bin
  int samples;           // sampling points per bin
} RoiAxis;

// The axis of a RoI from `low` to `high` canvas pixels, divided into `size` bins; scale: map pixels per canvas pixel;
// sampling, aligned as in RoiAlign.
static inline HD RoiAxis roi_axis(real low, real high, real scale, int size, int sampling, bool aligned) {
  real shift = aligned ? (real)0.5 : 0;
  RoiAxis axis;
  axis.start = low * scale - shift;
  real length = high * scale - shift - axis.start;
  if (!aligned && !(length > 1)) length = 1;
  axis.bin = length / (real)size;
  int adaptive = axis.bin > 0 ? (int)-real_floor(-axis.bin) : 0; // rounded up; an empty RoI has none
  axis.samples = sampling > 0 ? sampling : adaptive;
  return axis;
}

typedef struct RoiGrid { // the grid of one RoI over the level it reads
  int level;
  RoiAxis y, x;
  int samples; // per bin; 1 if there are none, to make division safe
} RoiGrid;

// The grid of a RoI; limit as computed by roi_level_limits.
static inline HD RoiGrid roi_grid(const RoiAlign *p, const real *limit, Box roi) {
  RoiGrid grid;
  grid.level = roi_level(p, limit, roi);
  grid.y = roi_axis(roi.y1, roi.y2, p->scale[grid.level], p->size, p->sampling, p->aligned);
  grid.x = roi_axis(roi.x1, roi.x2, p->scale[grid.level], p->size, p->sampling, p->aligned);
  grid.samples = MAX(grid.y.samples * grid.x.samples, 1);
  return grid;
}

// Sampling point s of bin b on an axis of a map of `size` pixels. Up to one pixel outside, the edge is repeated;
// farther out the tap's low is negative, and the sample counts as zero.
static inline HD Tap roi_tap(RoiAxis axis, int b, int s, int size) {
  real at = axis.start + (real)b * axis.bin + ((real)s + (real)0.5) * axis.bin / (real)axis.samples;
  Tap tap = {-1, -1, 0};
  if (!(at >= -1 && at <= (real)size)) return tap;
  if (!(at > 0)) at = 0;
  tap.low = (int)at;
  tap.high = tap.low + 1;
  tap.fraction = at - (real)tap.low;
  if (tap.high >= size) {
    tap.low = size - 1;
    tap.high = size - 1;
    tap.fraction = 0;
  }
  return tap;
}
