// Catches learning rates that differ from their schedule.
#include "nn/optim.h"
#include "test/harness/test.h"

// A rate is a product of a few factors, each within one rounding of its exact value (pow and cos within a few).
static double tolerance(double want) { return 16 * 0x1p-53 * fabs(want) + 1e-300; }
#define EXPECT_RATE(s, step, want) EXPECT_NEAR(schedule_rate(s, step), want, tolerance(want))

TEST(schedule_step_90k) {
  Schedule s = schedule_default(DECAY_STEP, 90000, 0.02);
  EXPECT_INT(s.milestones, 2);
  EXPECT_INT(s.milestone[0], 60000);
  EXPECT_INT(s.milestone[1], 80000);
  EXPECT_RATE(&s, 0, 0.02 * 0.001);
  EXPECT_RATE(&s, 1, 0.02 * (0.001 + 0.999 / 1000));
  EXPECT_RATE(&s, 500, 0.02 * 0.5005);
  EXPECT_RATE(&s, 999, 0.02 * (1 - 0.999 / 1000));
  EXPECT_RATE(&s, 1000, 0.02);
  EXPECT_RATE(&s, 59999, 0.02);
  EXPECT_RATE(&s, 60000, 0.002);
  EXPECT_RATE(&s, 79999, 0.002);
  EXPECT_RATE(&s, 80000, 0.0002);
  EXPECT_RATE(&s, 1000000, 0.0002);
}

TEST(schedule_step_warmup_and_milestone_meet) {
  // torch: the product of LinearLR(start_factor=0.1, total_iters=8) and MultiStepLR([4, 4, 6], gamma=0.5)
  Schedule s = schedule_default(DECAY_STEP, 10, 1);
  s.warmup = 8;
  s.warmup_factor = 0.1;
  s.gamma = 0.5;
  s.milestones = 3;
  s.milestone[0] = s.milestone[1] = 4;
  s.milestone[2] = 6;
  EXPECT_RATE(&s, 3, 0.1 + 0.9 * 3 / 8);
  EXPECT_RATE(&s, 4, (0.1 + 0.9 * 4 / 8) * 0.25);
  EXPECT_RATE(&s, 6, (0.1 + 0.9 * 6 / 8) * 0.125);
  EXPECT_RATE(&s, 8, 0.125);
}

TEST(schedule_without_warmup_or_decay) {
  Schedule s = schedule_default(DECAY_STEP, 300, 0.5);
  s.warmup = 0;
  s.milestones = 0;
  EXPECT_RATE(&s, 0, 0.5);
  EXPECT_RATE(&s, 299, 0.5);
}

TEST(schedule_cosine) {
  Schedule s = schedule_default(DECAY_COSINE, 6000, 0.04);
  EXPECT_RATE(&s, 0, 0.04 * 0.001);
  EXPECT_RATE(&s, 1000, 0.04 * (1 + cos(M_PI / 6)) / 2);
  EXPECT_NEAR(schedule_rate(&s, 3000), 0.02, 0.04 * 1e-15); // cos(π / 2) is zero but for its argument's rounding
  EXPECT_RATE(&s, 4000, 0.04 * 0.25);
  EXPECT(schedule_rate(&s, 5999) > 0);
  EXPECT(schedule_rate(&s, 6000) == 0 && schedule_rate(&s, 9000) == 0); // never rises again
}

// torchvision's references/classification: a SequentialLR of LinearLR and CosineAnnealingLR(T_max = steps - warmup).
TEST(schedule_cosine_after_warmup) {
  Schedule s = schedule_default(DECAY_COSINE, 18, 0.1);
  s.warmup = s.cosine_start = 6;
  s.warmup_factor = 0.01;
  EXPECT_RATE(&s, 0, 0.001);
  EXPECT_RATE(&s, 5, 0.1 * (0.01 + 0.99 * 5 / 6));
  EXPECT(schedule_rate(&s, 6) == 0.1);
  EXPECT_RATE(&s, 7, 0.1 * (1 + cos(M_PI / 12)) / 2);
  EXPECT_RATE(&s, 10, 0.1 * 0.75);
  EXPECT_RATE(&s, 17, 0.1 * (1 + cos(M_PI * 11 / 12)) / 2);
  EXPECT(schedule_rate(&s, 18) == 0 && schedule_rate(&s, 100) == 0);
  s.cosine_start = s.warmup = 18; // warmup alone
  EXPECT_RATE(&s, 17, 0.1 * (0.01 + 0.99 * 17 / 18));
}

TEST(schedule_never_jumps_up) {
  // After warmup both decays only fall, and while warming up one step adds at most base / warmup.
  for (int d = 0; d < 2; d++) {
    Schedule s = schedule_default(d ? DECAY_COSINE : DECAY_STEP, 5000, 1);
    for (int64_t i = 1; i < 5000; i++) {
      double rise = schedule_rate(&s, i) - schedule_rate(&s, i - 1);
      if (!EXPECT(rise <= (i <= s.warmup ? 1e-3 : 0))) return;
    }
  }
}

TEST(ema_decay_warms_up) {
  EXPECT_NEAR(ema_decay(0.999, 1), 2 / 11.0, 1e-15);
  EXPECT_NEAR(ema_decay(0.999, 90), 0.91, 1e-15);
  EXPECT(ema_decay(0.999, 8990) == 0.999 && ema_decay(0.999, 8980) < 0.999 && ema_decay(0.1, 1) == 0.1);
}

TEST(scaled_rate_is_linear) {
  EXPECT_NEAR(scaled_rate(0.02, 16, 16), 0.02, 0);
  EXPECT_NEAR(scaled_rate(0.02, 16, 2), 0.0025, 0);
  EXPECT_NEAR(scaled_rate(0.02, 16, 1), 0.00125, 0);
  EXPECT_NEAR(scaled_rate(0.02, 16, 64), 0.08, 0);
}
