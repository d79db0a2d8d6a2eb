// ./train --benchmark: the speed of a run's steps.
#pragma once
#include "base/trace.h"
#include "training/run.h"

// Times steps of a run that is ready to begin, as many as --benchmark says. trace NULL: none is written. Failures end
// the program.
void benchmark_steps(TrainingRun *r, Loader *loader, Trace *trace);
