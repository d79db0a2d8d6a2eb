// Instance masks: from ground-truth bitmaps to training targets, and from predictions back into images.
#include <string.h>
#include "nn/mask_bins.h"
#include "nn/real.h"

// ---- targets --------------------------------------------------------------------------------------------------------

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
      real value =
          paste_blend(row, column, bordered(probs, n, row.low, column.low), bordered(probs, n, row.low, column.high),
                      bordered(probs, n, row.high, column.low), bordered(probs, n, row.high, column.high));
      if (!(value >= threshold)) continue;
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
