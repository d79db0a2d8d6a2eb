// The batches of a training run: how they are loaded, and how many an epoch has.
#pragma once
#include "training/run.h"

// Loads from the run's step `first` on.
LoaderOptions run_loader_options(const TrainingRun *r);
// A loader for the run's engine, which must be open. A mistake ends the program.
Loader *run_loader(TrainingRun *r);
int64_t run_steps_per_epoch(const TrainSpec *o, int ranks, const Dataset *train);
