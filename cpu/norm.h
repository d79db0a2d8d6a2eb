// What GroupNorm and BatchNorm share, over one device and over ranks: how a tensor is cut up, the reduction of each
// direction, what becomes of it, and the elementwise pass.
#pragma once
#include <string.h>
#include "cpu/dest.h"
#include "exact/pool_windows.h"

enum {
  BLOCK = 64,  // pixels reduced as real, so that they are still in cache when their mean is subtracted; then as double
  CHUNKS = 32, // of a set at most, reduced in parallel; fixed, so that the order of sums does not depend on the threads
};

typedef struct NormWork { // how a tensor is cut up, and the workspace
  bool per_image;
  int sets, groups, ldc;
  int group_size; // channels of a group
  int chunks;
  size_t pixels; // of a set
  double values; // that share statistics: of a set's group; over ranks of all parts
  double *sums;  // [sets, chunks, 2, ldc] partial sums of a chunk
  real *blocks;  // [sets, chunks, 2, ldc] of the block at hand
  real *coef;    // [sets, 4, ldc] coefficients of each channel in the elementwise pass
} NormWork;

// Cuts x up and lays out the workspace; false while measuring.
static inline bool norm_begin(Device *dev, const Tensor *x, int groups, bool per_image, NormWork *norm) {
  CHECK(groups > 0 && x->c % groups == 0);
  size_t image = (size_t)x->h * x->w, capacity = per_image ? image : image * x->n;
  size_t sets = per_image ? x->n : 1, chunks = MIN((capacity + BLOCK - 1) / BLOCK, CHUNKS);
  chunks = MAX(chunks, 1); // of an empty one, too, there are sums
  size_t sums = sets * chunks * 2 * x->ldc, coef = sets * 4 * x->ldc;
  double *workspace = device_workspace(dev, sums * sizeof(double) + (sums + coef) * sizeof(real));
  if (!workspace) return false;
  *norm = (NormWork){.per_image = per_image,
                     .sets = per_image ? rows(x) : 1,
                     .groups = groups,
                     .ldc = x->ldc,
                     .group_size = x->c / groups,
                     .chunks = (int)chunks,
                     .pixels = per_image ? image : image * rows(x),
                     .values = (double)(per_image ? image : image * rows(x)) * (x->c / groups),
                     .sums = workspace,
                     .blocks = (real *)(workspace + sums),
                     .coef = (real *)(workspace + sums) + sums};
  return true;
}

static inline double *sums_of(const NormWork *norm, int set, int chunk) {
  return norm->sums + ((size_t)set * norm->chunks + chunk) * 2 * norm->ldc;
}
static inline real *blocks_of(const NormWork *norm, int set, int chunk) {
  return norm->blocks + ((size_t)set * norm->chunks + chunk) * 2 * norm->ldc;
}

// The coefficients of image n.
static inline const real *norm_coef(const NormWork *norm, int n) {
  return norm->coef + (norm->per_image ? (size_t)n * 4 * norm->ldc : 0);
}

typedef struct PixelRange { // [first, last) of a tensor
  size_t first, last;
} PixelRange;
static inline PixelRange chunk_pixels(const NormWork *norm, int set, int chunk) {
  size_t blocks = (norm->pixels + BLOCK - 1) / BLOCK, per_chunk = (blocks + norm->chunks - 1) / norm->chunks * BLOCK;
  size_t first = MIN(chunk * per_chunk, norm->pixels), begin = set * norm->pixels;
  return (PixelRange){begin + first, begin + MIN(first + per_chunk, norm->pixels)};
}

// ---- forward --------------------------------------------------------------------------------------------------------

typedef struct Moments {
  double n, mean, m2; // m2 = Σ (x - mean)²
} Moments;

// The moments of the union of two samples (Chan, Golub, LeVeque, "Updating formulae … sample variances", 1979). Unlike
// Σx² - n·mean² nothing cancels when the mean is large.
static inline Moments moments_merge(Moments a, Moments b) {
  double n = a.n + b.n, delta = b.mean - a.mean, share = n > 0 ? b.n / n : 0;
  return (Moments){n, a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.n * share};
}

