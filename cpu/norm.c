// GroupNorm (Wu, He, 2018) and BatchNorm (Ioffe, Szegedy, 2015), one text for both: each normalises over a set of
// pixels and a group of channels. GroupNorm's set is an image, BatchNorm's the whole batch with every channel a group
// of its own. Each direction is a two-level reduction (blocks of pixels in `real`, chunks in double) and an elementwise
// pass, so it reads its inputs twice.
#include "cpu/norm.h"

// stats [sets, groups, 2].
static void write_stats(const NormWork *norm, float eps, real *stats) {
#pragma omp parallel for collapse(2) schedule(static)
  for (int set = 0; set < norm->sets; set++)
    for (int group = 0; group < norm->groups; group++)
      write_stat(group_moments(norm, set, group), eps, stats + ((size_t)set * norm->groups + group) * 2);
}

void OP(group_norm_forward)(Device *dev, int groups, float eps, const Tensor *x, const void *gamma, const void *beta,
                            void *stats, const Dest *y) {
  NormWork norm;
  if (!norm_begin(dev, x, groups, true, &norm)) return;
  check_dest(x, y);
  sum_moments(&norm, x);
  write_stats(&norm, eps, stats);
  normalise(&norm, x, gamma, beta, stats, y);
}

void OP(group_norm_forward_merged)(Device *dev, int groups, float eps, const void *moments, const Tensor *x,
                                   const void *gamma, const void *beta, void *stats, const Dest *y) {
  NormWork norm;
  if (!norm_begin(dev, x, groups, true, &norm)) return;
  CHECK(!x->count);
  check_dest(x, y);
  for (int set = 0; set < norm.sets; set++)
    for (int group = 0; group < groups; group++) {
      const size_t first = set * norm.pixels, last = first + norm.pixels;
      Moments m = {0};
      for (size_t p = first; p < last;) {
        const bool whole = p % CONV_MOMENTS_PIXELS == 0 && p + CONV_MOMENTS_PIXELS <= last;
        const real *told = (const real *)moments + p / CONV_MOMENTS_PIXELS * 3 * (size_t)x->c;
        const real *value = (const real *)x->data + p * (size_t)x->ldc;
        for (int i = group * norm.group_size; i < (group + 1) * norm.group_size; i++)
          m = moments_merge(m, whole ? (Moments){CONV_MOMENTS_PIXELS, told[x->c + i], told[2 * x->c + i]}
                                     : (Moments){1, value[i], 0});
        p += whole ? CONV_MOMENTS_PIXELS : 1;
      }
      write_stat(m, eps, (real *)stats + ((size_t)set * groups + group) * 2);
    }
  normalise(&norm, x, gamma, beta, stats, y);
}

void OP(batch_norm_forward)(Device *dev, float eps, float momentum, const Tensor *x, const void *gamma,
                            const void *beta, void *running_mean, void *running_var, void *stats, const Dest *y) {
  NormWork norm;
  if (!norm_begin(dev, x, x->c, false, &norm)) return;
  check_dest(x, y);
  sum_moments(&norm, x);
  write_stats(&norm, eps, stats);
  for (int i = 0; i < x->c; i++)
    move_running(group_moments(&norm, 0, i), momentum, element_of(running_mean, i), element_of(running_var, i));
  normalise(&norm, x, gamma, beta, stats, y);
}

void OP(batch_norm_inference)(Device *dev, float eps, const Tensor *x, const void *gamma, const void *beta,
                              const void *mean, const void *var, void *stats, const Dest *y) {
  NormWork norm;
  if (!norm_begin(dev, x, x->c, false, &norm)) return;
  check_dest(x, y);
  const real *m = mean, *v = var;
  real *to = stats;
  for (int i = 0; i < x->c; i++) {
    to[2 * i] = m[i];
    to[2 * i + 1] = 1 / real_sqrt(v[i] + (real)eps);
  }
  normalise(&norm, x, gamma, beta, stats, y);
}

static void norm_backward(const NormWork *norm, const Tensor *x, const Tensor *dy, const real *gamma, const real *stats,
                          const Dest *dx, real *dgamma, real *dbeta, bool accumulate) {
  check_dest(x, dx);
  fill_means(norm, x, stats);
  sum_gradients(norm, x, dy, stats);
  parameter_gradient(norm, accumulate, 0, dbeta);
  parameter_gradient(norm, accumulate, 1, dgamma);
  fill_slopes(norm, gamma, stats);
  write_dx(norm, x, dy, dx);
}

void OP(group_norm_backward)(Device *dev, int groups, const Tensor *x, const Tensor *dy, const void *gamma,
                             const void *stats, const Dest *dx, void *dgamma, void *dbeta, bool accumulate) {
  NormWork norm;
  if (norm_begin(dev, x, groups, true, &norm)) norm_backward(&norm, x, dy, gamma, stats, dx, dgamma, dbeta, accumulate);
}

void OP(batch_norm_backward)(Device *dev, const Tensor *x, const Tensor *dy, const void *gamma, const void *stats,
                             const Dest *dx, void *dgamma, void *dbeta, bool accumulate) {
  NormWork norm;
  if (norm_begin(dev, x, x->c, false, &norm)) norm_backward(&norm, x, dy, gamma, stats, dx, dgamma, dbeta, accumulate);
}

// ---- folded ---------------------------------------------------------------------------------------------------------

void OP(norm_fold)(Device *dev, int c, float eps, const void *gamma, const void *beta, const void *mean,
                   const void *var, void *scale, void *shift) {
  if (dev->measuring) return;
  const real *g = gamma, *b = beta, *m = mean, *v = var;
  real *to = scale, *add = shift;
  for (int i = 0; i < c; i++) {
    to[i] = g[i] / real_sqrt(v[i] + (real)eps);
    add[i] = b[i] - m[i] * to[i];
  }
}
