// The table of options in training/options.h.
#pragma once
#include "training/defaults.h"

// All rows, headings included.
const Option *train_rows(int *n);
// Sets every option that was not given, as far as its value is known, and records the source; o->config is the model's.
// Options not known yet become FROM_LATER: then it is called once more. Options that do not apply to the model become
// FROM_NOTHING.
void train_settle(TrainSpec *o, const Basis *b);
