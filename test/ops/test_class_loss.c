// Catches classification losses, gradients, hits or probabilities that are wrong.
//
// The loss, its gradient, the ranks and the probabilities against their definitions in long double.
#include "test/harness/gradcheck.h"
#include "test/harness/op_fixture.h"
#include "test/harness/op_golden.h"

typedef struct ClassCase {
  int n, classes, out; // out: every so many rows has a label that does not count
  float smoothing;
  double spread;
} ClassCase;
static const ClassCase cases[] = {
    {1, 1, 0, 0, 1},        {1, 2, 0, 0, 1},         {5, 10, 0, 0, 3},      {5, 10, 0, 0.1f, 3},
    {7, 37, 3, 0.1f, 3},    {4, 10, 1, 0.1f, 1},     {128, 10, 0, 0.1f, 3}, {64, 1000, 5, 0.1f, 10},
    {2000, 12, 7, 0.1f, 3}, {3, 1000, 0, 0.1f, 100}, {3, 1000, 0, 0, 1000}, {6, 3, 0, 1, 1},
};

typedef struct ClassArgs {
  Device *dev;
  ClassLoss p;
  int *label, count; // count: rows whose label counts
  Hits hits;
  Tensor logits, loss;
} ClassArgs;

static ClassArgs make(Fixture *f, const ClassCase *k) {
  ClassArgs a = {.dev = f->dev, .p = {k->smoothing, 0.5f}, .label = fixture_ints(f, k->n)};
  a.logits = fixture_map(f, k->n, 1, 1, k->classes);
  test_fill(&a.logits, 1, -k->spread, k->spread);
  const int not_one[] = {-100, -1, k->classes};
  for (int r = 0; r < k->n; r++) {
    a.label[r] = (int)(rng_u32(2, (uint64_t)r) % (uint32_t)k->classes);
    if (k->out && r % k->out == 0) a.label[r] = not_one[r % 3];
    a.count += a.label[r] >= 0 && a.label[r] < k->classes;
  }
  return a;
}
static void add_results(Fixture *f, ClassArgs *a) {
  a->loss = fixture_packed(f, 1, 1);
  a->hits = (Hits){fixture_ints(f, 1), fixture_ints(f, 1)};
}

static void run_loss(Device *dev, void *context, const Dest *loss) {
  const ClassArgs *a = context;
  dev->ops->class_loss(dev, &a->p, a->label, &a->logits, &loss->t, &a->hits);
}
static double objective(void *context) {
  ClassArgs *a = context;
  run_op(a->dev, run_loss, a, &(Dest){.t = a->loss});
  return get(&a->loss, 0, 0, 0, 0);
}

// log Σ exp of a row.
static long double log_sum(const Tensor *x, int r) {
  long double max = -INFINITY, sum = 0;
  for (int c = 0; c < x->c; c++) max = fmaxl(max, get(x, r, 0, 0, c));
  for (int c = 0; c < x->c; c++) sum += expl(get(x, r, 0, 0, c) - max);
  return max + logl(sum);
}

// The share of the target that class c has.
static long double target(const ClassArgs *a, int r, int c) {
  long double e = a->p.smoothing;
  return (c == a->label[r] ? 1 - e : 0) + e / a->logits.c;
}

static void check_case(Fixture *f, const ClassCase *k, bool ties) {
  ClassArgs a = make(f, k);
  if (ties) test_fill_steps(&a.logits, 3, 0, 4, 1);
  const bool gpu = f->dev->gpu;
  const double loss_scale = 64, scale = loss_scale * (double)a.p.weight, spread = ties ? 3 : k->spread;
  Tensor factor = fixture_packed(f, 1, 1);
  put(&factor, 0, 0, 0, 0, loss_scale);
  fixture_freeze(f);
  add_results(f, &a);
  Tensor dx = fixture_tensor(f, a.logits), probs = fixture_packed(f, k->n, k->classes);
  double got = objective(&a);
  int top1 = *a.hits.top1, top5 = *a.hits.top5;
  EXPECT(objective(&a) == got && "the same bits twice");
  RUN(f, class_loss_backward, &a.p, a.label, &a.logits, factor.data, &dx);
  RUN(f, class_probs, &a.logits, &probs);
  // x - max is rounded once, the sum of exponentials by the depth of its tree and its lanes, the rest in ten steps.
  // CUDA's expf is off by up to 2 units in the last place, 4 u, instead of half a one: above and below the fraction.
  const double u = unit_roundoff(f->type), bound = (2 * spread + k->classes / 32. + (gpu ? 23 : 15)) * u;
  long double want = 0;
  for (int r = 0; r < k->n; r++) {
    bool counts = a.label[r] >= 0 && a.label[r] < k->classes;
    long double sum = log_sum(&a.logits, r);
    int better = 0;
    for (int c = 0; c < k->classes; c++) {
      double x = get(&a.logits, r, 0, 0, c), own = counts ? get(&a.logits, r, 0, 0, a.label[r]) : 0;
      const long double p = expl(x - sum), share = counts ? target(&a, r, c) : 0, got_p = get(&probs, r, 0, 0, c);
      EXPECT_NEAR((double)got_p, (double)p, bound * (double)p + 1e-37);
      EXPECT(got_p >= 0 && got_p <= 1);
      if (!counts) {
        EXPECT(get(&dx, r, 0, 0, c) == 0);
        continue;
      }
      // A share of a target is rounded by 1 - smoothing, two differences, and a product with what is rounded once.
      const double slope = (double)((p - share) * scale / a.count), steps = gpu ? 5 : 4;
      EXPECT_NEAR(get(&dx, r, 0, 0, c), slope,
                  (bound * (double)p + steps * u * (double)share) * scale / a.count + 1e-37 +
                      stored_rounding(f->type, slope));
      want += share * (sum - x);
      better += x > own || (x == own && c < a.label[r]);
    }
    top1 -= counts && better < 1;
    top5 -= counts && better < 5;
  }
  want = a.count ? (double)a.p.weight * want / a.count : 0;
  EXPECT_NEAR(got, (double)want, 2 * bound + 2 * u * (double)want);
  EXPECT_INT(top1, 0); // those that are right, less those that should be
  EXPECT_INT(top5, 0);
  expect_padding_zero(&dx);
  fixture_clear(f);
}

