// A training run as a process makes it: ranks, data, and the sessions from where it begins or goes on to its end.
#pragma once
#include "training/options.h"
#include "training/scoring.h"

// Of sessions, each that diverges is followed by one with half the rate, where --on-divergence says so. `draw` is
// called when facts in the folder have changed: after each evaluation, in the thread that scores, and at the end of a
// session; that it fails ends no run. Returns whether a request has ended it early; what fails ends the program.
bool sessions_run(const TrainSpec *o, DrawFolder *draw);
