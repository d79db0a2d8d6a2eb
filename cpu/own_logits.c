// Logits of each object's own class, and their gradients: a 1 × 1 convolution of which one output channel an object is
// computed.
#include "cpu/dest.h"

static int pixels_of(const Tensor *t) { return t->h * t->w; }

void OP(own_logits)(Device *dev, const RoiTargets *targets, const Tensor *x, const Tensor *w, const void *bias,
                    const Tensor *logits, void *signs) {
  CHECK(!signs);
  if (dev->measuring) return;
  CHECK(w->h * w->w == 1 && w->c == x->c && logits->n == x->n && pixels_of(logits) == pixels_of(x) && logits->ldc == 1);
#pragma omp parallel for schedule(static)
  for (int r = 0; r < rows(x); r++) {
    const int class = targets->object_label[r];
    const real *restrict filter = at(w, class, 0, 0);
    for (int i = 0; i < pixels_of(x); i++) {
      const real *restrict pixel = at(x, r, 0, i);
      real sum = 0;
      for (int c = 0; c < x->c; c++) sum += pixel[c] * filter[c];
      *at(logits, r, 0, i) = sum + ((const real *)bias)[class];
    }
  }
}

static void write_dx(const Tensor *filter, const Tensor *dlogits, const Dest *dx, int n, int class) {
  for (int y = 0; y < dx->t.h; y++)
    for (RowRun r = run_first(&dx->t, n, y); r.pixels; r = run_next(&dx->t, r)) {
      real v[RUN_ELEMENTS];
      for (int p = 0; p < r.pixels; p++)
        for (int c = 0; c < r.lanes; c++)
          v[p * r.lanes + c] = *at(dlogits, n, y, r.x + p) * at(filter, class, 0, 0)[r.lane + c];
      dest_write(dx, r, v);
    }
}

// dw and db of one class: its objects in their order.
static void write_gradient(const RoiTargets *targets, const Tensor *x, const Tensor *dlogits, const FilterGrad *out,
                           int class) {
  real *restrict dw = at(&out->dw, class, 0, 0), db = 0;
  if (!out->accumulate) memset(dw, 0, (size_t)out->dw.ldc * sizeof *dw);
  for (int r = 0; r < rows(x); r++)
    for (int i = 0; targets->object_label[r] == class && i < pixels_of(x); i++) {
      const real *restrict pixel = at(x, r, 0, i), own = *at(dlogits, r, 0, i);
      for (int c = 0; c < x->c; c++) dw[c] += own * pixel[c];
      db += own;
    }
  if (out->db) ((real *)out->db)[class] = db + (out->accumulate ? ((real *)out->db)[class] : 0);
}

void OP(own_logits_backward)(Device *dev, const RoiTargets *targets, const Tensor *x, const Tensor *w,
                             const Tensor *dlogits, const Dest *dx, const FilterGrad *out) {
  if (dev->measuring) return;
  dest_check(dx);
  CHECK(w->h * w->w == 1 && w->c == x->c && dlogits->n == x->n && pixels_of(dlogits) == pixels_of(x) && !out->scale);
#pragma omp parallel for schedule(static)
  for (int r = 0; r < rows(x); r++) write_dx(w, dlogits, dx, r, targets->object_label[r]);
#pragma omp parallel for schedule(dynamic)
  for (int class = 0; class < w->n; class ++) write_gradient(targets, x, dlogits, out, class);
}

// ---- with the layer before it: layer by layer on a CPU --------------------------------------------------------------

bool OP(own_predictors)(Device *dev, const Tensor *x, const Tensor *filter, const Tensor *w) {
  (void)dev;
  (void)x;
  (void)filter;
  (void)w;
  return false;
}

void OP(own_predictor_dgrad)(Device *dev, const RoiTargets *targets, const Tensor *filter, const Tensor *w,
                             const Tensor *dlogits, const void *signs, const Dest *dx) {
  (void)dev;
  (void)targets;
  (void)filter;
  (void)w;
  (void)dlogits;
  (void)signs;
  (void)dx;
  die_unforeseen("a CPU computes mask predictors layer by layer");
}

void OP(own_predictor_wgrad)(Device *dev, const RoiTargets *targets, const Tensor *x, const Tensor *hidden,
                             const Tensor *w, const Tensor *dlogits, const void *signs, const FilterGrad out[2]) {
  (void)dev;
  (void)targets;
  (void)x;
  (void)hidden;
  (void)w;
  (void)dlogits;
  (void)signs;
  (void)out;
  die_unforeseen("a CPU computes mask predictors layer by layer");
}