TEST_TYPES(class_loss_equals_definition) {
  for (int i = 0; i < COUNT(cases); i++) {
    check_case(f, &cases[i], false);
    check_case(f, &cases[i], true);
  }
}

TEST_DOUBLE(class_loss_gradient_check) {
  const ClassCase some[] = {{5, 7, 0, 0, 2}, {6, 7, 3, 0.1f, 2}};
  for (int i = 0; i < COUNT(some); i++) {
    ClassArgs a = make(f, &some[i]);
    add_results(f, &a);
    Tensor dx = fixture_tensor(f, a.logits);
    RUN(f, class_loss_backward, &a.p, a.label, &a.logits, NULL, &dx);
    // A mean of terms ≤ spread + log(classes); the third derivative of log-sum-exp is at most 1, of a row of `count`.
    gradcheck(objective, &a, &a.logits, &dx, 8, 40, 1, 1000);
  }
}

static void fill_rows(const ClassArgs *a, double value, int c, double of_c) {
  for (int i = 0; i < a->logits.n * a->logits.c; i++)
    put(&a->logits, i / a->logits.c, 0, 0, i % a->logits.c, i % a->logits.c == c ? of_c : value);
}

// Ties go to the lowest class, as torch.topk's; a NaN is never right, and makes the loss one.
TEST_OP(class_loss_hits_of_ties_and_nan) {
  const ClassCase k = {4, 8, 0, 0, 1};
  ClassArgs a = make(f, &k);
  add_results(f, &a);
  const double few = 4 * unit_roundoff(f->type);
  a.p.weight = 1;
  fill_rows(&a, 1, 0, 1);
  for (int r = 0; r < k.n; r++) a.label[r] = (const int[]){0, 4, 5, 7}[r]; // the best, the fifth, the sixth, the last
  EXPECT_NEAR(objective(&a), log(8), few * log(8));
  EXPECT_INT(*a.hits.top1, 1);
  EXPECT_INT(*a.hits.top5, 2);
  put(&a.logits, 1, 0, 0, 7, NAN); // in place of the fifth's
  EXPECT(isnan(objective(&a)));
  EXPECT_INT(*a.hits.top1, 1);
  EXPECT_INT(*a.hits.top5, 1);
  put(&a.logits, 0, 0, 0, 0, NAN); // the best itself
  objective(&a);
  EXPECT_INT(*a.hits.top1, 0);
  EXPECT_INT(*a.hits.top5, 0);
  // A class that cannot be: free without smoothing, infinitely dear with it.
  fill_rows(&a, 1, 6, -INFINITY);
  EXPECT_NEAR(objective(&a), log(7), few * log(7));
  a.p.smoothing = 0.1f;
  EXPECT(isinf(objective(&a)));
}

TEST_OP(class_loss_equals_torch) {
  const ClassCase k = {7, 11, 0, 0, 4};
  const int label[] = {0, 10, 3, -100, 7, 3, 5};
  ClassArgs a = make(f, &k);
  add_results(f, &a);
  test_fill(&a.logits, 3, -4, 4);
  memcpy(a.label, label, sizeof label);
  a.p.weight = 1;
  Tensor dx = fixture_tensor(f, a.logits), probs = fixture_packed(f, k.n, k.classes), hits = fixture_packed(f, 1, 2);
  for (int smooth = 0; smooth < 2; smooth++) {
    a.p.smoothing = smooth ? 0.125f : 0;
    objective(&a);
    RUN(f, class_loss_backward, &a.p, a.label, &a.logits, NULL, &dx);
    RUN(f, class_probs, &a.logits, &probs);
    put(&hits, 0, 0, 0, 0, *a.hits.top1);
    put(&hits, 0, 0, 0, 1, *a.hits.top5);
    // Logits up to 4: 8 times the rounding of an exponential's argument, and twenty more steps.
    expect_op_golden(smooth ? "class.smooth.loss" : "class.plain.loss", &a.loss, 40);
    expect_op_golden(smooth ? "class.smooth.dx" : "class.plain.dx", &dx, 40);
    expect_op_golden("class.probs", &probs, 40);
    expect_op_golden("class.hits", &hits, 0);
  }
}
