// Catches detections that change or swap batches when several batches are in flight, and allocations per batch.
#include "engine/detect.h"
#include "test/harness/allocations.h"
#include "test/harness/gpu.h"
#include "test/harness/synthetic.h"

enum { H = 64, W = 96, IMAGES = 2, CAPACITY = 3, CLASSES = 4, BATCHES = 11 };

static Batch make_batch(int i) {
  const int objects[] = {1 + i % 3, i % 4 ? 2 : SYNTHETIC_EMPTY};
  return synthetic_batch(IMAGES, H, W, CAPACITY, CLASSES, objects, (uint64_t)i);
}

static void open_engine(Engine *e, const char *device, Batch batch[BATCHES]) {
  ModelConfig config = synthetic_config(H, W, CLASSES);
  Shapes shapes = {.canvases = 1, .canvas = {{.h = H, .w = W}}, .images = IMAGES, .max_objects = CAPACITY};
  for (int i = 0; i < BATCHES; i++) {
    batch[i] = make_batch(i);
    shapes.max_bytes = MAX(shapes.max_bytes, batch[i].num_bytes);
    shapes.max_words = MAX(shapes.max_words, batch[i].num_words);
  }
  Category names[CLASSES - 1] = {{0}};
  Err err;
  if (!engine_open(e, &(Compute){.device = device}, model_of(&config), &config, names, &(Shapes){0}, &shapes, false,
                   &err))
    die(EXIT_RUN, "%s", err.msg);
  params_randomise(&e->params, 5);
}

static void expect_same(const Detections *got, const Detections *want) {
  EXPECT_INT(got->n, want->n);
  for (int i = 0; i < MIN(got->n, want->n); i++) {
    const Detection *a = &got->items[i], *b = &want->items[i];
    EXPECT(a->image == b->image && a->label == b->label && a->score == b->score);
    EXPECT(!memcmp(a->box, b->box, sizeof a->box) && a->mask.h == b->mask.h && a->mask.w == b->mask.w);
    EXPECT(a->mask.n == b->mask.n && !memcmp(a->mask.runs, b->mask.runs, (size_t)a->mask.n * sizeof *a->mask.runs));
  }
}

// Starts all, at most `most` of them under way; each result is looked at when so many more have been started as may be.
static void expect_in_order(Engine *e, Batch batch[BATCHES], const Detections want[BATCHES], int most) {
  int taken = 0;
  BatchDetections found;
  EXPECT(!engine_next_detections(e, true, &found));
  for (int i = 0; i < BATCHES; i++) {
    engine_start_detection(e, &batch[i]);
    EXPECT_INT(engine_detecting(e), i + 1 - taken);
    if (engine_detecting(e) < most) continue;
    EXPECT(engine_next_detections(e, true, &found) && found.batch == &batch[taken]);
    expect_same(&found.detections, &want[taken++]);
  }
  while (engine_next_detections(e, true, &found)) {
    EXPECT(found.batch == &batch[taken]);
    expect_same(&found.detections, &want[taken++]);
  }
  EXPECT_INT(taken, BATCHES);
}

// Results stay valid while two more batches are in flight.
static void expect_kept(Engine *e, Batch batch[BATCHES], const Detections want[BATCHES]) {
  BatchDetections first, found;
  engine_start_detection(e, &batch[0]);
  EXPECT(engine_next_detections(e, true, &first));
  for (int i = 1; i < BATCHES_UNDER_WAY; i++) engine_start_detection(e, &batch[i]);
  device_sync(e->dev);
  expect_same(&first.detections, &want[0]);
  for (int i = 1; i < BATCHES_UNDER_WAY; i++)
    EXPECT(engine_next_detections(e, i % 2 == 0, &found) && found.batch == &batch[i]); // all is done: none has to wait
  expect_same(&first.detections, &want[0]);
}

static void expect_pipeline(const char *device) {
  Engine e;
  Batch batch[BATCHES];
  Detections want[BATCHES];
  int found = 0, different = 0;
  open_engine(&e, device, batch);
  for (int i = 0; i < BATCHES; i++) {
    engine_infer(&e, &batch[i]);
    engine_detections(&e, &batch[i], MASK_THRESHOLD, &want[i]);
    found += want[i].n;
    different += want[i].n != want[0].n || memcmp(want[i].items[0].box, want[0].items[0].box, sizeof(float[4]));
  }
  EXPECT(found > BATCHES && different > BATCHES / 2); // a result that is another batch's would be seen
  for (int most = 1; most <= BATCHES_UNDER_WAY; most++) expect_in_order(&e, batch, want, most);
  expect_kept(&e, batch, want);
  for (int i = 0; i < BATCHES; i++) {
    detections_free(&want[i]);
    synthetic_free(&batch[i]);
  }
  engine_close(&e);
}

TEST(detect_pipeline_same_bits) { expect_pipeline("cpu"); }
TEST(detect_pipeline_same_bits_in_double) { expect_pipeline("cpu64"); }
TEST(cuda_detect_pipeline_same_bits) {
  if (gpu_device()) expect_pipeline("cuda");
}

// An engine may be closed while batches are in flight.
TEST(detect_pipeline_closes_at_any_moment) {
  for (int under_way = 0; under_way <= BATCHES_UNDER_WAY; under_way++) {
    Engine e;
    Batch batch[BATCHES];
    open_engine(&e, "cpu", batch);
    for (int i = 0; i < under_way; i++) engine_start_detection(&e, &batch[i]);
    EXPECT_INT(engine_detecting(&e), under_way);
    engine_close(&e);
    for (int i = 0; i < BATCHES; i++) synthetic_free(&batch[i]);
  }
}

TEST(detect_pipeline_allocates_nothing) {
  if (!allocations_counted()) {
    test_skip("AddressSanitizer has its own allocator");
    return;
  }
  Engine e;
  Batch batch[BATCHES];
  BatchDetections found;
  open_engine(&e, "cpu", batch);
  int64_t before = 0;
  for (int i = 0; i < 2 * BATCHES; i++) {
    if (i == BATCHES_UNDER_WAY) before = allocations();
    engine_start_detection(&e, &batch[i % BATCHES]);
    if (engine_detecting(&e) == BATCHES_UNDER_WAY) EXPECT(engine_next_detections(&e, true, &found));
  }
  EXPECT_INT(allocations() - before, 0);
  while (engine_next_detections(&e, true, &found)) {
  }
  engine_close(&e);
  for (int i = 0; i < BATCHES; i++) synthetic_free(&batch[i]);
}