// Per chunk and channel: sums[0] = mean, sums[1] = m2.
static inline void sum_moments(const NormWork *norm, const Tensor *x) {
  int ldc = norm->ldc;
#pragma omp parallel for collapse(2) schedule(static)
  for (int set = 0; set < norm->sets; set++)
    for (int chunk = 0; chunk < norm->chunks; chunk++) {
      double *restrict mean = sums_of(norm, set, chunk), *restrict m2 = mean + ldc;
      real *restrict block_mean = blocks_of(norm, set, chunk), *restrict block_m2 = block_mean + ldc;
      memset(mean, 0, (size_t)ldc * 2 * sizeof *mean);
      PixelRange all = chunk_pixels(norm, set, chunk);
      for (size_t first = all.first; first < all.last; first += BLOCK) {
        int count = (int)MIN(BLOCK, all.last - first);
        const real *restrict from = (const real *)x->data + first * ldc;
        memset(block_mean, 0, (size_t)ldc * 2 * sizeof *block_mean);
        for (int p = 0; p < count; p++)
          for (int i = 0; i < ldc; i++) block_mean[i] += from[(size_t)p * ldc + i];
        for (int i = 0; i < ldc; i++) block_mean[i] /= (real)count;
        for (int p = 0; p < count; p++)
          for (int i = 0; i < ldc; i++) {
            real d = from[(size_t)p * ldc + i] - block_mean[i];
            block_m2[i] += d * d;
          }
        double before = (double)(first - all.first);
        for (int i = 0; i < ldc; i++) {
          Moments m = moments_merge((Moments){before, mean[i], m2[i]}, (Moments){count, block_mean[i], block_m2[i]});
          mean[i] = m.mean;
          m2[i] = m.m2;
        }
      }
    }
}

// The moments of a group: its chunks and channels merged in order.
static inline Moments group_moments(const NormWork *norm, int set, int group) {
  Moments m = {0};
  for (int chunk = 0; chunk < norm->chunks; chunk++) {
    PixelRange p = chunk_pixels(norm, set, chunk);
    const double *mean = sums_of(norm, set, chunk), *m2 = mean + norm->ldc;
    for (int i = group * norm->group_size; i < (group + 1) * norm->group_size; i++)
      m = moments_merge(m, (Moments){(double)(p.last - p.first), mean[i], m2[i]});
  }
  return m;
}

static inline double biased_variance(Moments m) { return m.n > 0 ? m.m2 / m.n : 0; }
// A single value tells nothing about the spread: 0 rather than PyTorch's error.
static inline double unbiased_variance(Moments m) { return m.n > 1 ? m.m2 / (m.n - 1) : 0; }

// stats [2] = mean, 1 / std.
static inline void write_stat(Moments m, float eps, real *stats) {
  stats[0] = (real)m.mean;
  stats[1] = (real)(1 / sqrt(biased_variance(m) + eps));
}
// The running statistics of a channel, each where it is wanted, move towards a batch's.
static inline void move_running(Moments m, double momentum, real *mean, real *var) {
  if (!(m.n > 0)) return;
  if (mean) *mean = (real)((1 - momentum) * *mean + momentum * m.mean);
  if (var) *var = (real)((1 - momentum) * *var + momentum * unbiased_variance(m));
}
static inline real *element_of(void *vector, int i) { return vector ? (real *)vector + i : NULL; }

// Whether y of this shape can be the maxima of what is made of x, and has nothing else but a ReLU.
static inline void check_pooled(const Tensor *x, const Dest *y) {
  const Tensor *t = &y->t, *a = &y->argmax->x;
  const Pool *p = y->pool;
  CHECK(p->size == 3 && p->stride == 2 && p->pad <= 1 && pool_fits(p, x->h, t->h) && pool_fits(p, x->w, t->w));
  CHECK(t->ldc == x->ldc && t->c == x->c && a->ldc == x->ldc && a->h == t->h && a->w == t->w);
  CHECK(!y->addend && !y->mask && !y->accumulate);
}

