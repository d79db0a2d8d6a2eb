// Creates the specification of a run from the command line.
#pragma once
#include "training/options.h"

// Parses and settles everything that is known before the data is opened, or ends the program: --help exits 0, a mistake
// prints one line and exits 2.
TrainSpec train_spec(int argc, char **argv);
// The same with what is known afterwards: number of ranks, steps per epoch (at least 1). It shares o's strings, so only
// o is freed.
TrainSpec train_spec_complete(const TrainSpec *o, int ranks, int64_t per_epoch);
void train_spec_free(TrainSpec *o);
