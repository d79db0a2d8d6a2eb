// ./train --benchmark: how fast the steps of a run are.
#pragma once
#include "base/trace.h"
#include "training/run.h"

// Steps of a run that is ready to begin, as many as --benchmark says. trace NULL: none is written. What fails ends the
// program.
void benchmark_steps(TrainingRun *r, Loader *loader, Trace *trace);
