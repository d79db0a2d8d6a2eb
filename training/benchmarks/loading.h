// ./train --benchmark-loader: how fast files become batches, by threads, and where the time goes. No device needed.
#pragma once
#include "training/options.h"

// On 1, 2, 4 … --threads: as many batches, after half as many to warm up. One record each on stdout. A mistake prints
// one line and ends the program.
void benchmark_loading(const TrainSpec *o);
