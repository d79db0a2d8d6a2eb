// The sizes of a detector's anchors.
#pragma once
#include "data/batches/dataset.h"
#include "training/options.h"

// Sets those of --anchors, unless it is auto, in c. Exits with one line if they are not a size a level.
void train_set_anchors(const TrainSpec *o, ModelConfig *c);
// With --anchors auto, sets in o->config those that suit the training data best (data/survey/anchor_fit.h) if they are
// better than its own, and adds a note on both to it.
void train_fit_anchors(TrainSpec *o, const Dataset *train);
