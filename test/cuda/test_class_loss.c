// Catches classification losses, gradients, hits or probabilities that are wrong.
//
// The classifier's loss, gradient, hits and probabilities on the GPU against the CPU reference.
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/gpu.h"

static const DType dtypes[] = {F32, BF16, F16};

typedef struct ClassCase {
  int n, classes, out; // out: every so many rows has a label that does not count
  float smoothing;
  double spread;
} ClassCase;
static const ClassCase cases[] = {
    {1, 1, 0, 0, 1},        {1, 2, 0, 0, 1},         {5, 10, 0, 0, 3},   {5, 10, 0, 0.1f, 3},
    {7, 37, 3, 0.1f, 3},    {4, 10, 1, 0.1f, 1},     {128, 10, 0, 0, 3}, {64, 1000, 5, 0.1f, 3},
    {2000, 12, 7, 0.1f, 3}, {3, 1000, 0, 0.1f, 100}, {6, 3, 0, 1, 1},
};

typedef struct ClassTwins {
  ClassLoss p;
  TwinArray label, top1, top5;
  Twin logits, scale, loss, dlogits, probs;
} ClassTwins;

static ClassTwins make(const ClassCase *k, DType dtype, bool ties) {
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

static void check_case(const ClassCase *k, DType dtype, bool ties) {
  ClassTwins a = make(k, dtype, ties);
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
    for (int i = 0; i < COUNT(cases); i++)
      for (int ties = 0; ties < 2; ties++) check_case(&cases[i], dtypes[d], ties);
}
