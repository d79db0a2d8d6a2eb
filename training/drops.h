// When the learning rate falls: --drops "16,22".
#pragma once
#include "base/error.h"
#include "nn/optim.h"

typedef struct Drops { // none: n = 0
  int n;
  double epoch[MAX_MILESTONES];
} Drops;

// Epochs from the beginning of the run, ascending, with decimals if they have some. False with what is wrong.
bool drops_parse(Drops *d, const char *text, Err *err);
// Sets the milestones of a schedule with per_epoch steps per epoch to the nearest steps. False if one is not within it.
bool drops_apply(const Drops *d, int64_t per_epoch, Schedule *s, Err *err);
