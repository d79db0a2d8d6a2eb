#include "inference/queue.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/clock.h"

BatchQueue queue_of(const Runner *runner) { return (BatchQueue){.runner = *runner}; }

bool queue_full(const BatchQueue *q) { return q->under_way == q->runner.under_way; }

QueuedBatch *queue_begin(BatchQueue *q, int group, const Image *const *image, int n, void *owner, Err *err) {
  CHECK(!queue_full(q));
  QueuedBatch *b = xcalloc(1, sizeof *b);
  *b = (QueuedBatch){.owner = owner, .group = group, .images = n, .left = n, .begun = now_seconds()};
  if (!q->runner.start(q->runner.context, q, b, image, err)) {
    free(b);
    return NULL;
  }
  q->under_way++;
  return b;
}

static void append(BatchQueue *q, QueuedBatch *b) {
  if (q->first)
    q->last->next = b;
  else
    q->first = b;
  q->last = b;
}

void queue_done(BatchQueue *q, QueuedBatch *b, void *results, const Err *why) {
  b->results = results;
  if (why) {
    b->why = xmalloc(sizeof *b->why);
    *b->why = *why;
  }
  append(q, b);
}

void queue_dropped(BatchQueue *q, QueuedBatch *b) {
  b->dropped = true;
  append(q, b);
}

QueueState queue_next(BatchQueue *q, bool wait, QueuedBatch **done, Err *err) {
  const QueueState state = q->first ? QUEUE_DONE : q->runner.next(q->runner.context, q, wait, err);
  if (state != QUEUE_DONE) return state;
  QueuedBatch *b = q->first;
  q->first = b->next;
  q->under_way--;
  b->seconds = now_seconds() - b->begun;
  *done = b;
  return QUEUE_DONE;
}

void queue_release(BatchQueue *q, QueuedBatch *b) {
  if (!b) return;
  if (b->results) q->runner.release(q->runner.context, b->results);
  free(b->why);
  free(b);
}

void queue_free(BatchQueue *q) {
  for (QueuedBatch *b = q->first, *next; b; b = next) {
    next = b->next;
    queue_release(q, b);
  }
  q->first = NULL;
}
