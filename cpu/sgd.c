// The optimiser's step over flat buffers: the gradient's L2 norm and finiteness (a two-pass reduction), SGD with
// momentum, weight decay and clipping by global norm (PyTorch's), and dynamic loss scaling (Micikevicius et al., 2018).
#include "cpu/reference.h"
#include "cpu/shadow.h"
#include "exact/sgd_slots.h"

enum {
  BLOCK = 1 << 14, // elements reduced by one thread; fixed, so that the order of sums does not depend on the threads
  LANES = 16,      // independent partial sums within a block, so that they vectorise without reordering
};

typedef struct BlockStats {
  double squares; // Σ g²
  bool finite;
} BlockStats;

// First pass: one block.
static BlockStats block_stats(const real *restrict g, size_t n) {
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
  BlockStats s = {.finite = true};
  for (int l = 0; l < LANES; l++) {
    s.squares += squares[l];
    s.finite &= zeros[l] == 0;
  }
  return s;
}

void OP(grad_stats)(Device *dev, size_t n, const void *g, int losses, const void *loss, const void *hyper,
                    void *stats) {
  size_t blocks = (n + BLOCK - 1) / BLOCK;
  BlockStats *parts = device_workspace(dev, (blocks + 1) * sizeof *parts);
  if (!parts) return;
#pragma omp parallel for schedule(static)
  for (size_t b = 0; b < blocks; b++) parts[b] = block_stats((const real *)g + b * BLOCK, MIN(BLOCK, n - b * BLOCK));
  BlockStats all = block_stats(loss, losses);
  all.squares = 0;
  for (size_t b = 0; b < blocks; b++) {
    all.squares += parts[b].squares;
    all.finite &= parts[b].finite;
  }
  ((real *)stats)[NORM] = (real)(sqrt(all.squares) * ((const real *)hyper)[INV_SCALE]);
  ((real *)stats)[FINITE] = all.finite;
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
