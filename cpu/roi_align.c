// RoIAlign over a feature pyramid (He et al., "Mask R-CNN", 2017, section 3; torchvision's MultiScaleRoIAlign). Forward
// and backward both gather: a bin from the map, a row of the map's gradient from the RoIs that reach it.
#include <omp.h>
#include "cpu/dest.h"
#include "cpu/reference.h"
#include "exact/roi_bins.h"

// ---- forward --------------------------------------------------------------------------------------------------------

// y [c] += the bilinear sample at (row, column) of image n.
static void add_sample(const Tensor *x, int n, Tap row, Tap column, real *restrict y) {
  const real *a = at(x, n, row.low, column.low), *b = at(x, n, row.low, column.high);
  const real *c = at(x, n, row.high, column.low), *d = at(x, n, row.high, column.high);
  real wa = (1 - row.fraction) * (1 - column.fraction), wb = (1 - row.fraction) * column.fraction;
  real wc = row.fraction * (1 - column.fraction), wd = row.fraction * column.fraction;
  for (int i = 0; i < x->c; i++) y[i] += wa * a[i] + wb * b[i] + wc * c[i] + wd * d[i];
}

// y [ldc] = the average of the sampling points of one bin.
static void pool_bin(const RoiGrid *grid, const Tensor *x, int n, int bin_y, int bin_x, const Tensor *out, real *y) {
  for (int i = 0; i < out->ldc; i++) y[i] = 0;
  for (int sy = 0; sy < grid->y.samples; sy++) {
    Tap row = roi_tap(grid->y, bin_y, sy, x->h);
    for (int sx = 0; sx < grid->x.samples; sx++) {
      Tap column = roi_tap(grid->x, bin_x, sx, x->w);
      if (row.low >= 0 && column.low >= 0) add_sample(x, n, row, column, y);
    }
  }
  for (int i = 0; i < out->c; i++) y[i] /= (real)grid->samples;
}

void OP(roi_align_forward)(Device *dev, const RoiAlign *p, const Rois *rois, const Tensor *x, const Tensor *y) {
  if (dev->measuring) return;
  CHECK(p->levels <= MAX_LEVELS && y->h == p->size && y->w == p->size && *rois->count <= y->n);
  real limit[MAX_LEVELS];
  roi_level_limits(p, limit);
#pragma omp parallel for collapse(2) schedule(dynamic, 8)
  for (int r = 0; r < *rois->count; r++)
    for (int bin_y = 0; bin_y < p->size; bin_y++) {
      RoiGrid grid = roi_grid(p, limit, box_rows(&rois->box)[r]);
      for (int bin_x = 0; bin_x < p->size; bin_x++)
        pool_bin(&grid, &x[grid.level], rois->image[r], bin_y, bin_x, y, at(y, r, bin_y, bin_x));
    }
}

// ---- backward -------------------------------------------------------------------------------------------------------

// dx [c] += weight · dy [c]
static void add_scaled(int c, real weight, const real *restrict dy, real *restrict dx) {
  for (int i = 0; i < c; i++) dx[i] += weight * dy[i];
}

// One row of sampling points of a RoI, whose weight in this row of the map is row_weight, adds its share to the row's
// gradient, row [w, ldc]: d/dx of add_sample.
static void spread_bins(const RoiGrid *grid, real row_weight, const Tensor *dy, int roi, int bin_y, const Tensor *dx,
                        real *row) {
  for (int bin_x = 0; bin_x < dy->w; bin_x++)
    for (int sx = 0; sx < grid->x.samples; sx++) {
      Tap column = roi_tap(grid->x, bin_x, sx, dx->w);
      if (column.low < 0) continue;
      real weight = row_weight / (real)grid->samples;
      const real *from = at(dy, roi, bin_y, bin_x);
      add_scaled(dx->c, weight * (1 - column.fraction), from, row + (size_t)column.low * dx->ldc);
      add_scaled(dx->c, weight * column.fraction, from, row + (size_t)column.high * dx->ldc);
    }
}

// Adds a RoI's share to row y of the map's gradient.
static void spread_roi(const RoiGrid *grid, const Tensor *dy, int roi, const Tensor *dx, int y, real *row) {
  for (int bin_y = 0; bin_y < dy->h; bin_y++)
    for (int sy = 0; sy < grid->y.samples; sy++) {
      Tap tap = roi_tap(grid->y, bin_y, sy, dx->h);
      real weight = (tap.low == y ? 1 - tap.fraction : 0) + (tap.high == y ? tap.fraction : 0);
      if (weight > 0) spread_bins(grid, weight, dy, roi, bin_y, dx, row);
    }
}

// A thread owns a row of dx and gathers from the RoIs in their order, where a scatter from each RoI would need atomics:
// sums do not depend on the number of threads. The row is gathered in the workspace and leaves through its Dest.
void OP(roi_align_backward)(Device *dev, const RoiAlign *p, const Rois *rois, const Tensor *dy, const Dest *dx) {
  size_t widest = 0; // row of any level, elements
  for (int l = 0; l < p->levels; l++) widest = MAX(widest, (size_t)dx[l].t.w * dx[l].t.ldc);
  size_t grid_bytes = ((size_t)rois->capacity * sizeof(RoiGrid) + 63) / 64 * 64;
  char *workspace = device_workspace(dev, grid_bytes + omp_get_max_threads() * widest * sizeof(real));
  if (!workspace) return;
  CHECK(p->levels <= MAX_LEVELS && dy->h == p->size && dy->w == p->size && *rois->count <= dy->n);
  real limit[MAX_LEVELS];
  roi_level_limits(p, limit);
  RoiGrid *grids = (RoiGrid *)workspace;
  for (int r = 0; r < *rois->count; r++) grids[r] = roi_grid(p, limit, box_rows(&rois->box)[r]);
  for (int l = 0; l < p->levels; l++) {
    const Tensor *t = &dx[l].t;
    dest_check(&dx[l]);
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (int n = 0; n < rows(t); n++)
      for (int y = 0; y < t->h; y++) {
        real *row = (real *)(workspace + grid_bytes) + omp_get_thread_num() * widest;
        memset(row, 0, (size_t)t->w * t->ldc * sizeof *row);
        for (int r = 0; r < *rois->count; r++)
          if (rois->image[r] == n && grids[r].level == l) spread_roi(&grids[r], dy, r, t, y, row);
        for (RowRun run = run_first(t, n, y); run.pixels; run = run_next(t, run))
          dest_write(&dx[l], run, row + (size_t)run.x * t->ldc + run.lane);
      }
  }
}
