// The losses of training on a data set that is not trained on: the forward walk alone, over the statistics of
// inference; nothing of the model changes, and the same weights have the same losses.
#pragma once
#include "evaluation/task.h"

// Adds to `out` "val_loss" and, as "val_" and its name, each loss of the model: means over the images of the data set,
// whose shapes the engine was opened with, with `losses`. The work is shared out over the engine's ranks, and the sums
// are those of one rank; only rank 0 adds to `out`. `stopped` as in Task.collect. All ranks return the same: false
// with a message when an image stops a loader or none can be read, with an empty one when `stopped` said so.
bool validate_run(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Metrics *out, Err *err);
