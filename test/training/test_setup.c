// Catches warm-up, gradient limits and presets other than documented.
#include "test/harness/test.h"
#include "training/setup.h"
#include "training/spec.h"

static TrainSpec options(const char *a, const char *b) {
  char *argv[] = {"train", "--data", "nowhere", (char *)a, (char *)b, NULL};
  return train_spec(3 + (a != NULL) + (b != NULL), argv);
}

static Schedule schedule(const char *a, const char *b, int64_t steps, int64_t per_epoch) {
  TrainSpec o = options(a, b);
  o.epochs = (int)(steps / per_epoch);
  const TrainSpec run = train_spec_complete(&o, 1, per_epoch);
  const Schedule s = setup_schedule(&run, run.rate);
  train_spec_free(&o);
  return s;
}

TEST(setup_warmup_is_a_third_of_a_short_run) {
  EXPECT_INT(schedule(NULL, NULL, 90000, 7500).warmup, 1000);
  EXPECT_INT(schedule(NULL, NULL, 300, 15).warmup, 100);
  EXPECT_INT(schedule(NULL, NULL, 2, 1).warmup, 0);
  EXPECT_INT(schedule("--warmup", "7", 300, 15).warmup, 7);
  EXPECT_NEAR(schedule("--batch", "8", 300, 15).base, 0.01, 0);
  EXPECT_NEAR(schedule("--lr", "0.001", 300, 15).base, 0.001, 0);
}

// references/detection/engine.py of torchvision; detectron2's and maskrcnn-benchmark's WarmupMultiStepLR.
TEST(setup_conventions_keep_their_sources_warmup) {
  EXPECT_INT(schedule("--conventions", "torchvision", 90000, 7500).warmup, 1000);
  EXPECT_INT(schedule("--conventions", "torchvision", 300, 15).warmup, 14);
  EXPECT_INT(schedule("--conventions", "detectron2", 300, 15).warmup, 1000);
  EXPECT_INT(schedule("--conventions", "mlperf", 300, 15).warmup, 500);
  EXPECT_NEAR(schedule("--conventions", "mlperf", 300, 15).warmup_factor, 1 / 3.0, 1e-15);
}

TEST(setup_has_own_clipping_and_masks_where_no_conventions_say_otherwise) {
  static const struct {
    const char *option, *value;
    float clip;
    bool fan_in;
  } cases[] = {{NULL, NULL, 10, true},
               {"--clip-grad", "0", 0, true},
               {"--clip-grad", "3", 3, true},
               {"--conventions", "mlperf", 0, false},
               {"--conventions", "torchvision", 0, false}};
  for (int i = 0; i < COUNT(cases); i++) {
    TrainSpec o = options(cases[i].option, cases[i].value);
    EXPECT_NEAR(o.clip_grad, cases[i].clip, 0);
    EXPECT_INT(o.config.mask_logits_fan_in, cases[i].fan_in);
    EXPECT_INT(o.config.mask_paste_exact, cases[i].fan_in); // from scratch and without conventions
    EXPECT_INT(o.config.mask_source == MASK_ALIGNED, cases[i].fan_in);
    train_spec_free(&o);
  }
}
