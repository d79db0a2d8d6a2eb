// BatchQueue: the batches under way on a network, from their beginning until their results are released. Whatever the
// images are, named, of a data set or of --benchmark, their batches are booked here and nowhere else.
#pragma once
#include <stdbool.h>
#include "data/images/image.h"

typedef struct QueuedBatch {
  void *owner; // whatever it is to whoever began it
  int group, images;
  double begun, seconds; // now_seconds(); until it was handed out
  void *results;         // the runner's; NULL: none of its images can be computed, for a reason that is theirs alone
  Err *why;              // that reason
  bool dropped;          // there are neither: who watches has said that it is to stop
  int left;              // images whose results are still to be looked at: the owner's to count
  struct QueuedBatch *next;
} QueuedBatch;

typedef struct BatchQueue BatchQueue;

typedef enum QueueState {
  QUEUE_DONE,  // a batch, with its results
  QUEUE_BUSY,  // batches are under way
  QUEUE_EMPTY, // none is
  QUEUE_FAILS, // with a message: nothing more can be computed
} QueueState;

// Runner: the network behind a queue, which tells it what is done by queue_done, in any order.
typedef struct Runner {
  void *context;
  int groups;                                // of images that can share a batch
  int under_way;                             // batches, at most; ≥ 1
  int (*group)(void *context, int h, int w); // of an image of so many pixels: 0 … groups - 1, by its size alone
  int (*batch)(void *context, int group);    // images of a batch of the group, at most; ≥ 1
  // Begins a batch, whose pixels are copied before it returns. False with a message: nothing more can be computed.
  bool (*start)(void *context, BatchQueue *q, QueuedBatch *b, const Image *const *image, Err *err);
  // QUEUE_DONE: it has told of a batch at least; `wait`: until one is done.
  QueueState (*next)(void *context, BatchQueue *q, bool wait, Err *err);
  void (*release)(void *context, void *results);
} Runner;

struct BatchQueue {
  Runner runner;
  int under_way;             // batches that were begun and not handed out
  QueuedBatch *first, *last; // that are done and not handed out
};

BatchQueue queue_of(const Runner *runner);
bool queue_full(const BatchQueue *q); // no more batches can be begun
// Begins a batch of n images of a group. NULL with a message: nothing more can be computed.
QueuedBatch *queue_begin(BatchQueue *q, int group, const Image *const *image, int n, void *owner, Err *err);
// A batch that is done; `wait`: until one is. The caller releases it.
QueueState queue_next(BatchQueue *q, bool wait, QueuedBatch **done, Err *err);
void queue_release(BatchQueue *q, QueuedBatch *b); // and its results; NULL is nothing
// All that is done and not handed out, before the runner closes.
void queue_free(BatchQueue *q);

// For the runner: the batch has its results, or NULL and why.
void queue_done(BatchQueue *q, QueuedBatch *b, void *results, const Err *why);
void queue_dropped(BatchQueue *q, QueuedBatch *b); // it has none
