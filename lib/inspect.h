// Internals of the library for this repository's own benchmarks and tests. Not part of the API.
#pragma once
#include "engine/engine.h"
#include "include/maskrcnn.h"

// Has the handle's thread do what(engine, context) while nothing is under way, and waits for it.
maskrcnn_status inspect_engine(maskrcnn *h, void (*what)(Engine *e, void *context), void *context,
                               maskrcnn_error *error);
// The model's counters, summed over all batches whose results have been taken.
void inspect_counters(maskrcnn *h, int64_t counter[MAX_COUNTERS]);
