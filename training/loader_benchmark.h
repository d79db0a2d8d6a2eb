// Benchmark of the loader alone: how fast files become batches, by threads, and where the time goes. No device needed.
#pragma once
#include "data/batches/loader.h"

// For 1, 2, 4 … threads up to options->threads (0 = one per core): `batches` batches, after half as many to warm up.
// One record each on stdout. False when an image stops the loader.
bool loader_benchmark(const Dataset *d, const LoaderOptions *options, int batches, Err *err);
