// Catches group and batch norm, and their gradients, that differ from their definition.
//
// GroupNorm, BatchNorm and their folded form against their definitions, and on the GPU against the CPU.
#include <omp.h>
#include "test/harness/gpu_norm.h"
#include "test/harness/gradcheck.h"
#include "test/harness/norm_fixture.h"

static const char *const devices[] = {"cpu", "cpu64"};

static void check_stats(const NormFixture *a, double u, double largest) {
  for (int set = 0; set < sets_of(a); set++)
    for (int g = 0; g < a->groups; g++) {
      SampleStats s = stats_of(a, set, g);
      double inv_std = 1 / sqrt((double)s.variance + eps);
      // A block's mean: 64 additions and a division, each off by u · |x|. Its square's sum: as many, and the deviation
      // itself is off by u · |x|; half of that relative error reaches the inverse root.
      EXPECT_NEAR(get(&a->stats, set, 0, 0, 2 * g), (double)s.mean, 66 * u * largest);
      EXPECT_NEAR(get(&a->stats, set, 0, 0, 2 * g + 1), inv_std,
                  34 * u * inv_std + 2 * u * largest * inv_std * inv_std);
    }
}

static void check_forward(Device *dev, const NormCase *k, uint64_t key) {
  NormFixture a = norm_make(k, dev->real, key);
  Dest y = {.t = test_tensor_like(&a.x)};
  Tensor old_mean = a.running_mean, old_var = a.running_var;
  a.running_mean = test_tensor_like(&old_mean);
  a.running_var = test_tensor_like(&old_var);
  memcpy(a.running_mean.data, old_mean.data, tensor_bytes(&old_mean));
  memcpy(a.running_var.data, old_var.data, tensor_bytes(&old_var));
  run_op(dev, run_forward, &a, &y);

  double u = unit_roundoff(dev->real), largest = MAX(fabs(lowest(k)), fabs(highest(k)));
  check_stats(&a, u, largest);
  for (int n = 0; n < k->rows; n++)
    for (int c = 0; c < k->c; c++) {
      SampleStats s = stats_of(&a, k->groups ? n : 0, c / (k->c / a.groups));
      double gamma = get(&a.gamma, 0, 0, 0, c), beta = get(&a.beta, 0, 0, 0, c);
      double scale = gamma / sqrt((double)s.variance + eps);
      for (int row = 0; row < k->h; row++)
        for (int x = 0; x < k->w; x++) {
          double centred = get(&a.x, n, row, x, c) - (double)s.mean;
          // The error of the mean and of the subtraction, times the scale; the relative error of the scale; the sum's.
          double bound = 68 * u * largest * scale +
                         (40 * u + 2 * u * largest / sqrt((double)s.variance + eps)) * fabs(centred * scale) +
                         2 * u * fabs(beta);
          EXPECT_NEAR(get(&y.t, n, row, x, c), centred * scale + beta, bound);
        }
    }
  expect_padding_zero(&y.t);

  for (int c = 0; c < k->c && !k->groups; c++) {
    double mean = get(&old_mean, 0, 0, 0, c), var = get(&old_var, 0, 0, 0, c);
    SampleStats s = stats_of(&a, 0, c);
    if (s.count > 0) {
      mean = (1 - momentum) * mean + momentum * (double)s.mean;
      var = (1 - momentum) * var + momentum * (s.count > 1 ? (double)(s.variance * s.count / (s.count - 1)) : 0);
    }
    EXPECT_NEAR(get(&a.running_mean, 0, 0, 0, c), mean, 70 * u * MAX(largest, 1));
    EXPECT_NEAR(get(&a.running_var, 0, 0, 0, c), var, 70 * u + 4 * u * largest);
  }
  test_tensor_free(&old_mean);
  test_tensor_free(&old_var);
  test_tensor_free(&y.t);
  norm_free(&a);
}

