// Feeds batches of a data set's loader to a queue.
#pragma once
#include "inference/queue.h"
#include "nn/batch.h"

Image batches_image(const Batch *batch, int position); // borrowed; position must not be empty
// Starts a batch without its empty slots; it must hold an image. Exits if that fails.
void batches_begin(BatchQueue *q, const Batch *batch);
// The oldest batch, whose owner is the Batch, with the results of all its images; waits. Exits if the batch failed. The
// caller releases it.
QueuedBatch *batches_next(BatchQueue *q);
