// Definitions of what detection ops compute, for their tests: intersection over union, bilinear values, RoIAlign.
#pragma once
#include "test/harness/op_fixture.h"

// Intersection over union as torchvision's box_iou rounds it in the given dtype.
static inline double naive_iou(DType dtype, const double a[4], const double b[4]) {
  double w = fmin(a[2], b[2]) - fmax(a[0], b[0]), h = fmin(a[3], b[3]) - fmax(a[1], b[1]);
  if (w <= 0 || h <= 0) return 0;
  if (dtype == F64) return w * h / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - w * h);
  float inter = (float)w * (float)h;
  float area_a = (float)(a[2] - a[0]) * (float)(a[3] - a[1]), area_b = (float)(b[2] - b[0]) * (float)(b[3] - b[1]);
  return inter / (area_a + area_b - inter);
}

// Bilinear value of a map [h, w] whose pixels are `pitch` elements apart; RoIAlign's rules at the border.
static inline double naive_bilinear(const double *map, int h, int w, int pitch, double y, double x) {
  if (y < -1 || y > h || x < -1 || x > w) return 0;
  y = fmin(fmax(y, 0), h - 1);
  x = fmin(fmax(x, 0), w - 1);
  double sum = 0;
  for (int i = (int)y; i < MIN((int)y + 2, h); i++)
    for (int j = (int)x; j < MIN((int)x + 2, w); j++)
      sum += fmax(0, 1 - fabs(y - i)) * fmax(0, 1 - fabs(x - j)) * map[((size_t)i * w + j) * pitch];
  return sum;
}

// Bin (py, px) of RoIAlign by its definition; `box` in canvas pixels.
static inline double naive_roi_align(const double *map, int h, int w, int pitch, const RoiAlign *p, double scale,
                                     const double box[4], int py, int px) {
  double shift = p->aligned ? 0.5 : 0, x1 = box[0] * scale - shift, y1 = box[1] * scale - shift;
  double rw = box[2] * scale - shift - x1, rh = box[3] * scale - shift - y1;
  if (!p->aligned) {
    rw = fmax(rw, 1);
    rh = fmax(rh, 1);
  }
  int ny = p->sampling ? p->sampling : (int)ceil(rh / p->size),
      nx = p->sampling ? p->sampling : (int)ceil(rw / p->size);
  double sum = 0;
  for (int iy = 0; iy < ny; iy++)
    for (int ix = 0; ix < nx; ix++)
      sum += naive_bilinear(map, h, w, pitch, y1 + rh / p->size * (py + (iy + 0.5) / ny),
                            x1 + rw / p->size * (px + (ix + 0.5) / nx));
  return sum / MAX(nx * ny, 1);
}