TEST(norm_forward_equals_definition) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(norm_cases); i++) check_forward(dev, &norm_cases[i], (uint64_t)i);
    device_close(dev);
  }
}

static void run_inference(Device *dev, void *context, const Dest *y) {
  const NormFixture *a = context;
  dev->ops->batch_norm_inference(dev, eps, &a->x, a->gamma.data, a->beta.data, a->running_mean.data,
                                 a->running_var.data, a->stats.data, y);
}

// Nothing is summed: each of a few steps is off by u of its size.
static void check_inference(Device *dev, const NormCase *k, uint64_t key) {
  NormFixture a = norm_make(k, dev->real, key);
  test_fill(&a.running_var, key, 0.25, 2);
  Dest y = {.t = test_tensor_like(&a.x)};
  run_op(dev, run_inference, &a, &y);
  const double u = unit_roundoff(dev->real);
  for (int n = 0; n < k->rows; n++)
    for (int c = 0; c < k->c; c++) {
      double mean = get(&a.running_mean, 0, 0, 0, c), beta = get(&a.beta, 0, 0, 0, c);
      double scale = get(&a.gamma, 0, 0, 0, c) / sqrt(get(&a.running_var, 0, 0, 0, c) + eps);
      for (int row = 0; row < k->h; row++)
        for (int x = 0; x < k->w; x++) {
          double v = get(&a.x, n, row, x, c);
          EXPECT_NEAR(get(&y.t, n, row, x, c), (v - mean) * scale + beta,
                      8 * u * ((fabs(v) + fabs(mean)) * fabs(scale) + fabs(beta)));
        }
    }
  expect_padding_zero(&y.t);
  test_tensor_free(&y.t);
  norm_free(&a);
}

TEST(norm_inference_equals_definition) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(norm_cases); i++)
      if (!norm_cases[i].groups) check_inference(dev, &norm_cases[i], (uint64_t)i);
    device_close(dev);
  }
}

TEST(batch_norm_without_running_statistics) {
  Device *dev = device_open("cpu", NULL);
  const NormCase k = {2, 3, 3, 4, 0, 2, 0};
  NormFixture a = norm_make(&k, F32, 1);
  Tensor stats = test_tensor_like(&a.stats);
  Dest y = {.t = test_tensor_like(&a.x)}, z = {.t = test_tensor_like(&a.x)};
  run_op(dev, run_forward, &a, &y);
  memcpy(stats.data, a.stats.data, tensor_bytes(&stats));
  NormFixture without = a;
  without.running_mean.data = without.running_var.data = NULL;
  run_op(dev, run_forward, &without, &z);
  EXPECT(same_bits(&y.t, &z.t));
  EXPECT(same_bits(&stats, &a.stats));
  test_tensor_free(&stats);
  test_tensor_free(&y.t);
  test_tensor_free(&z.t);
  norm_free(&a);
  device_close(dev);
}

static void check_float_backward(Device *dev, Device *dev64, const NormCase *k, uint64_t key) {
  NormFixture a = norm_make(k, F32, key), b = norm_make(k, F64, key);
  for (int n = 0; n < k->rows; n++) // what rounding to float has changed
    for (int y = 0; y < k->h; y++)
      for (int x = 0; x < k->w; x++)
        for (int c = 0; c < k->c; c++) {
          put(&b.x, n, y, x, c, get(&a.x, n, y, x, c));
          put(&b.dy, n, y, x, c, get(&a.dy, n, y, x, c));
        }
  for (int c = 0; c < k->c; c++) put(&b.gamma, 0, 0, 0, c, get(&a.gamma, 0, 0, 0, c));
  Dest dx = {.t = test_tensor_like(&a.x)}, want = {.t = test_tensor_like(&b.x)};
  run_op(dev, run_forward, &a, &dx);
  run_op(dev64, run_forward, &b, &want);
  run_op(dev, run_backward, &a, &dx);
  run_op(dev64, run_backward, &b, &want);
  double bound = backward_bound(&a, unit_roundoff(F32));
  double terms = (double)k->rows * k->h * k->w;
  for (int c = 0; c < k->c; c++) {
    EXPECT_NEAR(get(&a.dgamma, 0, 0, 0, c), get(&b.dgamma, 0, 0, 0, c), terms * bound);
    EXPECT_NEAR(get(&a.dbeta, 0, 0, 0, c), get(&b.dbeta, 0, 0, 0, c), terms * 66 * unit_roundoff(F32));
    for (int n = 0; n < k->rows; n++)
      for (int y = 0; y < k->h; y++)
        for (int x = 0; x < k->w; x++) EXPECT_NEAR(get(&dx.t, n, y, x, c), get(&want.t, n, y, x, c), bound);
  }
  test_tensor_free(&dx.t);
  test_tensor_free(&want.t);
  norm_free(&a);
  norm_free(&b);
}

