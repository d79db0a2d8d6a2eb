// Catches losses of the detector, and their gradients, that are wrong.
//
// The losses and their gradients, held to their definitions in long double and to central differences.
#include <omp.h>
#include "base/rng.h"
#include "test/harness/gradcheck.h"

static const char *const devices[] = {"cpu", "cpu64"};
static const float betas[] = {1.0f / 9, 1, 0};

// ---- definitions ----------------------------------------------------------------------------------------------------

static long double log_sigmoid(long double x) { return x < 0 ? x - log1pl(expl(x)) : -log1pl(expl(-x)); }
static long double bce(long double x, long double t) { return -t * log_sigmoid(x) - (1 - t) * log_sigmoid(-x); }
static long double sigmoid(long double x) { return expl(log_sigmoid(x)); }
static long double smooth_l1(long double e, long double beta) {
  return fabsl(e) < beta ? e * e / 2 / beta : fabsl(e) - beta / 2;
}
static long double smooth_l1_grad(long double e, long double beta) {
  return fabsl(e) < beta ? e / beta : e > 0 ? 1 : e < 0 ? -1 : 0;
}

// x - t is rounded once, the rest are up to six operations on numbers ≤ |x| + |t| + 1, exp and log included.
static double term_bound(double u, double x, double t) { return 10 * u * (fabs(x) + fabs(t) + 1); }
// A derivative ≤ 1 takes as many; where the slope is 1 / beta, the rounding of x - t counts that much more.
static double slope_bound(double u, double x, double t, double beta) {
  return 10 * u + (beta > 0 ? 2 * u * (fabs(x) + fabs(t)) / beta : 0);
}

// What a loss and its gradients should be; tensors of gradients are compared whole.
typedef struct ExpectedLoss {
  long double loss[2];
  double bound[2];
} ExpectedLoss;
static void expect_loss(const Tensor *loss, const ExpectedLoss *want, int n, double u) {
  for (int i = 0; i < n; i++)
    EXPECT_NEAR(get(loss, 0, 0, 0, i), (double)want->loss[i], want->bound[i] + 2 * u * fabs((double)want->loss[i]));
}

static void zero(const Tensor *t) { memset(t->data, 0, tensor_bytes(t)); }
static void expect_gradient(const Tensor *got, const Tensor *want, const Tensor *bound) {
  for (int n = 0; n < valid_rows(got); n++)
    for (int y = 0; y < got->h; y++)
      for (int x = 0; x < got->w; x++)
        for (int c = 0; c < got->c; c++)
          EXPECT_NEAR(get(got, n, y, x, c), get(want, n, y, x, c), get(bound, n, y, x, c));
  expect_padding_zero(got);
}

// A gradient as an op wrote it, as it should be, and how far apart the two may be.
typedef struct ExpectedGradient {
  Tensor got, want, bound;
} ExpectedGradient;
static ExpectedGradient gradient_make(const Tensor *x) {
  ExpectedGradient g = {test_tensor_like(x), test_tensor(F64, x->n, x->h, x->w, x->c),
                        test_tensor(F64, x->n, x->h, x->w, x->c)};
  zero(&g.want);
  zero(&g.bound);
  return g;
}
static void gradient_put(const ExpectedGradient *g, int n, int y, int x, int c, long double value, double bound) {
  put(&g->want, n, y, x, c, (double)value);
  put(&g->bound, n, y, x, c, bound + 2 * unit_roundoff(g->got.dtype) * fabs((double)value));
}
static void gradient_free(ExpectedGradient *g) {
  test_tensor_free(&g->got);
  test_tensor_free(&g->want);
  test_tensor_free(&g->bound);
}

// Predictions of a regression that keep away from the kinks |e| = 0 and |e| = beta by more than a gradient check's
// step.
static void fill_deltas(const Tensor *t, uint64_t key) {
  test_fill_steps(t, key, -2, 2, 0.25);
  for (int n = 0; n < valid_rows(t); n++)
    for (int y = 0; y < t->h; y++)
      for (int x = 0; x < t->w; x++)
        for (int c = 0; c < t->c; c++) put(t, n, y, x, c, get(t, n, y, x, c) + 0.0625);
}

// ---- RPN ------------------------------------------------------------------------------------------------------------

enum { IMAGES = 3, BATCH = 6, LEVELS = 2, PER_CELL = 3 };

typedef struct RpnFixture {
  Device *dev;
  RpnLoss p;
  Anchors anchors;
  RpnTargets targets;
  int index[IMAGES * BATCH], positives[IMAGES], count[IMAGES];
  Tensor logits[LEVELS], deltas[LEVELS], loss;
} RpnFixture;

