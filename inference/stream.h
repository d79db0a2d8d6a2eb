// Stream: loose images of any sizes through a network, several batches under way, and results in the order of the
// images.
//
// An image waits for others of its group, so that batches are full, but not for long: a batch that is not full goes
// when the network has nothing to do, when memory or places for waiting images are used up, and when an image has
// waited for half a second. So batches are as full as the network is busy, and a list whose writer pauses leaves no
// image behind.
#pragma once
#include "inference/decoders.h"
#include "inference/queue.h"

// Who watches a stream. "In order": of the images.
typedef struct StreamVisitor {
  void *context;
  // Whether the pixels of an image are to stay until it is visited; NULL: none.
  bool (*keeps)(void *context, const Decoded *image);
  // In order: an image, what was found in its batch and its place there; or that it cannot be used, and why.
  void (*image)(void *context, const Decoded *image, const void *results, int in_batch);
  void (*bad)(void *context, const Decoded *image, const Err *why);
  // A batch of a group is done, `seconds` after its pixels were handed over.
  void (*took)(void *context, int group, int images, double seconds);
  bool (*stopped)(void); // asked before each batch; NULL: never
} StreamVisitor;

// Until the sources end. False with a message when they or the network fail, false with an empty one when the visitor
// said that it is to stop; then images up to some place have been visited.
bool stream_run(Decoders *d, BatchQueue *queue, const StreamVisitor *visitor, Err *err);