TEST(norm_backward_in_float_equals_double) {
  Device *dev = device_open("cpu", NULL), *dev64 = device_open("cpu64", NULL);
  for (int i = 0; i < COUNT(norm_cases); i++) check_float_backward(dev, dev64, &norm_cases[i], (uint64_t)i);
  device_close(dev);
  device_close(dev64);
}

typedef struct NormObjective {
  Device *dev;
  NormFixture *a;
  Dest y;
} NormObjective;
static double objective(void *context) {
  NormObjective *o = context;
  run_op(o->dev, run_forward, o->a, &o->y);
  return weighted_sum(&o->a->dy, &o->y.t, NULL);
}

TEST(norm_gradient_check) {
  Device *dev = device_open("cpu64", NULL);
  for (int i = 0; i < COUNT(norm_cases); i++) {
    const NormCase *k = &norm_cases[i];
    if (k->mean > 0) continue;                       // there the differences measure the rounding of x + h
    if (k->n * k->h * k->w * k->c > 30000) continue; // every difference costs a forward pass
    NormFixture a = norm_make(k, F64, (uint64_t)i);
    Dest dx = {.t = test_tensor_like(&a.x)};
    NormObjective o = {dev, &a, {.t = test_tensor_like(&a.x)}};
    objective(&o);
    run_op(dev, run_backward, &a, &dx);
    double magnitude;
    weighted_sum(&a.dy, &o.y.t, &magnitude);
    // Σ r · y is summed in as many steps as it has terms. x̂ as a function of one x bends on the scale of the standard
    // deviation σ ≥ √eps: its third derivative stays below 10 / σ³, and one element moves the others by a sum ≤ 2 more.
    double terms = (double)k->rows * k->h * k->w * k->c, sigma3 = 1;
    for (int set = 0; set < sets_of(&a); set++)
      for (int g = 0; g < a.groups; g++) sigma3 = fmin(sigma3, pow((double)stats_of(&a, set, g).variance + eps, 1.5));
    gradcheck(objective, &o, &a.x, &dx.t, magnitude, terms, 30 / sigma3, 40);
    gradcheck(objective, &o, &a.gamma, &a.dgamma, magnitude, terms, 0, 40);
    gradcheck(objective, &o, &a.beta, &a.dbeta, magnitude, terms, 0, 40);
    test_tensor_free(&o.y.t);
    test_tensor_free(&dx.t);
    norm_free(&a);
  }
  device_close(dev);
}

TEST(norm_honours_dest) {
  const NormCase some[] = {{2, 5, 3, 6, 2, 1, 0}, {2, 3, 4, 5, 0, 1, 0}, {1, 1, 1, 8, 4, 1, 0}};
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(some); i++) {
      NormFixture a = norm_make(&some[i], dev->real, (uint64_t)i);
      check_dests(dev, run_forward, &a, &a.x, (uint64_t)i);
      check_dests(dev, run_backward, &a, &a.x, (uint64_t)i + 9);
      norm_free(&a);
    }
    device_close(dev);
  }
}

