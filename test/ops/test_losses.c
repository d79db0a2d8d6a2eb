// Catches losses of the detector, and their gradients, that are wrong.
//
// Losses and gradients against their definitions in long double and against central differences, and on the GPU against
// the CPU. A loss is a mean of terms that take about ten float operations on numbers ≤ |x| + |t| + 1 on either side,
// exp and log among them; softmax adds one for each class.
#include <omp.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/gpu.h"
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

// ---- on the GPU -----------------------------------------------------------------------------------------------------

static const DType dtypes[] = {F32, BF16, F16};
enum { STEPS = 20 };

static float largest(const Twin *t) {
  float l = 0;
  for (size_t i = 0; i < tensor_elements(&t->cpu); i++) l = fmaxf(l, fabsf(((float *)t->cpu.data)[i]));
  return l;
}

// Zeros have to be zeros; a gradient is off by `steps` roundings of F32 of numbers ≤ unit, and by its own rounding.
static bool check_gradient(const Twin *t, double unit, double steps) {
  DType dtype = t->gpu.dtype;
  size_t n = tensor_elements(&t->cpu);
  float *bound = xcalloc(n, sizeof *bound), *want = t->cpu.data;
  double ratio = twin_f32_unit(dtype);
  for (size_t i = 0; i < n; i++)
    if (want[i] != 0) bound[i] = (float)(steps * ratio * unit + fabs((double)want[i]));
  bool ok = twin_check(t, bound, 1);
  twin_check_guards(t, false);
  free(bound);
  return ok;
}

static bool check_loss(const Twin *loss, double largest, double steps) {
  float bound[2] = {(float)(2 * largest + 2), (float)(2 * largest + 2)};
  twin_check_guards(loss, false);
  return twin_check(loss, bound, steps);
}

static void free_twins(Twin *all, int n, bool inputs) {
  for (int i = 0; i < n; i++) {
    twin_check_guards(&all[i], inputs);
    twin_free(&all[i]);
  }
}

// A loss on the GPU once more: the same bits.
static void expect_same_loss(const Twin *loss, const void *before) {
  void *after = gpu_fetch(loss->gpu.data, tensor_bytes(&loss->gpu));
  EXPECT(!memcmp(before, after, tensor_bytes(&loss->gpu)) && "the same bits twice");
  free(after);
}

// ---- RPN ------------------------------------------------------------------------------------------------------------

typedef struct RpnCase {
  int images, batch, levels, per_cell;
  int h, w; // of the first level; halved from level to level
  bool nothing;
} RpnCase;

typedef struct RpnTwins {
  const RpnCase *k;
  Anchors anchors;
  TwinArray index, positives, count;
  int sampled;
  Twin delta, scale, loss, logits[MAX_LEVELS], deltas[MAX_LEVELS], dlogits[MAX_LEVELS], ddeltas[MAX_LEVELS];
} RpnTwins;

