// What the RPN's 3 × 3 convolution sees at the cells of sampled anchors, and the gradient of that.
#include "cpu/dest.h"
#include "exact/anchor_cell.h"

void OP(rpn_patches)(Device *dev, const Anchors *anchors, const RpnTargets *targets, const Tensor *x, const Tensor *y) {
  if (dev->measuring) return;
  CHECK(y->n == targets->images * targets->batch && y->h == 3 && y->w == 3 && y->ldc == x->ldc);
#pragma omp parallel for schedule(static)
  for (int row = 0; row < y->n; row++) {
    const int n = row / targets->batch, i = row % targets->batch;
    memset(at(y, row, 0, 0), 0, (size_t)(9 * y->ldc) * sizeof(real));
    if (i >= targets->count[n]) continue;
    const AnchorCell cell = anchor_cell(anchors, targets->index[row]);
    const Tensor *map = &x[cell.level];
    for (int tap = 0; tap < 9; tap++) {
      const int py = cell.y + tap / 3 - 1, px = cell.x + tap % 3 - 1;
      if (py >= 0 && py < map->h && px >= 0 && px < map->w)
        memcpy(at(y, row, tap / 3, tap % 3), at(map, n, py, px), (size_t)y->ldc * sizeof(real));
    }
  }
}

// Row (n, y) of a level's gradient: the samples in their order.
static void write_row(const Anchors *anchors, const RpnTargets *targets, const Tensor *dy, const Dest *dx, int level,
                      int n, int y) {
  for (RowRun r = run_first(&dx->t, n, y); r.pixels; r = run_next(&dx->t, r)) {
    real v[RUN_ELEMENTS];
    memset(v, 0, (size_t)run_length(r) * sizeof *v);
    for (int i = 0; i < targets->count[n]; i++) {
      const int row = n * targets->batch + i;
      const AnchorCell cell = anchor_cell(anchors, targets->index[row]);
      for (int p = 0; cell.level == level && p < r.pixels; p++) {
        const int tap = patch_tap(cell, y, r.x + p);
        if (tap < 0) continue;
        const real *from = at(dy, row, tap / 3, tap % 3) + r.lane;
        for (int k = 0; k < r.lanes; k++) v[p * r.lanes + k] += from[k];
      }
    }
    dest_write(dx, r, v);
  }
}

void OP(rpn_patches_backward)(Device *dev, const Anchors *anchors, const RpnTargets *targets, const Tensor *dy,
                              const Dest *dx) {
  if (dev->measuring) return;
  for (int l = 0; l < anchors->levels; l++) {
    dest_check(&dx[l]);
#pragma omp parallel for collapse(2) schedule(static)
    for (int n = 0; n < targets->images; n++)
      for (int y = 0; y < dx[l].t.h; y++) write_row(anchors, targets, dy, &dx[l], l, n, y);
  }
}