// All outputs of forward and backward, with one, two and three threads; and parameter gradients by +=.
// Channels 8 … 8 + c - 1 of a wider tensor, which `t` is written to where it is given.
static Tensor slice_in(const Tensor *whole, const Tensor *t, int c) {
  Tensor s = tensor_slice(whole, 8, c);
  for (int n = 0; t && n < t->n; n++)
    for (int y = 0; y < t->h; y++)
      for (int x = 0; x < t->w; x++)
        for (int i = 0; i < c; i++) put(&s, n, y, x, i, get(t, n, y, x, i));
  return s;
}

// The same bits as in tensors of their own, and nothing beside them.
static void check_slices(Device *dev, const NormCase *k, int behind, bool accumulate) {
  NormFixture a = norm_make(k, dev->real, 1);
  Tensor whole[3]; // of y, of dy, and y's before
  for (int i = 0; i < 3; i++) {
    whole[i] = test_tensor(dev->real, k->n, k->h, k->w, 8 + k->c + behind);
    whole[i].count = &k->rows;
    test_fill(&whole[i], 5, -1, 1);
  }
  Dest y = {.t = test_tensor_like(&a.x), .relu = true, .accumulate = accumulate}, sliced = y;
  Dest dx = {.t = test_tensor_like(&a.x)}, dx_of_slice = {.t = test_tensor_like(&a.x)};
  sliced.t = slice_in(&whole[0], NULL, k->c);
  for (int n = 0; n < k->rows; n++)
    for (int row = 0; row < k->h; row++)
      for (int x = 0; x < k->w; x++)
        for (int c = 0; c < y.t.ldc; c++) put(&y.t, n, row, x, c, c < k->c ? get(&sliced.t, n, row, x, c) : 0);
  run_op(dev, run_forward, &a, &y);
  run_op(dev, run_forward, &a, &sliced);
  run_op(dev, run_backward, &a, &dx);
  NormFixture of_slice = a;
  of_slice.dy = slice_in(&whole[1], &a.dy, k->c);
  run_op(dev, run_backward, &of_slice, &dx_of_slice);
  EXPECT(same_bits(&dx.t, &dx_of_slice.t));
  for (int n = 0; n < k->rows; n++)
    for (int row = 0; row < k->h; row++)
      for (int x = 0; x < k->w; x++)
        for (int c = 0; c < whole[0].c; c++) {
          bool own = c >= 8 && c < 8 + k->c;
          EXPECT(get(&whole[0], n, row, x, c) == (own ? get(&y.t, n, row, x, c - 8) : get(&whole[2], n, row, x, c)));
        }
  Tensor *all[] = {&y.t, &dx.t, &dx_of_slice.t, &whole[0], &whole[1], &whole[2]};
  for (int i = 0; i < COUNT(all); i++) test_tensor_free(all[i]);
  norm_free(&a);
}

TEST(norm_takes_slices) {
  const NormCase some[] = {{2, 9, 11, 16, 4, 2, 0}, {3, 5, 7, 16, 0, 2, 0}, {2, 1, 3, 1032, 0, 2, 0}};
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(some); i++) check_slices(dev, &some[i], 8, i % 2);
    check_slices(dev, &(NormCase){2, 5, 7, 5, 0, 2, 0}, 0, false); // the last may end within a vector
    device_close(dev);
  }
}

