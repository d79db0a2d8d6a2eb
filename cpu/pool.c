// Max pooling, and the elementwise copy through a Dest. Both directions of the pool gather (the gradient too, rather
// than scattering to the maxima), so that every element is written once, by the thread that owns its row.
#include <string.h>
#include "cpu/dest.h"
#include "exact/pool_windows.h"

// y = x through the epilogue.
void OP(copy)(Device *dev, const Tensor *x, const Dest *y) {
  if (dev->measuring) return;
  dest_check(y);
  const Tensor *t = &y->t;
  CHECK(!x || (x->ldc == t->ldc && x->h == t->h && x->w == t->w));
  int images = rows(t);
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < images; n++)
    for (int row = 0; row < t->h; row++) {
      real v[RUN_ELEMENTS];
      for (RowRun r = run_first(t, n, row); r.pixels; r = run_next(t, r)) {
        size_t bytes = (size_t)run_length(r) * sizeof *v;
        if (x)
          memcpy(v, run_at(x, r), bytes);
        else
          memset(v, 0, bytes);
        dest_write(y, r, v);
      }
    }
}

static void check_shapes(const Pool *p, const Tensor *x, const Tensor *y) {
  CHECK(p->size > 0 && p->stride > 0 && p->pad >= 0);
  CHECK(x->ldc == y->ldc);
  CHECK(pool_fits(p, x->h, y->h) && pool_fits(p, x->w, y->w));
}

// Scanning a window in row-major order, `next` takes the place of the maximum so far: ties stay with the first; NaN
// counts as the largest, the last of several wins, as in PyTorch.
static inline bool replaces(real next, real max) { return (next > max) | (next != next); }

// A row of y at a time; the maximum of a window is kept in the run's buffer.
void OP(max_pool_forward)(Device *dev, const Pool *p, const Tensor *x, const Dest *y) {
  if (dev->measuring) return;
  dest_check(y);
  const Tensor *t = &y->t;
  check_shapes(p, x, t);
  int images = rows(x);
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < images; n++)
    for (int row = 0; row < t->h; row++) {
      real v[RUN_ELEMENTS];
      PoolSpan ys = pool_window(p, row, x->h);
      for (RowRun r = run_first(t, n, row); r.pixels; r = run_next(t, r)) {
        for (int i = 0; i < run_length(r); i++) v[i] = -(real)INFINITY;
        for (int pixel = 0; pixel < r.pixels; pixel++) {
          real *restrict max = v + pixel * r.lanes;
          PoolSpan xs = pool_window(p, r.x + pixel, x->w);
          for (int yy = ys.first; yy < ys.last; yy++)
            for (int xx = xs.first; xx < xs.last; xx++) {
              const real *restrict next = at(x, n, yy, xx) + r.lane;
              for (int i = 0; i < r.lanes; i++) max[i] = replaces(next[i], max[i]) ? next[i] : max[i];
            }
        }
        dest_write(y, r, v);
      }
    }
}

// g = dy where pixel (n, y, x) of the image is the maximum of the window ys × xs, else 0; `lanes` channels from `lane`.
static void window_grad(const Tensor *image, int n, int y, int x, PoolSpan ys, PoolSpan xs, int lane, int lanes,
                        const real *restrict dy, real *restrict g) {
  const real *restrict own = at(image, n, y, x) + lane;
  memcpy(g, dy, (size_t)lanes * sizeof *g);
  for (int yy = ys.first; yy < ys.last; yy++)
    for (int xx = xs.first; xx < xs.last; xx++) {
      const real *restrict other = at(image, n, yy, xx) + lane;
      if (yy < y || (yy == y && xx < x))
        for (int i = 0; i < lanes; i++) g[i] = replaces(own[i], other[i]) ? g[i] : 0;
      else if (yy > y || xx > x)
        for (int i = 0; i < lanes; i++) g[i] = replaces(other[i], own[i]) ? 0 : g[i];
    }
}

// A row of dx at a time: each pixel visits the windows that cover it, in row-major order, and takes their gradient
// where it is their maximum. Whether it is, is found from x again: no argmax is kept from the forward pass.
void OP(max_pool_backward)(Device *dev, const Pool *p, const Tensor *x, const Tensor *dy, const Dest *dx) {
  if (dev->measuring) return;
  dest_check(dx);
  const Tensor *t = &dx->t;
  check_shapes(p, x, dy);
  CHECK(t->ldc == x->ldc && t->h == x->h && t->w == x->w);
  int images = rows(x);
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < images; n++)
    for (int row = 0; row < t->h; row++) {
      real v[RUN_ELEMENTS], g[RUN_ELEMENTS];
      PoolSpan outs_y = pool_windows_of(p, row, dy->h);
      for (RowRun r = run_first(t, n, row); r.pixels; r = run_next(t, r)) {
        memset(v, 0, (size_t)run_length(r) * sizeof *v);
        for (int pixel = 0; pixel < r.pixels; pixel++) {
          real *restrict sum = v + pixel * r.lanes;
          PoolSpan outs_x = pool_windows_of(p, r.x + pixel, dy->w);
          for (int oy = outs_y.first; oy < outs_y.last; oy++)
            for (int ox = outs_x.first; ox < outs_x.last; ox++) {
              window_grad(x, n, row, r.x + pixel, pool_window(p, oy, x->h), pool_window(p, ox, x->w), r.lane, r.lanes,
                          at(dy, n, oy, ox) + r.lane, g);
              for (int i = 0; i < r.lanes; i++) sum[i] += g[i];
            }
        }
        dest_write(dx, r, v);
      }
    }
}