static void rpn_make(RpnFixture *r, Device *dev, float beta, double spread) {
  *r = (RpnFixture){.dev = dev, .p = {.beta = beta}, .positives = {2, 0, 6}, .count = {5, 0, 6}};
  r->anchors = (Anchors){.levels = LEVELS, .per_cell = PER_CELL, .total = (4 * 5 + 2 * 3) * PER_CELL};
  r->anchors.level[0] = (AnchorLevel){.h = 4, .w = 5, .first = 0};
  r->anchors.level[1] = (AnchorLevel){.h = 2, .w = 3, .first = 4 * 5 * PER_CELL};
  for (int i = 0; i < IMAGES * BATCH; i++) r->index[i] = i % BATCH * 13 + i / BATCH; // the last of six is on level 1
  r->targets = (RpnTargets){.images = IMAGES,
                            .batch = BATCH,
                            .index = r->index,
                            .positives = r->positives,
                            .count = r->count,
                            .delta = test_tensor_packed(dev->real, IMAGES * BATCH, 4)};
  test_fill_steps(&r->targets.delta, 1, -1, 1, 0.25);
  for (int l = 0; l < LEVELS; l++) {
    const AnchorLevel *a = &r->anchors.level[l];
    r->logits[l] = test_tensor(dev->real, IMAGES, a->h, a->w, PER_CELL);
    r->deltas[l] = test_tensor(dev->real, IMAGES, a->h, a->w, 4 * PER_CELL);
    test_fill(&r->logits[l], 2 + (uint64_t)l, -spread, spread);
    fill_deltas(&r->deltas[l], 4 + (uint64_t)l);
  }
  r->loss = test_tensor_packed(dev->real, 1, 2);
}
static void rpn_free(RpnFixture *r) {
  for (int l = 0; l < LEVELS; l++) {
    test_tensor_free(&r->logits[l]);
    test_tensor_free(&r->deltas[l]);
  }
  test_tensor_free(&r->targets.delta);
  test_tensor_free(&r->loss);
}
static double rpn_objective(void *context) {
  RpnFixture *r = context;
  r->dev->ops->rpn_loss(r->dev, &r->p, &r->anchors, &r->targets, r->logits, r->deltas, &r->loss);
  return get(&r->loss, 0, 0, 0, 0) + get(&r->loss, 0, 0, 0, 1);
}

static void check_rpn(RpnFixture *r, const void *scale, double factor) {
  ExpectedGradient dlogits[LEVELS], ddeltas[LEVELS];
  Tensor got_logits[LEVELS], got_deltas[LEVELS];
  for (int l = 0; l < LEVELS; l++) {
    dlogits[l] = gradient_make(&r->logits[l]);
    ddeltas[l] = gradient_make(&r->deltas[l]);
    got_logits[l] = dlogits[l].got;
    got_deltas[l] = ddeltas[l].got;
  }
  double u = unit_roundoff(r->dev->real), beta = r->p.beta;
  double divisor = r->p.by_batch ? IMAGES * BATCH : r->count[0] + r->count[1] + r->count[2];
  ExpectedLoss want = {0};
  for (int i = 0; i < IMAGES * BATCH; i++) {
    int n = i / BATCH, anchor = r->index[i];
    if (i % BATCH >= r->count[n]) continue;
    bool object = i % BATCH < r->positives[n];
    int l = anchor >= r->anchors.level[1].first, local = anchor - r->anchors.level[l].first;
    int a = local % PER_CELL, x = local / PER_CELL % r->anchors.level[l].w,
        y = local / PER_CELL / r->anchors.level[l].w;
    double logit = get(&r->logits[l], n, y, x, a);
    want.loss[0] += bce(logit, object) / divisor;
    want.bound[0] += term_bound(u, logit, object) / divisor;
    gradient_put(&dlogits[l], n, y, x, a, factor / divisor * (sigmoid(logit) - object), factor / divisor * 10 * u);
    for (int k = 0; object && k < 4; k++) {
      double d = get(&r->deltas[l], n, y, x, 4 * a + k), t = get(&r->targets.delta, i, 0, 0, k);
      want.loss[1] += smooth_l1((long double)d - t, beta) / divisor;
      want.bound[1] += term_bound(u, d, t) / divisor;
      gradient_put(&ddeltas[l], n, y, x, 4 * a + k, factor / divisor * smooth_l1_grad((long double)d - t, beta),
                   factor / divisor * slope_bound(u, d, t, beta));
    }
  }
  rpn_objective(r);
  r->dev->ops->rpn_loss_backward(r->dev, &r->p, &r->anchors, &r->targets, r->logits, r->deltas, scale, got_logits,
                                 got_deltas);
  expect_loss(&r->loss, &want, 2, u);
  for (int l = 0; l < LEVELS; l++) {
    expect_gradient(&dlogits[l].got, &dlogits[l].want, &dlogits[l].bound);
    expect_gradient(&ddeltas[l].got, &ddeltas[l].want, &ddeltas[l].bound);
    if (r->dev->real == F64 && factor == 1) {
      double magnitude = (double)(want.loss[0] + want.loss[1]), terms = 5 * IMAGES * BATCH;
      // |σ''| < 0.1; away from its kinks smooth L1 has no third derivative.
      gradcheck(rpn_objective, r, &r->logits[l], &dlogits[l].got, magnitude, terms, 0.1, 200);
      gradcheck(rpn_objective, r, &r->deltas[l], &ddeltas[l].got, magnitude, terms, 0, 200);
    }
    gradient_free(&dlogits[l]);
    gradient_free(&ddeltas[l]);
  }
}

