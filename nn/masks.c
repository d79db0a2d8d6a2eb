// Instance masks: from ground-truth bitmaps to training targets, and from predictions back into images.
#include <string.h>
#include "nn/real.h"
#include "nn/roi_bins.h"

// ---- targets --------------------------------------------------------------------------------------------------------

typedef struct Mask { // an instance on its canvas, read through nearest resizing and mirroring
  const ImageInfo *info;
  const Bitmap *bitmap;
  const uint32_t *bits;   // of this bitmap
  float scale_y, scale_x; // decoded pixels per canvas pixel
} Mask;

static Mask instance_mask(const Truth *truth, int row, const ImageInfo *info) {
  const Bitmap *bitmap = &truth->bitmap[row];
  return (Mask){.info = info,
                .bitmap = bitmap,
                .bits = truth->bits + bitmap->offset,
                .scale_y = (float)info->h / (float)info->rh,
                .scale_x = (float)info->w / (float)info->rw};
}

// The bit at canvas pixel (y, x) inside the resized image. Float whatever `real` is, as PyTorch's interpolate is.
static bool mask_bit(const Mask *m, int y, int x) {
  if (m->info->flip) x = m->info->rw - 1 - x;
  int row = MIN((int)((float)y * m->scale_y), m->info->h - 1) - m->bitmap->y;
  int column = MIN((int)((float)x * m->scale_x), m->info->w - 1) - m->bitmap->x;
  if (row < 0 || row >= m->bitmap->h || column < 0 || column >= m->bitmap->w) return false;
  const uint32_t *words = m->bits + (int64_t)row * ((m->bitmap->w + 31) / 32);
  return words[column / 32] >> (column % 32) & 1;
}

static real mask_sample(const Mask *m, RoiTap row, RoiTap column) {
  real a = mask_bit(m, row.low, column.low), b = mask_bit(m, row.low, column.high);
  real c = mask_bit(m, row.high, column.low), d = mask_bit(m, row.high, column.high);
  real high = (1 - row.fraction) * (1 - column.fraction) * a + (1 - row.fraction) * column.fraction * b;
  return high + row.fraction * (1 - column.fraction) * c + row.fraction * column.fraction * d;
}

// Mean of the samples of one bin. The map ends with the resized image, not with the canvas.
static real mask_bin(const Mask *m, RoiAxis ys, RoiAxis xs, int bin_y, int bin_x) {
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

static void write_pixel(const Tensor *t, int n, int y, int x, real value) {
  real *to = at(t, n, y, x);
  memset(to, 0, (size_t)t->ldc * sizeof *to); // padding lanes
  *to = value;
}

void OP(mask_target)(Device *dev, const MaskTarget *p, const ImageInfo *images, const Truth *truth,
                     const RoiTargets *targets, const Tensor *target) {
  if (dev->measuring) return;
  const Rois *objects = &targets->objects;
  CHECK(*objects->count <= target->n && target->h == p->size && target->w == p->size);
#pragma omp parallel for schedule(dynamic)
  for (int r = 0; r < *objects->count; r++) {
    Mask mask = instance_mask(truth, targets->object_truth[r], &images[objects->image[r]]);
    Box roi = box_rows(&objects->box)[r];
    RoiAxis ys = roi_axis(roi.y1, roi.y2, 1, p->size, 0, false), xs = roi_axis(roi.x1, roi.x2, 1, p->size, 0, false);
    for (int y = 0; y < p->size; y++)
      for (int x = 0; x < p->size; x++) {
        real value = mask_bin(&mask, ys, xs, y, x);
        write_pixel(target, r, y, x, p->rounded ? value >= (real)0.5 : value);
      }
  }
}

// ---- predictions ----------------------------------------------------------------------------------------------------

// Row of a group's first detection when the groups are compacted.
static int compacted_row(const Boxes *detections, int group) {
  int row = 0;
  for (int g = 0; g < group; g++) row += detections->count[g];
  return row;
}

void OP(mask_select)(Device *dev, const Boxes *detections, const Tensor *logits, const Tensor *probs) {
  if (dev->measuring) return;
  CHECK(compacted_row(detections, detections->groups) <= probs->n && probs->h == logits->h && probs->w == logits->w);
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int group = 0; group < detections->groups; group++)
    for (int i = 0; i < detections->capacity; i++) {
      if (i >= detections->count[group]) continue;
      int row = compacted_row(detections, group) + i;
      int class = detections->index[(size_t)group * detections->capacity + i] % logits->c;
      for (int y = 0; y < probs->h; y++)
        for (int x = 0; x < probs->w; x++) write_pixel(probs, row, y, x, sigmoid(at(logits, row, y, x)[class]));
    }
}

