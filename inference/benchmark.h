// ./infer --benchmark: how fast a handle is on a data set, from RGB bytes in the host's memory to finished COCO
// strings, or to the classes of images: images per second of the pipeline, the latency of batches that have it for
// themselves, and the time of parts and nodes, for which it looks inside.
#pragma once
#include "inference/handle_finder.h"

// Over and over the data set that the finder was opened for; every rank calls it, and the first prints the record.
bool infer_benchmark(HandleFinder *f, const InferOptions *o, Comm *comm, const Dataset *d, Err *err);
