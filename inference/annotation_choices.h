// How ./infer takes annotations: as the weights were trained (--crowd, --areas, --boxes), unless told otherwise.
#pragma once
#include "inference/options.h"
#include "weights/checkpoint.h"

// Gives the options that were not given their values in training.
void annotation_choices_settle(InferOptions *o, const Checkpoint *weights);
// One line on those that are not the defaults, or not as in training; NULL: all are both. Caller frees.
char *annotation_choices_text(const InferOptions *o, const Checkpoint *weights);
