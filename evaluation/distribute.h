// Distributes the batches of an evaluation over ranks. Each rank computes the batches that sampler_batch gives it and
// packs the results. After every exchange rank 0 unpacks all of them in the order in which a single rank would compute
// them, and decides for all ranks whether to continue: a request to stop or a failure on any rank ends the work of all.
// Results before it in that order are unpacked, later ones are not, as if a single rank had met it.
#pragma once
#include "comm/comm.h"
#include "data/batches/loader.h"
#include "evaluation/byte_buffer.h"

typedef struct BatchWork {
  void *context;
  // If `start` is not NULL, batches are pipelined: it starts one of this rank's non-empty batches, up to `ahead`
  // batches before the first of them is needed; batches stay unchanged as long as LoaderOptions.held says.
  void (*start)(void *context, const Batch *batch);
  int ahead;
  void (*drop)(void *context); // waits for started batches that are no longer needed; may be NULL if `start` is
  // Computes a non-empty batch of this rank's, in the order in which they were started, and packs the results for rank
  // 0.
  void (*compute)(void *context, const Batch *batch, ByteBuffer *buffer);
  // On rank 0: unpacks what compute packed, in order. False if the data are malformed.
  bool (*unpack)(void *context, ByteReader *reader);
  // On the rank that computed it: called after rank 0 has unpacked the batch; `before` images were read before it on
  // all ranks. With it, an exchange has one batch of every rank; without (NULL), several, because ranks wait for each
  // other in each exchange.
  void (*settle)(void *context, const Batch *batch, int64_t before);
  bool (*stopped)(void); // asked before each batch is packed, as is comm_stop_asked; NULL: never
} BatchWork;

// Goes through the data set once; the options' rank and world are comm's. All ranks return the same: false with a
// message if a loader fails on one or no image can be read, with an empty one if a stop was requested on one.
bool distribute_batches(Comm *comm, const Dataset *d, const LoaderOptions *options, const BatchWork *work, Err *err);
