// Phases of a run: --phases "10@1e-3,35@1e-4" means ten epochs at a rate of 1e-3, then 35 at 1e-4. The rate is constant
// within a phase.
#pragma once
#include <stdbool.h>
#include "base/error.h"
#include "nn/optim.h"

typedef struct Phase {
  int epochs;
  double rate;
} Phase;
typedef struct Phases { // none: n = 0
  int n;
  Phase phase[MAX_PHASES];
} Phases;

// False, with a message that names the position and what was expected there.
bool phases_parse(Phases *p, const char *text, Err *err);
// The phases in the form that phases_parse reads, with rates multiplied by `factor`; malloc'ed.
char *phases_text(const Phases *p, double factor);
int phases_epochs(const Phases *p); // of all phases
// The schedule of a run with per_epoch steps per epoch; `base` is the first phase's rate, and scales the others.
Schedule phases_schedule(const Phases *p, double base, int64_t per_epoch);
