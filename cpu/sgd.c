// The optimiser's step over flat buffers: the gradient's L2 norm and finiteness, by parts, SGD with
// momentum, weight decay and clipping by global norm (PyTorch's), and dynamic loss scaling (Micikevicius et al., 2018).
#include "cpu/reference.h"
#include "cpu/shadow.h"
#include "exact/sgd_slots.h"

enum { LANES = 16 }; // independent partial sums within a part, so that they vectorise without reordering

static GradSum sum_of(const real *restrict g, size_t n) {
  double squares[LANES] = {0};
  real zeros[LANES] = {0}; // g · 0 is NaN for NaN and infinity, and NaN stays
  size_t whole = n / LANES * LANES;
  for (size_t i = 0; i < whole; i += LANES)
    for (int l = 0; l < LANES; l++) {
      squares[l] += (double)g[i + l] * g[i + l];
      zeros[l] += g[i + l] * 0;
    }
  for (size_t i = whole; i < n; i++) {
    squares[i - whole] += (double)g[i] * g[i];
    zeros[i - whole] += g[i] * 0;
  }
  GradSum s = {.finite = true};
  for (int l = 0; l < LANES; l++) {
    s.squares += squares[l];
    s.finite &= zeros[l] == 0;
  }
  return s;
}

void OP(grad_sums)(Device *dev, size_t n, const void *g, int first, int end, GradSum *sums) {
  if (dev->measuring) return;
#pragma omp parallel for schedule(static)
  for (int i = first; i < end; i++) {
    const size_t at = (size_t)i * GRAD_PART;
    sums[i] = sum_of((const real *)g + at, MIN(GRAD_PART, n - at));
  }
}

void OP(grad_stats)(Device *dev, int parts, const GradSum *sums, int losses, const void *loss, const void *hyper,
                    void *stats) {
  if (dev->measuring) return;
  GradSum all = sum_of(loss, (size_t)losses);
  all.squares = 0;
  for (int i = 0; i < parts; i++) {
    all.squares += sums[i].squares;
    all.finite &= sums[i].finite;
  }
  ((real *)stats)[NORM] = (real)(sqrt(all.squares) * ((const real *)hyper)[INV_SCALE]);
  ((real *)stats)[FINITE] = (real)all.finite;
}

void OP(sgd)(Device *dev, const Sgd *p, void *w, const void *g, void *v) {
  if (dev->measuring) return;
  CHECK(p->shadow == REAL_DTYPE);
  const real *hyper = p->hyper, *stats = p->stats;
  if (stats[FINITE] != 1) return;
  real lr = hyper[LEARNING_RATE], momentum = hyper[MOMENTUM], decay = hyper[DECAY], clip = gradient_clip(hyper, stats);
#pragma omp parallel for schedule(static)
  for (int k = 0; k < p->parts; k++) {
    const UpdatePart *part = &p->part[k];
    real *restrict weight = (real *)w + part->first, *restrict velocity = (real *)v + part->first;
    const real *restrict grad = (const real *)g + part->first;
    real rate = lr * p->factors.rate[part->role], pull = decay * p->factors.decay[part->role];
    for (int i = 0; i < part->n; i++) {
      velocity[i] = momentum * velocity[i] + (grad[i] * clip + pull * weight[i]);
      weight[i] -= rate * velocity[i];
    }
    shadow_write(part, weight);
  }
}

void OP(loss_scale_update)(Device *dev, int interval, const void *stats, void *state, void *hyper) {
  if (dev->measuring) return;
  real *s = state;
  if (((const real *)stats)[FINITE] != 1) {
    s[SCALE] /= 2;
    s[CLEAN] = 0;
    s[SKIPPED]++;
  } else if (++s[CLEAN] >= interval) {
    s[SCALE] *= 2;
    s[CLEAN] = 0;
  }
  ((real *)hyper)[INV_SCALE] = 1 / s[SCALE];
}
