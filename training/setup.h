// Creates a model, a device and learning settings from a run's specification. A mistake prints one line and exits 2.
#pragma once
#include "engine/engine.h"
#include "nn/optim.h"
#include "training/options.h"

// The model of --model or --weights, with the options that were given; its classes are the checkpoint's, or 0 from
// scratch or with a backbone. The only function that reads o before it is settled: TrainSpec.config is what it returns.
ModelConfig setup_model(const TrainSpec *o);

// Opens an engine for that model and the data's classes, on the ranks of `comm`. val NULL: nothing to evaluate on.
// --plan prints here.
void setup_engine(const TrainSpec *o, Comm *comm, const Dataset *train, const Dataset *val, Engine *e);

// The learning-rate schedule, `rate` at its beginning: o's, or half of it after a rollback.
Schedule setup_schedule(const TrainSpec *o, double rate);
