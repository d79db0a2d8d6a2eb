// Catches an engine that does not learn, steps with the wrong canvas, or uses memory that it did not plan.
#include <unistd.h>
#include "engine/detect.h"
#include "models/rcnn.h"
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
  Engine *const both[] = {&e, &before};
  for (int i = 0; i < COUNT(both); i++) {
    small_engine(both[i], &config);
    params_randomise(&both[i]->params, 1);
    small_step(both[i], 0);
    ((float *)params_find(&both[i]->params, "rpn.head.cls_logits.bias")->master.data)[1] = INFINITY;
  }
  EXPECT(!small_step(&e, 1).finite);
  expect_same_params(&e, &before, true);
  engine_close(&e);
  engine_close(&before);
}

// Roles of parameters have rates of their own, with either optimiser: where biases' is 0, all else moves.
TEST(engine_trains_roles_by_their_factors) {
  static const SgdFactors still_biases = {.rate = {[PARAM_WEIGHT] = 1, [PARAM_NORM_SCALE] = 1, [PARAM_NORM_SHIFT] = 1},
                                          .decay = {1, 1, 1, 1}};
  ModelConfig config = small_config(NORM_GN, CLASSES);
  Optimizer optimizer[] = {{0}, small_adam};
  for (int i = 0; i < COUNT(optimizer); i++) {
    Engine e, before;
    optimizer[i].factors = &still_biases;
    small_engine_with(&e, &config, &optimizer[i]);
    small_engine_with(&before, &config, &optimizer[i]);
    params_randomise(&e.params, 1);
    params_randomise(&before.params, 1);
    EXPECT(small_step(&e, 0).finite);
    int still = 0, moved[PARAM_ROLES] = {0};
    for (int k = 0; k < e.params.n; k++) {
      const Param *q = e.params.list[k];
      if (!q->trainable) continue;
      const bool same = same_values(&q->master, &before.params.list[k]->master);
      still += same && q->role == PARAM_BIAS;
      moved[q->role] += !same;
    }
    EXPECT(still > 0 && !moved[PARAM_BIAS]);
    EXPECT(moved[PARAM_WEIGHT] && moved[PARAM_NORM_SCALE] && moved[PARAM_NORM_SHIFT]);
    engine_close(&e);
    engine_close(&before);
  }
}

// Of several canvases a step takes that of its batch: it is the step of an engine that has no other.
TEST(engine_steps_on_the_canvas_of_its_batch) {
  ModelConfig config = small_config(NORM_GN, CLASSES);
  Engine several, one;
  Err err;
  small_engine(&several, &config);
  Shapes shapes = several.train.shapes;
  shapes.canvas[0] = shapes.canvas[--shapes.canvases];
  CHECK(engine_open(&one, &(Compute){.device = "cpu"}, model_of(&config), &config, several.category, &shapes,
                    &(Shapes){0}, false, &err));
  Batch b = synthetic_batch(IMAGES, shapes.canvas[0].h, shapes.canvas[0].w, CAPACITY, CLASSES, (int[]){3, 1}, 5);
  for (int i = 0; i < 2; i++) {
    Engine *e = i ? &one : &several;
    StepResult r;
    b.canvas = i ? 0 : 1;
    params_randomise(&e->params, 1);
    engine_step(e, &b, &(StepOptions){.learning_rate = 0.01f, .momentum = 0.9f}, &r);
    EXPECT(r.finite);
  }
  synthetic_free(&b);
  expect_same_params(&several, &one, true);
  engine_close(&several);
  engine_close(&one);
}

// A step that is timed does what any other does, and says how long each part took.
TEST(engine_times_the_same_step) {
  ModelConfig config = small_config(NORM_GN, CLASSES);
  Engine timed, plain;
  small_engine_random(&timed, &config, 1);
  small_engine_random(&plain, &config, 1);
  engine_time_nodes(&timed, true, NULL);
  for (int i = 0; i < 2; i++) {
    StepResult r = small_step(&timed, i), want = small_step(&plain, i);
    EXPECT(r.total == want.total && r.grad_norm == want.grad_norm);
    EXPECT(r.forward_seconds > 0 && r.backward_seconds > 0 && r.update_seconds > 0);
    EXPECT(want.forward_seconds == 0);
  }
  expect_same_params(&timed, &plain, true);
  engine_close(&timed);
  engine_close(&plain);
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

// Masks without room for their runs cross as probabilities and are pasted on the host, with the same result.
TEST(engine_detections_without_room) {
  ModelConfig config = small_config(NORM_GN, CLASSES);
  Engine e;
  small_engine(&e, &config);
  params_randomise(&e.params, 1);
  Batch b = synthetic_batch(IMAGES, CANVAS, CANVAS, CAPACITY, CLASSES, (int[]){3, 2}, 9);
  Detector *d = e.results;
  Detections whole, part;
  int longest = 0, pasted = 0;
  engine_infer(&e, &b);
  engine_detections(&e, &b, 0.5f, &whole);
  const int64_t room = d->runs.room;
  d->runs.room = (int64_t)d->rows * d->size * d->size;
  engine_detections(&e, &b, 0.5f, &part);
  d->runs.room = room;
  EXPECT(whole.n > 6 && whole.items[0].image != whole.items[whole.n - 1].image);
  EXPECT_INT(part.n, whole.n);
  for (int i = 0; i < MIN(part.n, whole.n); i++) {
    const Rle *p = &part.items[i].mask, *q = &whole.items[i].mask;
    EXPECT(p->n == q->n && !memcmp(p->runs, q->runs, (size_t)p->n * sizeof *p->runs));
    longest = MAX(longest, q->n);
    pasted += q->n > d->size * d->size;
  }
  if (!EXPECT(pasted > 0)) printf("    no mask of more than %d runs; the longest has %d\n", d->size * d->size, longest);
  detections_free(&part);
  detections_free(&whole);
  synthetic_free(&b);
  engine_close(&e);
}

// A plan that is only to be printed takes nothing.
TEST(engine_plans_without_taking) {
  ModelConfig config = small_config(NORM_GN, CLASSES);
  const Shapes shapes = {.canvases = 1,
                         .canvas = {{.h = CANVAS, .w = CANVAS}},
                         .images = IMAGES,
                         .max_objects = CAPACITY,
                         .max_bytes = 3 * CANVAS * CANVAS,
                         .max_words = CAPACITY * CANVAS * 3,
                         .prefetch = PREFETCH};
  const Category names[CLASSES - 1] = {{0}};
  Engine e;
  Err err;
  fflush(stdout);
  int kept = dup(STDOUT_FILENO);
  CHECK(freopen("/dev/null", "w", stdout));
  bool ok =
      engine_open(&e, &(Compute){.device = "cpu"}, model_of(&config), &config, names, &shapes, &shapes, true, &err);
  fflush(stdout);
  dup2(kept, STDOUT_FILENO);
  close(kept);
  EXPECT(ok && memory_sum(&e.memory, ON_DEVICE) > 0 && memory_sum(&e.memory, ON_HOST_LOCKED) > 0);
  EXPECT(!e.params.master && !e.arena && !e.dev->workspace && !e.hyper && !e.slot[0].real && !e.train.ring.block &&
         !e.infer.ring.block && !e.train.inputs.array[BATCH_BYTES].data && !((Detector *)e.results)->scratch);
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
