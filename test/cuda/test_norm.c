// GroupNorm and BatchNorm on the GPU against the CPU reference. Both add at most 64 numbers in float before they go on
// in double, which with a few more operations is an error of 70 u of the sum of absolute values on either side: every
// tolerance here is 140 u of such a sum, and one rounding of the result where it has 16 bits.
#include "test/harness/gpu.h"
#include "test/harness/norm_cases.h"

static const DType dtypes[] = {F32, BF16, F16};
enum { STEPS = 140 };

// Everything an op of either kind takes and gives.
typedef struct NormTwins {
  const NormCase *k;
  int groups;     // of channels that share statistics
  double largest; // |x|
  Twin x, dy, gamma, beta, stats, running_mean, running_var, dgamma, dbeta;
  bool accumulate, no_running, no_gradients;
} NormTwins;

static const float eps = 0x1p-6f, momentum = 0.25f;

static void run_forward(Device *dev, bool gpu, void *context, const Dest *y) {
  NormTwins *a = context;
  const Tensor *x = twin_side(&a->x, gpu);
  void *gamma = twin_data(&a->gamma, gpu), *beta = twin_data(&a->beta, gpu), *stats = twin_data(&a->stats, gpu);
  if (a->k->groups)
    dev->ops->group_norm_forward(dev, a->groups, eps, x, gamma, beta, stats, y);
  else
    dev->ops->batch_norm_forward(dev, eps, momentum, x, gamma, beta,
                                 a->no_running ? NULL : twin_data(&a->running_mean, gpu),
                                 a->no_running ? NULL : twin_data(&a->running_var, gpu), stats, y);
}
static void run_backward(Device *dev, bool gpu, void *context, const Dest *dx) {
  NormTwins *a = context;
  const Tensor *x = twin_side(&a->x, gpu), *dy = twin_side(&a->dy, gpu);
  void *gamma = twin_data(&a->gamma, gpu), *stats = twin_data(&a->stats, gpu);
  bool skip = a->no_gradients && gpu; // the reference always computes them
  void *dgamma = skip ? NULL : twin_data(&a->dgamma, gpu), *dbeta = skip ? NULL : twin_data(&a->dbeta, gpu);
  if (a->k->groups)
    dev->ops->group_norm_backward(dev, a->groups, x, dy, gamma, stats, dx, dgamma, dbeta, a->accumulate);
  else
    dev->ops->batch_norm_backward(dev, x, dy, gamma, stats, dx, dgamma, dbeta, a->accumulate);
}

// A packed row of c numbers, |normal| + low where low > 0.
static Twin vector(int c, double low, uint64_t seed) {
  Twin t = twin_random(F32, 1, 1, 1, c, 1, seed);
  float *v = t.cpu.data;
  for (int i = 0; low > 0 && i < c; i++) v[i] = fabsf(v[i]) + (float)low;
  Twin packed = twin_packed(1, c, v);
  twin_free(&t);
  return packed;
}

static Twin poisoned_stats(const NormCase *k, int groups) {
  Twin t = twin_packed(k->groups ? k->n : 1, 2 * groups, NULL);
  if (k->groups) twin_rows(&t, k->rows);
  return t;
}

