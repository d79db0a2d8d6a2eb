// What the tests of norms on the GPU share: an op of either kind on both devices, and how far they may be apart. Both
// add at most 64 numbers in float before they go on in double, which with a few more operations is an error of 70 u of
// the sum of absolute values on either side: every tolerance is 140 u of such a sum, and one rounding of the result
// where it has 16 bits.
#pragma once
#include "base/alloc.h"
#include "test/harness/gpu.h"
#include "test/harness/norm_fixture.h"

enum { STEPS = 140 };

// Everything an op of either kind takes and gives.
typedef struct NormTwins {
  const NormCase *k;
  int groups;     // of channels that share statistics
  double largest; // |x|
  Twin x, dy, gamma, beta, stats, running_mean, running_var, dgamma, dbeta;
  bool accumulate, no_running, no_gradients;
} NormTwins;

static inline void gpu_run_forward(Device *dev, bool gpu, void *context, const Dest *y) {
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
// A packed row of c numbers, |normal| + low where low > 0.
static inline Twin vector(int c, double low, uint64_t seed) {
  Twin t = twin_random(F32, 1, 1, 1, c, 1, seed);
  float *v = t.cpu.data;
  for (int i = 0; low > 0 && i < c; i++) v[i] = fabsf(v[i]) + (float)low;
  Twin packed = twin_packed(1, c, v);
  twin_free(&t);
  return packed;
}

static inline Twin poisoned_stats(const NormCase *k, int groups) {
  Twin t = twin_packed(k->groups ? k->n : 1, 2 * groups, NULL);
  if (k->groups) twin_rows(&t, k->rows);
  return t;
}

static inline NormTwins norm_twins(const NormCase *k, DType dtype, uint64_t seed) {
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
static inline void norm_twins_free(NormTwins *a) {
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
static inline float widened(DType dtype, double error, double value) {
  double ratio = twin_f32_unit(dtype);
  return (float)(STEPS * error * ratio + fabs(value));
}

// Visits every valid element of x: its position in memory and in its parameters.
typedef struct Element {
  size_t i;            // in x
  int channel, sample; // sample: row of its statistics, set · groups + group
} Element;
static inline bool element_next(const NormTwins *a, Element *e) {
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
static inline float *forward_bound(const NormTwins *a) {
  float *bound = xcalloc(tensor_elements(&a->x.cpu), sizeof *bound), *x = a->x.cpu.data, *stats = a->stats.cpu.data;
  for (Element e = before_first; element_next(a, &e);) {
    double gamma = ((float *)a->gamma.cpu.data)[e.channel], beta = ((float *)a->beta.cpu.data)[e.channel];
    double inv_std = stats[2 * e.sample + 1], scale = gamma * inv_std, y = (x[e.i] - stats[2 * e.sample]) * scale;
    bound[e.i] =
        widened(a->x.gpu.dtype, a->largest * scale + (1 + a->largest * inv_std) * fabs(y) + fabs(beta), y + beta);
  }
  return bound;
}

// Both sides get the same statistics, so that the only errors are those of the sums: of |dy| and |dy · x̂| over what
// shares statistics (for dx) or over the channel (for the parameters).
static inline float *gpu_backward_bound(const NormTwins *a, float *dgamma_bound, float *dbeta_bound) {
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
