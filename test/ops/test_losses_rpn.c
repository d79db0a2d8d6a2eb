// Catches losses of the RPN, and their gradients, that are wrong.
//
// Against their definitions in long double and against central differences.
#include "test/harness/loss_fixture.h"

typedef struct RpnCase {
  int images, batch, levels, per_cell;
  int h, w; // of the first level; halved from level to level
  bool nothing;
} RpnCase;
static const RpnCase small = {3, 6, 3, 3, 4, 5, false};

typedef struct RpnArgs {
  Device *dev;
  RpnLoss p;
  Anchors anchors;
  RpnTargets targets;
  int sampled;
  Tensor logits[MAX_LEVELS], deltas[MAX_LEVELS], loss;
} RpnArgs;

static RpnArgs rpn_make(Fixture *f, const RpnCase *k, const RpnLoss *p, double spread) {
  RpnArgs r = {.dev = f->dev, .p = *p, .anchors = {.levels = k->levels, .per_cell = k->per_cell}};
  for (int l = 0, h = k->h, w = k->w; l < k->levels; l++, h = (h + 1) / 2, w = (w + 1) / 2) {
    r.anchors.level[l] = (AnchorLevel){.h = h, .w = w, .first = r.anchors.total};
    r.anchors.total += h * w * k->per_cell;
    r.logits[l] = fixture_map(f, k->images, h, w, k->per_cell);
    r.deltas[l] = fixture_map(f, k->images, h, w, 4 * k->per_cell);
    test_fill(&r.logits[l], (uint64_t)l, -spread, spread);
    fill_deltas(&r.deltas[l], (uint64_t)l + 10);
  }
  int rows = k->images * k->batch, apart = r.anchors.total / k->batch;
  int *index = fixture_ints(f, rows), *positives = fixture_ints(f, k->images), *count = fixture_ints(f, k->images);
  for (int n = 0; n < k->images; n++) { // a batch that is not full, one with nothing, one with objects alone; then any
    const int some = (int)(rng_u32(1, (uint64_t)n) % (uint32_t)(k->batch + 1));
    count[n] = k->nothing || n == 1 ? 0 : n == 0 ? MAX(k->batch - 1, 1) : n == 2 ? k->batch : some;
    positives[n] = n == 2 ? count[n] : (count[n] + 2) / 3;
    r.sampled += count[n];
  }
  for (int i = 0; i < rows; i++) // spread over all levels, none twice in an image; the last anchor among the first's
    index[i] = (i % k->batch + 1) * r.anchors.total / k->batch - 1 - i / k->batch % apart;
  r.targets = (RpnTargets){.images = k->images,
                           .batch = k->batch,
                           .index = index,
                           .positives = positives,
                           .count = count,
                           .delta = fixture_packed(f, rows, 4)};
  test_fill_steps(&r.targets.delta, 20, -1, 1, 0.25);
  return r;
}

static double rpn_objective(void *context) {
  RpnArgs *r = context;
  r->dev->ops->rpn_loss(r->dev, &r->p, &r->anchors, &r->targets, r->logits, r->deltas, &r->loss);
  device_sync(r->dev);
  return get(&r->loss, 0, 0, 0, 0) + get(&r->loss, 0, 0, 0, 1);
}

// factor: of the gradient; 1 is passed as no scale at all.
static void check_rpn(Fixture *f, const RpnCase *k, const RpnLoss *p, double spread, double factor) {
  RpnArgs r = rpn_make(f, k, p, spread);
  Tensor scale = loss_scale(f, factor), got_logits[MAX_LEVELS], got_deltas[MAX_LEVELS];
  fixture_freeze(f);
  r.loss = fixture_packed(f, 1, 2);
  ExpectedGradient dlogits[MAX_LEVELS], ddeltas[MAX_LEVELS];
  for (int l = 0; l < k->levels; l++) {
    dlogits[l] = gradient_make(f, &r.logits[l]);
    ddeltas[l] = gradient_make(f, &r.deltas[l]);
    got_logits[l] = dlogits[l].got;
    got_deltas[l] = ddeltas[l].got;
  }
  const double u = unit_roundoff(f->type), beta = p->beta;
  const double divisor = p->by_batch ? k->images * k->batch : MAX(r.sampled, 1), of = factor / divisor;
  ExpectedLoss want = {0};
  for (int i = 0; i < k->images * k->batch; i++) {
    int n = i / k->batch, anchor = r.targets.index[i], l = k->levels - 1;
    if (i % k->batch >= r.targets.count[n]) continue;
    bool object = i % k->batch < r.targets.positives[n];
    while (anchor < r.anchors.level[l].first) l--;
    int local = anchor - r.anchors.level[l].first, a = local % k->per_cell, w = r.anchors.level[l].w;
    int x = local / k->per_cell % w, y = local / k->per_cell / w;
    double logit = get(&r.logits[l], n, y, x, a);
    want.loss[0] += bce(logit, object) / divisor;
    want.bound[0] += term_bound(u, logit, object) / divisor;
    gradient_put(&dlogits[l], n, y, x, a, of * (sigmoid(logit) - object), of * 10 * u);
    for (int c = 0; object && c < 4; c++) {
      double d = get(&r.deltas[l], n, y, x, 4 * a + c), t = get(&r.targets.delta, i, 0, 0, c);
      want.loss[1] += smooth_l1((long double)d - t, beta) / divisor;
      want.bound[1] += term_bound(u, d, t) / divisor;
      gradient_put(&ddeltas[l], n, y, x, 4 * a + c, of * smooth_l1_grad((long double)d - t, beta),
                   of * slope_bound(u, d, t, beta));
    }
  }
  RUN(f, rpn_loss, p, &r.anchors, &r.targets, r.logits, r.deltas, &r.loss);
  double got = get(&r.loss, 0, 0, 0, 0) + get(&r.loss, 0, 0, 0, 1);
  EXPECT(rpn_objective(&r) == got && "the same bits twice");
  RUN(f, rpn_loss_backward, p, &r.anchors, &r.targets, r.logits, r.deltas, factor == 1 ? NULL : scale.data, got_logits,
      got_deltas);
  expect_loss(&r.loss, &want);
  for (int l = 0; l < k->levels; l++) {
    expect_gradient(&dlogits[l]);
    expect_gradient(&ddeltas[l]);
    if (f->type != F64 || factor != 1) continue;
    double magnitude = (double)(want.loss[0] + want.loss[1]), terms = 5 * k->images * k->batch;
    // |σ''| < 0.1; away from its kinks smooth L1 has no third derivative.
    gradcheck(rpn_objective, &r, &r.logits[l], &got_logits[l], magnitude, terms, 0.1, 200);
    gradcheck(rpn_objective, &r, &r.deltas[l], &got_deltas[l], magnitude, terms, 0, 200);
  }
  fixture_clear(f);
}

