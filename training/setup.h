// What the options of ./train ask for: a model, on a device, and how it learns. A mistake in them prints one line and
// exits 2. But for setup_model, they are complete: train_defaults.
#pragma once
#include "engine/engine.h"
#include "nn/optim.h"
#include "training/options.h"

// The model of --model or of --weights; its classes are those of the checkpoint, or 0 from scratch or a backbone.
ModelConfig setup_model(const TrainOptions *o);

// Opens an engine of that model, for the classes of the data, among the ranks of `comm`. val NULL: nothing to evaluate
// on. --plan prints here.
void setup_engine(const TrainOptions *o, Comm *comm, ModelConfig config, const Dataset *train, const Dataset *val,
                  Engine *e);

// The learning rate of a run of so many steps, of which so many are an epoch.
Schedule setup_schedule(const TrainOptions *o, const ModelConfig *c, int64_t steps, int64_t per_epoch);
// Everything that decides the weights of a step but is not in the model's configuration, as JSON: what a resumed run
// must share. malloc'ed.
char *setup_identity(const TrainOptions *o, const Dataset *train, const Schedule *schedule, const Engine *e);

// What all ranks must share: the identity, the model's configuration and the data, as JSON. val NULL: none. malloc'ed.
char *setup_agreement(const char *identity, const ModelConfig *c, const Dataset *train, const Dataset *val);
