// Creates a model, a device and learning settings from a run's specification. A mistake prints one line and exits 2.
#pragma once
#include "engine/engine.h"
#include "nn/optim.h"
#include "training/options.h"

// The model of --model or --weights, with the options that were given; its classes are the checkpoint's, or 0 from
// scratch or with a backbone. The only function that reads o before its defaults are settled; TrainSpec.config is its
// result.
ModelConfig setup_model(const TrainSpec *o);

// Opens an engine for that model and the data's classes, on the ranks of `comm`; with --plan, prints the plan.
// val NULL: no evaluation data.
void setup_engine(const TrainSpec *o, Comm *comm, const Dataset *train, const Dataset *val, Engine *e);

// The learning-rate schedule. `rate`: the base rate, o's or, after a rollback, a lower one.
Schedule setup_schedule(const TrainSpec *o, double rate);