static RpnTwins gpu_rpn_make(const RpnCase *k, DType dtype, double spread) {
  RpnTwins r = {.k = k, .anchors = {.levels = k->levels, .per_cell = k->per_cell}};
  for (int l = 0, h = k->h, w = k->w; l < k->levels; l++, h = (h + 1) / 2, w = (w + 1) / 2) {
    r.anchors.level[l] = (AnchorLevel){.h = h, .w = w, .first = r.anchors.total};
    r.anchors.total += h * w * k->per_cell;
    r.logits[l] = twin_random(dtype, k->images, h, w, k->per_cell, spread, (uint64_t)l);
    r.deltas[l] = twin_random(dtype, k->images, h, w, 4 * k->per_cell, 1, (uint64_t)l + 10);
    r.dlogits[l] = twin_poisoned_like(&r.logits[l]);
    r.ddeltas[l] = twin_poisoned_like(&r.deltas[l]);
  }
  int rows = k->images * k->batch, *index = xmalloc((size_t)rows * sizeof *index);
  int *positives = xcalloc((size_t)k->images, sizeof *positives), *count = xcalloc((size_t)k->images, sizeof *count);
  for (int n = 0; n < k->images && !k->nothing; n++) {
    count[n] = n == 0 ? k->batch : (int)(rng_u32(1, (uint64_t)n) % (uint32_t)(k->batch + 1));
    positives[n] = n == 1 ? count[n] : (int)(rng_u32(2, (uint64_t)n) % (uint32_t)(count[n] + 1));
    r.sampled += count[n];
  }
  for (int i = 0; i < rows; i++) // spread over all levels, none twice in an image, the last anchor among them
    index[i] = (int)((int64_t)(i % k->batch + 1) * r.anchors.total / k->batch) - 1;
  r.index = twin_array((size_t)rows, sizeof *index, index);
  r.positives = twin_array((size_t)k->images, sizeof *positives, positives);
  r.count = twin_array((size_t)k->images, sizeof *count, count);
  Twin delta = twin_random(F32, 1, 1, 1, 4 * rows, 1, 20);
  r.delta = twin_packed(rows, 4, delta.cpu.data);
  r.scale = twin_packed(1, 1, &(float){1024});
  r.loss = twin_packed(1, 2, NULL);
  twin_free(&delta);
  free(index);
  free(positives);
  free(count);
  return r;
}
static void gpu_rpn_free(RpnTwins *r) {
  twin_array_check_equal(&r->index, r->index.n); // untouched
  twin_array_check_equal(&r->count, r->count.n);
  TwinArray *arrays[] = {&r->index, &r->positives, &r->count};
  for (int i = 0; i < COUNT(arrays); i++) twin_array_free(arrays[i]);
  free_twins(r->logits, r->k->levels, true);
  free_twins(r->deltas, r->k->levels, true);
  free_twins(r->dlogits, r->k->levels, false);
  free_twins(r->ddeltas, r->k->levels, false);
  free_twins(&r->delta, 1, true);
  free_twins(&r->scale, 1, true);
  free_twins(&r->loss, 1, false);
}

static void tensors(const Twin *from, bool gpu, Tensor *to) {
  for (int l = 0; l < MAX_LEVELS; l++) to[l] = *twin_side(&from[l], gpu);
}
static void run_rpn(const RpnTwins *r, bool gpu, const RpnLoss *p, bool scaled) {
  Device *dev = gpu ? gpu_device() : cpu_device();
  Tensor logits[MAX_LEVELS], deltas[MAX_LEVELS], dlogits[MAX_LEVELS], ddeltas[MAX_LEVELS];
  tensors(r->logits, gpu, logits);
  tensors(r->deltas, gpu, deltas);
  tensors(r->dlogits, gpu, dlogits);
  tensors(r->ddeltas, gpu, ddeltas);
  RpnTargets targets = {.images = r->k->images,
                        .batch = r->k->batch,
                        .index = twin_array_data(&r->index, gpu),
                        .positives = twin_array_data(&r->positives, gpu),
                        .count = twin_array_data(&r->count, gpu),
                        .delta = *twin_side(&r->delta, gpu)};
  dev->ops->rpn_loss(dev, p, &r->anchors, &targets, logits, deltas, twin_side(&r->loss, gpu));
  dev->ops->rpn_loss_backward(dev, p, &r->anchors, &targets, logits, deltas, scaled ? twin_data(&r->scale, gpu) : NULL,
                              dlogits, ddeltas);
}

