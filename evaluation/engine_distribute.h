// Batches over ranks, computed by an engine's own pipeline.
#pragma once
#include "engine/engine.h"
#include "evaluation/distribute.h"

// distribute_batches over the engine's ranks, by batches of its inference shapes, which a loader of so many threads (0:
// one per core) puts into its ring; BATCHES_UNDER_WAY are started ahead, whatever `work` says.
bool engine_distribute_batches(Engine *e, const Dataset *d, int threads, BatchWork work, Err *err);
