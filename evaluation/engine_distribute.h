// distribute_batches with an engine's own inference pipeline.
#pragma once
#include "engine/engine.h"
#include "evaluation/distribute.h"

// distribute_batches over the engine's ranks, with batches of its inference shapes, which a loader with so many threads
// (0: one per core) writes to its ring; BATCHES_UNDER_WAY are started ahead, whatever `work` says.
bool engine_distribute_batches(Engine *e, const Dataset *d, int threads, BatchWork work, Err *err);
