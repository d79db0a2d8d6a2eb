// Catches images of a data set's batch that are not computed, empty slots that are, and failures that are lost.
#include <stdlib.h>
#include "base/alloc.h"
#include "inference/batches.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

typedef struct Fake { // a network that is done at once
  int images, width[4], group;
  uint8_t first[4];
  bool refuses, fails;
} Fake;

static bool start(void *context, BatchQueue *q, QueuedBatch *b, const Image *const *image, Err *err) {
  Fake *f = context;
  if (f->fails) return err_set(err, "the network is gone");
  f->images = b->images;
  f->group = b->group;
  for (int i = 0; i < b->images; i++) {
    f->width[i] = image[i]->w;
    f->first[i] = image[i]->rgb[0];
  }
  Err why;
  err_set(&why, "too large");
  queue_done(q, b, f->refuses ? NULL : xcalloc(1, 1), f->refuses ? &why : NULL);
  return true;
}

static QueueState next(void *context, BatchQueue *q, bool wait, Err *err) {
  (void)context;
  (void)q;
  (void)wait;
  (void)err;
  return QUEUE_EMPTY;
}

static void release(void *context, void *results) {
  (void)context;
  free(results);
}

// Four places, of which the first and the third are empty.
static void compute(void *fake) {
  uint8_t bytes[30] = {[0] = 1, [12] = 2};
  ImageInfo info[4] = {[1] = {.h = 1, .w = 4}, [3] = {.h = 2, .w = 3, .offset = 12}};
  const Batch batch = {.images = 4, .canvas = 2, .index = (int[]){-1, 7, -1, 0}, .info = info, .bytes = bytes};
  BatchQueue q = queue_of(&(Runner){.context = fake, .under_way = 1, .start = start, .next = next, .release = release});
  batches_begin(&q, &batch);
  QueuedBatch *b = batches_next(&q);
  EXPECT(b->owner == &batch);
  queue_release(&q, b);
  queue_free(&q);
}

TEST(batches_of_a_data_set_leave_empty_slots_out) {
  Fake f = {0};
  compute(&f);
  EXPECT(f.images == 2 && f.group == 2);
  EXPECT(f.width[0] == 4 && f.first[0] == 1);
  EXPECT(f.width[1] == 3 && f.first[1] == 2);
}

TEST(batches_of_a_data_set_end_the_program_where_one_fails) {
  const char *said;
  EXPECT_INT(run_in_child(compute, &(Fake){.fails = true}, &said), EXIT_RUN);
  EXPECT(strstr(said, "the network is gone"));
  EXPECT_INT(run_in_child(compute, &(Fake){.refuses = true}, &said), EXIT_RUN);
  EXPECT(strstr(said, "too large"));
}
