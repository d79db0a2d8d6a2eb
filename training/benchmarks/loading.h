// ./train --benchmark-loader: how fast files become batches, by number of threads, and how the time is spent. Needs no
// device.
#pragma once
#include "training/options.h"

// Runs 1, 2, 4 … --threads: that many batches each, after half as many to warm up. Prints one record each. A mistake
// prints one line and ends the program.
void benchmark_loading(const TrainSpec *o);
