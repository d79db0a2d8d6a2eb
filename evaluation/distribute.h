// The batches of an evaluation, distributed over ranks. Each computes those that sampler_batch gives it and
// packs what comes of them. After every exchange rank 0 unpacks all of them in the order in which one rank computes
// them, and decides for all ranks whether they go on: a request to stop and a failure, of whichever rank, end the work
// of every rank. What comes before them in that order is unpacked, the rest is not, as if one rank had met them.
#pragma once
#include "comm/comm.h"
#include "data/batches/loader.h"
#include "evaluation/byte_buffer.h"

typedef struct BatchWork {
  void *context;
  // A pipeline, where `start` is not NULL: begins to compute a batch of this rank's that holds images, up to `ahead`
  // batches before the first of them is asked for; batches stay as they are as long as LoaderOptions.held says.
  void (*start)(void *context, const Batch *batch);
  int ahead;
  void (*drop)(void *context); // waits for all that was started and is not asked for any more; may be NULL without it
  // A batch of this rank's that holds images, in the order in which they were started: computes it, and packs what rank
  // 0 is to know of it.
  void (*compute)(void *context, const Batch *batch, ByteBuffer *buffer);
  // On rank 0: what compute packed, in order. False when it is something else.
  bool (*unpack)(void *context, ByteReader *reader);
  // On the rank that computed it: rank 0 has unpacked the batch, before which `before` images were read on all ranks.
  // With it, an exchange is of one batch of every rank; without (NULL), of several, since ranks wait for each other.
  void (*settle)(void *context, const Batch *batch, int64_t before);
  bool (*stopped)(void); // asked before each batch is packed, as is comm_stop_asked; NULL: never
} BatchWork;

// Goes through the data set once; the options' rank and world are comm's. All ranks return the same: false with a
// message when one's loader fails or no image can be read, with an empty one when one was asked to stop.
bool distribute_batches(Comm *comm, const Dataset *d, const LoaderOptions *options, const BatchWork *work, Err *err);
