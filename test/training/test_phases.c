// Catches learning rates and phases other than --phases asks for.
#include "test/harness/test.h"
#include "training/phases.h"

static Phases parsed(const char *text) {
  Phases p;
  Err err = {""};
  if (!EXPECT(phases_parse(&p, text, &err))) printf("    %s\n", err.msg);
  return p;
}

static void expect_text(const Phases *p, double factor, const char *want) {
  char *text = phases_text(p, factor);
  EXPECT_STR(text, want);
  free(text);
}

TEST(phases_of_the_article) {
  const Phases p = parsed("10@1e-3,10@1e-4,25@1e-4");
  EXPECT_INT(p.n, 3);
  EXPECT_INT(phases_epochs(&p), 45);
  EXPECT(p.phase[0].rate == 1e-3 && p.phase[1].rate == 1e-4);
  expect_text(&p, 1, "10@0.001,10@0.0001,25@0.0001");
  expect_text(&p, 0.5, "10@0.0005,10@5e-05,25@5e-05");
}

// A rate holds from the first step of its phase to the last, whatever a resumed run begins at.
TEST(phases_keep_a_rate_until_they_end) {
  const Phases p = parsed("2@0.1,1@0.01,3@0.2");
  const Schedule s = phases_schedule(&p, 0.1, 7);
  EXPECT_INT(s.steps, 42);
  for (int64_t step = 0; step < 45; step++) {
    const double want = step < 14 ? 0.1 : step < 21 ? 0.01 : 0.2;
    EXPECT_NEAR(schedule_rate(&s, step), want, 1e-16 * 2); // a quotient and a product, each within half an ulp of 0.2
  }
  const Schedule half = phases_schedule(&p, 0.05, 7); // after a rollback
  EXPECT_NEAR(schedule_rate(&half, 20), 0.005, 1e-17);
}

TEST(phases_that_cannot_be) {
  static const struct {
    const char *text, *says;
  } cases[] = {{"", "at \"\""},
               {"10", "at \"10\""},
               {"10@", "at \"10@\""},
               {"0@1e-3", "at \"0@1e-3\""},
               {"-1@1e-3", "EPOCHS@RATE"},
               {"10@-1", "EPOCHS@RATE"},
               {"10@0", "EPOCHS@RATE"},
               {"10@nan", "EPOCHS@RATE"},
               {"10@ 1", "EPOCHS@RATE"},
               {"10@1e9", "EPOCHS@RATE"},
               {"10@1e-3,", "at \"\""},
               {"10@1e-3;10@1e-4", "at \"10@1e-3;10@1e-4\""},
               {"10@1e-3+augmented", "EPOCHS@RATE"},
               {"10@1e-3+", "EPOCHS@RATE"},
               {"99999999999999999999@1", "EPOCHS@RATE"},
               {"4@1,1@1,2@1+augment,1@1", ": instead of +augment, give --augment standard --augment-after 5"},
               {"1@1,1@1,1@1,1@1,1@1,1@1,1@1,1@1,1@1,1@1,1@1,1@1,1@1,1@1,1@1,1@1,1@1", "more than 16 phases"}};
  for (int i = 0; i < COUNT(cases); i++) {
    Phases p;
    Err err = {""};
    if (!EXPECT(!phases_parse(&p, cases[i].text, &err) && strstr(err.msg, cases[i].says)))
      printf("    %s: %s\n", cases[i].text, err.msg);
  }
}