TEST(norm_same_bits_for_any_threads) {
  Device *dev = device_open("cpu", NULL);
  int threads = omp_get_max_threads();
  const NormCase some[] = {{3, 30, 25, 16, 4, 3, 0}, {3, 30, 25, 16, 0, 3, 0}};
  for (int i = 0; i < COUNT(some); i++) {
    NormFixture first = norm_make(&some[i], F32, 1);
    Dest dx = {.t = test_tensor_like(&first.x)};
    omp_set_num_threads(1);
    run_op(dev, run_forward, &first, &dx);
    run_op(dev, run_backward, &first, &dx);
    for (int t = 2; t <= 3; t++) {
      NormFixture a = norm_make(&some[i], F32, 1);
      Dest other = {.t = test_tensor_like(&a.x)};
      omp_set_num_threads(t);
      run_op(dev, run_forward, &a, &other);
      run_op(dev, run_backward, &a, &other);
      EXPECT(same_bits(&dx.t, &other.t));
      EXPECT(same_bits(&first.stats, &a.stats));
      EXPECT(same_bits(&first.dgamma, &a.dgamma));
      EXPECT(same_bits(&first.dbeta, &a.dbeta));
      EXPECT(same_bits(&first.running_mean, &a.running_mean));
      EXPECT(same_bits(&first.running_var, &a.running_var));

      a.accumulate = true;
      run_op(dev, run_backward, &a, &other);
      for (int c = 0; c < a.k->c; c++) {
        double g = get(&first.dgamma, 0, 0, 0, c), b = get(&first.dbeta, 0, 0, 0, c);
        // Twice the same number; what is added was not rounded to float yet.
        EXPECT_NEAR(get(&a.dgamma, 0, 0, 0, c), 2 * g, 2 * unit_roundoff(F32) * fabs(2 * g));
        EXPECT_NEAR(get(&a.dbeta, 0, 0, 0, c), 2 * b, 2 * unit_roundoff(F32) * fabs(2 * b));
      }
      test_tensor_free(&other.t);
      norm_free(&a);
    }
    omp_set_num_threads(threads);
    test_tensor_free(&dx.t);
    norm_free(&first);
  }
  device_close(dev);
}

// ---- folded ---------------------------------------------------------------------------------------------------------

TEST(norm_fold_equals_definition) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    enum { C = 13 };
    Tensor t[6]; // gamma, beta, mean, var, scale, shift
    for (int i = 0; i < 6; i++) {
      t[i] = test_tensor_packed(dev->real, 1, C);
      if (i < 4) test_fill(&t[i], (uint64_t)i, i == 3 ? 0.5 : -1, 2);
    }
    dev->ops->norm_fold(dev, C, eps, t[0].data, t[1].data, t[2].data, t[3].data, t[4].data, t[5].data);
    double u = unit_roundoff(dev->real);
    for (int c = 0; c < C; c++) {
      double scale = get(&t[0], 0, 0, 0, c) / sqrt(get(&t[3], 0, 0, 0, c) + eps);
      double mean = get(&t[2], 0, 0, 0, c), beta = get(&t[1], 0, 0, 0, c);
      EXPECT_NEAR(get(&t[4], 0, 0, 0, c), scale, 3 * u * fabs(scale)); // half an addition's, a root's, a division's
      EXPECT_NEAR(get(&t[5], 0, 0, 0, c), beta - mean * scale, 5 * u * (fabs(beta) + fabs(mean * scale)));
    }
    for (int i = 0; i < 6; i++) test_tensor_free(&t[i]);
    device_close(dev);
  }
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

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