// The elementwise pass by coef [mean, scale, shift], and of each window the maximum: the first in row-major order; NaN
// counts as the largest, the last of several wins, as in max_pool_forward.
static inline void normalise_pooled(const NormWork *norm, const Tensor *x, const Dest *y) {
  const int ldc = norm->ldc, images = rows(x);
  const Tensor *t = &y->t, *argmax = &y->argmax->x;
  check_pooled(x, y);
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < images; n++)
    for (int row = 0; row < t->h; row++) {
      real v[RUN_ELEMENTS];
      const PoolSpan ys = pool_window(y->pool, row, x->h);
      for (RowRun r = run_first(t, n, row); r.pixels; r = run_next(t, r)) {
        const real *restrict mean = norm_coef(norm, n) + r.lane, *restrict scale = mean + ldc,
                             *restrict shift = scale + ldc;
        for (int p = 0; p < r.pixels; p++) {
          const PoolSpan xs = pool_window(y->pool, r.x + p, x->w);
          const int left = (r.x + p) * y->pool->stride - y->pool->pad, top = row * y->pool->stride - y->pool->pad;
          real *restrict max = v + p * r.lanes, *restrict from = at(argmax, n, row, r.x + p) + r.lane;
          uint8_t *restrict tap = y->argmax->tap + (from - (real *)argmax->data);
          for (int yy = ys.first; yy < ys.last; yy++)
            for (int xx = xs.first; xx < xs.last; xx++) {
              const real *restrict next = at(x, n, yy, xx) + r.lane;
              const bool first = yy == ys.first && xx == xs.first;
              for (int i = 0; i < r.lanes; i++) {
                real value = (next[i] - mean[i]) * scale[i] + shift[i];
                if (y->relu) value = value < 0 ? 0 : value;
                if (!first && !((value > max[i]) | (value != value))) continue;
                max[i] = value;
                from[i] = next[i];
                tap[i] = (uint8_t)((yy - top) * y->pool->size + xx - left);
              }
            }
        }
        dest_write(y, r, v);
      }
    }
}

// The elementwise pass: y = (x - mean) · (gamma / std) + beta; the mean is subtracted first, where it is exact.
static inline void normalise(const NormWork *norm, const Tensor *x, const real *gamma, const real *beta,
                             const real *stats, const Dest *y) {
  int ldc = norm->ldc;
  memset(norm->coef, 0, (size_t)norm->sets * 4 * ldc * sizeof(real)); // padding channels
#pragma omp parallel for schedule(static)
  for (int set = 0; set < norm->sets; set++) {
    real *mean = norm->coef + (size_t)set * 4 * ldc, *scale = mean + ldc, *shift = scale + ldc;
    for (int i = 0; i < x->c; i++) {
      const real *s = stats + ((size_t)set * norm->groups + i / norm->group_size) * 2;
      mean[i] = s[0];
      scale[i] = gamma[i] * s[1];
      shift[i] = beta[i];
    }
  }
  if (y->pool) {
    normalise_pooled(norm, x, y);
    return;
  }
  int images = rows(x);
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < images; n++)
    for (int row = 0; row < x->h; row++) {
      real v[RUN_ELEMENTS];
      const real *coef = norm_coef(norm, n);
      for (RowRun r = run_first(x, n, row); r.pixels; r = run_next(x, r)) {
        const real *restrict mean = coef + r.lane, *restrict scale = mean + ldc, *restrict shift = scale + ldc;
        const real *restrict from = run_at(x, r);
        for (int p = 0; p < run_length(r); p += r.lanes)
          for (int i = 0; i < r.lanes; i++) v[p + i] = (from[p + i] - mean[i]) * scale[i] + shift[i];
        dest_write(y, r, v);
      }
    }
}

// t may be a slice.
static inline void check_like(const Tensor *x, const Tensor *t) {
  CHECK(t->ldc >= x->ldc && t->c == x->c && t->h == x->h && t->w == x->w);
}
static inline void check_dest(const Tensor *x, const Dest *d) {
  dest_check(d);
  if (d->pool) return; // normalise_pooled checks
  check_like(x, &d->t);
  CHECK(!tensor_is_slice(&d->t) || (!d->addend && !d->mask));
}

// ---- backward -------------------------------------------------------------------------------------------------------

// coef[0] = mean of each set and channel.
static inline void fill_means(const NormWork *norm, const Tensor *x, const real *stats) {
  memset(norm->coef, 0, (size_t)norm->sets * 4 * norm->ldc * sizeof(real)); // padding channels
  for (int set = 0; set < norm->sets; set++)
    for (int i = 0; i < x->c; i++)
      norm->coef[(size_t)set * 4 * norm->ldc + i] = stats[((size_t)set * norm->groups + i / norm->group_size) * 2];
}

