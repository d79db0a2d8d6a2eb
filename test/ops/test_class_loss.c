// Catches classification losses, gradients, hits or probabilities that are wrong.
//
// The loss, its gradient, the ranks and the probabilities against their definitions in long double, and on the GPU
// against the CPU.
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/gpu.h"
#include "test/harness/gradcheck.h"
#include "test/harness/op_golden.h"

static const char *const devices[] = {"cpu", "cpu64"};
enum { MOST_ROWS = 128 };

typedef struct ClassCase {
  int n, classes, out; // out: every so many rows has a label that does not count
  float smoothing;
  double spread;
} ClassCase;
static const ClassCase cases[] = {
    {1, 1, 0, 0, 1},     {1, 2, 0, 0, 1},       {5, 10, 0, 0, 3},        {5, 10, 0, 0.1f, 3},   {7, 37, 3, 0.1f, 3},
    {4, 10, 1, 0.1f, 1}, {128, 10, 0, 0.1f, 3}, {64, 1000, 5, 0.1f, 10}, {3, 1000, 0, 0, 1000}, {6, 3, 0, 1, 1},
};

typedef struct ClassFixture {
  Device *dev;
  ClassLoss p;
  int label[MOST_ROWS], top1, top5, count;
  Tensor logits, loss;
} ClassFixture;

static void make(ClassFixture *f, Device *dev, const ClassCase *k) {
  *f = (ClassFixture){.dev = dev, .p = {k->smoothing, 0.5f}};
  f->logits = test_tensor(dev->real, k->n, 1, 1, k->classes);
  f->loss = test_tensor_packed(dev->real, 1, 1);
  test_fill(&f->logits, 1, -k->spread, k->spread);
  const int not_one[] = {-100, -1, k->classes};
  for (int r = 0; r < k->n; r++) {
    f->label[r] = (int)(rng_u32(2, (uint64_t)r) % (uint32_t)k->classes);
    if (k->out && r % k->out == 0) f->label[r] = not_one[r % 3];
    f->count += f->label[r] >= 0 && f->label[r] < k->classes;
  }
}
static void free_fixture(ClassFixture *f) {
  test_tensor_free(&f->logits);
  test_tensor_free(&f->loss);
}

static void run_loss(Device *dev, void *context, const Dest *loss) {
  ClassFixture *f = context;
  dev->ops->class_loss(dev, &f->p, f->label, &f->logits, &loss->t, &(Hits){&f->top1, &f->top5});
}
static double objective(void *context) {
  ClassFixture *f = context;
  run_op(f->dev, run_loss, f, &(Dest){.t = f->loss});
  return get(&f->loss, 0, 0, 0, 0);
}

// log Σ exp of a row.
static long double log_sum(const Tensor *x, int r) {
  long double max = -INFINITY, sum = 0;
  for (int c = 0; c < x->c; c++) max = fmaxl(max, get(x, r, 0, 0, c));
  for (int c = 0; c < x->c; c++) sum += expl(get(x, r, 0, 0, c) - max);
  return max + logl(sum);
}

// The share of the target that class c has.
static long double target(const ClassFixture *f, int r, int c) {
  long double e = f->p.smoothing;
  return (c == f->label[r] ? 1 - e : 0) + e / f->logits.c;
}

