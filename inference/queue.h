// BatchQueue: the batches in flight on a network, from start until their results are released. All batches, of named
// images, a data set or --benchmark, go through it.
#pragma once
#include <stdbool.h>
#include "data/images/image.h"

typedef struct QueuedBatch {
  void *owner; // the caller's data
  int group, images;
  double begun, seconds; // start: now_seconds(); time until it was handed out
  void *results;         // the runner's; NULL: none of its images can be computed, for a reason that concerns only them
  Err *why;              // that reason
  bool dropped;          // a stop was requested: neither results nor a reason
  int left;              // images whose results are still unread: counted by the owner
  struct QueuedBatch *next;
} QueuedBatch;

typedef struct BatchQueue BatchQueue;

typedef enum QueueState {
  QUEUE_DONE,  // a batch, with its results
  QUEUE_BUSY,  // batches are in flight
  QUEUE_EMPTY, // no batches are in flight
  QUEUE_FAILS, // with a message: nothing more can be computed
} QueueState;

// Runner: the network behind a queue; it reports finished batches with queue_done, in any order.
typedef struct Runner {
  void *context;
  int groups;                                // number of groups of images that can share a batch
  int under_way;                             // maximum number of batches in flight; ≥ 1
  int (*group)(void *context, int h, int w); // the group of an image of that size: 0 … groups - 1
  int (*batch)(void *context, int group);    // maximum number of images in a batch of the group; ≥ 1
  // Starts a batch; its pixels are copied before it returns. False with a message: nothing more can be computed.
  bool (*start)(void *context, BatchQueue *q, QueuedBatch *b, const Image *const *image, Err *err);
  // QUEUE_DONE: it has reported at least one batch; `wait`: waits until one is done.
  QueueState (*next)(void *context, BatchQueue *q, bool wait, Err *err);
  void (*release)(void *context, void *results);
} Runner;

struct BatchQueue {
  Runner runner;
  int under_way;             // batches started and not handed out
  QueuedBatch *first, *last; // batches done and not handed out
};

BatchQueue queue_of(const Runner *runner);
bool queue_full(const BatchQueue *q); // no more batches can be begun
// Starts a batch of n images of a group. NULL with a message: nothing more can be computed.
QueuedBatch *queue_begin(BatchQueue *q, int group, const Image *const *image, int n, void *owner, Err *err);
// A finished batch; `wait`: waits for one. The caller releases it.
QueueState queue_next(BatchQueue *q, bool wait, QueuedBatch **done, Err *err);
void queue_release(BatchQueue *q, QueuedBatch *b); // releases a batch and its results; NULL is allowed
// Releases everything that is done and not handed out, before the runner closes.
void queue_free(BatchQueue *q);

// For the runner: the batch has its results, or NULL and the reason.
void queue_done(BatchQueue *q, QueuedBatch *b, void *results, const Err *why);
void queue_dropped(BatchQueue *q, QueuedBatch *b); // the batch was dropped and has no results
