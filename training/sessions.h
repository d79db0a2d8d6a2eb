// A training run as a process makes it: ranks, data, and the sessions from where it begins or goes on to its end.
#pragma once
#include "training/options.h"

// Of sessions, each that diverges is followed by one with half the rate, where --on-divergence says
// so. Returns whether a request has ended it early; what fails ends the program.
bool sessions_run(const TrainSpec *o);
