// Where a run of ./train begins: with random weights, those of --weights or, with --resume, a checkpoint of its own.
#pragma once
#include "base/record.h"
#include "training/options.h"
#include "training/run_files.h"

// Gives the engine its weights and returns the steps done. A checkpoint must be of a run of this identity, but for what
// --amend changes, which is added to `changes`. A mistake prints one line and exits 2; folders that hold another run's
// weights are left alone.
int64_t start_weights(const TrainOptions *o, Engine *e, const RunFiles *f, const char *identity, Record *changes);
