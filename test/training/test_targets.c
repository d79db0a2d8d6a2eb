// Catches times to a target that leave out parts of an interrupted run.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"
#include "training/targets.h"

static const Targets both = {2, {{"--target-bbox", "bbox_AP", 0.3}, {"--target-segm", "segm_AP", 0.25}}};
static const Targets box = {1, {{"--target-bbox", "bbox_AP", 0.3}}};

static bool read_text(const Targets *t, const char *log, TimeToTarget *out, Err *err) {
  char *dir = xasprintf("%s/targets", test_tmp()), *path = xasprintf("%s/log.jsonl", dir);
  CHECK(dirs_make(dir, err));
  FILE *f = fopen(path, "w");
  CHECK(f && fputs(log, f) >= 0 && !fclose(f));
  TargetsOfLog read = {0};
  const bool ok = targets_read(t, dir, &read, err);
  *out = read.time;
  free(path);
  free(dir);
  return ok;
}

static TimeToTarget time_of(const Targets *t, const char *log) {
  Err err;
  TimeToTarget out;
  if (!EXPECT(read_text(t, log, &out, &err))) printf("    %s\n", err.msg);
  return out;
}

#define STEP(step, at) "{\"step\":" #step ",\"kind\":\"train\",\"loss\":1,\"seconds\":" #at "}\n"
#define EVAL(step, bbox, segm, at, took)                                                                               \
  "{\"step\":" #step ",\"kind\":\"eval\",\"bbox_AP\":" #bbox ",\"segm_AP\":" #segm ",\"clock\":{\"at\":" #at           \
  ",\"took\":" #took "}}\n"

TEST(targets_are_reached_by_one_evaluation) {
  static const char log[] = STEP(1, 2) EVAL(1, 0.31, 0.2, 3, 0.75) STEP(2, 4) EVAL(2, 0.1, 0.5, 6, 1.5) STEP(3, 7)
      EVAL(3, 0.3, 0.25, 9, 1.25) STEP(4, 10) EVAL(4, 0.9, 0.9, 11, 0.5);
  const TimeToTarget t = time_of(&both, log), first = time_of(&box, log);
  EXPECT(t.reached && t.step == 3 && t.evaluations == 3);
  EXPECT(t.seconds == 9 && t.evaluating == 3.5 && t.value[0] == 0.3 && t.value[1] == 0.25);
  EXPECT_STR(t.summary, "bbox_AP 0.3000 of 0.3, segm_AP 0.2500 of 0.25");
  EXPECT(first.reached && first.step == 1 && first.evaluations == 1 && first.seconds == 3 && first.evaluating == 0.75);
}

// Three parts, the second of which has no evaluation, and the third begins with one.
TEST(targets_count_the_time_of_all_parts) {
  const TimeToTarget t = time_of(&both, STEP(1, 5) EVAL(1, 0.1, 0.1, 8, 2) STEP(2, 9) STEP(3, 1) STEP(4, 3)
                                            EVAL(4, 0.2, 0.2, 1, 0.5) STEP(5, 2) EVAL(5, 0.4, 0.4, 4, 1));
  EXPECT(t.reached && t.seconds == 9 + 3 + 4 && t.evaluating == 3.5 && t.evaluations == 3);
}

// A step that went on beside the scores of an evaluation stands behind them with an earlier clock.
TEST(targets_know_steps_and_scores) {
  const TimeToTarget t =
      time_of(&both, STEP(1, 5) EVAL(1, 0.1, 0.1, 8, 2) STEP(2, 6) STEP(3, 7) STEP(4, 9) EVAL(4, 0.4, 0.4, 12, 3));
  EXPECT(t.reached && t.seconds == 12);
}

#define EVAL_OF(step, bbox, set, images, left_out)                                                                     \
  "{\"step\":" #step ",\"kind\":\"eval\",\"bbox_AP\":" #bbox ",\"images\":" #images ",\"left_out\":" #left_out         \
  ",\"scored_set\":" #set ",\"clock\":{\"at\":" #step ",\"took\":0.5}}\n"

