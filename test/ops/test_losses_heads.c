// Catches losses of the box and mask heads, and their gradients, that are wrong.
//
// Against their definitions in long double and against central differences.
#include <omp.h>
#include "test/harness/loss_fixture.h"

typedef struct HeadCase {
  int capacity, count, objects_capacity, objects, classes, mask;
  double spread; // of logits
  int maskless;  // so many objects, from the second on, have no mask
} HeadCase;
static const HeadCase usual = {7, 7, 5, 5, 5, 4, 3, 0};

typedef struct HeadArgs {
  Device *dev;
  float beta;
  RoiTargets targets;
  Tensor logits, deltas, mask, target, box_loss, mask_loss;
} HeadArgs;

static int *labels(Fixture *f, int n, int classes, int lowest, uint64_t key) {
  int *label = fixture_ints(f, n);
  for (int i = 0; i < n; i++) label[i] = lowest + (int)(rng_u32(key, (uint64_t)i) % (uint32_t)(classes - lowest));
  label[0] = classes - 1;
  return label;
}
static HeadArgs heads_make(Fixture *f, const HeadCase *k, float beta) {
  int *count = fixture_count(f, k->count), *objects = fixture_count(f, k->objects);
  HeadArgs h = {.dev = f->dev, .beta = beta};
  h.targets = (RoiTargets){.rois = {.capacity = k->capacity, .count = count},
                           .label = labels(f, k->capacity, k->classes, 0, 1),
                           .delta = fixture_packed(f, k->capacity, 4),
                           .objects = {.capacity = k->objects_capacity, .count = objects},
                           .object_label = labels(f, k->objects_capacity, k->classes, 1, 2)};
  h.logits = fixture_map(f, k->capacity, 1, 1, k->classes);
  h.deltas = fixture_map(f, k->capacity, 1, 1, 4 * k->classes);
  h.mask = fixture_map(f, k->objects_capacity, k->mask, k->mask, k->classes);
  h.target = fixture_single(f, k->objects_capacity, k->mask, k->mask);
  h.logits.count = h.deltas.count = count;
  h.mask.count = objects;
  test_fill_steps(&h.targets.delta, 1, -1, 1, 0.25);
  test_fill(&h.logits, 2, -k->spread, k->spread);
  fill_deltas(&h.deltas, 3);
  test_fill(&h.mask, 4, -k->spread, k->spread);
  for (size_t i = 0; i < tensor_elements(&h.target); i++)
    set_at(&h.target, i, i % 3 == 0 ? (double)(i / 3 % 2) : (double)rng_uniform(5, i));
  for (int r = 1; r <= k->maskless; r++)
    for (int i = 0; i < k->mask * k->mask; i++) put(&h.target, r, i / k->mask, i % k->mask, 0, -1);
  return h;
}
static void add_losses(Fixture *f, HeadArgs *h) {
  h->box_loss = fixture_packed(f, 1, 2);
  h->mask_loss = fixture_packed(f, 1, 1);
}

static void run_box_loss(Device *dev, void *context, const Dest *loss) {
  const HeadArgs *h = context;
  dev->ops->box_loss(dev, h->beta, &h->targets, &h->logits, &h->deltas, &loss->t);
}
static void run_mask_loss(Device *dev, void *context, const Dest *loss) {
  const HeadArgs *h = context;
  dev->ops->mask_loss(dev, &h->targets, &h->mask, &h->target, &loss->t);
}
static double box_objective(void *context) {
  HeadArgs *h = context;
  run_op(h->dev, run_box_loss, h, &(Dest){.t = h->box_loss});
  return get(&h->box_loss, 0, 0, 0, 0) + get(&h->box_loss, 0, 0, 0, 1);
}
static double mask_objective(void *context) {
  HeadArgs *h = context;
  run_op(h->dev, run_mask_loss, h, &(Dest){.t = h->mask_loss});
  return get(&h->mask_loss, 0, 0, 0, 0);
}

