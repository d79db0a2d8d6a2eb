// Dropout by keyed draws: forward, and of a gradient backward.
#include "exact/dropout.h"
#include "cpu/dest.h"

void OP(dropout)(Device *dev, const Dropout *p, const Tensor *x, const Dest *y) {
  if (dev->measuring) return;
  dest_check(y);
  const Tensor *t = &y->t;
  CHECK(x->ldc == t->ldc && x->h == t->h && x->w == t->w && p->p >= 0 && p->p <= 1);
  const DropoutRule rule = dropout_rule(p);
  int images = rows(t);
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < images; n++)
    for (int row = 0; row < t->h; row++) {
      real v[RUN_ELEMENTS];
      for (RowRun r = run_first(t, n, row); r.pixels; r = run_next(t, r)) {
        const real *restrict from = run_at(x, r);
        for (int pixel = 0; pixel < r.pixels; pixel++) {
          uint64_t first = dropout_element(p, t, n, row, r.x + pixel) + (uint64_t)r.lane;
          for (int i = 0; i < r.lanes; i++)
            v[pixel * r.lanes + i] = dropout_apply(&rule, first + (uint64_t)i, from[pixel * r.lanes + i]);
        }
        dest_write(y, r, v);
      }
    }
}
