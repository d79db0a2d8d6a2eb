// Catches group and batch norm, and their gradients, that differ from their definition.
//
// GroupNorm and BatchNorm on the GPU against the CPU reference.
#include "test/harness/gpu_norm.h"

static const DType dtypes[] = {F32, BF16, F16};

static bool check_packed(const Twin *t, double (*bound)(const NormTwins *a, const float *want, int i),
                         const NormTwins *a) {
  float *b = xcalloc(tensor_elements(&t->cpu), sizeof *b);
  for (int i = 0; i < (int)tensor_elements(&t->cpu); i++) b[i] = (float)bound(a, t->cpu.data, i);
  bool ok = twin_check(t, b, STEPS);
  free(b);
  return ok;
}
static double stats_bound(const NormTwins *a, const float *stats, int i) {
  double inv_std = stats[i | 1];
  return i % 2 ? inv_std + a->largest * inv_std * inv_std : a->largest;
}
static double mean_bound(const NormTwins *a, const float *mean, int i) { return a->largest + fabs((double)mean[i]); }
// The deviation's error, twice, times the standard deviation.
static double var_bound(const NormTwins *a, const float *var, int i) {
  return var[i] + 2 * a->largest * sqrt(fabs((double)var[i]));
}

static bool check_forward(NormTwins *a) {
  Twin y = twin_poisoned_like(&a->x);
  twin_run(run_forward, a, &y);
  float *bound = forward_bound(a);
  bool ok = check_packed(&a->stats, stats_bound, a) || !printf("  statistics\n");
  ok &= twin_check(&y, bound, 1) || !printf("  y\n");
  ok &= check_packed(&a->running_mean, mean_bound, a) || !printf("  running mean\n");
  ok &= check_packed(&a->running_var, var_bound, a) || !printf("  running variance\n");
  twin_check_guards(&y, false);
  twin_free(&y);
  free(bound);
  return ok;
}

static bool check_backward(NormTwins *a) {
  Twin stats = twin_packed(a->stats.cpu.n, a->stats.cpu.c, a->stats.cpu.data);
  twin_free(&a->stats);
  a->stats = stats;
  Twin dx = twin_poisoned_like(&a->x);
  twin_run(run_backward, a, &dx);
  float *dgamma = xcalloc((size_t)a->k->c * 2, sizeof *dgamma), *dbeta = dgamma + a->k->c;
  float *bound = backward_bound(a, dgamma, dbeta);
  bool ok = twin_check(&dx, bound, 1) || !printf("  dx\n");
  for (int c = 0; c < a->k->c; c++) { // what was accumulated to
    dgamma[c] += 1;
    dbeta[c] += 1;
  }
  ok &= twin_check(&a->dgamma, dgamma, STEPS) || !printf("  dgamma\n");
  ok &= twin_check(&a->dbeta, dbeta, STEPS) || !printf("  dbeta\n");
  twin_check_guards(&dx, false);
  twin_free(&dx);
  free(dgamma);
  free(bound);
  return ok;
}

static void check_case(const NormCase *k, DType dtype, bool accumulate, uint64_t seed) {
  NormTwins a = norm_twins(k, dtype, seed);
  a.accumulate = accumulate;
  bool ok = check_forward(&a);
  if (k->rows) ok &= check_backward(&a);
  if (!ok)
    printf("  dtype %d, x [%d of %d, %d, %d, %d], groups %d, mean %g, accumulate %d\n", dtype, k->rows, k->n, k->h,
           k->w, k->c, k->groups, k->mean, accumulate);
  norm_twins_free(&a);
}

TEST(cuda_norm_equals_cpu) {
  if (!gpu_device()) return;
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(norm_cases); i++) check_case(&norm_cases[i], dtypes[d], i % 2, (uint64_t)i * 16);
}

static void run_inference(Device *dev, bool gpu, void *context, const Dest *y) {
  const NormTwins *a = context;
  dev->ops->batch_norm_inference(dev, eps, twin_side(&a->x, gpu), twin_data(&a->gamma, gpu), twin_data(&a->beta, gpu),
                                 twin_data(&a->running_mean, gpu), twin_data(&a->running_var, gpu),
                                 twin_data(&a->stats, gpu), y);
}

// By the statistics that training moves: every destination, and nothing but y and stats is written.
TEST(cuda_norm_inference_equals_cpu) {
  if (!gpu_device()) return;
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(norm_cases); i++) {
      if (norm_cases[i].groups || !norm_cases[i].rows) continue;
      NormTwins a = norm_twins(&norm_cases[i], dtypes[d], (uint64_t)i * 16);
      Twin y = twin_poisoned_like(&a.x);
      twin_run(run_inference, &a, &y); // for the statistics, which are the bound's
      float *bound = forward_bound(&a);
      twin_check(&y, bound, 1);
      twin_check_dests(run_inference, &a, &a.x, bound, 1, 100);
      twin_check_guards(&a.running_mean, true);
      twin_check_guards(&a.running_var, true);
      free(bound);
      twin_free(&y);
      norm_twins_free(&a);
    }
}