// factor: of the gradient; scale: where it is, or NULL for 1.
static void check_box(Fixture *f, const HeadCase *k, HeadArgs *h, const void *scale, double factor) {
  ExpectedGradient dlogits = gradient_make(f, &h->logits), ddeltas = gradient_make(f, &h->deltas);
  const double u = unit_roundoff(f->type), of_softmax = softmax_bound(f, k->classes), of = factor / k->count;
  ExpectedLoss want = {0};
  for (int r = 0; r < k->count; r++) {
    int label = h->targets.label[r];
    long double max = -INFINITY, sum = 0;
    for (int c = 0; c < k->classes; c++) max = fmaxl(max, get(&h->logits, r, 0, 0, c));
    for (int c = 0; c < k->classes; c++) sum += expl(get(&h->logits, r, 0, 0, c) - max);
    want.loss[0] += (logl(sum) + max - get(&h->logits, r, 0, 0, label)) / k->count;
    want.bound[0] += (term_bound(u, (double)max, get(&h->logits, r, 0, 0, label)) + of_softmax) / k->count;
    for (int c = 0; c < k->classes; c++) {
      long double x = get(&h->logits, r, 0, 0, c), p = expl(x - max) / sum;
      // The rounding of x - max is a relative error of its exponential.
      double bound = 10 * u + of_softmax + (double)p * u * fabs((double)(x - max));
      gradient_put(&dlogits, r, 0, 0, c, of * (p - (c == label)), of * bound);
    }
    for (int c = 0; label > 0 && c < 4; c++) {
      double d = get(&h->deltas, r, 0, 0, 4 * label + c), t = get(&h->targets.delta, r, 0, 0, c);
      want.loss[1] += smooth_l1((long double)d - t, h->beta) / k->count;
      want.bound[1] += term_bound(u, d, t) / k->count;
      gradient_put(&ddeltas, r, 0, 0, 4 * label + c, of * smooth_l1_grad((long double)d - t, h->beta),
                   of * slope_bound(u, d, t, h->beta));
    }
  }
  double got = box_objective(h);
  EXPECT(box_objective(h) == got && "the same bits twice");
  RUN(f, box_loss_backward, h->beta, &h->targets, &h->logits, &h->deltas, scale, &dlogits.got, &ddeltas.got);
  expect_loss(&h->box_loss, &want);
  expect_gradient(&dlogits);
  expect_gradient(&ddeltas);
  // A logit of 2000 is rounded by more than a difference of step 2^-13 can show: no gradient check there.
  if (f->type != F64 || scale || k->count == 0 || k->spread > 10) return;
  double magnitude = (double)(want.loss[0] + want.loss[1]), terms = k->count * (k->classes + 10);
  gradcheck(box_objective, h, &h->logits, &dlogits.got, magnitude, terms, 0.5, 200);
  gradcheck(box_objective, h, &h->deltas, &ddeltas.got, magnitude, terms, 0, 200);
}

static void check_mask(Fixture *f, const HeadCase *k, HeadArgs *h, const void *scale, double factor) {
  ExpectedGradient dlogits = gradient_make(f, &h->mask);
  const double u = unit_roundoff(f->type), masks = k->objects - k->maskless;
  const double pixels = masks * k->mask * k->mask, of = masks ? factor / pixels : 0;
  ExpectedLoss want = {0};
  for (int r = 0; r < k->objects; r++)
    for (int y = 0; (r < 1 || r > k->maskless) && y < k->mask; y++)
      for (int x = 0; x < k->mask; x++) {
        int label = h->targets.object_label[r];
        double logit = get(&h->mask, r, y, x, label), t = get(&h->target, r, y, x, 0);
        want.loss[0] += bce(logit, t) / pixels;
        want.bound[0] += term_bound(u, logit, t) / pixels;
        gradient_put(&dlogits, r, y, x, label, of * (sigmoid(logit) - t), of * 10 * u);
      }
  double got = mask_objective(h);
  EXPECT(mask_objective(h) == got && "the same bits twice");
  RUN(f, mask_loss_backward, &h->targets, &h->mask, &h->target, scale, &dlogits.got);
  expect_loss(&h->mask_loss, &want);
  expect_gradient(&dlogits);
  if (f->type != F64 || scale || k->objects == 0 || k->spread > 10) return;
  gradcheck(mask_objective, h, &h->mask, &dlogits.got, (double)want.loss[0], 10 * pixels, 0.1, 200);
}

