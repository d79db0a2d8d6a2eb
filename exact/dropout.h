// Which elements dropout keeps, and their scale; shared by the CPU and CUDA.
#pragma once
#include "base/rng.h"
#include "exact/real.h"
#include "nn/ops.h"

typedef struct DropoutRule {
  uint64_t key;       // from seed, layer and step
  uint64_t threshold; // elements whose 32-bit random number is below it are dropped
  real scale;
} DropoutRule;

static inline HD DropoutRule dropout_rule(const Dropout *p) {
  DropoutRule rule = {rng_key(p->key, p->step ? *p->step : 0), (uint64_t)((double)p->p * 0x1p32),
                      p->p < 1 ? 1 / (1 - (real)p->p) : 0};
  return rule;
}

// The index of the first channel of pixel (n, y, x) of t.
static inline HD uint64_t dropout_element(const Dropout *p, const Tensor *t, int n, int y, int x) {
  return ((((uint64_t)p->first_row + (uint64_t)n) * (uint64_t)t->h + (uint64_t)y) * (uint64_t)t->w + (uint64_t)x) *
         (uint64_t)t->c;
}

static inline HD real dropout_apply(const DropoutRule *rule, uint64_t element, real x) {
  return rng_u32(rule->key, element) < rule->threshold ? 0 : x * rule->scale;
}
