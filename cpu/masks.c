// Instance masks: from ground-truth bitmaps and polygons to training targets, and from predictions back into images:
// torchvision's project_masks_on_boxes and paste_masks_in_image. Sampling positions are exact/mask_bins.h's.
#include <string.h>
#include "cpu/reference.h"
#include "exact/mask_bins.h"

// ---- targets --------------------------------------------------------------------------------------------------------

static void write_pixel(const Tensor *t, int n, int y, int x, real value) {
  real *to = at(t, n, y, x);
  memset(to, 0, (size_t)t->ldc * sizeof *to); // padding channels
  *to = value;
}

// The union of an instance's polygons as a bitmask per column of the target, bit y for row y. A polygon's fill is the
// exclusive or of what its edges toggle.
static void draw_polygons(const PolygonGrid *grid, const uint32_t *part, int parts, uint64_t columns[64]) {
  for (int x = 0; x < grid->size; x++) columns[x] = 0;
  for (int k = 0; k < parts; k++, part = part_next(part)) {
    uint64_t one[64] = {0};
    for (uint32_t i = 0; i < part[0]; i++) {
      PolygonEdge e = part_edge(grid, part, i);
      for (int x = e.first; x < e.end; x++) one[x] ^= toggled_rows(&e, x, grid->size);
    }
    for (int x = 0; x < grid->size; x++) columns[x] |= one[x];
  }
}

// The target of an instance that has polygons, rasterised in the box.
static void target_of_polygons(const MaskTarget *p, const Bitmap *bitmap, const uint32_t *bits, Box box,
                               const Tensor *target, int r) {
  uint64_t columns[64];
  PolygonGrid grid = polygon_grid(p, box);
  CHECK(p->source == MASK_POLYGON);
  draw_polygons(&grid, bits + bitmap->offset, bitmap->parts, columns);
  for (int y = 0; y < p->size; y++)
    for (int x = 0; x < p->size; x++) write_pixel(target, r, y, x, (real)(columns[x] >> y & 1));
}

// Row by row: cuda/masks.cu adds in the same order.
static real bin_sum(const Mask *mask, RoiAxis ys, RoiAxis xs, int y, int x) {
  real sum = 0;
  for (int sy = 0; sy < ys.samples; sy++) sum += mask_bin_row(mask, ys, xs, y, x, sy);
  return sum;
}

// The target of an instance that has a bitmap: RoIAlign of the resized mask.
static void target_of_bitmap(const MaskTarget *p, const Mask *mask, Box box, const Tensor *target, int r) {
  RoiAxis ys = target_axis(p, box.y1, box.y2), xs = target_axis(p, box.x1, box.x2);
  for (int y = 0; y < p->size; y++)
    for (int x = 0; x < p->size; x++)
      write_pixel(target, r, y, x, target_value(p, ys, xs, bin_sum(mask, ys, xs, y, x)));
}

static void target_of_none(const MaskTarget *p, const Tensor *target, int r) {
  for (int y = 0; y < p->size; y++)
    for (int x = 0; x < p->size; x++) write_pixel(target, r, y, x, -1);
}

void OP(mask_target)(Device *dev, const MaskTarget *p, const ImageInfo *images, const Truth *truth,
                     const RoiTargets *targets, const Tensor *target) {
  if (dev->measuring) return;
  const Rois *objects = &targets->objects;
  CHECK(*objects->count <= target->n && target->h == p->size && target->w == p->size);
  CHECK(p->source != MASK_POLYGON || p->size <= 64);
#pragma omp parallel for schedule(dynamic)
  for (int r = 0; r < *objects->count; r++) {
    Mask mask = instance_mask(p, truth, targets->object_truth[r], &images[objects->image[r]]);
    Box box = box_rows(&objects->box)[r];
    if (mask.bitmap->parts == NO_MASK)
      target_of_none(p, target, r);
    else if (mask.bitmap->parts > 0)
      target_of_polygons(p, mask.bitmap, truth->bits, box, target, r);
    else
      target_of_bitmap(p, &mask, box, target, r);
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

// Stretches one mask over its box, thresholds, and sets bits of the image, column-major.
static void paste_mask(const MaskPaste *p, const ImageInfo *info, Box box, const Tensor *probs, int n, uint32_t *bits) {
  const MaskMap map = {at(probs, n, 0, 0), probs->h, probs->w, probs->ldc};
  Paste ys = paste_axis(p->exact, box.y1, box.y2, info->rh, info->h, probs->h);
  Paste xs = paste_axis(p->exact, box.x1, box.x2, info->rw, info->w, probs->w);
  int left, right, top, bottom;
  paste_range(&xs, info->w, &left, &right);
  paste_range(&ys, info->h, &top, &bottom);
  for (int x = left; x < right; x++) {
    Tap column = paste_tap(&xs, x);
    for (int y = top; y < bottom; y++) {
      if (!(pasted_value(&map, paste_tap(&ys, y), column) >= p->threshold)) continue;
      int64_t bit = (int64_t)x * info->h + y;
      bits[bit / 32] |= 1u << (bit % 32);
    }
  }
}

void OP(mask_paste)(Device *dev, const MaskPaste *p, const ImageInfo *images, const Boxes *detections,
                    const Tensor *probs, uint32_t *bits, int64_t words) {
  if (dev->measuring) return;
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int group = 0; group < detections->groups; group++)
    for (int i = 0; i < detections->capacity; i++) {
      if (i >= detections->count[group]) continue;
      int row = compacted_row(detections, group) + i;
      if (p->rows && (row < p->first || row >= p->first + p->rows)) continue;
      const ImageInfo *info = &images[group];
      CHECK((int64_t)info->h * info->w <= 32 * words);
      uint32_t *to = bits + (row - p->first) * words;
      memset(to, 0, (size_t)words * sizeof *to);
      paste_mask(p, info, box_rows(&detections->box)[(size_t)group * detections->capacity + i], probs, row, to);
    }
}