// Per set and channel, in its first chunk: sums[0] = Σ dy, sums[1] = Σ dy · x̂ with x̂ = (x - mean) / std.
static inline void sum_gradients(const NormWork *norm, const Tensor *x, const Tensor *dy, const real *stats) {
  int ldc = norm->ldc;
  check_like(x, dy);
#pragma omp parallel for collapse(2) schedule(static)
  for (int set = 0; set < norm->sets; set++)
    for (int chunk = 0; chunk < norm->chunks; chunk++) {
      double *restrict sum = sums_of(norm, set, chunk), *restrict dot = sum + ldc;
      real *restrict block_sum = blocks_of(norm, set, chunk), *restrict block_dot = block_sum + ldc;
      const real *restrict mean = norm->coef + (size_t)set * 4 * ldc;
      memset(sum, 0, (size_t)ldc * 2 * sizeof *sum);
      PixelRange all = chunk_pixels(norm, set, chunk);
      for (size_t first = all.first; first < all.last; first += BLOCK) {
        size_t last = MIN(first + BLOCK, all.last);
        memset(block_sum, 0, (size_t)ldc * 2 * sizeof *block_sum);
        for (size_t p = first; p < last; p++) {
          const real *restrict value = (const real *)x->data + p * ldc;
          const real *restrict grad = (const real *)dy->data + p * dy->ldc;
          for (int i = 0; i < ldc; i++) {
            block_sum[i] += grad[i];
            block_dot[i] += grad[i] * (value[i] - mean[i]);
          }
        }
        for (int i = 0; i < ldc; i++) {
          sum[i] += block_sum[i];
          dot[i] += block_dot[i];
        }
      }
    }
#pragma omp parallel for schedule(static)
  for (int set = 0; set < norm->sets; set++) {
    double *sum = sums_of(norm, set, 0), *dot = sum + ldc;
    for (int chunk = 1; chunk < norm->chunks; chunk++)
      for (int i = 0; i < 2 * ldc; i++) sum[i] += sums_of(norm, set, chunk)[i];
    for (int i = 0; i < norm->groups * norm->group_size; i++)
      dot[i] *= stats[((size_t)set * norm->groups + i / norm->group_size) * 2 + 1];
  }
}

// dbeta (part 0: Σ dy) or dgamma (part 1: Σ dy · x̂): the sets' sums added up into `out`, where it is wanted.
static inline void parameter_gradient(const NormWork *norm, bool accumulate, int part, real *out) {
  if (!out) return;
#pragma omp parallel for schedule(static)
  for (int i = 0; i < norm->groups * norm->group_size; i++) {
    double sum = accumulate ? out[i] : 0;
    for (int set = 0; set < norm->sets; set++) sum += sums_of(norm, set, 0)[part * norm->ldc + i];
    out[i] = (real)sum;
  }
}

// With m values that share statistics: dx = (gamma · dy - Σ gamma · dy / m - x̂ · Σ gamma · dy · x̂ / m) / std. From
// the sums to the coefficients …
static inline void fill_slopes(const NormWork *norm, const real *gamma, const real *stats) {
  int ldc = norm->ldc;
#pragma omp parallel for collapse(2) schedule(static)
  for (int set = 0; set < norm->sets; set++)
    for (int group = 0; group < norm->groups; group++) {
      int first = group * norm->group_size, last = first + norm->group_size;
      const double *sum = sums_of(norm, set, 0), *dot = sum + ldc;
      double group_sum = 0, group_dot = 0;
      for (int i = first; i < last; i++) {
        group_sum += gamma[i] * sum[i];
        group_dot += gamma[i] * dot[i];
      }
      double inv_std = stats[((size_t)set * norm->groups + group) * 2 + 1];
      real *of_dy = norm->coef + ((size_t)set * 4 + 1) * ldc, *of_x = of_dy + ldc, *constant = of_x + ldc;
      for (int i = first; i < last; i++) {
        of_dy[i] = (real)(gamma[i] * inv_std);
        of_x[i] = (real)(-inv_std * inv_std * group_dot / norm->values);
        constant[i] = (real)(-inv_std * group_sum / norm->values);
      }
    }
}
// … and the elementwise pass.
static inline void write_dx(const NormWork *norm, const Tensor *x, const Tensor *dy, const Dest *dx) {
  int images = rows(x), ldc = norm->ldc;
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < images; n++)
    for (int row = 0; row < x->h; row++) {
      real v[RUN_ELEMENTS];
      const real *coef = norm_coef(norm, n);
      for (RowRun r = run_first(x, n, row); r.pixels; r = run_next(x, r)) {
        const real *restrict mean = coef + r.lane, *restrict of_dy = mean + ldc, *restrict of_x = of_dy + ldc,
                             *restrict constant = of_x + ldc;
        for (int p = 0; p < r.pixels; p++) {
          const real *restrict value = at(x, n, row, r.x + p) + r.lane, *restrict grad =
                                                                            at(dy, n, row, r.x + p) + r.lane;
          real *restrict to = v + p * r.lanes;
          for (int i = 0; i < r.lanes; i++) to[i] = of_dy[i] * grad[i] + (of_x[i] * (value[i] - mean[i]) + constant[i]);
        }
        dest_write(dx, r, v);
      }
    }
}