static void gpu_check_rpn(const RpnCase *k, DType dtype, const RpnLoss *p, bool scaled, double spread) {
  RpnTwins r = gpu_rpn_make(k, dtype, spread);
  run_rpn(&r, false, p, scaled);
  run_rpn(&r, true, p, scaled);
  double most = 0, unit = (scaled ? 1024 : 1) / fmax(p->by_batch ? k->images * k->batch : r.sampled, 1);
  bool ok = true;
  for (int l = 0; l < k->levels; l++) {
    most = fmax(most, fmax(largest(&r.logits[l]), largest(&r.deltas[l]) + largest(&r.delta)));
    ok &= check_gradient(&r.dlogits[l], unit, STEPS) || !printf("  dlogits of level %d\n", l);
    ok &= check_gradient(&r.ddeltas[l], unit, STEPS) || !printf("  ddeltas of level %d\n", l);
  }
  ok &= check_loss(&r.loss, most, STEPS) || !printf("  loss\n");
  if (!ok)
    printf("  dtype %d, %d images, batch %d, levels %d, beta %g, by batch %d, scaled %d, spread %g\n", dtype, k->images,
           k->batch, k->levels, (double)p->beta, p->by_batch, scaled, spread);
  void *before = gpu_fetch(r.loss.gpu.data, tensor_bytes(&r.loss.gpu));
  run_rpn(&r, true, p, scaled);
  expect_same_loss(&r.loss, before);
  free(before);
  gpu_rpn_free(&r);
}

TEST(cuda_rpn_loss_equals_cpu) {
  if (!gpu_device()) return;
  const RpnCase small = {3, 6, 2, 3, 4, 5, false}, nothing = {2, 4, 2, 3, 4, 5, true};
  const RpnLoss torchvision_loss = {.beta = 1.f / 9}, huber = {.beta = 1};
  const RpnCase usual = {9, 256, 5, 3, 25, 42, false}, single = {1, 1, 1, 1, 1, 1, false};
  for (int d = 0; d < COUNT(dtypes); d++) {
    for (int b = 0; b < 2 * COUNT(betas); b++)
      gpu_check_rpn(&small, dtypes[d], &(RpnLoss){betas[b / 2], b % 2}, b / 2 % 2, 3);
    gpu_check_rpn(&usual, dtypes[d], &torchvision_loss, true, 3);
    gpu_check_rpn(&single, dtypes[d], &huber, false, 3);
    gpu_check_rpn(&nothing, dtypes[d], &huber, true, 3);
    gpu_check_rpn(&small, dtypes[d], &huber, true, 1000); // exp overflows
  }
}

// ---- heads ----------------------------------------------------------------------------------------------------------

typedef struct HeadCase {
  int capacity, count, objects_capacity, objects, classes, mask;
  double spread;
} HeadCase;

typedef struct HeadTwins {
  const HeadCase *k;
  TwinArray label, count, object_label, objects;
  Twin delta, scale, box_loss, mask_loss, logits, deltas, mask, target, dlogits, ddeltas, dmask;
} HeadTwins;

static TwinArray labels(int n, int classes, bool background, uint64_t seed) {
  int *label = xmalloc((size_t)n * sizeof *label), low = background ? 0 : 1;
  for (int i = 0; i < n; i++) label[i] = low + (int)(rng_u32(seed, (uint64_t)i) % (uint32_t)(classes - low));
  label[0] = classes - 1;
  TwinArray a = twin_array((size_t)n, sizeof *label, label);
  free(label);
  return a;
}

