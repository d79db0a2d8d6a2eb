#include "models/anchors.h"
#include <math.h>
#include "base/error.h"

// Detectron's generate_anchors, in double as there: a cell of stride × stride pixels is given each ratio, rounded to
// whole sides, and only then its size. Corners are the first and last pixel inside.
static void legacy_anchor(float cell[4], float size, float ratio, int stride) {
  double w = rint(sqrt((double)stride * stride / ratio)), h = rint(w * ratio);
  double middle = 0.5 * (stride - 1), half_w = 0.5 * (w * size / stride - 1), half_h = 0.5 * (h * size / stride - 1);
  cell[0] = (float)(middle - half_w);
  cell[1] = (float)(middle - half_h);
  cell[2] = (float)(middle + half_w);
  cell[3] = (float)(middle + half_h);
}

// The box of one anchor about the origin. torchvision computes it in float; so do we, to round the same way.
static void centred_anchor(float cell[4], float size, float ratio, bool rounded) {
  float h_ratio = sqrtf(ratio), w_ratio = 1 / h_ratio;
  float half_w = w_ratio * size / 2, half_h = h_ratio * size / 2;
  if (rounded) {
    half_w = rintf(half_w); // half to even in the default rounding mode
    half_h = rintf(half_h);
  }
  cell[0] = -half_w;
  cell[1] = -half_h;
  cell[2] = half_w;
  cell[3] = half_h;
}

void anchors_init(Anchors *a, const AnchorShapes *shapes, int levels, const int grid_h[], const int grid_w[],
                  int canvas_h, int canvas_w) {
  CHECK(levels >= 1 && levels <= MAX_LEVELS);
  for (int l = 0; l < levels; l++) CHECK(shapes->type != ANCHORS_LEGACY || shapes->stride[l] > 0);
  CHECK(shapes->sizes * shapes->ratios >= 1 && shapes->sizes * shapes->ratios <= MAX_CELL_ANCHORS);
  *a = (Anchors){.levels = levels, .per_cell = shapes->sizes * shapes->ratios};
  for (int l = 0; l < levels; l++) {
    AnchorLevel *level = &a->level[l];
    level->h = grid_h[l];
    level->w = grid_w[l];
    level->first = a->total;
    level->stride_y = (float)(shapes->stride[l] ? shapes->stride[l] : canvas_h / grid_h[l]);
    level->stride_x = (float)(shapes->stride[l] ? shapes->stride[l] : canvas_w / grid_w[l]);
    for (int i = 0; i < a->per_cell; i++) {
      float size = shapes->size[l][i % shapes->sizes], ratio = shapes->ratio[i / shapes->sizes];
      if (shapes->type == ANCHORS_LEGACY)
        legacy_anchor(level->cell[i], size, ratio, shapes->stride[l]);
      else
        centred_anchor(level->cell[i], size, ratio, shapes->type == ANCHORS_ROUNDED);
    }
    a->total += level->h * level->w * a->per_cell;
  }
}
