// Inference over a data set: it stops between batches when it is told to.
#include "engine/evaluate.h"
#include "test/harness/small_set.h"
#include "test/harness/synthetic.h"
#include "test/harness/test.h"

enum { CLASSES = 3, BATCH = 3 };

// A model of random weights whose inference has the shapes and the categories of the data set.
static void open_engine(Engine *e, const Dataset *d) {
  Err err;
  ModelConfig config = synthetic_config(d->resize.size, d->resize.max_size, CLASSES);
  Category category[CLASSES - 1] = {{.id = 3, .name = "a"}, {.id = 8, .name = "b"}};
  Shapes none = {0}, shapes = shapes_of(d, BATCH);
  if (!engine_open(e, &(Compute){.device = "cpu"}, model_of(&config), &config, category, &none, &shapes, false, &err))
    die(EXIT_RUN, "%s", err.msg);
  params_randomise(&e->params, 1);
}

static int asked;
static bool stop_third_time(void) { return ++asked == 3; }

static void count_batch(void *context, const Dataset *d, const Batch *b, const Detections *found, double seconds) {
  (void)d;
  (void)found;
  (void)seconds;
  *(int *)context += b->used > 0;
}

TEST(evaluate_stops_between_batches) {
  Dataset d;
  Engine e;
  if (!open_set(&d, small_set("stops"), &small_options)) return;
  open_engine(&e, &d);
  CocoResults found;
  int batches = 0;
  asked = 0;
  Err err = {"what stood here"};
  EXPECT(!evaluate_run(&e, &d, 1, &(Visitor){count_batch, &batches, stop_third_time}, &found, &err));
  EXPECT_STR(err.msg, "");
  EXPECT_INT(batches, 2);
  coco_results_free(&found);
  asked = 0;
  err = (Err){"what stood here"};
  EXPECT(!task_detection.collect(&e, &d, 1, stop_third_time, &err));
  EXPECT_STR(err.msg, "");
  EXPECT_INT(asked, 3);
  void *all = task_detection.collect(&e, &d, 1, NULL, &err);
  EXPECT(all);
  task_detection.release(all);
  engine_close(&e);
  dataset_close(&d);
}