static bool gpu_check_forward(NormTwins *a) {
  Twin y = twin_poisoned_like(&a->x);
  twin_run(gpu_run_forward, a, &y);
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
  twin_run(gpu_run_backward, a, &dx);
  float *dgamma = xcalloc((size_t)a->k->c * 2, sizeof *dgamma), *dbeta = dgamma + a->k->c;
  float *bound = gpu_backward_bound(a, dgamma, dbeta);
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
  bool ok = gpu_check_forward(&a);
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

static void gpu_run_inference(Device *dev, bool gpu, void *context, const Dest *y) {
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
      twin_run(gpu_run_inference, &a, &y); // for the statistics, which are the bound's
      float *bound = forward_bound(&a);
      twin_check(&y, bound, 1);
      twin_check_dests(gpu_run_inference, &a, &a.x, bound, 1, 100);
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
      twin_run(gpu_run_forward, &a, &y); // for the statistics
      twin_free(&y);
      float *bound = forward_bound(&a), *parameters = xcalloc((size_t)some[i].c * 2, sizeof *parameters);
      twin_check_dests(gpu_run_forward, &a, &a.x, bound, 1, 100);
      free(bound);
      Twin stats = twin_packed(a.stats.cpu.n, a.stats.cpu.c, a.stats.cpu.data);
      twin_free(&a.stats);
      a.stats = stats;
      bound = gpu_backward_bound(&a, parameters, parameters + some[i].c);
      twin_check_dests(gpu_run_backward, &a, &a.x, bound, 1, 200);
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
      gpu_run_forward(gpu_device(), true, &a[run], &(Dest){.t = y.gpu});
      gpu_run_backward(gpu_device(), true, &a[run], &(Dest){.t = y.gpu});
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
static void gpu_check_slices(const NormCase *k, DType dtype, int behind) {
  Device *gpu = gpu_device();
  NormTwins a = norm_twins(k, dtype, 1);
  Twin y = twin_poisoned_like(&a.x), dx = twin_poisoned_like(&a.x), again = twin_poisoned_like(&a.x);
  Twin whole = twin_random(dtype, k->n, k->h, k->w, 8 + k->c + behind, 1, 2);
  Twin whole_dy = twin_random(dtype, k->n, k->h, k->w, 8 + k->c + behind, 1, 3);
  Tensor own = tensor_slice(&whole.gpu, 8, k->c), dy = tensor_slice(&whole_dy.gpu, 8, k->c);
  int pixels = k->n * k->h * k->w;
  gpu_run_forward(gpu, true, &a, &(Dest){.t = y.gpu, .relu = true});
  gpu_run_forward(gpu, true, &a, &(Dest){.t = own, .relu = true});
  gpu_run_backward(gpu, true, &a, &(Dest){.t = dx.gpu});
  copy_channels(&dy, &a.dy.gpu, pixels);
  Tensor plain = a.dy.gpu;
  a.dy.gpu = dy;
  gpu_run_backward(gpu, true, &a, &(Dest){.t = again.gpu});
  a.dy.gpu = plain;
  float *got = gpu_fetch_floats(&whole.gpu), *want = gpu_fetch_floats(&y.gpu);
  bool same = true, outside = true;
  for (int p = 0; p < pixels; p++)
    for (int c = 0; c < whole.cpu.c; c++) {
      float v = got[p * whole.cpu.ldc + c], before = ((float *)whole.cpu.data)[p * whole.cpu.ldc + c];
      bool inside = c >= 8 && c < 8 + k->c;
      same &= !inside || v == want[p * y.cpu.ldc + c - 8];
      outside &= inside || v == before;
    }
  EXPECT(same);
  EXPECT(outside);
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
    gpu_check_slices(&(NormCase){2, 9, 11, 16, 4, 2, 0}, dtypes[d], 8);
    gpu_check_slices(&(NormCase){3, 5, 7, 264, 0, 3, 0}, dtypes[d], 8);
    gpu_check_slices(&(NormCase){2, 5, 7, 5, 0, 2, 0}, dtypes[d], 0); // the last may end within a vector
  }
}

TEST(cuda_norm_leaves_out_what_is_not_wanted) {
  if (!gpu_device()) return;
  const NormCase k = {2, 3, 3, 16, 0, 2, 0};
  NormTwins a = norm_twins(&k, F32, 1);
  a.no_running = a.no_gradients = true;
  Twin y = twin_poisoned_like(&a.x);
  float *bound;
  twin_run(gpu_run_forward, &a, &y);
  bound = forward_bound(&a);
  twin_check(&y, bound, 1);
  gpu_run_backward(gpu_device(), true, &a, &(Dest){.t = y.gpu});
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
