// Phases of a run: --phases "10@1e-3,10@1e-4,25@1e-4+augment" means ten epochs at a rate of 1e-3, ten at 1e-4, and 25
// at 1e-4 with augmented images. The rate is constant within a phase.
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

// False, with a message that names the position and what was expected there. Augmented phases must be adjacent.
bool phases_parse(Phases *p, const char *text, Err *err);
// The phases in the form that phases_parse reads, with rates multiplied by `factor`; malloc'ed.
char *phases_text(const Phases *p, double factor);
int phases_epochs(const Phases *p); // of all phases
// The epochs, from 0, in which images are augmented: from `*from` to before `*until`; none: both 0.
void phases_augmented(const Phases *p, int64_t *from, int64_t *until);
// The schedule of a run with per_epoch steps per epoch; `base` is the first phase's rate, and scales the others.
Schedule phases_schedule(const Phases *p, double base, int64_t per_epoch);
