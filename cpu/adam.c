// Adam and AdamW over flat buffers.
#include "cpu/reference.h"
#include "exact/sgd_slots.h"

void OP(adam)(Device *dev, const Adam *p, size_t n, void *w, const void *g, void *m, void *v) {
  if (dev->measuring) return;
  CHECK(p->eps > 0); // elements without a gradient are 0 / eps
  const real *hyper = p->hyper, *stats = p->stats;
  if (stats[FINITE] != 1) return;
  real *state = p->state;
  state[UPDATES]++;
  state[FIRST_CORRECTION] = (real)(1 - pow(p->beta1, (double)state[UPDATES]));
  state[SECOND_CORRECTION] = (real)(1 - pow(p->beta2, (double)state[UPDATES]));
  const real root = real_sqrt(state[SECOND_CORRECTION]), clip = gradient_clip(hyper, stats), eps = (real)p->eps;
  const real towards = (real)(1 - p->beta1), keep = (real)p->beta2, take = (real)(1 - p->beta2);
  real *restrict weight = w, *restrict first = m, *restrict second = v;
  const real *restrict grad = g;
#pragma omp parallel for schedule(static)
  for (size_t block = 0; block < n; block += PARAM_ALIGN) { // PARAM_ALIGN elements are of one parameter
    int kind = p->kind ? p->kind[block / PARAM_ALIGN] : 0;
    real rate = hyper[LEARNING_RATE] * (p->kind ? p->factors.rate[kind] : 1);
    real pull = hyper[DECAY] * (p->kind ? p->factors.decay[kind] : 1);
    real step = rate / state[FIRST_CORRECTION], shrink = p->decoupled ? rate * pull : 0;
    if (p->decoupled) pull = 0;
    for (size_t i = block; i < MIN(block + PARAM_ALIGN, n); i++) {
      real d = grad[i] * clip + pull * weight[i];
      first[i] += towards * (d - first[i]);
      second[i] = keep * second[i] + take * d * d;
      weight[i] = weight[i] - shrink * weight[i] - step * first[i] / (real_sqrt(second[i]) / root + eps);
    }
  }
}
