// Catches losses of the detector, and their gradients, that are wrong.
//
// Losses and their gradients on the GPU against the CPU reference. A loss is a mean of terms that take about ten float
// operations on numbers ≤ |x| + |t| + 1 on either side, exp and log among them; softmax adds one for each class.
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/gpu.h"

static const DType dtypes[] = {F32, BF16, F16};
static const float betas[] = {1.0f / 9, 1, 0};
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

static RpnTwins rpn_make(const RpnCase *k, DType dtype, double spread) {
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
static void rpn_free(RpnTwins *r) {
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

static void check_rpn(const RpnCase *k, DType dtype, const RpnLoss *p, bool scaled, double spread) {
  RpnTwins r = rpn_make(k, dtype, spread);
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
  rpn_free(&r);
}

TEST(cuda_rpn_loss_equals_cpu) {
  if (!gpu_device()) return;
  const RpnCase small = {3, 6, 2, 3, 4, 5, false}, nothing = {2, 4, 2, 3, 4, 5, true};
  const RpnLoss torchvision_loss = {.beta = 1.f / 9}, huber = {.beta = 1};
  const RpnCase usual = {9, 256, 5, 3, 25, 42, false}, single = {1, 1, 1, 1, 1, 1, false};
  for (int d = 0; d < COUNT(dtypes); d++) {
    for (int b = 0; b < 2 * COUNT(betas); b++)
      check_rpn(&small, dtypes[d], &(RpnLoss){betas[b / 2], b % 2}, b / 2 % 2, 3);
    check_rpn(&usual, dtypes[d], &torchvision_loss, true, 3);
    check_rpn(&single, dtypes[d], &huber, false, 3);
    check_rpn(&nothing, dtypes[d], &huber, true, 3);
    check_rpn(&small, dtypes[d], &huber, true, 1000); // exp overflows
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

static HeadTwins heads_make(const HeadCase *k, DType dtype) {
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
static void heads_free(HeadTwins *h) {
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
  HeadTwins h = heads_make(k, dtype);
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
  heads_free(&h);
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
  HeadTwins h = heads_make(&k, F32);
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
  heads_free(&h);
}
