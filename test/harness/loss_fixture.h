// What the tests of the detector's losses share: definitions in long double, and how far a loss or gradient may be off
// them. A loss is a mean of terms that take about ten float operations on numbers ≤ |x| + |t| + 1, exp and log among
// them; softmax adds one for each class.
#pragma once
#include "test/harness/gradcheck.h"
#include "test/harness/op_fixture.h"

static const float loss_betas[] = {1.0f / 9, 1, 0};

static inline long double log_sigmoid(long double x) { return x < 0 ? x - log1pl(expl(x)) : -log1pl(expl(-x)); }
static inline long double bce(long double x, long double t) { return -t * log_sigmoid(x) - (1 - t) * log_sigmoid(-x); }
static inline long double sigmoid(long double x) { return expl(log_sigmoid(x)); }
static inline long double smooth_l1(long double e, long double beta) {
  return fabsl(e) < beta ? e * e / 2 / beta : fabsl(e) - beta / 2;
}
static inline long double smooth_l1_grad(long double e, long double beta) {
  return fabsl(e) < beta ? e / beta : e > 0 ? 1 : e < 0 ? -1 : 0;
}

// x - t is rounded once, the rest are up to six operations on numbers ≤ |x| + |t| + 1, exp and log included. That holds
// for CUDA's expf, logf and log1pf, too: each may be off by 2 units in the last place, 4 u, where the CPU's are by half
// a one, so that log1p(exp(-|x|)) ≤ 0.7 is off by 5 u.
static inline double term_bound(double u, double x, double t) { return 10 * u * (fabs(x) + fabs(t) + 1); }
// A derivative ≤ 1 takes as many; where the slope is 1 / beta, the rounding of x - t counts that much more.
static inline double slope_bound(double u, double x, double t, double beta) {
  return 10 * u + (beta > 0 ? 2 * u * (fabs(x) + fabs(t)) / beta : 0);
}
// What softmax adds: a step for each class in its sum; and on a GPU 8 u more, for two of CUDA's exponentials.
static inline double softmax_bound(const Fixture *f, int classes) {
  return (classes + (f->dev->gpu ? 8 : 0)) * unit_roundoff(f->type);
}

typedef struct ExpectedLoss {
  long double loss[2];
  double bound[2];
} ExpectedLoss;
static inline void expect_loss(const Tensor *loss, const ExpectedLoss *want) {
  for (int i = 0; i < loss->c; i++)
    EXPECT_NEAR(get(loss, 0, 0, 0, i), (double)want->loss[i],
                want->bound[i] + 2 * unit_roundoff(loss->dtype) * fabs((double)want->loss[i]));
}

// A gradient as an op wrote it, as it should be, 0 where nothing else was put, and how far apart the two may be.
typedef struct ExpectedGradient {
  Tensor got, want, bound;
} ExpectedGradient;
static inline ExpectedGradient gradient_make(Fixture *f, const Tensor *x) {
  Tensor wide = tensor(F64, x->n, x->h, x->w, x->c);
  ExpectedGradient g = {fixture_tensor(f, *x), fixture_tensor(f, wide), fixture_tensor(f, wide)};
  test_fill(&g.want, 0, 0, 0);
  test_fill(&g.bound, 0, 0, 0);
  return g;
}
static inline void gradient_put(const ExpectedGradient *g, int n, int y, int x, int c, long double value,
                                double bound) {
  put(&g->want, n, y, x, c, (double)value);
  put(&g->bound, n, y, x, c,
      bound + 2 * unit_roundoff(g->got.dtype) * fabs((double)value) + stored_rounding(g->got.dtype, (double)value));
}
static inline void expect_gradient(const ExpectedGradient *g) {
  for (int n = 0; n < valid_rows(&g->got); n++)
    for (int y = 0; y < g->got.h; y++)
      for (int x = 0; x < g->got.w; x++)
        for (int c = 0; c < g->got.c; c++)
          EXPECT_NEAR(get(&g->got, n, y, x, c), get(&g->want, n, y, x, c), get(&g->bound, n, y, x, c));
  expect_padding_zero(&g->got);
}

// Predictions of a regression that keep away from the kinks |e| = 0 and |e| = beta, targets being multiples of 1/4, by
// more than a gradient check's step. Every type has them.
static inline void fill_deltas(const Tensor *t, uint64_t key) {
  test_fill_steps(t, key, -2, 2, 0.25);
  for (int n = 0; n < valid_rows(t); n++)
    for (int y = 0; y < t->h; y++)
      for (int x = 0; x < t->w; x++)
        for (int c = 0; c < t->c; c++) put(t, n, y, x, c, get(t, n, y, x, c) + 0.0625);
}

// The factor that gradients are multiplied by, in the device's memory.
static inline Tensor loss_scale(Fixture *f, double factor) {
  Tensor scale = fixture_packed(f, 1, 1);
  put(&scale, 0, 0, 0, 0, factor);
  return scale;
}
