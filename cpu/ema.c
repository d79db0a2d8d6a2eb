// The exponential moving average of the parameters over a flat buffer.
#include "cpu/reference.h"
#include "exact/sgd_slots.h"

void OP(ema)(Device *dev, size_t n, const void *stats, const void *towards, const void *w, void *a) {
  if (dev->measuring || ((const real *)stats)[FINITE] != 1) return;
  const real share = *(const real *)towards, *restrict weight = w;
  real *restrict average = a;
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < n; i++) average[i] += share * (weight[i] - average[i]);
}
