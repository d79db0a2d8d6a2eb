// Concatenation along channels, and the cut that is its gradient.
#include "cpu/dest.h"

static bool same_pixels(const Tensor *a, const Tensor *b) { return a->n == b->n && a->h == b->h && a->w == b->w; }

// The channels of x, which are y's from `first` on, as far as run r of a pixel of y has them.
static void put_part(const Tensor *x, int first, RowRun r, int pixel, real *v) {
  const real *from = at(x, r.n, r.y, r.x + pixel);
  int begin = MAX(first, r.lane), end = MIN(first + x->c, r.lane + r.lanes);
  for (int c = begin; c < end; c++) v[c - r.lane] = from[c - first];
}

void OP(concat)(Device *dev, int parts, const Tensor *x, const Dest *y) {
  if (dev->measuring) return;
  dest_check(y);
  const Tensor *t = &y->t;
  int images = rows(t), channels = 0;
  CHECK(parts > 0 && parts <= MAX_CONCAT);
  for (int i = 0; i < parts; i++) {
    CHECK(same_pixels(&x[i], t));
    channels += x[i].c;
  }
  CHECK(channels == t->c);
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < images; n++)
    for (int row = 0; row < t->h; row++) {
      real v[RUN_ELEMENTS];
      for (RowRun r = run_first(t, n, row); r.pixels; r = run_next(t, r)) {
        for (int pixel = 0; pixel < r.pixels; pixel++)
          for (int i = 0, first = 0; i < parts; first += x[i++].c)
            put_part(&x[i], first, r, pixel, v + pixel * r.lanes);
        dest_write(y, r, v);
      }
    }
}

void OP(slice)(Device *dev, int first, const Tensor *x, const Dest *y) {
  if (dev->measuring) return;
  dest_check(y);
  const Tensor *t = &y->t;
  int images = rows(t);
  CHECK(same_pixels(x, t) && first >= 0 && first + t->c <= x->c);
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < images; n++)
    for (int row = 0; row < t->h; row++) {
      real v[RUN_ELEMENTS];
      for (RowRun r = run_first(t, n, row); r.pixels; r = run_next(t, r)) {
        for (int pixel = 0; pixel < r.pixels; pixel++) {
          const real *from = at(x, n, row, r.x + pixel) + first;
          for (int c = r.lane; c < MIN(r.lane + r.lanes, t->c); c++) v[pixel * r.lanes + c - r.lane] = from[c];
        }
        dest_write(y, r, v);
      }
    }
}
