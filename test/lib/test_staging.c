// Catches images in the wrong batch of the library, or waiting forever for a batch to fill.
#include "lib/staging.h"
#include "test/harness/test.h"

static Device *device;

static void setup(Staging *s, int images, int queue, int canvases) {
  Err err;
  device = device_open("cpu", &err);
  EXPECT(staging_init(s, device, images, queue, canvases, 1));
}

static void teardown(Staging *s) {
  staging_free(s, device);
  device_close(device);
}

static StagedBatch *add(Staging *s, int canvas, void *owner, int image) {
  StagedBatch *b = staging_forming(s, canvas);
  const size_t need = (size_t)b->batch.num_bytes + 3 * 4 * 5;
  if (need > b->room) EXPECT(staging_grow(b, device, need));
  staging_append(b, (StageSlot){.owner = owner, .image = image, .h = 4, .w = 5},
                 &(ImageInfo){.h = 4, .w = 5, .rh = 8, .rw = 10});
  return b;
}

static void filled(Staging *s) {
  for (int i = 0; i < s->n; i++) s->list[i].filling = false;
}

TEST(staging_groups_by_canvas_and_runs_full_batches_first) {
  Staging s;
  int owner;
  setup(&s, 2, 8, 2);
  StagedBatch *part = add(&s, 0, &owner, 0);
  StagedBatch *full = add(&s, 1, &owner, 1);
  EXPECT(full != part && add(&s, 1, &owner, 2) == full);
  EXPECT(!staging_next(&s, true)); // somebody still copies
  filled(&s);
  EXPECT(staging_next(&s, false) == full);
  full->state = STAGE_RUNNING;
  EXPECT(!staging_next(&s, false));
  EXPECT(staging_next(&s, true) == part);
  staging_release(full);
  EXPECT(full->batch.used == 0 && full->batch.index[0] == -1 && full->batch.info[0].h == 0);
  EXPECT_INT(part->batch.num_bytes, 60);
  EXPECT(part->batch.index[0] == 0 && part->batch.index[1] == -1);
  teardown(&s);
}

// A rare canvas is not left behind for ever by a common one.
TEST(staging_part_of_a_batch_gets_its_turn) {
  Staging s;
  int owner, turn = 0;
  setup(&s, 2, 8, 2);
  StagedBatch *part = add(&s, 0, &owner, 0);
  for (; turn < 100; turn++) {
    add(&s, 1, &owner, 1);
    add(&s, 1, &owner, 2);
    filled(&s);
    StagedBatch *next = staging_next(&s, false);
    if (next == part || !EXPECT(next)) break;
    staging_release(next);
  }
  EXPECT(turn > 1 && turn < 10);
  teardown(&s);
}

static int told; // images, as a sum of their numbers

static void tell(const StageSlot *p) { told += p->image; }

// Batches of nobody else's are free again; others run, with slots of nobody.
TEST(staging_cancels) {
  Staging s;
  int before, now;
  setup(&s, 3, 9, 3);
  StagedBatch *mixed = add(&s, 0, &before, 0);
  add(&s, 0, &now, 1);
  StagedBatch *whole = add(&s, 1, &now, 2);
  filled(&s);
  StagedBatch *copied = add(&s, 2, &now, 4);
  EXPECT_INT(staging_cancel(&s, &now, tell), 1);
  EXPECT_INT(told, 3); // not what is being copied
  EXPECT(whole->state == STAGE_FREE && mixed->batch.used == 2 && !mixed->slot[1].owner);
  EXPECT(mixed->slot[0].owner == &before && copied->slot[0].owner == &now);
  EXPECT_INT(staging_cancel(&s, &before, tell), 2);
  EXPECT(mixed->state == STAGE_FREE);
  teardown(&s);
}

// The worst that a queue can bring: as many canvases as there are, and each batch but the last full.
TEST(staging_has_a_slot_for_the_queue) {
  enum { CANVASES = 3, IMAGES = 4, QUEUE = 13 };
  Staging s;
  int owner;
  setup(&s, IMAGES, QUEUE, CANVASES);
  for (int canvas = 0; canvas < CANVASES; canvas++) add(&s, canvas, &owner, canvas);
  for (int i = CANVASES; i < QUEUE; i++) EXPECT(add(&s, 0, &owner, i));
  teardown(&s);
}

TEST(staging_grows_and_keeps) {
  Staging s;
  setup(&s, 2, 4, 1);
  StagedBatch *b = staging_forming(&s, 0);
  EXPECT(staging_grow(b, device, 60));
  staging_append(b, (StageSlot){0}, &(ImageInfo){.h = 4, .w = 5});
  for (int i = 0; i < 60; i++) b->batch.bytes[i] = (uint8_t)i;
  EXPECT(staging_grow(b, device, 120));
  for (int i = 0; i < 60; i++) EXPECT_INT(b->batch.bytes[i], i);
  teardown(&s);
}
