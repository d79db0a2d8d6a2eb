// Adam and AdamW over flat buffers.
#include "cpu/reference.h"
#include "cpu/shadow.h"
#include "exact/sgd_slots.h"

void OP(adam)(Device *dev, const Adam *p, void *w, const void *g, void *m, void *v) {
  if (dev->measuring) return;
  CHECK(p->eps > 0 && p->shadow == REAL_DTYPE); // elements without a gradient are 0 / eps
  const real *hyper = p->hyper, *stats = p->stats;
  if (stats[FINITE] != 1) return;
  real *state = p->state;
  state[UPDATES]++;
  state[FIRST_CORRECTION] = (real)(1 - pow(p->beta1, (double)state[UPDATES]));
  state[SECOND_CORRECTION] = (real)(1 - pow(p->beta2, (double)state[UPDATES]));
  const real root = real_sqrt(state[SECOND_CORRECTION]), clip = gradient_clip(hyper, stats), eps = (real)p->eps;
  const real towards = (real)(1 - p->beta1), keep = (real)p->beta2, take = (real)(1 - p->beta2);
#pragma omp parallel for schedule(static)
  for (int k = 0; k < p->parts; k++) {
    const UpdatePart *part = &p->part[k];
    real *restrict weight = (real *)w + part->first;
    real *restrict first = (real *)m + part->first, *restrict second = (real *)v + part->first;
    const real *restrict grad = (const real *)g + part->first;
    real rate = hyper[LEARNING_RATE] * p->factors.rate[part->role];
    real pull = hyper[DECAY] * p->factors.decay[part->role];
    real step = rate / state[FIRST_CORRECTION], shrink = p->decoupled ? rate * pull : 0;
    if (p->decoupled) pull = 0;
    for (int i = 0; i < part->n; i++) {
      real d = grad[i] * clip + pull * weight[i];
      first[i] += towards * (d - first[i]);
      second[i] = keep * second[i] + take * d * d;
      weight[i] = weight[i] - shrink * weight[i] - step * first[i] / (real_sqrt(second[i]) / root + eps);
    }
    shadow_write(part, weight);
  }
}
