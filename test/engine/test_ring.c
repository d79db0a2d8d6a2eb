// Catches batches overwritten while they are still in use.
#include "engine/ring.h"
#include "evaluation/evaluate.h"
#include "test/harness/small_set.h"
#include "test/harness/synthetic.h"
#include "test/harness/test.h"

TEST(ring_is_handed_out_again) {
  Err err;
  Device *dev = device_open("cpu", &err);
  Ring r;
  CHECK(dev && ring_allocate(&r, dev, 300));
  const HostMemory m = ring_memory(&r);
  for (int round = 0; round < 2; round++) {
    char *a = m.alloc(m.context, 100), *b = m.alloc(m.context, 200);
    EXPECT(a == r.block && b == a + 100 && !m.alloc(m.context, 1));
    m.free(m.context, a);
    EXPECT(!m.alloc(m.context, 1)); // only once all are back
    m.free(m.context, b);
  }
  ring_free(&r, dev);
  EXPECT(ring_allocate(&r, dev, 0));
  EXPECT(!r.block && !ring_memory(&r).alloc(&r, 1));
  ring_free(&r, dev);
  device_close(dev);
}

// All that the loader of an evaluation asks for was taken when the engine was opened.
TEST(ring_holds_the_batches_of_an_evaluation) {
  enum { BATCH = 2, CLASSES = 3 };
  Dataset d;
  if (!open_set(&d, small_set("ring-set"), &small_options)) return;
  const ModelConfig config = synthetic_config(small_options.resize.size, small_options.resize.max_size, CLASSES);
  const Category category[CLASSES - 1] = {{.id = 3}, {.id = 8}};
  const Shapes shapes = shapes_of(&d, BATCH);
  Engine e;
  Err err = {""};
  if (!EXPECT(engine_open(&e, &(Compute){.device = "cpu"}, model_of(&config), &config, category, &(Shapes){0}, &shapes,
                          false, &err)))
    printf("    %s\n", err.msg);
  params_randomise(&e.params, 1);
  const size_t bytes = e.infer.ring.bytes;
  Evaluation results;
  for (int round = 0; round < 2; round++) { // once, and again after it was given back
    EXPECT(evaluate_run(&e, &d, 1, NULL, &results, &err));
    EXPECT(results.found.n > 0);
    evaluation_free(&results);
  }
  e.infer.ring.bytes = bytes - 1;
  EXPECT(!evaluate_run(&e, &d, 1, NULL, &results, &err));
  EXPECT(strstr(err.msg, " for a batch of images on the host; reduce --batch"));
  evaluation_free(&results);
  e.infer.ring.bytes = bytes;
  engine_close(&e);
  dataset_close(&d);
}
