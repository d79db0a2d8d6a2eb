// What the tests of norms share: either op with all its inputs and outputs, its definition in long double,
// and how far an op may be off it.
//
// The CPU adds at most 64 numbers before it goes on in double: 64 u of the sum of their absolute values, and a few
// steps more. A GPU takes such sums in several stages; it is allowed NORM_STEPS of u.
#pragma once
#include "test/harness/norm_cases.h"
#include "test/harness/op_fixture.h"

enum { NORM_STEPS = 140 };

typedef struct SampleStats {
  long double count, mean, variance;
} SampleStats;

typedef struct NormArgs {
  const NormCase *k;
  int groups; // of channels that share statistics
  bool accumulate, no_running, no_gradients;
  double largest; // |x|
  Tensor x, dy, gamma, beta, stats, dgamma, dbeta, running_mean, running_var;
} NormArgs;

// Inputs, to be frozen; the rest is for ops to write.
static inline NormArgs norm_inputs(Fixture *f, const NormCase *k, uint64_t key) {
  NormArgs a = {.k = k, .groups = k->groups ? k->groups : k->c};
  a.x = fixture_map(f, k->n, k->h, k->w, k->c);
  if (k->rows < k->n) a.x.count = fixture_count(f, k->rows); // with a count no kernel for whole tensors is used
  a.dy = fixture_tensor(f, a.x);
  test_fill(&a.x, key * 16 + 8, k->mean - 1, k->mean + 1);
  test_fill(&a.dy, key * 16 + 9, -1, 1);
  a.gamma = fixture_packed(f, 1, k->c);
  a.beta = fixture_packed(f, 1, k->c);
  test_fill(&a.gamma, key * 16, 0.5, 1);
  test_fill(&a.beta, key * 16 + 1, -1, 1);
  a.largest = fmax(fabs(k->mean - 1), fabs(k->mean + 1)) + stored_rounding(f->type, k->mean + 1);
  return a;
}
static inline void norm_outputs(Fixture *f, NormArgs *a, uint64_t key) {
  const NormCase *k = a->k;
  Tensor *written[] = {&a->dgamma, &a->dbeta, &a->running_mean, &a->running_var};
  for (int i = 0; i < COUNT(written); i++) {
    *written[i] = fixture_packed(f, 1, k->c);
    test_fill(written[i], key * 16 + 2 + (uint64_t)i, i == 3 ? 0.25 : -1, i == 3 ? 2 : 1);
  }
  a->stats = fixture_packed(f, k->groups ? k->n : 1, 2 * a->groups);
}
static inline NormArgs norm_args(Fixture *f, const NormCase *k, uint64_t key) {
  NormArgs a = norm_inputs(f, k, key);
  fixture_freeze(f);
  norm_outputs(f, &a, key);
  return a;
}
static inline Tensor norm_copy(Fixture *f, const Tensor *t) {
  Tensor copy = fixture_tensor(f, *t);
  memcpy(copy.data, t->data, tensor_bytes(t));
  return copy;
}

// What a convolution tells of x, [parts, 3, c], in double.
static inline void norm_fill_moments(const Tensor *x, const Tensor *moments) {
  const int pixels = (int)tensor_pixels(x);
  for (int part = 0; part < moments->n; part++)
    for (int c = 0; c < x->c; c++) {
      const int first = part * CONV_MOMENTS_PIXELS, last = MIN(first + CONV_MOMENTS_PIXELS, pixels);
      double sum = 0, squares = 0;
      for (int p = first; p < last; p++) sum += get(x, p / (x->h * x->w), p / x->w % x->h, p % x->w, c);
      for (int p = first; p < last; p++) {
        const double d = get(x, p / (x->h * x->w), p / x->w % x->h, p % x->w, c) - sum / (last - first);
        squares += d * d;
      }
      put(moments, part, 0, 0, c, last - first);
      put(moments, part, 0, 0, x->c + c, sum / (last - first));
      put(moments, part, 0, 0, 2 * x->c + c, squares);
    }
}

static inline Tensor norm_moments_of(Fixture *f, const Tensor *x) {
  const int parts = ((int)tensor_pixels(x) + CONV_MOMENTS_PIXELS - 1) / CONV_MOMENTS_PIXELS;
  const Tensor moments = fixture_packed(f, parts, 3 * x->c);
  norm_fill_moments(x, &moments);
  return moments;
}