TEST(rpn_loss_equals_definition) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    Tensor scale = test_tensor_packed(dev->real, 1, 1);
    put(&scale, 0, 0, 0, 0, 1024);
    for (int b = 0; b < 2 * COUNT(betas); b++) {
      RpnFixture r;
      rpn_make(&r, dev, betas[b / 2], 3);
      r.p.by_batch = b % 2;
      check_rpn(&r, NULL, 1);
      check_rpn(&r, scale.data, 1024);
      rpn_free(&r);
    }
    RpnFixture far; // logits at which exp overflows
    rpn_make(&far, dev, 1, 1e5);
    check_rpn(&far, scale.data, 1024);
    rpn_free(&far);
    test_tensor_free(&scale);
    device_close(dev);
  }
}

TEST(rpn_loss_of_nothing_is_zero) {
  Device *dev = device_open("cpu", NULL);
  RpnFixture r;
  rpn_make(&r, dev, 1, 3);
  memset(r.count, 0, sizeof r.count);
  memset(r.positives, 0, sizeof r.positives);
  Tensor dlogits[LEVELS], ddeltas[LEVELS];
  for (int l = 0; l < LEVELS; l++) {
    dlogits[l] = test_tensor_like(&r.logits[l]);
    ddeltas[l] = test_tensor_like(&r.deltas[l]);
  }
  EXPECT(rpn_objective(&r) == 0);
  dev->ops->rpn_loss_backward(dev, &r.p, &r.anchors, &r.targets, r.logits, r.deltas, NULL, dlogits, ddeltas);
  for (int l = 0; l < LEVELS; l++) {
    ExpectedGradient want_logits = gradient_make(&r.logits[l]), want_deltas = gradient_make(&r.deltas[l]);
    expect_gradient(&dlogits[l], &want_logits.want, &want_logits.bound);
    expect_gradient(&ddeltas[l], &want_deltas.want, &want_deltas.bound);
    gradient_free(&want_logits);
    gradient_free(&want_deltas);
    test_tensor_free(&dlogits[l]);
    test_tensor_free(&ddeltas[l]);
  }
  rpn_free(&r);
  device_close(dev);
}

// ---- heads ----------------------------------------------------------------------------------------------------------

enum { ROIS = 7, OBJECTS = 5, CLASSES = 5, MASK = 4 };

typedef struct HeadFixture {
  Device *dev;
  float beta;
  int count, objects, label[ROIS], object_label[OBJECTS];
  RoiTargets targets;
  Tensor logits, deltas, mask, target, loss;
} HeadFixture;

static void heads_make(HeadFixture *h, Device *dev, float beta, int count, int objects, double spread) {
  *h = (HeadFixture){.dev = dev,
                     .beta = beta,
                     .count = count,
                     .objects = objects,
                     .label = {1, 4, 2, 0, 0, 0, 0},
                     .object_label = {1, 4, 2, 3, 1}};
  h->targets = (RoiTargets){.rois = {.capacity = ROIS, .count = &h->count},
                            .label = h->label,
                            .delta = test_tensor_packed(dev->real, ROIS, 4),
                            .objects = {.capacity = OBJECTS, .count = &h->objects},
                            .object_label = h->object_label};
  h->logits = test_tensor(dev->real, ROIS, 1, 1, CLASSES);
  h->deltas = test_tensor(dev->real, ROIS, 1, 1, 4 * CLASSES);
  h->mask = test_tensor(dev->real, OBJECTS, MASK, MASK, CLASSES);
  h->target = test_tensor(dev->real, OBJECTS, MASK, MASK, 1);
  h->loss = test_tensor_packed(dev->real, 1, 2);
  h->logits.count = h->deltas.count = &h->count;
  h->mask.count = h->target.count = &h->objects;
  test_fill_steps(&h->targets.delta, 1, -1, 1, 0.25);
  test_fill(&h->logits, 2, -spread, spread);
  fill_deltas(&h->deltas, 3);
  test_fill(&h->mask, 4, -spread, spread);
  test_fill(&h->target, 5, 0, 1);
}
static void heads_free(HeadFixture *h) {
  Tensor *all[] = {&h->targets.delta, &h->logits, &h->deltas, &h->mask, &h->target, &h->loss};
  for (int i = 0; i < COUNT(all); i++) test_tensor_free(all[i]);
}

