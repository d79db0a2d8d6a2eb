// The table of options that training/options.h lists.
#pragma once
#include "training/defaults.h"

// All rows, headings included.
const Option *train_rows(int *n);
// Gives every option that was not given its value, as far as that is known, and says where it comes from; o->config is
// the model's. What is not known yet is FROM_LATER: then it is called once more. What is not for the model is
// FROM_NOTHING.
void train_settle(TrainSpec *o, const Basis *b);
