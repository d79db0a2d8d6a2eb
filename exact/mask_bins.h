// Converts instance masks between the decoded image (bits or polygons) and the mask head's m × m grids: which bits a
// training target samples (project_masks_on_boxes), and which mask pixels a pasted pixel reads (paste_masks_in_image).
// The CPU and CUDA compile the same source: the same operations in the same order.
#pragma once
#include <string.h>
#include "base/basics.h"
#include "exact/polygon.h"
#include "exact/roi_bins.h"
#include "exact/view.h"

// ---- targets --------------------------------------------------------------------------------------------------------

typedef struct Mask { // an instance on its canvas, read through nearest resizing and mirroring, or through a map
  const ImageInfo *info;
  const Bitmap *bitmap;
  const uint32_t *bits;   // of this bitmap
  float scale_y, scale_x; // decoded pixels per canvas pixel
  float centre;           // where a canvas pixel is read, from its corner
} Mask;

// At pixel corners, as torchvision reads the masks it trains on; otherwise at centres, as Pillow's nearest resizing
// does.
static inline HD Mask instance_mask(const MaskTarget *p, const Truth *truth, int row, const ImageInfo *info) {
  const Bitmap *bitmap = &truth->bitmap[row];
  Mask mask = {info,
               bitmap,
               truth->bits + bitmap->offset,
               (float)info->h / (float)info->rh,
               (float)info->w / (float)info->rw,
               p->source == MASK_SOFT ? 0 : 0.5f};
  return mask;
}

// Whether a canvas row is read from one row of the bitmap, and a column from one column: all but turns and rotations.
static inline HD bool mask_axes_apart(const Mask *m) {
  const ImageView *v = &m->info->view;
  return !v->moved || (v->map[1] == 0 && v->map[3] == 0);
}

// The bitmap's row or column under the centre of a canvas pixel, by one axis of a map; the bits of view_under.
static inline HD int mask_under(float factor, int at, float offset) {
  return (int)floorf(factor * ((float)at + 0.5f) + offset);
}

// The row or column of the bitmap that is read at a canvas pixel inside the resized image, where axes are apart:
// mirrored, then resized by nearest, as in torchvision's training, or through a map. It may be outside the bitmap,
// where there is nothing. Always float, whatever `real` is, as PyTorch's interpolate is.
static inline HD int mask_row(const Mask *m, int y) {
  const ImageView *v = &m->info->view;
  if (v->moved) return mask_under(v->map[4], y, v->map[5]) - m->bitmap->y;
  return MIN((int)(((float)y + m->centre) * m->scale_y), m->info->h - 1) - m->bitmap->y;
}
static inline HD int mask_column(const Mask *m, int x) {
  const ImageView *v = &m->info->view;
  if (v->moved) return mask_under(v->map[0], x, v->map[2]) - m->bitmap->x;
  int column = MIN((int)(((float)x + m->centre) * m->scale_x), m->info->w - 1);
  if (m->info->flip) column = m->info->w - 1 - column;
  return column - m->bitmap->x;
}

// The words of a row of the bitmap.
static inline HD const uint32_t *mask_words(const Mask *m, int row) {
  return m->bits + (int64_t)row * ((m->bitmap->w + 31) / 32);
}

// The bilinear sample between four bits, a b above c d, at the fraction of a row and of a column.
static inline HD real mask_blend(real row, real column, bool a, bool b, bool c, bool d) {
  real above = (a ? (1 - row) * (1 - column) : 0) + (b ? (1 - row) * column : 0);
  return above + (c ? row * (1 - column) : 0) + (d ? row * column : 0);
}

// A moved image's mask has the bit of the image's pixel under the canvas pixel's centre, whatever the source.
static inline HD bool mask_pixel(const Mask *m, int y, int x) {
  int row, column;
  if (!mask_axes_apart(m)) {
    if (!view_under(&m->info->view, m->info->h, m->info->w, y, x, &row, &column)) return false;
    row -= m->bitmap->y;
    column -= m->bitmap->x;
  } else {
    row = mask_row(m, y);
    column = mask_column(m, x);
  }
  if (row < 0 || row >= m->bitmap->h || column < 0 || column >= m->bitmap->w) return false;
  return mask_words(m, row)[column / 32] >> (column % 32) & 1;
}

// The bilinear sample of the resized mask at (row, column).
static inline HD real mask_sample(const Mask *m, Tap row, Tap column) {
  bool a = mask_pixel(m, row.low, column.low), b = mask_pixel(m, row.low, column.high);
  bool c = mask_pixel(m, row.high, column.low), d = mask_pixel(m, row.high, column.high);
  return mask_blend(row.fraction, column.fraction, a, b, c, d);
}

// Sum over one row of a bin's sampling points; a bin is the sum of its rows, in order, divided by their number. The map
// ends with the resized image, not with the canvas.
static inline HD real mask_bin_row(const Mask *m, RoiAxis ys, RoiAxis xs, int bin_y, int bin_x, int sy) {
  real sum = 0;
  Tap row = roi_tap(ys, bin_y, sy, m->info->rh);
  for (int sx = 0; sx < xs.samples; sx++) {
    Tap column = roi_tap(xs, bin_x, sx, m->info->rw);
    if (row.low >= 0 && column.low >= 0) sum += mask_sample(m, row, column);
  }
  return sum;
}

// An axis of the target's grid over a box: adaptive sampling.
static inline HD RoiAxis target_axis(const MaskTarget *p, real low, real high) {
  return roi_axis(low, high, 1, p->size, 0, p->source != MASK_SOFT);
}

