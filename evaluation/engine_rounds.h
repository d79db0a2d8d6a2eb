// Rounds whose batches an engine's own pipeline computes.
#pragma once
#include "engine/engine.h"
#include "evaluation/rounds.h"

// rounds_run over the engine's ranks, by batches of its inference shapes, which a loader of so many threads (0: one per
// core) puts into its ring; BATCHES_UNDER_WAY are started ahead, whatever `work` says.
bool engine_rounds(Engine *e, const Dataset *d, int threads, RoundWork work, Err *err);