static void run_box_loss(Device *dev, void *context, const Dest *loss) {
  const HeadFixture *h = context;
  dev->ops->box_loss(dev, h->beta, &h->targets, &h->logits, &h->deltas, &loss->t);
}
static void run_mask_loss(Device *dev, void *context, const Dest *loss) {
  const HeadFixture *h = context;
  dev->ops->mask_loss(dev, &h->targets, &h->mask, &h->target, &loss->t);
}
static double box_objective(void *context) {
  HeadFixture *h = context;
  run_op(h->dev, run_box_loss, h, &(Dest){.t = h->loss});
  return get(&h->loss, 0, 0, 0, 0) + get(&h->loss, 0, 0, 0, 1);
}
static double mask_objective(void *context) {
  HeadFixture *h = context;
  run_op(h->dev, run_mask_loss, h, &(Dest){.t = h->loss});
  return get(&h->loss, 0, 0, 0, 0);
}

static void check_box(HeadFixture *h, const void *scale, double factor) {
  ExpectedGradient dlogits = gradient_make(&h->logits), ddeltas = gradient_make(&h->deltas);
  double u = unit_roundoff(h->dev->real);
  ExpectedLoss want = {0};
  for (int r = 0; r < h->count; r++) {
    int label = h->label[r];
    long double max = -INFINITY, sum = 0;
    for (int k = 0; k < CLASSES; k++) max = fmaxl(max, get(&h->logits, r, 0, 0, k));
    for (int k = 0; k < CLASSES; k++) sum += expl(get(&h->logits, r, 0, 0, k) - max);
    want.loss[0] += (logl(sum) + max - get(&h->logits, r, 0, 0, label)) / h->count;
    want.bound[0] += (term_bound(u, (double)max, get(&h->logits, r, 0, 0, label)) + CLASSES * u) / h->count;
    for (int k = 0; k < CLASSES; k++) {
      long double x = get(&h->logits, r, 0, 0, k), p = expl(x - max) / sum;
      // The rounding of x - max is a relative error of its exponential.
      double bound = (10 + CLASSES) * u + (double)p * u * fabs((double)(x - max));
      gradient_put(&dlogits, r, 0, 0, k, factor / h->count * (p - (k == label)), factor / h->count * bound);
    }
    for (int k = 0; label > 0 && k < 4; k++) {
      double d = get(&h->deltas, r, 0, 0, 4 * label + k), t = get(&h->targets.delta, r, 0, 0, k);
      want.loss[1] += smooth_l1((long double)d - t, h->beta) / h->count;
      want.bound[1] += term_bound(u, d, t) / h->count;
      gradient_put(&ddeltas, r, 0, 0, 4 * label + k, factor / h->count * smooth_l1_grad((long double)d - t, h->beta),
                   factor / h->count * slope_bound(u, d, t, h->beta));
    }
  }
  box_objective(h);
  h->dev->ops->box_loss_backward(h->dev, h->beta, &h->targets, &h->logits, &h->deltas, scale, &dlogits.got,
                                 &ddeltas.got);
  expect_loss(&h->loss, &want, 2, u);
  expect_gradient(&dlogits.got, &dlogits.want, &dlogits.bound);
  expect_gradient(&ddeltas.got, &ddeltas.want, &ddeltas.bound);
  if (h->dev->real == F64 && factor == 1 && h->count > 0) {
    double magnitude = (double)(want.loss[0] + want.loss[1]), terms = ROIS * (CLASSES + 10);
    gradcheck(box_objective, h, &h->logits, &dlogits.got, magnitude, terms, 0.5, 200);
    gradcheck(box_objective, h, &h->deltas, &ddeltas.got, magnitude, terms, 0, 200);
  }
  gradient_free(&dlogits);
  gradient_free(&ddeltas);
}

