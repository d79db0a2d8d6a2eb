// ./infer --benchmark: how fast a handle is on a data set, from RGB bytes in the host's memory to finished COCO
// strings, or to the classes of images: images per second of the pipeline, the latency of batches that have it for
// themselves, and the time of parts and nodes, for which it looks inside.
#pragma once
#include "comm/comm.h"
#include "data/batches/dataset.h"
#include "include/maskrcnn.h"
#include "inference/options.h"
#include "inference/queue.h"

// Over and over the data set that the queue's handle was opened for; every rank calls it, and the first prints the
// record.
bool infer_benchmark(BatchQueue *q, maskrcnn *handle, const InferOptions *o, Comm *comm, const Dataset *d, Err *err);
