// What the tests of norms on the CPU share: an op of either kind with all that it takes and gives, and its statistics
// by their definition.
#pragma once
#include "test/harness/norm_cases.h"
#include "test/harness/op.h"

// The range of x.
static inline double lowest(const NormCase *k) { return k->mean - 1; }
static inline double highest(const NormCase *k) { return k->mean + 1; }

// Everything an op of either kind takes and gives, and what is wanted of it.
typedef struct NormFixture {
  const NormCase *k;
  int groups; // of channels that share statistics
  Tensor x, dy, gamma, beta, stats, dgamma, dbeta, running_mean, running_var;
  bool accumulate;
} NormFixture;

static inline NormFixture norm_make(const NormCase *k, DType type, uint64_t key) {
  NormFixture a = {.k = k, .groups = k->groups ? k->groups : k->c};
  a.x = test_tensor(type, k->n, k->h, k->w, k->c);
  a.x.count = &k->rows;
  a.dy = test_tensor_like(&a.x);
  Tensor *vectors[] = {&a.gamma, &a.beta, &a.dgamma, &a.dbeta, &a.running_mean, &a.running_var};
  for (int i = 0; i < COUNT(vectors); i++) {
    *vectors[i] = test_tensor_packed(type, 1, k->c);
    test_fill(vectors[i], key * 16 + i, i == 0 ? 0.5 : -1, 1);
  }
  a.stats = test_tensor_packed(type, k->groups ? k->n : 1, 2 * a.groups);
  test_fill(&a.x, key * 16 + 8, lowest(k), highest(k));
  test_fill(&a.dy, key * 16 + 9, -1, 1);
  return a;
}
static inline void norm_free(NormFixture *a) {
  Tensor *all[] = {&a->x,      &a->dy,    &a->gamma,        &a->beta,       &a->stats,
                   &a->dgamma, &a->dbeta, &a->running_mean, &a->running_var};
  for (int i = 0; i < COUNT(all); i++) test_tensor_free(all[i]);
}

static inline void run_forward(Device *dev, void *context, const Dest *y) {
  const NormFixture *a = context;
  if (a->k->groups)
    dev->ops->group_norm_forward(dev, a->groups, eps, &a->x, a->gamma.data, a->beta.data, a->stats.data, y);
  else
    dev->ops->batch_norm_forward(dev, eps, momentum, &a->x, a->gamma.data, a->beta.data, a->running_mean.data,
                                 a->running_var.data, a->stats.data, y);
}
static inline void run_backward(Device *dev, void *context, const Dest *dx) {
  const NormFixture *a = context;
  if (a->k->groups)
    dev->ops->group_norm_backward(dev, a->groups, &a->x, &a->dy, a->gamma.data, a->stats.data, dx, a->dgamma.data,
                                  a->dbeta.data, a->accumulate);
  else
    dev->ops->batch_norm_backward(dev, &a->x, &a->dy, a->gamma.data, a->stats.data, dx, a->dgamma.data, a->dbeta.data,
                                  a->accumulate);
}

// The definition, by two passes in long double over the elements that share statistics.
typedef struct SampleStats {
  long double count, mean, variance;
} SampleStats;
static inline SampleStats stats_of(const NormFixture *a, int set, int group) {
  int size = a->k->c / a->groups, begin = a->k->groups ? set : 0, end = a->k->groups ? set + 1 : a->k->rows;
  SampleStats s = {0};
  for (int pass = 0; pass < 2; pass++) {
    long double sum = 0;
    s.count = 0;
    for (int n = begin; n < end; n++)
      for (int y = 0; y < a->k->h; y++)
        for (int x = 0; x < a->k->w; x++)
          for (int c = group * size; c < (group + 1) * size; c++, s.count++) {
            long double v = get(&a->x, n, y, x, c);
            sum += pass == 0 ? v : (v - s.mean) * (v - s.mean);
          }
    *(pass == 0 ? &s.mean : &s.variance) = s.count > 0 ? sum / s.count : 0;
  }
  return s;
}
static inline int sets_of(const NormFixture *a) { return a->k->groups ? a->k->rows : 1; }

// Of any element of dx. It is made of dy, mean(dy) and x̂ · mean(dy · x̂), each ≤ 1 times powers of the spread that
// bounds |x̂|, over the standard deviation; sums over 64 elements and a few more steps are off by 70 u of that. x̂
// itself is off by 70 u of max |x| in standard deviations, as in the forward pass, and enters twice.
static inline double backward_bound(const NormFixture *a, double u) {
  double bound = 0, largest = fmax(fabs(lowest(a->k)), fabs(highest(a->k)));
  for (int set = 0; set < sets_of(a); set++)
    for (int g = 0; g < a->groups; g++) {
      double inv_std = 1 / sqrt((double)stats_of(a, set, g).variance + eps);
      double spread = (highest(a->k) - lowest(a->k)) * inv_std;
      bound = fmax(bound, 70 * u * inv_std * (2 + spread * spread + 2 * largest * inv_std * spread));
    }
  return bound;
}
