// Catches results that leave the pipeline in another order than their images came.
#include <stdlib.h>
#include "base/alloc.h"
#include "inference/queue.h"
#include "test/harness/test.h"

enum { UNDER_WAY = 3 };

typedef struct Fake {
  QueuedBatch *running[UNDER_WAY]; // the oldest first
  int n;
  bool at_once, fails, refuses; // the batch that begins is done; none can begin; batches have no results
  int released;
} Fake;

static void finish(Fake *f, BatchQueue *q, QueuedBatch *b) {
  Err why;
  err_set(&why, "too large");
  queue_done(q, b, f->refuses ? NULL : xcalloc(1, 1), f->refuses ? &why : NULL);
}

static bool fake_start(void *context, BatchQueue *q, QueuedBatch *b, const Image *const *image, Err *err) {
  Fake *f = context;
  if (f->fails) return err_set(err, "the network is gone");
  EXPECT(b->images == 2 && image[1]->w == 7 && b->left == 2);
  if (f->at_once)
    finish(f, q, b);
  else
    f->running[f->n++] = b;
  return true;
}

static QueueState fake_next(void *context, BatchQueue *q, bool wait, Err *err) {
  (void)err;
  Fake *f = context;
  if (!f->n || !wait) return f->n ? QUEUE_BUSY : QUEUE_EMPTY;
  while (f->n) finish(f, q, f->running[--f->n]); // all of them, the youngest first
  return QUEUE_DONE;
}

static void fake_release(void *context, void *results) {
  ((Fake *)context)->released++;
  free(results);
}

static QueuedBatch *begin(BatchQueue *q, void *owner, Err *err) {
  const Image images[] = {{.h = 1, .w = 5}, {.h = 1, .w = 7}};
  const Image *const each[] = {&images[0], &images[1]};
  return queue_begin(q, 0, each, COUNT(each), owner, err);
}

TEST(queue_hands_out_what_is_done) {
  Err err;
  Fake f = {0};
  int owner[UNDER_WAY];
  const Runner runner = {.context = &f,
                         .groups = 1,
                         .under_way = UNDER_WAY,
                         .start = fake_start,
                         .next = fake_next,
                         .release = fake_release};
  BatchQueue q = queue_of(&runner);
  QueuedBatch *b;
  EXPECT_INT(queue_next(&q, true, &b, &err), QUEUE_EMPTY);
  for (int i = 0; i < UNDER_WAY; i++) {
    f.at_once = i == 1;
    EXPECT(!queue_full(&q) && begin(&q, &owner[i], &err));
  }
  EXPECT(queue_full(&q));
  static const int order[] = {1, 2, 0};
  for (int i = 0; i < UNDER_WAY; i++) {
    if (i == 1) EXPECT_INT(queue_next(&q, false, &b, &err), QUEUE_BUSY);
    if (!EXPECT_INT(queue_next(&q, true, &b, &err), QUEUE_DONE)) return;
    EXPECT(b->owner == &owner[order[i]] && b->results && !b->why && b->seconds >= 0);
    EXPECT_INT(q.under_way, UNDER_WAY - 1 - i);
    queue_release(&q, b);
    EXPECT_INT(f.released, i + 1);
  }
  f.fails = true;
  EXPECT(!begin(&q, NULL, &err));
  EXPECT_STR(err.msg, "the network is gone");
  EXPECT_INT(q.under_way, 0);
  f = (Fake){.at_once = true, .refuses = true};
  EXPECT(begin(&q, NULL, &err) && queue_next(&q, false, &b, &err) == QUEUE_DONE);
  EXPECT(!b->results && b->why && !b->dropped);
  queue_release(&q, b);
  f.refuses = false;
  EXPECT(begin(&q, NULL, &err)); // nobody takes it
  queue_free(&q);
  EXPECT_INT(f.released, 1);
}
