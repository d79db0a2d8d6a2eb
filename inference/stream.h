// Stream: runs named images of any size through a network, with several batches in flight, and delivers results in the
// order of the images.
//
// An image waits for others of its group, so that batches are full, but not for long: a partial batch is started when
// the network is idle, when memory or slots for waiting images are used up, or when an image has waited for half a
// second. So batches are full while the network is busy, and if the writer of a list pauses, all images so far are
// still processed.
#pragma once
#include "inference/decoders.h"
#include "inference/queue.h"

// The observer of a stream. "In order": of the images.
typedef struct StreamVisitor {
  void *context;
  // Whether an image's pixels must be kept until it is visited; NULL: never.
  bool (*keeps)(void *context, const Decoded *image);
  // In order: an image with its batch's results and its index in the batch; or the reason why it cannot be used.
  void (*image)(void *context, const Decoded *image, const void *results, int in_batch);
  void (*bad)(void *context, const Decoded *image, const Err *why);
  // A batch of a group is done, `seconds` after its pixels were handed over.
  void (*took)(void *context, int group, int images, double seconds);
  bool (*stopped)(void); // asked before each batch; NULL: never
} StreamVisitor;

// Runs until the sources end. False with a message if they or the network fail, false with an empty one if `stopped`
// returned true; then only the first images have been visited.
bool stream_run(Decoders *d, BatchQueue *queue, const StreamVisitor *visitor, Err *err);