static void check_case(Device *dev, const ClassCase *k) {
  ClassFixture f;
  make(&f, dev, k);
  const double u = unit_roundoff(dev->real), loss_scale = 64, scale = loss_scale * (double)f.p.weight;
  Tensor dx = test_tensor_like(&f.logits), probs = test_tensor_packed(dev->real, k->n, k->classes);
  Tensor factor = test_tensor_packed(dev->real, 1, 1);
  put(&factor, 0, 0, 0, 0, loss_scale);
  double got = objective(&f);
  dev->ops->class_loss_backward(dev, &f.p, f.label, &f.logits, factor.data, &dx);
  dev->ops->class_probs(dev, &f.logits, &probs);
  long double want = 0;
  int top1 = 0, top5 = 0;
  for (int r = 0; r < k->n; r++) {
    bool counts = f.label[r] >= 0 && f.label[r] < k->classes;
    long double sum = log_sum(&f.logits, r);
    int better = 0;
    for (int c = 0; c < k->classes; c++) {
      double x = get(&f.logits, r, 0, 0, c);
      // x - max is rounded once, the sum of exponentials by the depth of its tree and its lanes, the rest in ten steps.
      double bound = (2 * k->spread + k->classes / 32. + 15) * u;
      long double p = expl(x - sum);
      EXPECT_NEAR(get(&probs, r, 0, 0, c), (double)p, bound * (double)p + 1e-37);
      long double slope = counts ? (p - target(&f, r, c)) * scale / f.count : 0;
      EXPECT_NEAR(get(&dx, r, 0, 0, c), (double)slope,
                  counts ? (bound * (double)p + 4 * u * (double)target(&f, r, c)) * scale / f.count + 1e-37 : 0);
      if (!counts) continue;
      want += target(&f, r, c) * (sum - x);
      better += x > get(&f.logits, r, 0, 0, f.label[r]);
    }
    top1 += counts && better < 1;
    top5 += counts && better < 5;
  }
  want = f.count ? (double)f.p.weight * want / f.count : 0;
  EXPECT_NEAR(got, (double)want, (2 * k->spread + k->classes / 32. + 15) * u * 2 + 2 * u * (double)want);
  EXPECT_INT(f.top1, top1);
  EXPECT_INT(f.top5, top5);
  expect_padding_zero(&dx);
  test_tensor_free(&dx);
  test_tensor_free(&probs);
  test_tensor_free(&factor);
  free_fixture(&f);
}

TEST(class_loss_equals_definition) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(cases); i++) check_case(dev, &cases[i]);
    device_close(dev);
  }
}

TEST(class_loss_gradient_check) {
  Device *dev = device_open("cpu64", NULL);
  const ClassCase some[] = {{5, 7, 0, 0, 2}, {6, 7, 3, 0.1f, 2}};
  for (int i = 0; i < COUNT(some); i++) {
    ClassFixture f;
    make(&f, dev, &some[i]);
    Tensor dx = test_tensor_like(&f.logits);
    dev->ops->class_loss_backward(dev, &f.p, f.label, &f.logits, NULL, &dx);
    // A mean of terms ≤ spread + log(classes); the third derivative of log-sum-exp is at most 1, of a row of `count`.
    gradcheck(objective, &f, &f.logits, &dx, 8, 40, 1, 1000);
    test_tensor_free(&dx);
    free_fixture(&f);
  }
  device_close(dev);
}

// Ties go to the lowest class, as torch.topk's; a NaN is never right, and makes the loss one.
TEST(class_loss_hits_of_ties_and_nan) {
  Device *dev = device_open("cpu", NULL);
  const ClassCase k = {4, 8, 0, 0, 1};
  ClassFixture f;
  make(&f, dev, &k);
  f.p.weight = 1;
  for (int r = 0; r < k.n; r++) {
    for (int c = 0; c < k.classes; c++) put(&f.logits, r, 0, 0, c, 1);
    f.label[r] = (const int[]){0, 4, 5, 7}[r]; // the best, the fifth, the sixth, the last
  }
  EXPECT_NEAR(objective(&f), log(8), 4 * 0x1p-24 * log(8));
  EXPECT_INT(f.top1, 1);
  EXPECT_INT(f.top5, 2);
  put(&f.logits, 1, 0, 0, 7, NAN); // in place of the fifth's
  EXPECT(isnan(objective(&f)));
  EXPECT_INT(f.top1, 1);
  EXPECT_INT(f.top5, 1);
  put(&f.logits, 0, 0, 0, 0, NAN); // the best itself
  objective(&f);
  EXPECT_INT(f.top1, 0);
  EXPECT_INT(f.top5, 0);
  for (int i = 0; i < 2; i++) { // a class that cannot be: free without smoothing, infinitely dear with it
    f.p.smoothing = i ? 0.1f : 0;
    for (int r = 0; r < k.n; r++)
      for (int c = 0; c < k.classes; c++) put(&f.logits, r, 0, 0, c, c == 6 ? -INFINITY : 1);
    EXPECT(i ? isinf(objective(&f)) : fabs(objective(&f) - log(7)) <= 4 * 0x1p-24 * log(7));
  }
  free_fixture(&f);
  device_close(dev);
}

