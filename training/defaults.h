// What the options of ./train are that were not given, where that follows from the model and the kind of data.
#pragma once
#include "models/config.h"
#include "training/options.h"

// Gives every such option its value, c being what setup_model makes of them, and `resolved` its text; once. What comes
// of the number of steps or ranks, warmup and the rate by the batch, stays to be asked of setup_schedule. A
// combination that cannot be prints one line and exits 2.
void train_defaults(TrainOptions *o, const ModelConfig *c);
