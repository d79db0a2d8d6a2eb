// What the options of ./train are that were not given, where that follows from the model and the kind of data.
#pragma once
#include "engine/train_options.h"
#include "models/config.h"

// Gives every such option its value, so that none is "auto" or below its range any more, and `resolved` its text. A
// combination that cannot be prints one line and exits 2.
void train_defaults(TrainOptions *o, const ModelConfig *c);