TEST(class_loss_equals_torch) {
  const ClassCase k = {7, 11, 0, 0, 4};
  const int label[] = {0, 10, 3, -100, 7, 3, 5};
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    ClassFixture f;
    make(&f, dev, &k);
    test_fill(&f.logits, 3, -4, 4);
    memcpy(f.label, label, sizeof label);
    f.p.weight = 1;
    Tensor dx = test_tensor_like(&f.logits), probs = test_tensor_packed(dev->real, k.n, k.classes);
    Tensor hits = test_tensor_packed(dev->real, 1, 2);
    for (int smooth = 0; smooth < 2; smooth++) {
      f.p.smoothing = smooth ? 0.125f : 0;
      objective(&f);
      dev->ops->class_loss_backward(dev, &f.p, f.label, &f.logits, NULL, &dx);
      dev->ops->class_probs(dev, &f.logits, &probs);
      put(&hits, 0, 0, 0, 0, f.top1);
      put(&hits, 0, 0, 0, 1, f.top5);
      // Logits up to 4: 8 times the rounding of an exponential's argument, and twenty more steps.
      expect_op_golden(smooth ? "class.smooth.loss" : "class.plain.loss", &f.loss, 40);
      expect_op_golden(smooth ? "class.smooth.dx" : "class.plain.dx", &dx, 40);
      expect_op_golden("class.probs", &probs, 40);
      expect_op_golden("class.hits", &hits, 0);
    }
    Tensor *all[] = {&dx, &probs, &hits};
    for (int i = 0; i < COUNT(all); i++) test_tensor_free(all[i]);
    free_fixture(&f);
    device_close(dev);
  }
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

static const DType dtypes[] = {F32, BF16, F16};

typedef struct GpuClassCase {
  int n, classes, out; // out: every so many rows has a label that does not count
  float smoothing;
  double spread;
} GpuClassCase;
static const GpuClassCase gpu_cases[] = {
    {1, 1, 0, 0, 1},        {1, 2, 0, 0, 1},         {5, 10, 0, 0, 3},   {5, 10, 0, 0.1f, 3},
    {7, 37, 3, 0.1f, 3},    {4, 10, 1, 0.1f, 1},     {128, 10, 0, 0, 3}, {64, 1000, 5, 0.1f, 3},
    {2000, 12, 7, 0.1f, 3}, {3, 1000, 0, 0.1f, 100}, {6, 3, 0, 1, 1},
};

typedef struct ClassTwins {
  ClassLoss p;
  TwinArray label, top1, top5;
  Twin logits, scale, loss, dlogits, probs;
} ClassTwins;