static NormTwins norm_twins(const NormCase *k, DType dtype, uint64_t seed) {
  NormTwins a = {.k = k, .groups = k->groups ? k->groups : k->c};
  Twin x = twin_random(F32, k->n, k->h, k->w, k->c, 1, seed);
  size_t pixels = tensor_pixels(&x.cpu);
  float *values = xmalloc(pixels * (size_t)k->c * sizeof *values);
  for (size_t p = 0; p < pixels; p++)
    for (int c = 0; c < k->c; c++)
      values[p * (size_t)k->c + (size_t)c] = ((float *)x.cpu.data)[p * (size_t)x.cpu.ldc + (size_t)c] + (float)k->mean;
  a.x = twin_values(dtype, k->n, k->h, k->w, k->c, values);
  for (size_t i = 0; i < pixels * (size_t)k->c; i++) a.largest = fmax(a.largest, fabsf(values[i]));
  free(values);
  twin_free(&x);
  a.dy = twin_random(dtype, k->n, k->h, k->w, k->c, 1, seed + 1);
  if (k->rows < k->n) {
    twin_rows(&a.x, k->rows);
    twin_rows(&a.dy, k->rows);
  }
  a.gamma = vector(k->c, 0.5, seed + 2);
  a.beta = vector(k->c, 0, seed + 3);
  a.running_mean = vector(k->c, 0, seed + 4);
  a.running_var = vector(k->c, 0.5, seed + 5);
  a.dgamma = vector(k->c, 0, seed + 6);
  a.dbeta = vector(k->c, 0, seed + 7);
  a.stats = poisoned_stats(k, a.groups);
  return a;
}
static void norm_twins_free(NormTwins *a) {
  Twin *inputs[] = {&a->x, &a->dy, &a->gamma, &a->beta};
  Twin *outputs[] = {&a->stats, &a->running_mean, &a->running_var, &a->dgamma, &a->dbeta};
  for (int i = 0; i < COUNT(inputs); i++) {
    twin_check_guards(inputs[i], true);
    twin_free(inputs[i]);
  }
  for (int i = 0; i < COUNT(outputs); i++) {
    twin_check_guards(outputs[i], false);
    twin_free(outputs[i]);
  }
}

// Twins' units: what `error`, in units of F32's roundoff, is in those of the dtype.
static float widened(DType dtype, double error, double value) {
  double ratio = twin_f32_unit(dtype);
  return (float)(STEPS * error * ratio + fabs(value));
}

// Visits every valid element of x: its position in memory and in its parameters.
typedef struct Element {
  size_t i;            // in x
  int channel, sample; // sample: row of its statistics, set · groups + group
} Element;
static bool element_next(const NormTwins *a, Element *e) {
  const Tensor *x = &a->x.cpu;
  size_t per_image = (size_t)x->h * x->w * x->ldc, end = per_image * (size_t)a->k->rows;
  do e->i++;
  while (e->i < end && (int)(e->i % (size_t)x->ldc) >= x->c);
  if (e->i >= end) return false;
  e->channel = (int)(e->i % (size_t)x->ldc);
  e->sample = (a->k->groups ? (int)(e->i / per_image) * a->groups : 0) + e->channel / (x->c / a->groups);
  return true;
}
static const Element before_first = {.i = SIZE_MAX};

// A mean is off by 70 u · L with L = max |x|; of a deviation that is 70 u · L / std, and so of std itself.
static float *forward_bound(const NormTwins *a) {
  float *bound = xcalloc(tensor_elements(&a->x.cpu), sizeof *bound), *x = a->x.cpu.data, *stats = a->stats.cpu.data;
  for (Element e = before_first; element_next(a, &e);) {
    double gamma = ((float *)a->gamma.cpu.data)[e.channel], beta = ((float *)a->beta.cpu.data)[e.channel];
    double inv_std = stats[2 * e.sample + 1], scale = gamma * inv_std, y = (x[e.i] - stats[2 * e.sample]) * scale;
    bound[e.i] =
        widened(a->x.gpu.dtype, a->largest * scale + (1 + a->largest * inv_std) * fabs(y) + fabs(beta), y + beta);
  }
  return bound;
}

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