TEST_TYPES(rpn_loss_equals_definition) {
  for (int b = 0; b < 2 * COUNT(loss_betas); b++) {
    const RpnLoss p = {.beta = loss_betas[b / 2], .by_batch = b % 2};
    check_rpn(f, &small, &p, 3, 1);
    check_rpn(f, &small, &p, 3, 1024);
  }
  const RpnLoss huber = {.beta = 1};
  check_rpn(f, &(RpnCase){1, 1, 1, 1, 1, 1, false}, &huber, 3, 1);
  check_rpn(f, &small, &huber, 5e4, 1024); // logits at which exp overflows
}

TEST_TYPES(rpn_loss_of_nothing_is_zero) {
  check_rpn(f, &(RpnCase){2, 4, 2, 3, 4, 5, true}, &(RpnLoss){.beta = 1}, 3, 1024);
}

TEST_GPU_TYPES(cuda_rpn_loss_of_many_anchors) {
  check_rpn(f, &(RpnCase){9, 256, 5, 3, 25, 42, false}, &(RpnLoss){.beta = 1.f / 9}, 3, 1024);
}

// Deltas and logits as channels of one tensor give what they give apart, and their gradients fill it.
TEST_TYPES(rpn_loss_of_joined_outputs) {
  const RpnLoss p = {.beta = 1.f / 9};
  RpnArgs r = rpn_make(f, &small, &p, 3);
  Tensor logits[MAX_LEVELS], deltas[MAX_LEVELS], dlogits[2][MAX_LEVELS], ddeltas[2][MAX_LEVELS];
  const int of_deltas = 4 * small.per_cell, all = 5 * small.per_cell;
  for (int l = 0; l < small.levels; l++) {
    Tensor *apart[] = {&r.deltas[l], &r.logits[l]}, whole = fixture_map(f, small.images, apart[0]->h, apart[0]->w, all);
    for (size_t i = 0; i < tensor_pixels(&whole); i++)
      for (int c = 0; c < all; c++) {
        const Tensor *from = apart[c >= of_deltas];
        set_at(&whole, i * whole.ldc + c, get_at(from, i * from->ldc + (c < of_deltas ? c : c - of_deltas)));
      }
    deltas[l] = logits[l] = whole;
    deltas[l].c = of_deltas;
    logits[l].c = small.per_cell;
    logits[l].data = (char *)whole.data + (size_t)of_deltas * dtype_size(whole.dtype);
  }
  fixture_freeze(f);
  r.loss = fixture_packed(f, 1, 2);
  Tensor loss = fixture_packed(f, 1, 2);
  for (int l = 0; l < small.levels; l++) {
    dlogits[0][l] = fixture_tensor(f, r.logits[l]);
    ddeltas[0][l] = fixture_tensor(f, r.deltas[l]);
    ddeltas[1][l] = dlogits[1][l] = fixture_map(f, small.images, r.logits[l].h, r.logits[l].w, all);
    dlogits[1][l].data = (char *)ddeltas[1][l].data + (size_t)of_deltas * dtype_size(ddeltas[1][l].dtype);
  }
  RUN(f, rpn_loss, &p, &r.anchors, &r.targets, r.logits, r.deltas, &r.loss);
  RUN(f, rpn_loss, &p, &r.anchors, &r.targets, logits, deltas, &loss);
  EXPECT(!memcmp(loss.data, r.loss.data, tensor_bytes(&loss)));
  RUN(f, rpn_loss_backward, &p, &r.anchors, &r.targets, r.logits, r.deltas, NULL, dlogits[0], ddeltas[0]);
  RUN(f, rpn_loss_backward, &p, &r.anchors, &r.targets, logits, deltas, NULL, dlogits[1], ddeltas[1]);
  for (int l = 0; l < small.levels; l++) {
    const Tensor *whole = &ddeltas[1][l];
    for (size_t i = 0; i < tensor_pixels(whole); i++)
      for (int c = 0; c < whole->ldc; c++) {
        const Tensor *from = c < of_deltas ? &ddeltas[0][l] : &dlogits[0][l];
        const double want = c < all ? get_at(from, i * from->ldc + (c < of_deltas ? c : c - of_deltas)) : 0;
        EXPECT_NEAR(get_at(whole, i * whole->ldc + c), want, 0);
      }
  }
}