// A bin of the target from the sum of its samples; an empty box has none, and is background.
static inline HD real target_value(const MaskTarget *p, RoiAxis ys, RoiAxis xs, real sum) {
  real value = sum / (real)MAX(ys.samples * xs.samples, 1);
  return p->source <= MASK_ALIGNED ? value : value >= (real)0.5;
}

// The target of an object without a mask is negative, and does not count. !(< 0) so that NaN counts.
static inline HD bool target_counts(real first) { return !(first < 0); }

typedef struct PolygonGrid { // from canvas pixels to the fine grid over a box of size × size target pixels
  real x, y, scale_x, scale_y;
  int size;
} PolygonGrid;

static inline HD PolygonGrid polygon_grid(const MaskTarget *p, Box box) {
  real w = box.x2 - box.x1, h = box.y2 - box.y1, least = p->least_side;
  PolygonGrid grid = {box.x1, box.y1, (real)p->size / (w > least ? w : least), (real)p->size / (h > least ? h : least),
                      p->size};
  return grid;
}

// Coordinate i of a polygon part, which is stored as the number of points, then x and y of each.
static inline HD float part_coordinate(const uint32_t *part, uint32_t i) {
  float value;
  memcpy(&value, part + 1 + i, sizeof value);
  return value;
}

static inline HD const uint32_t *part_next(const uint32_t *part) { return part + 1 + 2 * part[0]; }

// Edge i of a part, from point i to the next.
static inline HD PolygonEdge part_edge(const PolygonGrid *g, const uint32_t *part, uint32_t i) {
  uint32_t next = i + 1 < part[0] ? i + 1 : 0;
  int x0 = polygon_fine((part_coordinate(part, 2 * i) - g->x) * g->scale_x);
  int y0 = polygon_fine((part_coordinate(part, 2 * i + 1) - g->y) * g->scale_y);
  int x1 = polygon_fine((part_coordinate(part, 2 * next) - g->x) * g->scale_x);
  int y1 = polygon_fine((part_coordinate(part, 2 * next + 1) - g->y) * g->scale_y);
  return polygon_edge(x0, y0, x1, y1, g->size);
}

// The rows toggled by an edge that crosses a column of at most 64 target pixels; bit y for row y.
static inline HD uint64_t toggled_rows(const PolygonEdge *e, int column, int size) {
  int from = polygon_crossing(e, column, size);
  return from < size ? ~(uint64_t)0 << from : 0;
}

// ---- predictions ----------------------------------------------------------------------------------------------------

// Row of a group's first detection after compaction: an exclusive prefix sum over the groups' counts.
static inline HD int compacted_row(const Boxes *detections, int group) {
  int row = 0;
  for (int g = 0; g < group; g++) row += detections->count[g];
  return row;
}

typedef struct Paste { // one axis of a mask, with a border of zeros, stretched over pixels of the decoded image
  int first, length;   // the pixels that it covers; first may lie outside the image
  int size;            // mask pixels, its border of zeros included
  real start;          // image pixels: where the border begins
  real scale;          // mask pixels per image pixel
} Paste;

// Scales the interval from resized to decoded pixels and grows it about its centre by the border; truncates it unless
// `exact`.
static inline HD Paste paste_axis(bool exact, real low, real high, int resized, int decoded, int mask) {
  real ratio = (real)((float)decoded / (float)resized); // torchvision keeps this one in float
  low *= ratio;
  high *= ratio;
  real half = (high - low) * (real)0.5, centre = (high + low) * (real)0.5;
  half *= (real)((double)(mask + 2) / mask);
  Paste axis;
  axis.size = mask + 2;
  if (exact) {
    axis.first = (int)real_floor(centre - half);
    axis.length = high > low ? (int)real_floor(centre + half) - axis.first + 1 : 0;
    axis.scale = (real)mask / (high - low);
    axis.start = low - 1 / axis.scale;
  } else {
    axis.first = (int)(centre - half);
    axis.length = MAX((int)(centre + half) - axis.first + 1, 1);
    axis.scale = (real)axis.size / (real)axis.length;
    axis.start = (real)axis.first;
  }
  return axis;
}

// A mask's probabilities, h × w pixels, `pitch` elements apart.
typedef struct MaskMap {
  const real *at;
  int h, w, pitch;
} MaskMap;

// Pixel (y, x) of the mask padded by one pixel of zeros on every side.
static inline HD real mask_bordered(const MaskMap *m, int y, int x) {
  return y < 1 || x < 1 || y > m->h || x > m->w ? 0 : m->at[((y - 1) * m->w + x - 1) * m->pitch];
}

// Row y of the padded mask at this tap.
static inline HD real mask_between(const MaskMap *m, int y, Tap column) {
  return tap_between(column, mask_bordered(m, y, column.low), mask_bordered(m, y, column.high));
}

// The value pasted at these taps.
static inline HD real pasted_value(const MaskMap *m, Tap row, Tap column) {
  return tap_between(row, mask_between(m, row.low, column), mask_between(m, row.high, column));
}

// The part [*from, *to) of an axis of so many image pixels that a mask covers.
static inline HD void paste_range(const Paste *axis, int pixels, int *from, int *to) {
  *from = MAX(axis->first, 0);
  *to = MIN(axis->first + axis->length, pixels);
}

// The mask pixels around image pixel i, as PyTorch's bilinear interpolate (align_corners false) finds them.
static inline HD Tap paste_tap(const Paste *axis, int i) {
  real at = axis->scale * ((real)i + (real)0.5 - axis->start) - (real)0.5;
  if (at < 0) at = 0;
  Tap tap;
  tap.low = MIN((int)at, axis->size - 1);
  tap.high = MIN(tap.low + 1, axis->size - 1);
  tap.fraction = at - (real)tap.low;
  return tap;
}