// Enough that a thread gets more than its least number of pixels, and statistics more than a block's worth of chunks.
TEST_TIER(cuda_norm_of_large_tensors, 1) {
  if (!gpu_device()) return;
  const NormCase large[] = {{2, 110, 200, 256, 32, 2, 0}, {2, 110, 200, 256, 0, 2, 100}};
  for (int i = 0; i < COUNT(large); i++) check_case(&large[i], BF16, false, 1);
}

// Batch norm of tensors that stay in shared memory: clusters of one threadblock and of eight, of which the last has
// fewer pixels, slices of 16 to 64 channels, of which the last is nearly empty.
TEST(cuda_norm_resident_equals_cpu) {
  if (!gpu_device()) return;
  const NormCase cases[] = {{8, 14, 14, 520, 0, 8, 0},  {3, 7, 7, 4096, 0, 3, 0},    {1, 61, 67, 24, 0, 1, 0},
                            {2, 3, 5, 130, 0, 2, 1000}, {64, 7, 7, 40, 0, 64, 1000}, {7, 1, 1, 512, 0, 7, 0}};
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(cases); i++) check_case(&cases[i], dtypes[d], i % 2, (uint64_t)i);
}

// The last has several pixels for a thread, and is not one of those that stay in shared memory.
TEST(cuda_norm_honours_dest) {
  if (!gpu_device()) return;
  const NormCase some[] = {{3, 5, 3, 11, 11, 2, 0}, {2, 3, 4, 5, 0, 2, 0}, {3, 9, 40, 8, 0, 2, 0}};
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(some); i++) {
      NormTwins a = norm_twins(&some[i], dtypes[d], (uint64_t)i * 16);
      Twin y = twin_poisoned_like(&a.x);
      twin_run(run_forward, &a, &y); // for the statistics
      twin_free(&y);
      float *bound = forward_bound(&a), *parameters = xcalloc((size_t)some[i].c * 2, sizeof *parameters);
      twin_check_dests(run_forward, &a, &a.x, bound, 1, 100);
      free(bound);
      Twin stats = twin_packed(a.stats.cpu.n, a.stats.cpu.c, a.stats.cpu.data);
      twin_free(&a.stats);
      a.stats = stats;
      bound = backward_bound(&a, parameters, parameters + some[i].c);
      twin_check_dests(run_backward, &a, &a.x, bound, 1, 200);
      free(bound);
      free(parameters);
      norm_twins_free(&a);
    }
}

// Everything but the activations, run twice: the Dest's test does the activations.
TEST(cuda_norm_same_bits_twice) {
  if (!gpu_device()) return;
  const NormCase some[] = {{3, 30, 25, 16, 4, 3, 0}, {3, 30, 25, 16, 0, 3, 0}};
  for (int i = 0; i < COUNT(some); i++) {
    NormTwins a[2];
    void *bits[2][5];
    for (int run = 0; run < 2; run++) {
      a[run] = norm_twins(&some[i], BF16, 1);
      Twin y = twin_poisoned_like(&a[run].x);
      run_forward(gpu_device(), true, &a[run], &(Dest){.t = y.gpu});
      run_backward(gpu_device(), true, &a[run], &(Dest){.t = y.gpu});
      twin_free(&y);
      const Twin *all[] = {&a[run].stats, &a[run].running_mean, &a[run].running_var, &a[run].dgamma, &a[run].dbeta};
      for (int t = 0; t < COUNT(all); t++) {
        bits[run][t] = gpu_fetch(all[t]->gpu.data, tensor_bytes(&all[t]->gpu));
        if (run) EXPECT(!memcmp(bits[0][t], bits[1][t], tensor_bytes(&all[t]->gpu)));
      }
    }
    for (int run = 0; run < 2; run++) {
      norm_twins_free(&a[run]);
      for (int t = 0; t < COUNT(bits[run]); t++) free(bits[run][t]);
    }
  }
}

// ---- slices ---------------------------------------------------------------------------------------------------------

// Copies channels between tensors on the GPU, by way of the host: `to` from the same channels of `from`, whose pixels
// may lie further apart.
static void copy_channels(const Tensor *to, const Tensor *from, int pixels) {
  Device *gpu = gpu_device();
  size_t each = dtype_size(to->dtype), row = (size_t)to->c * each;
  for (int p = 0; p < pixels; p++)
    device_copy(gpu, (char *)to->data + (size_t)p * (size_t)to->ldc * each,
                (const char *)from->data + (size_t)p * (size_t)from->ldc * each, row);
}