static HeadTwins gpu_heads_make(const HeadCase *k, DType dtype) {
  HeadTwins h = {.k = k,
                 .label = labels(k->capacity, k->classes, true, 1),
                 .object_label = labels(k->objects_capacity, k->classes, false, 2),
                 .count = twin_array(1, sizeof(int), &k->count),
                 .objects = twin_array(1, sizeof(int), &k->objects)};
  Twin delta = twin_random(F32, 1, 1, 1, 4 * k->capacity, 1, 3);
  h.delta = twin_packed(k->capacity, 4, delta.cpu.data);
  twin_free(&delta);
  int pixels = k->objects_capacity * k->mask * k->mask;
  float *target = xmalloc((size_t)pixels * sizeof *target);
  for (int i = 0; i < pixels; i++) target[i] = i % 3 == 0 ? (float)(i / 3 % 2) : rng_uniform(4, (uint64_t)i);
  h.target = twin_packed(pixels, 1, target);
  free(target);
  for (int gpu = 0; gpu < 2; gpu++) { // [objects, mask, mask, 1]
    Tensor *t = gpu ? &h.target.gpu : &h.target.cpu;
    t->n = k->objects_capacity;
    t->h = t->w = k->mask;
  }
  h.scale = twin_packed(1, 1, &(float){1024});
  h.box_loss = twin_packed(1, 2, NULL);
  h.mask_loss = twin_packed(1, 1, NULL);
  h.logits = twin_random(dtype, k->capacity, 1, 1, k->classes, k->spread, 5);
  h.deltas = twin_random(dtype, k->capacity, 1, 1, 4 * k->classes, 1, 6);
  h.mask = twin_random(dtype, k->objects_capacity, k->mask, k->mask, k->classes, k->spread, 7);
  twin_rows(&h.logits, k->count);
  twin_rows(&h.deltas, k->count);
  twin_rows(&h.mask, k->objects);
  h.dlogits = twin_poisoned_like(&h.logits);
  h.ddeltas = twin_poisoned_like(&h.deltas);
  h.dmask = twin_poisoned_like(&h.mask);
  return h;
}
static void gpu_heads_free(HeadTwins *h) {
  TwinArray *arrays[] = {&h->label, &h->count, &h->object_label, &h->objects};
  for (int i = 0; i < COUNT(arrays); i++) {
    twin_array_check_equal(arrays[i], arrays[i]->n); // untouched
    twin_array_free(arrays[i]);
  }
  Twin *inputs[] = {&h->delta, &h->scale, &h->logits, &h->deltas, &h->mask, &h->target};
  Twin *outputs[] = {&h->box_loss, &h->mask_loss, &h->dlogits, &h->ddeltas, &h->dmask};
  for (int i = 0; i < COUNT(inputs); i++) free_twins(inputs[i], 1, true);
  for (int i = 0; i < COUNT(outputs); i++) free_twins(outputs[i], 1, false);
}

static void run_heads(const HeadTwins *h, bool gpu, float beta, bool scaled) {
  Device *dev = gpu ? gpu_device() : cpu_device();
  RoiTargets t = {.rois = {.capacity = h->k->capacity, .count = twin_array_data(&h->count, gpu)},
                  .label = twin_array_data(&h->label, gpu),
                  .delta = *twin_side(&h->delta, gpu),
                  .objects = {.capacity = h->k->objects_capacity, .count = twin_array_data(&h->objects, gpu)},
                  .object_label = twin_array_data(&h->object_label, gpu)};
  const Tensor *logits = twin_side(&h->logits, gpu), *deltas = twin_side(&h->deltas, gpu);
  const Tensor *mask = twin_side(&h->mask, gpu), *target = twin_side(&h->target, gpu);
  void *scale = scaled ? twin_data(&h->scale, gpu) : NULL;
  dev->ops->box_loss(dev, beta, &t, logits, deltas, twin_side(&h->box_loss, gpu));
  dev->ops->box_loss_backward(dev, beta, &t, logits, deltas, scale, twin_side(&h->dlogits, gpu),
                              twin_side(&h->ddeltas, gpu));
  dev->ops->mask_loss(dev, &t, mask, target, twin_side(&h->mask_loss, gpu));
  dev->ops->mask_loss_backward(dev, &t, mask, target, scale, twin_side(&h->dmask, gpu));
}