static void check_heads(Fixture *f, const HeadCase *k, float beta) {
  HeadArgs h = heads_make(f, k, beta);
  Tensor scale = loss_scale(f, 1024);
  fixture_freeze(f);
  add_losses(f, &h);
  check_box(f, k, &h, NULL, 1);
  check_box(f, k, &h, scale.data, 1024);
  check_mask(f, k, &h, NULL, 1);
  check_mask(f, k, &h, scale.data, 1024);
  fixture_clear(f);
}

TEST_TYPES(head_losses_equal_definition) {
  const HeadCase cases[] = {usual,
                            {7, 4, 5, 1, 5, 4, 3, 0},
                            {7, 5, 5, 3, 9, 4, 2000, 0},
                            {7, 0, 5, 0, 5, 4, 3, 0},
                            {1, 1, 1, 1, 2, 1, 3, 0},
                            {7, 7, 5, 5, 5, 4, 3, 2}};
  for (int b = 0; b < COUNT(loss_betas); b++)
    for (int i = 0; i < COUNT(cases); i++) check_heads(f, &cases[i], loss_betas[b]);
}

TEST_GPU_TYPES(cuda_head_losses_of_many_rois_and_classes) {
  const HeadCase cases[] = {{300, 257, 40, 37, 91, 28, 3, 9}, {20, 20, 9, 9, 300, 3, 3, 0}};
  for (int b = 0; b < COUNT(loss_betas); b++)
    for (int i = 0; i < COUNT(cases); i++) check_heads(f, &cases[i], loss_betas[b]);
}

// A NaN in any prediction that a loss reads reaches the loss and the gradient there.
TEST_OP(losses_of_nan_are_nan) {
  HeadArgs h = heads_make(f, &usual, 0);
  add_losses(f, &h);
  const int label = h.targets.label[0], object = h.targets.object_label[2];
  put(&h.logits, 1, 0, 0, 3, NAN);
  put(&h.deltas, 0, 0, 0, 4 * label + 2, NAN);
  put(&h.mask, 2, 1, 1, object, NAN);
  box_objective(&h);
  EXPECT(isnan(get(&h.box_loss, 0, 0, 0, 0)));
  EXPECT(isnan(get(&h.box_loss, 0, 0, 0, 1)));
  EXPECT(isnan(mask_objective(&h)));
  Tensor dlogits = fixture_tensor(f, h.logits), ddeltas = fixture_tensor(f, h.deltas);
  Tensor dmask = fixture_tensor(f, h.mask);
  RUN(f, box_loss_backward, 0, &h.targets, &h.logits, &h.deltas, NULL, &dlogits, &ddeltas);
  RUN(f, mask_loss_backward, &h.targets, &h.mask, &h.target, NULL, &dmask);
  EXPECT(isnan(get(&dlogits, 1, 0, 0, 0)));
  EXPECT(!isnan(get(&dlogits, 0, 0, 0, 0)));
  EXPECT(isnan(get(&ddeltas, 0, 0, 0, 4 * label + 2)));
  EXPECT(isnan(get(&dmask, 2, 1, 1, object)));
}

TEST_OP(losses_same_bits_for_any_threads) {
  int threads = omp_get_max_threads();
  double box[3], mask[3];
  HeadArgs h = heads_make(f, &usual, 1);
  add_losses(f, &h);
  for (int t = 0; t < 3; t++) {
    omp_set_num_threads(t + 1);
    box[t] = box_objective(&h);
    mask[t] = mask_objective(&h);
  }
  omp_set_num_threads(threads);
  EXPECT(box[0] == box[1] && box[0] == box[2]);
  EXPECT(mask[0] == mask[1] && mask[0] == mask[2]);
}
