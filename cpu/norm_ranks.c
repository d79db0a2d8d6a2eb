// BatchNorm over the ranks of a run, each of which holds a part of the batch: between the passes of cpu/norm.h the
// ranks tell each other what each has reduced its part to, and each merges what all of them told.
#include "cpu/norm.h"

// Three numbers of each channel of a part of the batch, [3, c]: how many values, and what they were reduced to.
typedef struct PartSums {
  real *values, *first, *second;
} PartSums;
static PartSums part_of(const void *parts, int part, int c) {
  real *values = (real *)parts + (size_t)part * 3 * c;
  return (PartSums){values, values + c, values + 2 * (size_t)c};
}

void OP(batch_norm_moments)(Device *dev, const Tensor *x, void *moments) {
  NormWork norm;
  if (!norm_begin(dev, x, x->c, false, &norm)) return;
  sum_moments(&norm, x);
  PartSums to = part_of(moments, 0, x->c);
  for (int i = 0; i < x->c; i++) {
    Moments m = group_moments(&norm, 0, i);
    to.values[i] = (real)m.n;
    to.first[i] = (real)m.mean;
    to.second[i] = (real)m.m2;
  }
}

static Moments merged_moments(int parts, const void *moments, int c, int i) {
  Moments m = {0};
  for (int part = 0; part < parts; part++) {
    PartSums p = part_of(moments, part, c);
    m = moments_merge(m, (Moments){p.values[i], p.first[i], p.second[i]});
  }
  return m;
}

void OP(batch_norm_forward_merged)(Device *dev, float eps, float momentum, int parts, const void *moments,
                                   const Tensor *x, const void *gamma, const void *beta, void *running_mean,
                                   void *running_var, void *stats, const Dest *y) {
  NormWork norm;
  if (!norm_begin(dev, x, x->c, false, &norm)) return;
  check_dest(x, y);
  for (int i = 0; i < x->c; i++) {
    Moments m = merged_moments(parts, moments, x->c, i);
    write_stat(m, eps, (real *)stats + 2 * (size_t)i);
    move_running(m, momentum, element_of(running_mean, i), element_of(running_var, i));
  }
  normalise(&norm, x, gamma, beta, stats, y);
}

void OP(batch_norm_sums)(Device *dev, const Tensor *x, const Tensor *dy, const void *stats, void *sums, void *dgamma,
                         void *dbeta, bool accumulate) {
  NormWork norm;
  if (!norm_begin(dev, x, x->c, false, &norm)) return;
  fill_means(&norm, x, stats);
  sum_gradients(&norm, x, dy, stats);
  parameter_gradient(&norm, accumulate, 0, dbeta);
  parameter_gradient(&norm, accumulate, 1, dgamma);
  const double *sum = sums_of(&norm, 0, 0), *dot = sum + norm.ldc;
  PartSums to = part_of(sums, 0, x->c);
  for (int i = 0; i < x->c; i++) {
    to.values[i] = (real)norm.values;
    to.first[i] = (real)sum[i];
    to.second[i] = (real)dot[i];
  }
}

void OP(batch_norm_backward_merged)(Device *dev, int parts, const void *sums, const Tensor *x, const Tensor *dy,
                                    const void *gamma, const void *stats, const Dest *dx) {
  NormWork norm;
  if (!norm_begin(dev, x, x->c, false, &norm)) return;
  check_dest(x, dx);
  check_like(x, dy);
  double *sum = sums_of(&norm, 0, 0), *dot = sum + norm.ldc;
  memset(sum, 0, (size_t)norm.ldc * 2 * sizeof *sum);
  norm.values = 0;
  for (int part = 0; part < parts; part++) {
    PartSums p = part_of(sums, part, x->c);
    norm.values += p.values[0]; // the same for all channels
    for (int i = 0; i < x->c; i++) {
      sum[i] += p.first[i];
      dot[i] += p.second[i];
    }
  }
  fill_means(&norm, x, stats);
  fill_slopes(&norm, gamma, stats);
  write_dx(&norm, x, dy, dx);
}