static void check_heads(const HeadCase *k, DType dtype, float beta, bool scaled) {
  HeadTwins h = gpu_heads_make(k, dtype);
  run_heads(&h, false, beta, scaled);
  run_heads(&h, true, beta, scaled);
  double scale = scaled ? 1024 : 1, unit = scale / fmax(k->count, 1), steps = STEPS + 2 * k->classes;
  double mask_unit = scale / fmax((double)k->objects * k->mask * k->mask, 1);
  bool ok = check_gradient(&h.dlogits, unit, steps) || !printf("  dlogits\n");
  ok &= check_gradient(&h.ddeltas, unit, STEPS) || !printf("  ddeltas\n");
  ok &= check_gradient(&h.dmask, mask_unit, STEPS) || !printf("  mask gradient\n");
  double most = fmax(largest(&h.logits), largest(&h.deltas) + largest(&h.delta));
  ok &= check_loss(&h.box_loss, most, steps) || !printf("  box losses\n");
  ok &= check_loss(&h.mask_loss, largest(&h.mask), STEPS) || !printf("  mask loss\n");
  if (!ok)
    printf("  dtype %d, %d of %d RoIs, %d of %d objects, %d classes, beta %g, scaled %d, spread %g\n", dtype, k->count,
           k->capacity, k->objects, k->objects_capacity, k->classes, (double)beta, scaled, k->spread);
  void *box = gpu_fetch(h.box_loss.gpu.data, 2 * sizeof(float)), *mask = gpu_fetch(h.mask_loss.gpu.data, sizeof(float));
  run_heads(&h, true, beta, scaled);
  expect_same_loss(&h.box_loss, box);
  expect_same_loss(&h.mask_loss, mask);
  free(box);
  free(mask);
  gpu_heads_free(&h);
}

TEST(cuda_head_losses_equal_cpu) {
  if (!gpu_device()) return;
  const HeadCase cases[] = {{7, 7, 5, 5, 5, 4, 3},   {7, 4, 5, 1, 5, 4, 3},         {7, 0, 5, 0, 5, 4, 3},
                            {1, 1, 1, 1, 2, 1, 3},   {300, 257, 40, 37, 91, 28, 3}, {20, 20, 9, 9, 300, 3, 3},
                            {7, 5, 5, 3, 9, 4, 1000}};
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(cases); i++)
      for (int b = 0; b < COUNT(betas); b++) check_heads(&cases[i], dtypes[d], betas[b], (i + b) % 2);
}

static void expect_nan(const Twin *t, size_t i) {
  float *got = gpu_fetch(t->gpu.data, tensor_bytes(&t->gpu));
  if (!EXPECT(isnan(got[i]))) printf("  element %zu is %g\n", i, (double)got[i]);
  free(got);
}

// A NaN in any prediction that a loss reads reaches the loss and the gradient there.
TEST(cuda_losses_of_nan_are_nan) {
  if (!gpu_device()) return;
  const HeadCase k = {7, 7, 5, 5, 5, 4, 3};
  HeadTwins h = gpu_heads_make(&k, F32);
  int roi = 3, object = 2, pixel = 5, *label = h.label.cpu, *object_label = h.object_label.cpu;
  while (!label[roi]) roi--; // the first is an object
  size_t logit = (size_t)(roi * h.logits.cpu.ldc), delta = (size_t)(roi * h.deltas.cpu.ldc + 4 * label[roi] + 2);
  size_t mask = (size_t)((object * 16 + pixel) * h.mask.cpu.ldc + object_label[object]);
  Device *gpu = gpu_device();
  const float nan = NAN;
  device_upload(gpu, (float *)h.logits.gpu.data + logit, &nan, sizeof nan);
  device_upload(gpu, (float *)h.deltas.gpu.data + delta, &nan, sizeof nan);
  device_upload(gpu, (float *)h.mask.gpu.data + mask, &nan, sizeof nan);
  run_heads(&h, true, 0, false);
  expect_nan(&h.box_loss, 0);
  expect_nan(&h.box_loss, 1);
  expect_nan(&h.mask_loss, 0);
  expect_nan(&h.dlogits, logit + 1);
  expect_nan(&h.ddeltas, delta);
  expect_nan(&h.dmask, mask);
  // The inputs as they were, for the check that nothing else was written to them.
  device_upload(gpu, (float *)h.logits.gpu.data + logit, (float *)h.logits.cpu.data + logit, sizeof nan);
  device_upload(gpu, (float *)h.deltas.gpu.data + delta, (float *)h.deltas.cpu.data + delta, sizeof nan);
  device_upload(gpu, (float *)h.mask.gpu.data + mask, (float *)h.mask.cpu.data + mask, sizeof nan);
  gpu_heads_free(&h);
}
