// From the specification of a run: a model, on a device, and how it learns. A mistake prints one line and exits 2.
#pragma once
#include "engine/engine.h"
#include "nn/optim.h"
#include "training/options.h"

// The model of --model or of --weights with what was given of it; its classes are those of the checkpoint, or 0 from
// scratch or a backbone. The only one to read o before it is settled: TrainSpec.config is what it returns.
ModelConfig setup_model(const TrainSpec *o);

// Opens an engine of that model, for the classes of the data, among the ranks of `comm`. val NULL: nothing to evaluate
// on. --plan prints here.
void setup_engine(const TrainSpec *o, Comm *comm, const Dataset *train, const Dataset *val, Engine *e);

// The learning rate of a run, `rate` at its beginning: o's, or half of it after a rollback.
Schedule setup_schedule(const TrainSpec *o, double rate);