static ClassTwins gpu_make(const GpuClassCase *k, DType dtype, bool ties) {
  int *label = xmalloc((size_t)k->n * sizeof *label);
  for (int r = 0; r < k->n; r++) {
    label[r] = (int)(rng_u32(2, (uint64_t)r) % (uint32_t)k->classes);
    if (k->out && r % k->out == 0) label[r] = r % 2 ? k->classes : -100;
  }
  ClassTwins a = {.p = {k->smoothing, 0.5f},
                  .label = twin_array((size_t)k->n, sizeof *label, label),
                  .top1 = twin_array(1, sizeof(int), NULL),
                  .top5 = twin_array(1, sizeof(int), NULL),
                  .scale = twin_packed(1, 1, &(float){1024}),
                  .loss = twin_packed(1, 1, NULL),
                  .probs = twin_packed(k->n, k->classes, NULL)};
  size_t elements = (size_t)k->n * (size_t)k->classes;
  float *values = xmalloc(elements * sizeof *values);
  for (size_t i = 0; i < elements; i++) values[i] = (float)(rng_u32(3, i) % 4);
  a.logits = ties ? twin_values(dtype, k->n, 1, 1, k->classes, values)
                  : twin_random(dtype, k->n, 1, 1, k->classes, k->spread, 1);
  a.dlogits = twin_poisoned_like(&a.logits);
  free(values);
  free(label);
  return a;
}
static void run(const ClassTwins *a, bool gpu) {
  Device *dev = gpu ? gpu_device() : cpu_device();
  const int *label = twin_array_data(&a->label, gpu);
  const Tensor *logits = twin_side(&a->logits, gpu);
  Hits hits = {twin_array_data(&a->top1, gpu), twin_array_data(&a->top5, gpu)};
  dev->ops->class_loss(dev, &a->p, label, logits, twin_side(&a->loss, gpu), &hits);
  dev->ops->class_loss_backward(dev, &a->p, label, logits, twin_data(&a->scale, gpu), twin_side(&a->dlogits, gpu));
  dev->ops->class_probs(dev, logits, twin_side(&a->probs, gpu));
}
static void free_twins(ClassTwins *a) {
  twin_array_check_equal(&a->label, a->label.n); // untouched
  Twin *all[] = {&a->logits, &a->scale, &a->loss, &a->dlogits, &a->probs};
  for (int i = 0; i < COUNT(all); i++) {
    twin_check_guards(all[i], i < 2);
    twin_free(all[i]);
  }
  TwinArray *arrays[] = {&a->label, &a->top1, &a->top5};
  for (int i = 0; i < COUNT(arrays); i++) twin_array_free(arrays[i]);
}

static void gpu_check_case(const GpuClassCase *k, DType dtype, bool ties) {
  ClassTwins a = gpu_make(k, dtype, ties);
  run(&a, false);
  run(&a, true);
  // On either side x - max, ≤ 10 spreads, is rounded once and so is its exponential's argument, the sum by its tree and
  // a lane's terms, the rest in ten steps; in units of F32's roundoff.
  double steps = 2 * (2 * 10 * k->spread + k->classes / 32. + 15), unit = twin_f32_unit(dtype);
  bool ok = true;
  for (int i = 0; i < k->n * k->classes; i++) {
    float p = ((float *)a.probs.cpu.data)[i];
    EXPECT(p >= 0 && p <= 1);
  }
  ok &= twin_check(&a.probs, NULL, steps);
  size_t elements = tensor_elements(&a.dlogits.cpu);
  float *bound = xcalloc(elements, sizeof *bound);
  int count = 0;
  for (int r = 0; r < k->n; r++) count += ((int *)a.label.cpu)[r] >= 0 && ((int *)a.label.cpu)[r] < k->classes;
  for (size_t i = 0; i < elements; i++) { // zeros of rows that do not count have to be zeros
    float want = ((float *)a.dlogits.cpu.data)[i];
    if (want != 0) bound[i] = (float)(fabs((double)want) + steps * unit * 1024 / MAX(count, 1));
  }
  ok &= twin_check(&a.dlogits, bound, 1);
  ok &= twin_check(&a.loss, &(float){(float)(10 * k->spread + log(k->classes) + 1)}, steps);
  twin_array_check_equal(&a.top1, 1);
  twin_array_check_equal(&a.top5, 1);
  if (!ok) printf("  dtype %d, %d rows, %d classes, spread %g\n", dtype, k->n, k->classes, k->spread);
  void *before = gpu_fetch(a.loss.gpu.data, sizeof(float));
  run(&a, true);
  void *after = gpu_fetch(a.loss.gpu.data, sizeof(float));
  EXPECT(!memcmp(before, after, sizeof(float)) && "the same bits twice");
  free(before);
  free(after);
  free(bound);
  free_twins(&a);
}

TEST(cuda_class_loss_equals_cpu) {
  if (!gpu_device()) return;
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(gpu_cases); i++)
      for (int ties = 0; ties < 2; ties++) gpu_check_case(&gpu_cases[i], dtypes[d], ties);
}
