// Validation losses: the losses of training on held-out data, with the forward pass and inference statistics only; it
// does not change the model, and the same weights give the same losses.
#pragma once
#include "evaluation/task.h"

// Adds to `out` "val_loss" and, as "val_" and its name, each loss of the model: means over the images of the data set.
// The engine must have been opened with the data set's shapes and with `losses`. The work is distributed over the
// engine's ranks, and the sums are as on one rank; only rank 0 adds to `out`. `stopped` as in Task.collect. All ranks
// return the same: false with a message if an image stops a loader or none can be read, with an empty one if `stopped`
// returned true.
bool validate_run(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Metrics *out, Err *err);
