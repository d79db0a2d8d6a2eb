// Phases of a run: --phases "10@1e-3,10@1e-4,25@1e-4+augment" is ten epochs at a rate of 1e-3, ten at 1e-4, and 25 at
// 1e-4 on augmented images. Within a phase the rate is constant.
#pragma once
#include <stdbool.h>
#include "base/error.h"
#include "nn/optim.h"

typedef struct Phase {
  int epochs;
  double rate;
  bool augment;
} Phase;
typedef struct Phases { // none: n = 0
  int n;
  Phase phase[MAX_PHASES];
} Phases;

// False, saying what was expected where. Augmented phases follow one another.
bool phases_parse(Phases *p, const char *text, Err *err);
// In the form that is parsed, rates times `factor`; malloc'ed.
char *phases_text(const Phases *p, double factor);
int phases_epochs(const Phases *p); // of all
// The epochs, counted from 0, in which images are augmented: from `*from` to below `*until`; none: both 0.
void phases_augmented(const Phases *p, int64_t *from, int64_t *until);
// The rates of a run whose epochs have so many steps; `base` is that of its first phase, which the others follow.
Schedule phases_schedule(const Phases *p, double base, int64_t per_epoch);