// Both sides get the same statistics, so that the only errors are those of the sums: of |dy| and |dy · x̂| over what
// shares statistics (for dx) or over the channel (for the parameters).
static float *backward_bound(const NormTwins *a, float *dgamma_bound, float *dbeta_bound) {
  int samples = (int)tensor_elements(&a->stats.cpu) / 2;
  double *sum = xcalloc((size_t)samples * 3, sizeof *sum), *dot = sum + samples, *count = dot + samples;
  float *bound = xcalloc(tensor_elements(&a->x.cpu), sizeof *bound), *stats = a->stats.cpu.data;
  const float *x = a->x.cpu.data, *dy = a->dy.cpu.data, *gamma = a->gamma.cpu.data;
  for (int pass = 0; pass < 2; pass++)
    for (Element e = before_first; element_next(a, &e);) {
      double inv_std = stats[2 * e.sample + 1], g = gamma[e.channel] * (double)dy[e.i];
      double normed = (x[e.i] - (double)stats[2 * e.sample]) * inv_std;
      if (pass == 0) {
        sum[e.sample] += fabs(g);
        dot[e.sample] += fabs(g * normed);
        count[e.sample]++;
        dbeta_bound[e.channel] += fabsf(dy[e.i]);
        dgamma_bound[e.channel] += (float)fabs(dy[e.i] * normed);
      } else {
        double error = fabs(g) + (sum[e.sample] + fabs(normed) * dot[e.sample]) / count[e.sample];
        bound[e.i] = widened(a->x.gpu.dtype, error * inv_std, error * inv_std);
      }
    }
  free(sum);
  return bound;
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

TEST(cuda_norm_honours_dest) {
  if (!gpu_device()) return;
  const NormCase some[] = {{3, 5, 3, 11, 11, 2, 0}, {2, 3, 4, 5, 0, 2, 0}};
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

// ---- over ranks -----------------------------------------------------------------------------------------------------

// A rank's part of the batch, what it tells the others, and what all three tell: this one first, then one without any
// rows, then one with other values.
enum { PARTS = 3, OTHER = PARTS - 1 };
typedef struct NormPart {
  NormTwins a;
  Twin moments, sums;          // [3, c] of this part
  Twin all_moments, all_sums;  // [parts, 3, c]
  float *dgamma_of, *dbeta_of; // bounds of the sums' errors, as backward_bound has them
} NormPart;

static void run_moments(const NormPart *p, bool gpu) {
  Device *dev = gpu ? gpu_device() : cpu_device();
  dev->ops->batch_norm_moments(dev, twin_side(&p->a.x, gpu), twin_data(&p->moments, gpu));
}
static void run_forward_merged(Device *dev, bool gpu, void *context, const Dest *y) {
  const NormPart *p = context;
  const NormTwins *a = &p->a;
  dev->ops->batch_norm_forward_merged(
      dev, eps, momentum, PARTS, twin_data(&p->all_moments, gpu), twin_side(&a->x, gpu), twin_data(&a->gamma, gpu),
      twin_data(&a->beta, gpu), a->no_running ? NULL : twin_data(&a->running_mean, gpu),
      a->no_running ? NULL : twin_data(&a->running_var, gpu), twin_data(&a->stats, gpu), y);
}
static void run_sums(const NormPart *p, bool gpu) {
  Device *dev = gpu ? gpu_device() : cpu_device();
  const NormTwins *a = &p->a;
  bool skip = a->no_gradients && gpu;
  dev->ops->batch_norm_sums(dev, twin_side(&a->x, gpu), twin_side(&a->dy, gpu), twin_data(&a->stats, gpu),
                            twin_data(&p->sums, gpu), skip ? NULL : twin_data(&a->dgamma, gpu),
                            skip ? NULL : twin_data(&a->dbeta, gpu), a->accumulate);
}
static void run_backward_merged(Device *dev, bool gpu, void *context, const Dest *dx) {
  const NormPart *p = context;
  const NormTwins *a = &p->a;
  dev->ops->batch_norm_backward_merged(dev, PARTS, twin_data(&p->all_sums, gpu), twin_side(&a->x, gpu),
                                       twin_side(&a->dy, gpu), twin_data(&a->gamma, gpu), twin_data(&a->stats, gpu),
                                       dx);
}

// What all tell, from what the reference computed of this part.
static Twin told(const Twin *mine, const float other[3]) {
  int c = mine->cpu.c / 3;
  float *values = xcalloc((size_t)PARTS * 3 * (size_t)c, sizeof *values);
  memcpy(values, mine->cpu.data, 3 * (size_t)c * sizeof *values);
  for (int i = 0; i < 3 * c; i++) values[OTHER * 3 * c + i] = other[i / c];
  Twin t = twin_packed(PARTS, 3 * c, values);
  free(values);
  return t;
}
// How many values is exact.
static void check_counts(const Twin *mine) {
  EXPECT(*(float *)mine->cpu.data >= 0);
  float *got = gpu_fetch(mine->gpu.data, tensor_bytes(&mine->gpu));
  EXPECT(!memcmp(got, mine->cpu.data, (size_t)mine->cpu.c / 3 * sizeof *got));
  free(got);
}

static bool check_moments(NormPart *p) {
  const NormTwins *a = &p->a;
  int c = a->k->c;
  run_moments(p, false);
  run_moments(p, true);
  check_counts(&p->moments);
  // Σ d² with every deviation d off by 70 u of the largest |x|; Σ |d| ≤ √(n · Σ d²).
  float *bound = xcalloc(3 * (size_t)c, sizeof *bound), *values = p->moments.cpu.data;
  for (int i = 0; i < c; i++) {
    double n = values[i], m2 = values[2 * c + i];
    bound[c + i] = (float)a->largest;
    bound[2 * c + i] = (float)(m2 + 2 * a->largest * sqrt(n * m2));
  }
  bool ok = twin_check(&p->moments, bound, STEPS) || !printf("  moments\n");
  free(bound);
  return ok;
}

// From the same moments both sides merge in double.
static bool check_forward_merged(NormPart *p, float **bound) {
  NormTwins *a = &p->a;
  Twin y = twin_poisoned_like(&a->x);
  twin_run(run_forward_merged, p, &y);
  *bound = forward_bound(a);
  bool ok = twin_check(&a->stats, NULL, 2.01) || !printf("  statistics\n");
  ok &= twin_check(&a->running_mean, NULL, 2.01) || !printf("  running mean\n");
  ok &= twin_check(&a->running_var, NULL, 2.01) || !printf("  running variance\n");
  ok &= twin_check(&y, *bound, 1) || !printf("  y\n");
  twin_check_guards(&y, false);
  twin_free(&y);
  return ok;
}

static bool check_sums(NormPart *p) {
  const NormTwins *a = &p->a;
  int c = a->k->c;
  run_sums(p, false);
  run_sums(p, true);
  check_counts(&p->sums);
  float *bound = xcalloc(3 * (size_t)c, sizeof *bound);
  memcpy(bound + c, p->dbeta_of, (size_t)c * sizeof *bound);
  memcpy(bound + 2 * c, p->dgamma_of, (size_t)c * sizeof *bound);
  bool ok = twin_check(&p->sums, bound, STEPS) || !printf("  sums\n");
  for (int i = c; i < 3 * c; i++) bound[i] += 1; // what was accumulated to
  ok &= twin_check(&a->dbeta, bound + c, STEPS) || !printf("  dbeta\n");
  ok &= twin_check(&a->dgamma, bound + 2 * c, STEPS) || !printf("  dgamma\n");
  free(bound);
  return ok;
}

// Of dx by the sums that are told: the three terms that it is made of.
static float *backward_merged_bound(const NormPart *p) {
  const NormTwins *a = &p->a;
  float *bound = xcalloc(tensor_elements(&a->x.cpu), sizeof *bound);
  const float *x = a->x.cpu.data, *dy = a->dy.cpu.data, *gamma = a->gamma.cpu.data, *stats = a->stats.cpu.data;
  const float *sums = p->all_sums.cpu.data;
  int c = a->k->c;
  for (Element e = before_first; element_next(a, &e);) {
    double values = 0, sum = 0, dot = 0, inv_std = stats[2 * e.channel + 1];
    double normed = (x[e.i] - (double)stats[2 * e.channel]) * inv_std;
    for (int part = 0; part < PARTS; part++) {
      const float *told = sums + part * 3 * c + e.channel;
      values += told[0];
      sum += fabsf(told[c]);
      dot += fabsf(told[2 * c]);
    }
    double error = gamma[e.channel] * inv_std * (fabsf(dy[e.i]) + (sum + fabs(normed) * dot) / values);
    bound[e.i] = widened(a->x.gpu.dtype, error, error);
  }
  return bound;
}

static bool check_backward_merged(NormPart *p, float **bound) {
  Twin dx = twin_poisoned_like(&p->a.x);
  *bound = backward_merged_bound(p);
  twin_run(run_backward_merged, p, &dx);
  bool ok = twin_check(&dx, *bound, 1) || !printf("  dx\n");
  twin_check_guards(&dx, false);
  twin_free(&dx);
  return ok;
}

// All four ops in turn; `dests`: and every Dest of the two that take one.
static void check_part(const NormCase *k, DType dtype, bool accumulate, bool dests, uint64_t seed) {
  NormPart p = {.a = norm_twins(k, dtype, seed)};
  NormTwins *a = &p.a;
  float *of_y, *of_dx;
  a->accumulate = accumulate;
  p.dgamma_of = xcalloc((size_t)k->c * 2, sizeof *p.dgamma_of);
  p.dbeta_of = p.dgamma_of + k->c;
  p.moments = twin_packed(1, 3 * k->c, NULL);
  p.sums = twin_packed(1, 3 * k->c, NULL);
  bool ok = check_moments(&p);
  p.all_moments = told(&p.moments, (const float[]){7, 0.5f + (float)k->mean, 3});
  ok &= check_forward_merged(&p, &of_y);
  if (dests) twin_check_dests(run_forward_merged, &p, &a->x, of_y, 1, seed + 100);
  Twin stats = twin_packed(a->stats.cpu.n, a->stats.cpu.c, a->stats.cpu.data);
  twin_free(&a->stats);
  a->stats = stats;
  free(backward_bound(a, p.dgamma_of, p.dbeta_of));
  ok &= check_sums(&p);
  p.all_sums = told(&p.sums, (const float[]){7, 2, -3});
  ok &= check_backward_merged(&p, &of_dx);
  if (dests) twin_check_dests(run_backward_merged, &p, &a->x, of_dx, 1, seed + 200);
  if (!ok)
    printf("  dtype %d, x [%d of %d, %d, %d, %d], mean %g, accumulate %d\n", dtype, k->rows, k->n, k->h, k->w, k->c,
           k->mean, accumulate);
  Twin *all[] = {&p.moments, &p.sums, &p.all_moments, &p.all_sums};
  for (int i = 0; i < COUNT(all); i++) {
    twin_check_guards(all[i], i >= 2);
    twin_free(all[i]);
  }
  free(of_y);
  free(of_dx);
  free(p.dgamma_of);
  norm_twins_free(a);
}

TEST(cuda_norm_over_ranks_equals_cpu) {
  if (!gpu_device()) return;
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(norm_cases); i++)
      if (!norm_cases[i].groups) check_part(&norm_cases[i], dtypes[d], i % 2, false, (uint64_t)i * 16);
}

TEST_TIER(cuda_norm_over_ranks_of_large_tensors, 1) {
  if (!gpu_device()) return;
  const NormCase large = {2, 110, 200, 256, 0, 2, 100};
  check_part(&large, BF16, false, false, 1);
}

TEST(cuda_norm_over_ranks_honours_dest) {
  if (!gpu_device()) return;
  const NormCase k = {2, 3, 4, 5, 0, 2, 0};
  for (int d = 0; d < COUNT(dtypes); d++) check_part(&k, dtypes[d], false, true, 3);
}

// What is told, bit for bit, for the ranks' statistics follow from it.
TEST(cuda_norm_over_ranks_same_bits_twice) {
  if (!gpu_device()) return;
  const NormCase k = {3, 30, 25, 16, 0, 3, 0};
  NormPart p = {.a = norm_twins(&k, BF16, 1)};
  void *bits[2][2];
  size_t bytes = 3 * (size_t)k.c * sizeof(float);
  p.a.no_gradients = true;
  p.moments = twin_packed(1, 3 * k.c, NULL);
  p.sums = twin_packed(1, 3 * k.c, NULL);
  Twin y = twin_poisoned_like(&p.a.x);
  run_forward(gpu_device(), true, &p.a, &(Dest){.t = y.gpu}); // for the statistics
  for (int run = 0; run < 2; run++) {
    run_moments(&p, true);
    run_sums(&p, true);
    bits[run][0] = gpu_fetch(p.moments.gpu.data, bytes);
    bits[run][1] = gpu_fetch(p.sums.gpu.data, bytes);
  }
  for (int i = 0; i < 2; i++) {
    EXPECT(!memcmp(bits[0][i], bits[1][i], bytes));
    free(bits[0][i]);
    free(bits[1][i]);
  }
  twin_check_guards(&p.a.dgamma, true); // not wanted
  twin_check_guards(&p.a.dbeta, true);
  Twin *all[] = {&y, &p.moments, &p.sums};
  for (int i = 0; i < COUNT(all); i++) twin_free(all[i]);
  norm_twins_free(&p.a);
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
