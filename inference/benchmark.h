// ./infer --benchmark: the speed of a library handle on a data set, from RGB bytes in host memory to finished COCO
// strings or classes: images per second of the pipeline, the latency of single batches, and the time of parts and
// nodes, which it takes from the library's internals.
#pragma once
#include "comm/comm.h"
#include "data/batches/dataset.h"
#include "include/maskrcnn.h"
#include "inference/options.h"
#include "inference/queue.h"

// Repeats the data set for which the queue's handle was opened; every rank calls it, and rank 0 prints the record.
bool infer_benchmark(BatchQueue *q, maskrcnn *handle, const InferOptions *o, Comm *comm, const Dataset *d, Err *err);