static void check_mask(HeadFixture *h, const void *scale, double factor) {
  ExpectedGradient dlogits = gradient_make(&h->mask);
  double u = unit_roundoff(h->dev->real), pixels = h->objects * MASK * MASK;
  ExpectedLoss want = {0};
  for (int r = 0; r < h->objects; r++)
    for (int y = 0; y < MASK; y++)
      for (int x = 0; x < MASK; x++) {
        double logit = get(&h->mask, r, y, x, h->object_label[r]), t = get(&h->target, r, y, x, 0);
        want.loss[0] += bce(logit, t) / pixels;
        want.bound[0] += term_bound(u, logit, t) / pixels;
        gradient_put(&dlogits, r, y, x, h->object_label[r], factor / pixels * (sigmoid(logit) - t),
                     factor / pixels * 10 * u);
      }
  mask_objective(h);
  h->dev->ops->mask_loss_backward(h->dev, &h->targets, &h->mask, &h->target, scale, &dlogits.got);
  expect_loss(&h->loss, &want, 1, u);
  expect_gradient(&dlogits.got, &dlogits.want, &dlogits.bound);
  if (h->dev->real == F64 && factor == 1 && h->objects > 0)
    gradcheck(mask_objective, h, &h->mask, &dlogits.got, (double)want.loss[0], 10 * pixels, 0.1, 200);
  gradient_free(&dlogits);
}

TEST(head_losses_equal_definition) {
  const struct {
    int count, objects;
    double spread;
  } some[] = {{ROIS, OBJECTS, 3}, {4, 1, 3}, {5, 3, 2000}, {0, 0, 3}};
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    Tensor scale = test_tensor_packed(dev->real, 1, 1);
    put(&scale, 0, 0, 0, 0, 1024);
    for (int b = 0; b < COUNT(betas); b++)
      for (int i = 0; i < COUNT(some); i++) {
        HeadFixture h;
        heads_make(&h, dev, betas[b], some[i].count, some[i].objects, some[i].spread);
        // A logit of 2000 is rounded by more than a difference of step 2^-13 can show: no gradient check there.
        if (some[i].spread < 10) {
          check_box(&h, NULL, 1);
          check_mask(&h, NULL, 1);
        }
        check_box(&h, scale.data, 1024);
        check_mask(&h, scale.data, 1024);
        heads_free(&h);
      }
    test_tensor_free(&scale);
    device_close(dev);
  }
}

TEST(losses_of_nan_are_nan) {
  Device *dev = device_open("cpu", NULL);
  HeadFixture h;
  heads_make(&h, dev, 0, ROIS, OBJECTS, 3);
  put(&h.logits, 1, 0, 0, 3, NAN);
  put(&h.deltas, 0, 0, 0, 4 * h.label[0] + 2, NAN);
  put(&h.mask, 2, 1, 1, h.object_label[2], NAN);
  box_objective(&h);
  EXPECT(isnan(get(&h.loss, 0, 0, 0, 0)));
  EXPECT(isnan(get(&h.loss, 0, 0, 0, 1)));
  mask_objective(&h);
  EXPECT(isnan(get(&h.loss, 0, 0, 0, 0)));
  Tensor dlogits = test_tensor_like(&h.logits), ddeltas = test_tensor_like(&h.deltas),
         dmask = test_tensor_like(&h.mask);
  dev->ops->box_loss_backward(dev, 0, &h.targets, &h.logits, &h.deltas, NULL, &dlogits, &ddeltas);
  dev->ops->mask_loss_backward(dev, &h.targets, &h.mask, &h.target, NULL, &dmask);
  EXPECT(isnan(get(&dlogits, 1, 0, 0, 0)));
  EXPECT(!isnan(get(&dlogits, 0, 0, 0, 0)));
  EXPECT(isnan(get(&ddeltas, 0, 0, 0, 4 * h.label[0] + 2)));
  EXPECT(isnan(get(&dmask, 2, 1, 1, h.object_label[2])));
  test_tensor_free(&dlogits);
  test_tensor_free(&ddeltas);
  test_tensor_free(&dmask);
  heads_free(&h);
  device_close(dev);
}

TEST(losses_same_bits_for_any_threads) {
  Device *dev = device_open("cpu", NULL);
  int threads = omp_get_max_threads();
  double box[3], mask[3];
  for (int t = 0; t < 3; t++) {
    omp_set_num_threads(t + 1);
    HeadFixture h;
    heads_make(&h, dev, 1, ROIS, OBJECTS, 3);
    box[t] = box_objective(&h);
    mask[t] = mask_objective(&h);
    heads_free(&h);
  }
  omp_set_num_threads(threads);
  EXPECT(box[0] == box[1] && box[0] == box[2]);
  EXPECT(mask[0] == mask[1] && mask[0] == mask[2]);
  device_close(dev);
}
