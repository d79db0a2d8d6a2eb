// Catches a running time that counts sessions of a resumed run twice, or not at all.
#include "base/alloc.h"
#include "base/log_clock.h"
#include "test/harness/test.h"

static RunSessions sessions_of(const char *log) {
  RunSessions s = {0};
  Err err;
  char *path = xasprintf("%s/clock.jsonl", test_tmp());
  FILE *f = fopen(path, "w");
  CHECK(f && fputs(log, f) >= 0 && !fclose(f));
  if (!EXPECT(run_sessions_read(&s, path, &err))) printf("    %s\n", err.msg);
  free(path);
  return s;
}

#define STEP(step, at) "{\"step\":" #step ",\"kind\":\"train\",\"seconds\":" #at
#define EVAL(step, at) "{\"step\":" #step ",\"kind\":\"eval\",\"clock\":{\"at\":" #at ",\"took\":1"
#define OF(session) ",\"session\":" #session

// The second is longer than the first, the third has an evaluation alone, the fourth ends in one that is cut short.
TEST(run_clock_of_sessions_that_say_so) {
  RunSessions s = sessions_of(STEP(1, 1) "}\n" STEP(2, 2) "}\n" STEP(3, 5) OF(2) "}\n" EVAL(3, 7)
                                  OF(2) "}}\n" EVAL(3, 9) OF(3) "}}\n" STEP(4, 20) OF(4) "}\n" STEP(5, 3));
  EXPECT_NEAR(s.seconds, 2 + 7 + 9 + 20, 0);
  EXPECT_NEAR(run_sessions_before(&s, 2), 0, 0);
  EXPECT_NEAR(run_sessions_before(&s, 3), 2, 0);
  EXPECT_NEAR(run_sessions_before(&s, 5), 18, 0);
  run_sessions_free(&s);
}

TEST(run_clock_of_a_log_without_sessions) {
  RunSessions s = sessions_of(STEP(1, 1) "}\n" EVAL(1, 4) "}}\n" STEP(2, 2) "}\n" STEP(3, 1) "}\n" STEP(
      4, 3) "}\n" EVAL(4, 2) "}}\n" STEP(5, 6) "}\n");
  EXPECT_NEAR(s.seconds, 4 + 3 + 6, 0);
  EXPECT_NEAR(run_sessions_before(&s, 2), 0, 0);
  EXPECT_NEAR(run_sessions_before(&s, 3), 4, 0);
  EXPECT_NEAR(run_sessions_before(&s, 4), 4, 0); // its evaluation was made again
  EXPECT_NEAR(run_sessions_before(&s, 5), 7, 0);
  run_sessions_free(&s);
}