static inline void norm_forward(Device *dev, void *context, const Dest *y) {
  const NormArgs *a = context;
  if (a->k->groups)
    dev->ops->group_norm_forward(dev, a->groups, eps, &a->x, a->gamma.data, a->beta.data, a->stats.data, y);
  else
    dev->ops->batch_norm_forward(dev, eps, momentum, &a->x, a->gamma.data, a->beta.data,
                                 a->no_running ? NULL : a->running_mean.data,
                                 a->no_running ? NULL : a->running_var.data, a->stats.data, y);
}
static inline void norm_backward(Device *dev, void *context, const Dest *dx) {
  const NormArgs *a = context;
  void *dgamma = a->no_gradients ? NULL : a->dgamma.data, *dbeta = a->no_gradients ? NULL : a->dbeta.data;
  if (a->k->groups)
    dev->ops->group_norm_backward(dev, a->groups, &a->x, &a->dy, a->gamma.data, a->stats.data, dx, dgamma, dbeta,
                                  a->accumulate);
  else
    dev->ops->batch_norm_backward(dev, &a->x, &a->dy, a->gamma.data, a->stats.data, dx, dgamma, dbeta, a->accumulate);
}

// ---- definitions ----------------------------------------------------------------------------------------------------

// Visits every valid element of x: for (NormElement e = norm_first; norm_next(a, &e);)
typedef struct NormElement {
  int n, y, x, c, sample; // sample: of its statistics, set · groups + group
} NormElement;
static const NormElement norm_first = {.c = -1};
static inline bool norm_next(const NormArgs *a, NormElement *e) {
  const NormCase *k = a->k;
  const int c = ++e->c / k->c, x = (e->x += c) / k->w, y = (e->y += x) / k->h; // whether each axis is at its end
  if (c) e->c = 0;
  if (x) e->x = 0;
  if (y) e->y = 0;
  e->n += y;
  e->sample = (k->groups ? e->n * a->groups : 0) + e->c / (k->c / a->groups);
  return e->n < k->rows;
}
static inline double norm_get(const Tensor *t, const NormElement *e) { return get(t, e->n, e->y, e->x, e->c); }
static inline int norm_samples(const NormArgs *a) { return (a->k->groups ? a->k->rows : 1) * a->groups; }

// By two passes over the elements that share statistics; [samples].
static inline SampleStats *norm_stats(Fixture *f, const NormArgs *a) {
  const int samples = norm_samples(a);
  SampleStats *s = memset(fixture_alloc(f, (size_t)samples * sizeof *s), 0, (size_t)samples * sizeof *s);
  for (NormElement e = norm_first; norm_next(a, &e); s[e.sample].count++) s[e.sample].mean += norm_get(&a->x, &e);
  for (int i = 0; i < samples; i++) s[i].mean /= fmaxl(s[i].count, 1);
  for (NormElement e = norm_first; norm_next(a, &e);) {
    long double d = norm_get(&a->x, &e) - s[e.sample].mean;
    s[e.sample].variance += d * d;
  }
  for (int i = 0; i < samples; i++) s[i].variance /= fmaxl(s[i].count, 1);
  return s;
}

// What an op should write and how far it may be off that, element by element.
typedef struct NormExpected {
  Tensor want, bound;
} NormExpected;
static inline NormExpected norm_expected(Fixture *f, const Tensor *like) {
  Tensor t = tensor(F64, like->n, like->h, like->w, like->c);
  t.count = like->count;
  return (NormExpected){fixture_tensor(f, t), fixture_tensor(f, t)};
}
static inline void norm_expect(const NormExpected *of, const NormElement *e, DType type, double want, double bound) {
  put(&of->want, e->n, e->y, e->x, e->c, want);
  put(&of->bound, e->n, e->y, e->x, e->c, bound + stored_rounding(type, want));
}
static inline void norm_check(const NormArgs *a, const Tensor *got, const NormExpected *of) {
  for (NormElement e = norm_first; norm_next(a, &e);)
    if (!EXPECT_NEAR(norm_get(got, &e), norm_get(&of->want, &e), norm_get(&of->bound, &e))) {
      const NormCase *k = a->k;
      printf("  [%d, %d, %d, %d] of x [%d of %d, %d, %d, %d], groups %d, mean %g\n", e.n, e.y, e.x, e.c, k->rows, k->n,
             k->h, k->w, k->c, k->groups, k->mean);
      break;
    }
  expect_padding_zero(got);
}