// The same bits as in tensors of their own, and nothing beside them.
static void check_slices(const NormCase *k, DType dtype, int behind) {
  Device *gpu = gpu_device();
  NormTwins a = norm_twins(k, dtype, 1);
  Twin y = twin_poisoned_like(&a.x), dx = twin_poisoned_like(&a.x), again = twin_poisoned_like(&a.x);
  Twin whole = twin_random(dtype, k->n, k->h, k->w, 8 + k->c + behind, 1, 2);
  Twin whole_dy = twin_random(dtype, k->n, k->h, k->w, 8 + k->c + behind, 1, 3);
  Tensor own = tensor_slice(&whole.gpu, 8, k->c), dy = tensor_slice(&whole_dy.gpu, 8, k->c);
  int pixels = k->n * k->h * k->w;
  run_forward(gpu, true, &a, &(Dest){.t = y.gpu, .relu = true});
  run_forward(gpu, true, &a, &(Dest){.t = own, .relu = true});
  run_backward(gpu, true, &a, &(Dest){.t = dx.gpu});
  copy_channels(&dy, &a.dy.gpu, pixels);
  Tensor plain = a.dy.gpu;
  a.dy.gpu = dy;
  run_backward(gpu, true, &a, &(Dest){.t = again.gpu});
  a.dy.gpu = plain;
  float *got = gpu_fetch_floats(&whole.gpu), *want = gpu_fetch_floats(&y.gpu);
  bool same = true, beside = true;
  for (int p = 0; p < pixels; p++)
    for (int c = 0; c < whole.cpu.c; c++) {
      float v = got[p * whole.cpu.ldc + c], before = ((float *)whole.cpu.data)[p * whole.cpu.ldc + c];
      bool inside = c >= 8 && c < 8 + k->c;
      same &= !inside || v == want[p * y.cpu.ldc + c - 8];
      beside &= inside || v == before;
    }
  EXPECT(same);
  EXPECT(beside);
  float *plain_dx = gpu_fetch_floats(&dx.gpu), *slice_dx = gpu_fetch_floats(&again.gpu);
  EXPECT(!memcmp(plain_dx, slice_dx, tensor_elements(&dx.gpu) * sizeof *plain_dx));
  float *arrays[] = {got, want, plain_dx, slice_dx};
  for (int i = 0; i < COUNT(arrays); i++) free(arrays[i]);
  Twin *all[] = {&y, &dx, &again, &whole, &whole_dy};
  for (int i = 0; i < COUNT(all); i++) {
    twin_check_guards(all[i], false);
    twin_free(all[i]);
  }
  norm_twins_free(&a);
}

TEST(cuda_norm_takes_slices) {
  if (!gpu_device()) return;
  for (int d = 0; d < COUNT(dtypes); d++) {
    check_slices(&(NormCase){2, 9, 11, 16, 4, 2, 0}, dtypes[d], 8);
    check_slices(&(NormCase){3, 5, 7, 264, 0, 3, 0}, dtypes[d], 8);
    check_slices(&(NormCase){2, 5, 7, 5, 0, 2, 0}, dtypes[d], 0); // the last may end within a vector
  }
}

TEST(cuda_norm_leaves_out_what_is_not_wanted) {
  if (!gpu_device()) return;
  const NormCase k = {2, 3, 3, 16, 0, 2, 0};
  NormTwins a = norm_twins(&k, F32, 1);
  a.no_running = a.no_gradients = true;
  Twin y = twin_poisoned_like(&a.x);
  float *bound;
  twin_run(run_forward, &a, &y);
  bound = forward_bound(&a);
  twin_check(&y, bound, 1);
  run_backward(gpu_device(), true, &a, &(Dest){.t = y.gpu});
  Twin *untouched[] = {&a.running_mean, &a.running_var, &a.dgamma, &a.dbeta};
  for (int i = 0; i < COUNT(untouched); i++) twin_check_guards(untouched[i], true);
  free(bound);
  twin_free(&y);
  norm_twins_free(&a);
}

// ---- folded ---------------------------------------------------------------------------------------------------------

TEST(cuda_norm_fold_equals_cpu) {
  if (!gpu_device()) return;
  const int sizes[] = {1, 13, 257, 2048};
  for (int i = 0; i < COUNT(sizes); i++) {
    int c = sizes[i];
    Twin gamma = vector(c, 0, 1), beta = vector(c, 0, 2), mean = vector(c, 0, 3), var = vector(c, 0.5, 4);
    Twin scale = twin_packed(1, c, NULL), shift = twin_packed(1, c, NULL);
    for (int gpu = 0; gpu < 2; gpu++) {
      Device *dev = gpu ? gpu_device() : cpu_device();
      dev->ops->norm_fold(dev, c, eps, twin_data(&gamma, gpu), twin_data(&beta, gpu), twin_data(&mean, gpu),
                          twin_data(&var, gpu), twin_data(&scale, gpu), twin_data(&shift, gpu));
    }
    twin_check(&scale, NULL, 0); // an addition, a root and a division, all correctly rounded
    float *bound = xmalloc((size_t)c * sizeof *bound);
    for (int k = 0; k < c; k++)
      bound[k] = fabsf(((float *)beta.cpu.data)[k]) + fabsf(((float *)mean.cpu.data)[k] * ((float *)scale.cpu.data)[k]);
    twin_check(&shift, bound, 3); // the product may be rounded or not
    free(bound);
    Twin *all[] = {&gamma, &beta, &mean, &var, &scale, &shift};
    for (int t = 0; t < COUNT(all); t++) {
      twin_check_guards(all[t], t < 4);
      twin_free(all[t]);
    }
  }
}
