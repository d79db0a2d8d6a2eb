// The mask predictor at inference: mask_select of the logits of the transposed convolution's output, of which only the
// values are computed that a probability needs.
#include "cpu/reference.h"
#include "exact/mask_bins.h"

enum { BATCH = 32 }; // hidden channels at a time

// One output pixel's logit of one class, from the input pixel that its tap sees.
static real class_logit(const MaskPredictor *p, const real *x, int y_tap, int x_tap, int class) {
  const Tensor *w = &p->filter;
  const real *bias = p->bias, *weights = at(&p->classes, class, 0, 0);
  real logit = ((const real *)p->class_bias)[class];
  for (int first = 0; first < w->c; first += BATCH) {
    real hidden[BATCH];
    const int count = MIN(BATCH, w->c - first);
    for (int c = 0; c < count; c++) hidden[c] = bias[first + c];
    for (int k = 0; k < w->n; k++) {
      const real *row = at(w, k, y_tap, x_tap) + first;
      for (int c = 0; c < count; c++) hidden[c] += x[k] * row[c];
    }
    for (int c = 0; c < count; c++) logit += (hidden[c] < 0 ? 0 : hidden[c]) * weights[first + c]; // NaN stays
  }
  return logit;
}

void OP(mask_predict)(Device *dev, const Boxes *detections, const Tensor *x, const MaskPredictor *p,
                      const Tensor *probs) {
  if (dev->measuring) return;
  CHECK(compacted_row(detections, detections->groups) <= probs->n && probs->n == x->n);
  CHECK(probs->h == 2 * x->h && probs->w == 2 * x->w && p->filter.h == 2 && p->filter.w == 2 && probs->ldc == 1);
  CHECK(p->filter.n == x->c && p->classes.c == p->filter.c);
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int group = 0; group < detections->groups; group++)
    for (int i = 0; i < detections->capacity; i++) {
      if (i >= detections->count[group]) continue;
      const int n = compacted_row(detections, group) + i;
      const int class = detections->index[(size_t)group * (size_t)detections->capacity + (size_t)i] % p->classes.n;
      for (int y = 0; y < probs->h; y++)
        for (int column = 0; column < probs->w; column++)
          *at(probs, n, y, column) = sigmoid(class_logit(p, at(x, n, y / 2, column / 2), y % 2, column % 2, class));
    }
}
