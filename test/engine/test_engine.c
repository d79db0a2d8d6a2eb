// An engine opened, stepped and asked for detections.
#include "engine/detect.h"
#include "models/maskrcnn.h"
#include "test/harness/small_engine.h"
#include "test/harness/test.h"

// What did not open is closed all the same.
TEST(engine_closes_unopened) {
  const Compute unusable[] = {{.device = "cpu", .amp = BF16}, {.device = "cpu", .conv = "mma"}, {.device = "abacus"}};
  ModelConfig config = small_config(NORM_GN, CLASSES);
  const Category category[CLASSES - 1] = {{0}};
  for (int i = 0; i < COUNT(unusable); i++) {
    Engine e;
    Err err;
    EXPECT(
        !engine_open(&e, &unusable[i], model_of(&config), &config, category, &(Shapes){0}, &(Shapes){0}, false, &err));
    engine_close(&e);
  }
}

// A step that is not finite says so and leaves weights and momentum alone.
TEST(engine_step_not_finite) {
  ModelConfig config = small_config(NORM_GN, CLASSES);
  Engine e, before;
  small_engine(&e, &config);
  small_engine(&before, &config);
  params_randomise(&e.params, 1);
  small_step(&e, 0);
  ((float *)params_find(&e.params, "rpn.head.cls_logits.bias")->master.data)[1] = INFINITY;
  const char *path = small_save(&e, "infinite", true);
  EXPECT_STR(small_load(&before, path, (LoadOptions){.momentum = true}).msg, "");
  EXPECT(!small_step(&e, 1).finite);
  expect_same_params(&e, &before, true);
  engine_close(&e);
  engine_close(&before);
}

// The same batch again and again is learnt. Which RoIs are sampled changes on the way, and with them the total: what
// has to fall is the best of it so far, and the loss of the anchors, whose sample is the same at every step.
TEST(engine_learns) {
  ModelConfig config = small_config(NORM_GN, CLASSES);
  Engine e;
  small_engine(&e, &config);
  params_randomise(&e.params, 1);
  StepResult first = small_step(&e, 0), last = first;
  double best = first.total;
  for (int i = 0; i < 15; i++) {
    last = small_step(&e, 0);
    best = fmin(best, last.total);
  }
  EXPECT(best < 0.8 * first.total);
  EXPECT(last.loss[LOSS_OBJECTNESS] < 0.95 * first.loss[LOSS_OBJECTNESS]);
  engine_close(&e);
}

// Detections in pixels of the decoded image, whichever canvas the batch is on.
TEST(engine_detections_fit_the_image) {
  ModelConfig config = small_config(NORM_GN, CLASSES);
  Engine e;
  small_engine(&e, &config);
  params_randomise(&e.params, 1);
  for (int canvas = 0; canvas < 2; canvas++) {
    Batch b = synthetic_batch(IMAGES, CANVAS, CANVAS + 32 * canvas, CAPACITY, CLASSES, (int[]){SYNTHETIC_EMPTY, 2}, 9);
    b.canvas = canvas;
    Detections found;
    engine_infer(&e, &b);
    engine_detections(&e, &b, 0.5f, &found);
    EXPECT(found.n > 0 && found.n <= config.detections);
    for (int i = 0; i < found.n; i++) {
      const Detection *d = &found.items[i];
      EXPECT(d->image == 1 && d->label >= 1 && d->label < CLASSES && d->score > config.min_score);
      EXPECT(0 <= d->box[0] && d->box[0] < d->box[2] && d->box[2] <= (float)b.info[1].w * (1 + 0x1p-22f));
      EXPECT(0 <= d->box[1] && d->box[1] < d->box[3] && d->box[3] <= (float)b.info[1].h * (1 + 0x1p-22f));
      EXPECT(d->mask.h == b.info[1].h && d->mask.w == b.info[1].w);
    }
    detections_free(&found);
    synthetic_free(&b);
  }
  engine_close(&e);
}