typedef struct Paste { // one axis of a mask stretched over whole pixels of the decoded image
  int first, length;   // pixels; first may lie outside the image
  int size;            // mask pixels, its border of zeros included
  real scale;          // mask pixels per image pixel
} Paste;

// Scales the interval from resized to decoded pixels, grows it about its centre by the border, truncates it.
static Paste paste_axis(real low, real high, int resized, int decoded, int mask) {
  real ratio = (real)((float)decoded / (float)resized); // torchvision keeps this one in float
  low *= ratio;
  high *= ratio;
  real half = (high - low) * (real)0.5, centre = (high + low) * (real)0.5;
  half *= (real)((double)(mask + 2) / mask);
  Paste axis = {.first = (int)(centre - half), .size = mask + 2};
  axis.length = MAX((int)(centre + half) - axis.first + 1, 1);
  axis.scale = (real)axis.size / (real)axis.length;
  return axis;
}

// The mask pixels around image pixel i, as PyTorch's bilinear interpolate (align_corners false) finds them.
static RoiTap paste_tap(const Paste *axis, int i) {
  real at = axis->scale * ((real)(i - axis->first) + (real)0.5) - (real)0.5;
  if (at < 0) at = 0;
  RoiTap tap = {.low = MIN((int)at, axis->size - 1)};
  tap.high = MIN(tap.low + 1, axis->size - 1);
  tap.fraction = at - (real)tap.low;
  return tap;
}

// Pixel of the mask with its border of zeros.
static real bordered(const Tensor *probs, int n, int y, int x) {
  return y < 1 || x < 1 || y > probs->h || x > probs->w ? 0 : *at(probs, n, y - 1, x - 1);
}

static void paste_mask(float threshold, const ImageInfo *info, Box box, const Tensor *probs, int n, uint32_t *bits) {
  Paste ys = paste_axis(box.y1, box.y2, info->rh, info->h, probs->h);
  Paste xs = paste_axis(box.x1, box.x2, info->rw, info->w, probs->w);
  for (int x = MAX(xs.first, 0); x < MIN(xs.first + xs.length, info->w); x++) {
    RoiTap column = paste_tap(&xs, x);
    for (int y = MAX(ys.first, 0); y < MIN(ys.first + ys.length, info->h); y++) {
      RoiTap row = paste_tap(&ys, y);
      real upper = (1 - column.fraction) * bordered(probs, n, row.low, column.low) +
                   column.fraction * bordered(probs, n, row.low, column.high);
      real lower = (1 - column.fraction) * bordered(probs, n, row.high, column.low) +
                   column.fraction * bordered(probs, n, row.high, column.high);
      if (!((1 - row.fraction) * upper + row.fraction * lower >= threshold)) continue;
      int64_t bit = (int64_t)x * info->h + y;
      bits[bit / 32] |= 1u << (bit % 32);
    }
  }
}

void OP(mask_paste)(Device *dev, float threshold, const ImageInfo *images, const Boxes *detections, const Tensor *probs,
                    uint32_t *bits, int64_t words) {
  if (dev->measuring) return;
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int group = 0; group < detections->groups; group++)
    for (int i = 0; i < detections->capacity; i++) {
      if (i >= detections->count[group]) continue;
      int row = compacted_row(detections, group) + i;
      const ImageInfo *info = &images[group];
      CHECK((int64_t)info->h * info->w <= 32 * words);
      uint32_t *to = bits + row * words;
      memset(to, 0, (size_t)words * sizeof *to);
      paste_mask(threshold, info, box_rows(&detections->box)[(size_t)group * detections->capacity + i], probs, row, to);
    }
}
