// Instance masks between the decoded image, where they are bits, and the grids of the mask head: which bits a target
// samples, which mask pixels a pasted pixel reads. Shared by the CPU and CUDA: the same operations in the same order.
#pragma once
#include "nn/roi_bins.h"

// ---- targets --------------------------------------------------------------------------------------------------------

typedef struct Mask { // an instance on its canvas, read through nearest resizing and mirroring
  const ImageInfo *info;
  const Bitmap *bitmap;
  const uint32_t *bits;   // of this bitmap
  float scale_y, scale_x; // decoded pixels per canvas pixel
} Mask;

static inline HD Mask instance_mask(const Truth *truth, int row, const ImageInfo *info) {
  const Bitmap *bitmap = &truth->bitmap[row];
  Mask mask = {info, bitmap, truth->bits + bitmap->offset, (float)info->h / (float)info->rh,
               (float)info->w / (float)info->rw};
  return mask;
}

// The bit at canvas pixel (y, x) inside the resized image: mirrored, then resized by nearest, as torchvision's training
// does it. Float whatever `real` is, as PyTorch's interpolate is.
static inline HD bool mask_bit(const Mask *m, int y, int x) {
  int row = MIN((int)((float)y * m->scale_y), m->info->h - 1) - m->bitmap->y;
  int column = MIN((int)((float)x * m->scale_x), m->info->w - 1);
  if (m->info->flip) column = m->info->w - 1 - column;
  column -= m->bitmap->x;
  if (row < 0 || row >= m->bitmap->h || column < 0 || column >= m->bitmap->w) return false;
  const uint32_t *words = m->bits + (int64_t)row * ((m->bitmap->w + 31) / 32);
  return words[column / 32] >> (column % 32) & 1;
}

static inline HD real mask_sample(const Mask *m, RoiTap row, RoiTap column) {
  real a = mask_bit(m, row.low, column.low), b = mask_bit(m, row.low, column.high);
  real c = mask_bit(m, row.high, column.low), d = mask_bit(m, row.high, column.high);
  real high = (1 - row.fraction) * (1 - column.fraction) * a + (1 - row.fraction) * column.fraction * b;
  return high + row.fraction * (1 - column.fraction) * c + row.fraction * column.fraction * d;
}

// Mean of the samples of one bin. The map ends with the resized image, not with the canvas.
static inline HD real mask_bin(const Mask *m, RoiAxis ys, RoiAxis xs, int bin_y, int bin_x) {
  real sum = 0;
  for (int sy = 0; sy < ys.samples; sy++) {
    RoiTap row = roi_tap(ys, bin_y, sy, m->info->rh);
    for (int sx = 0; sx < xs.samples; sx++) {
      RoiTap column = roi_tap(xs, bin_x, sx, m->info->rw);
      if (row.low >= 0 && column.low >= 0) sum += mask_sample(m, row, column);
    }
  }
  return sum / (real)(ys.samples * xs.samples);
}

// ---- predictions ----------------------------------------------------------------------------------------------------

// Row of a group's first detection when the groups are compacted.
static inline HD int compacted_row(const Boxes *detections, int group) {
  int row = 0;
  for (int g = 0; g < group; g++) row += detections->count[g];
  return row;
}

typedef struct Paste { // one axis of a mask stretched over whole pixels of the decoded image
  int first, length;   // pixels; first may lie outside the image
  int size;            // mask pixels, its border of zeros included
  real scale;          // mask pixels per image pixel
} Paste;

// Scales the interval from resized to decoded pixels, grows it about its centre by the border, truncates it.
static inline HD Paste paste_axis(real low, real high, int resized, int decoded, int mask) {
  real ratio = (real)((float)decoded / (float)resized); // torchvision keeps this one in float
  low *= ratio;
  high *= ratio;
  real half = (high - low) * (real)0.5, centre = (high + low) * (real)0.5;
  half *= (real)((double)(mask + 2) / mask);
  Paste axis;
  axis.first = (int)(centre - half);
  axis.length = MAX((int)(centre + half) - axis.first + 1, 1);
  axis.size = mask + 2;
  axis.scale = (real)axis.size / (real)axis.length;
  return axis;
}

// The mask pixels around image pixel i, as PyTorch's bilinear interpolate (align_corners false) finds them.
static inline HD RoiTap paste_tap(const Paste *axis, int i) {
  real at = axis->scale * ((real)(i - axis->first) + (real)0.5) - (real)0.5;
  if (at < 0) at = 0;
  RoiTap tap;
  tap.low = MIN((int)at, axis->size - 1);
  tap.high = MIN(tap.low + 1, axis->size - 1);
  tap.fraction = at - (real)tap.low;
  return tap;
}

// Bilinear value of the mask pixels a b above c d.
static inline HD real paste_blend(RoiTap row, RoiTap column, real a, real b, real c, real d) {
  real upper = (1 - column.fraction) * a + column.fraction * b;
  real lower = (1 - column.fraction) * c + column.fraction * d;
  return (1 - row.fraction) * upper + row.fraction * lower;
}
