// Catches a learning rate that falls at another step than --drops says.
#include "test/harness/test.h"
#include "training/drops.h"

TEST(drops_are_milestones) {
  Drops d;
  Err err;
  Schedule s = schedule_default(DECAY_STEP, 26 * 100, 1);
  s.warmup = 0;
  if (!EXPECT(drops_parse(&d, "16,22.505,25", &err) && drops_apply(&d, 100, &s, &err))) return;
  EXPECT_NEAR(schedule_rate(&s, 1599), 1, 0);
  EXPECT_NEAR(schedule_rate(&s, 1600), 0.1, 1e-15);
  EXPECT_NEAR(schedule_rate(&s, 2250), 0.1, 1e-15);
  EXPECT_NEAR(schedule_rate(&s, 2251), 0.01, 1e-15);
  EXPECT_NEAR(schedule_rate(&s, 2500), 0.001, 1e-15);
  EXPECT(drops_parse(&d, "26", &err) && !drops_apply(&d, 100, &s, &err));
  EXPECT_STR(err.msg, "26 is not within the run, which has 26 epochs");
}

TEST(drops_refuse_other_lists) {
  static const char *const lists[] = {
      "", "0", "8,", ",8", "8,8", "11,8", "8;11", "-1", "8x", "nan", "8 ,9", "1e99", "1,2,3,4,5,6,7,8,9"};
  for (int i = 0; i < COUNT(lists); i++) {
    Drops d;
    Err err;
    EXPECT(!drops_parse(&d, lists[i], &err) && strstr(err.msg, ": "));
  }
}
