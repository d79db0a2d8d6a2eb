// Batches of a data set's loader as those of a queue.
#pragma once
#include "inference/queue.h"
#include "nn/batch.h"

Image batches_image(const Batch *batch, int position); // borrowed; of a place that is not empty
// Begins it, without its empty places; it holds an image at least. Where that, or what comes of a batch, fails, it is
// the program's end.
void batches_begin(BatchQueue *q, const Batch *batch);
// The oldest, whose owner is the Batch, with results of all its images; waits. The caller releases it.
QueuedBatch *batches_next(BatchQueue *q);