// Scores of other images do not count, but where all is as before but that more could be read.
TEST(targets_are_of_one_set) {
  const TimeToTarget other = time_of(&box, EVAL_OF(1, 0.2, 7, 6, 0) EVAL_OF(2, 0.9, 8, 2, 0));
  EXPECT(!other.reached && other.step == 1 && other.value[0] == 0.2 && other.evaluations == 2 && other.seconds == 2);
  const TimeToTarget again = time_of(&box, EVAL_OF(1, 0.2, 7, 6, 0) EVAL_OF(2, 0.9, 8, 2, 0) EVAL_OF(3, 0.4, 7, 6, 0));
  EXPECT(again.reached && again.step == 3);
  EXPECT(time_of(&box, EVAL_OF(1, 0.2, 7, 5, 1) EVAL_OF(2, 0.9, 8, 6, 0)).reached);
  EXPECT(!time_of(&box, EVAL_OF(1, 0.2, 7, 6, 0) EVAL_OF(2, 0.9, 8, 5, 1)).reached);
}

TEST(targets_that_are_not_reached) {
  const TimeToTarget t = time_of(&both, STEP(1, 5) EVAL(1, 0.9, 0.1, 8, 2) STEP(2, 9));
  const TimeToTarget none = time_of(&both, STEP(1, 5));
  EXPECT(!t.reached && t.step == 1 && t.value[0] == 0.9 && t.seconds == 8);
  EXPECT_STR(time_of(&box, EVAL(1, 0.29997, 0, 8, 2)).summary, "bbox_AP 0.29997 of 0.3"); // not 0.3000
  EXPECT(!none.reached && none.step == 0 && none.evaluations == 0 && isnan(none.value[0]));
  // A metric that is no number, as where nothing can be scored, and a model without it.
  EXPECT(!time_of(&both, EVAL(1, null, 0.9, 8, 2)).reached);
  EXPECT_STR(time_of(&both, EVAL(1, -1, 0.9, 8, 2)).summary, "bbox_AP undefined, target 0.3, segm_AP 0.9000 of 0.25");
  EXPECT(!time_of(&box, "{\"step\":1,\"kind\":\"eval\",\"val_top1\":1}\n").reached);
}

TEST(targets_of_a_log_that_is_none) {
  Err err;
  TimeToTarget t;
  EXPECT(!read_text(&box, "{\"step\":1,\"kind\":\n", &t, &err) && strstr(err.msg, "log.jsonl"));
  EXPECT(!time_of(&box, STEP(1, 5) "{\"step\":2,\"kind\":\"ev").reached); // cut short by a crash
}

// After every record, as a run does: what was read before is not read again, and the result is that of the whole.
TEST(targets_read_what_is_new) {
  static const char *const lines[] = {STEP(1, 2), EVAL(1, 0.1, 0.2, 3, 0.75), STEP(2, 4), EVAL(2, 0.3, 0.25, 9, 1.25)};
  char *dir = xasprintf("%s/targets-new", test_tmp()), *path = xasprintf("%s/log.jsonl", dir), *whole = xstrdup("");
  TargetsOfLog read = {0};
  Err err;
  CHECK(dirs_make(dir, &err));
  for (int i = 0; i < COUNT(lines); i++) {
    char *longer = xasprintf("%s%s", whole, lines[i]), *now = xstrdup(longer);
    for (char *at = now; at < now + strlen(whole); at++) // damaged behind our back
      if (*at != '\n') *at = '?';
    write_text(path, now);
    if (!EXPECT(targets_read(&both, dir, &read, &err))) printf("    %s\n", err.msg);
    EXPECT_INT(read.at.lines, i + 1);
    free(whole);
    free(now);
    whole = longer;
  }
  const TimeToTarget all = time_of(&both, whole);
  EXPECT(read.time.reached && read.time.step == all.step && read.time.evaluations == all.evaluations);
  EXPECT(read.time.seconds == all.seconds && read.time.evaluating == all.evaluating);
  EXPECT_STR(read.time.summary, all.summary);
  write_text(path, lines[1]); // cut short: read from its beginning
  EXPECT(targets_read(&both, dir, &read, &err) && read.time.evaluations == 1 && !read.time.reached);
  free(whole);
  free(path);
  free(dir);
}
