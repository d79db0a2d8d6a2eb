// A training run in one process: ranks, data, and sessions until the run's end.
#pragma once
#include "training/options.h"
#include "training/scoring.h"

// After a session that diverges, the next one has half the rate, if --on-divergence says so. `draw` is called when
// facts in the folder have changed: after each evaluation, in the scoring thread, and at the end of a session; if it
// fails the run continues. Returns whether a request ended the run early; failures end the program.
bool sessions_run(const TrainSpec *o, DrawFolder page);
