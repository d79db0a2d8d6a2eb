// Results of steps: progress, records, and whether the run diverged or is to stop.
#pragma once
#include "training/run.h"

// Collects the results of the session's steps so far, up to step `last` of the run; with `wait`, of all of them. False
// if one diverged or was void; `*done` is then the number of steps before it.
bool results_take(TrainingRun *r, int64_t last, bool wait, int64_t *done);
// Whether a step, counted from 1, diverged; then the run ends, and `divergence` has the details.
bool train_diverged(TrainingRun *r, int64_t step, const StepResult *s);
