// Catches training that gives other bits when batches are staged ahead.
#include "base/alloc.h"
#include "engine/engine.h"
#include "models/rcnn.h"
#include "test/harness/gpu.h"
#include "test/harness/synthetic.h"

enum { H = 64, W = 96, IMAGES = 2, CAPACITY = 3, CLASSES = 4, STEPS = 9 };

static const StepOptions options = {.learning_rate = 0.01f, .momentum = 0.9f, .weight_decay = 1e-4f, .clip = 5};

static Batch make_batch(int step) {
  Batch b = synthetic_batch(IMAGES, H, W, CAPACITY, CLASSES, (int[]){1 + step % 3, 2}, (uint64_t)step);
  b.wait_seconds = 0;
  return b;
}

static void open_engine(Engine *e, const char *device) {
  ModelConfig config = synthetic_config(H, W, CLASSES);
  Shapes shapes = {.canvases = 1, .canvas = {{.h = H, .w = W}}, .images = IMAGES, .max_objects = CAPACITY};
  for (int step = 0; step < STEPS; step++) {
    Batch b = make_batch(step);
    shapes.max_bytes = MAX(shapes.max_bytes, b.num_bytes);
    shapes.max_words = MAX(shapes.max_words, b.num_words);
    synthetic_free(&b);
  }
  Category names[CLASSES - 1] = {{0}};
  Err err;
  if (!engine_open(e, &(Compute){.device = device}, model_of(&config), &config, names, &shapes, &(Shapes){0}, false,
                   &err))
    die(EXIT_RUN, "%s", err.msg);
  params_randomise(&e->params, 5);
}

// A batch in memory of the engine, and what it is a copy of.
typedef struct Pinned {
  Batch batch, source;
} Pinned;

static size_t array_bytes(const Batch *b, BatchArray a) {
  const BatchSize size = batch_size(b);
  return batch_elements(&size, a) * batch_layout[a].element;
}

static Pinned pin(Engine *e, int step) {
  Batch b = make_batch(step);
  Pinned pinned = {.source = b, .batch = b};
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++) {
    void *own = device_host_alloc(e->dev, array_bytes(&b, a));
    memcpy(own, batch_array(&b, a), array_bytes(&b, a));
    batch_set_array(&pinned.batch, a, own);
  }
  return pinned;
}

// Its memory is the host's again: what a loader would decode into it next is noise here.
static void reuse(Engine *e, Pinned *pinned) {
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++) {
    memset(batch_array(&pinned->batch, a), 0xA5, array_bytes(&pinned->source, a));
    device_host_free(e->dev, batch_array(&pinned->batch, a));
  }
  synthetic_free(&pinned->source);
}

static void expect_result(const StepResult *got, const StepResult *want) {
  EXPECT_INT(got->step, want->step);
  EXPECT(!memcmp(got->loss, want->loss, sizeof want->loss));
  EXPECT(got->grad_norm == want->grad_norm && got->finite == want->finite);
  EXPECT_INT(got->counter[COUNT_ROIS], want->counter[COUNT_ROIS]);
  EXPECT_INT(got->counter[COUNT_POSITIVES], want->counter[COUNT_POSITIVES]);
}

static void expect_same_bits(const char *device) {
  Engine single, pipeline;
  StepResult want[STEPS], got;
  open_engine(&single, device);
  open_engine(&pipeline, device);
  for (int step = 0; step < STEPS; step++) {
    Batch b = make_batch(step);
    engine_step(&single, &b, &options, &want[step]);
    synthetic_free(&b);
  }
  Pinned now = pin(&pipeline, 0);
  int taken = 0;
  engine_stage(&pipeline, &now.batch);
  for (int step = 0; step < STEPS; step++) {
    engine_start(&pipeline, &options);
    reuse(&pipeline, &now);
    if (step + 1 < STEPS) {
      now = pin(&pipeline, step + 1);
      engine_stage(&pipeline, &now.batch);
    }
    while (engine_result(&pipeline, false, &got)) expect_result(&got, &want[taken++]);
    EXPECT_INT(taken, MAX(step - 1, 0)); // two may still be computed
  }
  while (engine_result(&pipeline, true, &got)) expect_result(&got, &want[taken++]);
  EXPECT_INT(taken, STEPS);
  size_t bytes = single.params.trainable * dtype_size(single.dev->real);
  void *a = xmalloc(bytes), *b = xmalloc(bytes);
  device_download(single.dev, a, single.params.master, bytes);
  device_download(pipeline.dev, b, pipeline.params.master, bytes);
  EXPECT(!memcmp(a, b, bytes));
  free(a);
  free(b);
  engine_close(&single);
  engine_close(&pipeline);
}

TEST(pipeline_same_bits) { expect_same_bits("cpu"); }
TEST(pipeline_same_bits_in_double) { expect_same_bits("cpu64"); }
TEST(cuda_pipeline_same_bits) {
  if (gpu_device()) expect_same_bits("cuda");
}