// y by statistics: those of the batch, or `given` ones, of which no sum has to be taken.
static inline NormExpected norm_define_forward(Fixture *f, const NormArgs *a, const SampleStats *s, bool given) {
  NormExpected of = norm_expected(f, &a->x);
  const double u = unit_roundoff(f->type), largest = a->largest;
  for (NormElement e = norm_first; norm_next(a, &e);) {
    double v = norm_get(&a->x, &e), mean = (double)s[e.sample].mean, beta = get(&a->beta, 0, 0, 0, e.c);
    double inv_std = 1 / sqrt((double)s[e.sample].variance + eps), scale = get(&a->gamma, 0, 0, 0, e.c) * inv_std;
    double y = (v - mean) * scale, bound;
    if (f->dev->gpu) // the mean is off by u · L, a deviation by that over the standard deviation, and so is that itself
      bound = NORM_STEPS * u * (largest * scale + (1 + largest * inv_std) * fabs(y) + fabs(beta));
    else if (given)
      bound = 8 * u * ((fabs(v) + fabs(mean)) * fabs(scale) + fabs(beta));
    else // the errors of the mean and of the subtraction, times the scale; the relative one of the scale; the sum's
      bound = 68 * u * largest * scale + (40 * u + 2 * u * largest * inv_std) * fabs(y) + 2 * u * fabs(beta);
    norm_expect(&of, &e, f->type, y + beta, bound);
  }
  return of;
}

// dx, and what is added to dgamma and dbeta, by the statistics in a->stats: x̂ = (x - mean) / std, g = gamma · dy,
// dx = (g - mean(g) - x̂ · mean(g · x̂)) / std. The only errors are those of the sums: of |g| and |g · x̂| over what
// shares statistics, of |dy| and |dy · x̂| over the channel.
typedef struct NormGradients {
  NormExpected dx;
  double *dgamma, *dbeta, *of_dgamma, *of_dbeta; // [c]; of_: sums of absolute values
} NormGradients;
static inline double norm_given(const NormArgs *a, const NormElement *e, int which) {
  return get(&a->stats, e->sample / a->groups, 0, 0, 2 * (e->sample % a->groups) + which);
}
static inline NormGradients norm_define_backward(Fixture *f, const NormArgs *a) {
  const int samples = norm_samples(a), c = a->k->c;
  const size_t bytes = (size_t)(5 * samples + 4 * c) * sizeof(double);
  double *sum = memset(fixture_alloc(f, bytes), 0, bytes), *dot = sum + samples, *of_sum = dot + samples;
  double *of_dot = of_sum + samples, *count = of_dot + samples;
  NormGradients g = {.dx = norm_expected(f, &a->x), .dgamma = count + samples};
  g.dbeta = g.dgamma + c;
  g.of_dgamma = g.dbeta + c;
  g.of_dbeta = g.of_dgamma + c;
  const double steps = f->dev->gpu ? NORM_STEPS : 70, u = unit_roundoff(f->type);
  for (int pass = 0; pass < 2; pass++)
    for (NormElement e = norm_first; norm_next(a, &e);) {
      const int s = e.sample;
      double inv_std = norm_given(a, &e, 1), dy = norm_get(&a->dy, &e), v = get(&a->gamma, 0, 0, 0, e.c) * dy;
      double normed = (norm_get(&a->x, &e) - norm_given(a, &e, 0)) * inv_std;
      if (pass) {
        double off = fabs(v) + (of_sum[s] + fabs(normed) * of_dot[s]) / count[s];
        norm_expect(&g.dx, &e, f->type, inv_std * (v - sum[s] / count[s] - normed * dot[s] / count[s]),
                    steps * u * inv_std * off);
        continue;
      }
      count[s]++;
      sum[s] += v;
      dot[s] += v * normed;
      of_sum[s] += fabs(v);
      of_dot[s] += fabs(v * normed);
      g.dgamma[e.c] += dy * normed;
      g.dbeta[e.c] += dy;
      g.of_dgamma[e.c] += fabs(dy * normed);
      g.of_dbeta[e.c] += fabs(dy);
    }
  return g;
}
