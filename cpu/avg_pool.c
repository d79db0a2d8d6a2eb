// Average pooling, over windows and adaptive. Both directions gather, so that every element is written once, by the
// thread that owns its row.
#include <string.h>
#include "cpu/dest.h"
#include "exact/avg_windows.h"

static void check_shapes(const AvgPool *p, const Tensor *x, const Tensor *y) {
  CHECK(p->window.size >= 0 && p->window.pad >= 0 && (!p->window.size || p->window.stride > 0));
  CHECK(x->ldc == y->ldc && avg_pool_fits(p, x->h, y->h) && avg_pool_fits(p, x->w, y->w));
}

// A row of y at a time.
void OP(avg_pool_forward)(Device *dev, const AvgPool *p, const Tensor *x, const Dest *y) {
  if (dev->measuring) return;
  dest_check(y);
  const Tensor *t = &y->t;
  check_shapes(p, x, t);
  int images = rows(x);
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < images; n++)
    for (int row = 0; row < t->h; row++) {
      real v[RUN_ELEMENTS];
      PoolSpan ys = avg_window(p, row, t->h, x->h);
      int high = avg_divisor(p, row, t->h, x->h);
      for (RowRun r = run_first(t, n, row); r.pixels; r = run_next(t, r)) {
        memset(v, 0, (size_t)run_length(r) * sizeof *v);
        for (int pixel = 0; pixel < r.pixels; pixel++) {
          real *restrict sum = v + pixel * r.lanes;
          PoolSpan xs = avg_window(p, r.x + pixel, t->w, x->w);
          if (ys.first >= ys.last || xs.first >= xs.last) continue;
          real divisor = (real)high * (real)avg_divisor(p, r.x + pixel, t->w, x->w);
          for (int yy = ys.first; yy < ys.last; yy++)
            for (int xx = xs.first; xx < xs.last; xx++) {
              const real *restrict next = at(x, n, yy, xx) + r.lane;
              for (int i = 0; i < r.lanes; i++) sum[i] += next[i];
            }
          for (int i = 0; i < r.lanes; i++) sum[i] /= divisor;
        }
        dest_write(y, r, v);
      }
    }
}

// dx = Σ dy / divisor over the windows that cover a pixel, in row-major order; a row of dx at a time.
void OP(avg_pool_backward)(Device *dev, const AvgPool *p, const Tensor *dy, const Dest *dx) {
  if (dev->measuring) return;
  dest_check(dx);
  const Tensor *t = &dx->t;
  check_shapes(p, t, dy);
  int images = rows(dy);
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < images; n++)
    for (int row = 0; row < t->h; row++) {
      real v[RUN_ELEMENTS];
      PoolSpan outs_y = avg_windows_of(p, row, dy->h, t->h);
      for (RowRun r = run_first(t, n, row); r.pixels; r = run_next(t, r)) {
        memset(v, 0, (size_t)run_length(r) * sizeof *v);
        for (int pixel = 0; pixel < r.pixels; pixel++) {
          real *restrict sum = v + pixel * r.lanes;
          PoolSpan outs_x = avg_windows_of(p, r.x + pixel, dy->w, t->w);
          for (int oy = outs_y.first; oy < outs_y.last; oy++)
            for (int ox = outs_x.first; ox < outs_x.last; ox++) {
              const real *restrict g = at(dy, n, oy, ox) + r.lane;
              real divisor = (real)avg_divisor(p, oy, dy->h, t->h) * (real)avg_divisor(p, ox, dy->w, t->w);
              for (int i = 0; i < r.lanes; i++) sum[i] += g[i] / divisor;
            }
        }
        dest_write(dx, r, v);
      }
    }
}
