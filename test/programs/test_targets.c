// Catches runs that stop before or after their target, or report the wrong time to it.
#include <math.h>
#include "base/file.h"
#include "base/json.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

// stdout alone, which one record is; what is said for people goes to `said`.
static int train(const char *out, const char *more, const char **record, const char **said) {
  const int status = command(record,
                             "{ %s --data %s --model tiny --size 64 --batch 2 --seed 5 --device cpu --threads 1 "
                             "--val-limit 2 --out %s %s 2>%s; }",
                             tool("train"), shapes_set(), in_tmp(out), more, in_tmp("said.txt"));
  static char *text;
  free(text);
  text = file_read(in_tmp("said.txt"), &(size_t){0}, NULL);
  *said = text ? text : "";
  return status;
}

// A member of the record, which is a number, true or false.
static double member(const char *record, const char *name) {
  Json j;
  const char *key;
  double value = NAN;
  json_open(&j, "record", record, strlen(record));
  if (json_begin_object(&j))
    while ((key = json_key(&j))) {
      const bool asked = !strcmp(key, name), number = json_peek(&j) == JSON_NUMBER;
      if (!asked)
        json_skip(&j);
      else
        value = number ? json_number(&j) : json_bool(&j);
    }
  EXPECT(json_done(&j));
  json_close(&j);
  return value;
}

static bool is_file_of(const char *out, const char *record) {
  char path[256];
  snprintf(path, sizeof path, "%s/time-to-target.json", out);
  char *text = file_read(in_tmp(path), &(size_t){0}, NULL);
  const bool same = text && !strcmp(text, record);
  free(text);
  return same;
}

TEST_TIER(targets_end_a_run, 1) {
  const char *record, *said;
  if (!EXPECT_INT(train("target", "--iters 50 --eval-every 2 --target-bbox 0 --target-segm 0", &record, &said), 0))
    printf("    %s\n", said);
  EXPECT(strstr(said, "stopped early: step 2 reached the targets, bbox_AP 0.") && strstr(said, "segm_AP 0.") &&
         strstr(said, "\ndone: "));
  EXPECT(member(record, "reached") == 1 && member(record, "step") == 2 && member(record, "images") == 4);
  EXPECT(member(record, "evaluations") == 1 && member(record, "target_segm_AP") == 0);
  const double whole = member(record, "seconds"), evaluating = member(record, "evaluation_seconds");
  EXPECT(evaluating > 0 && whole > evaluating);
  EXPECT(fabs(member(record, "training_seconds") + evaluating - whole) < 1e-9);
  EXPECT(is_file_of("target", record) && path_is_file(in_tmp("target/model.safetensors")));
  // One that is there already ends at once, and one that is not there goes on.
  EXPECT_INT(train("target", "--iters 50 --eval-every 2 --target-bbox 0 --resume", &record, &said), 0);
  EXPECT(member(record, "step") == 2 && member(record, "seconds") == whole && !strstr(record, "segm"));
  EXPECT_INT(train("target", "--iters 50 --eval-every 2 --target-segm 1 --resume --stop-after 2", &record, &said), 0);
  EXPECT(strstr(said, "stopped: ") && !*record);
}

TEST_TIER(targets_that_are_never_reached, 1) {
  const char *record, *said;
  EXPECT_INT(train("target-far", "--iters 4 --eval-every 2 --target-bbox 1 --target-segm 0", &record, &said), 0);
  EXPECT(strstr(said, "the targets were not reached: bbox_AP ") && strstr(said, " of 1, segm_AP ") &&
         strstr(said, "\ndone: "));
  EXPECT(member(record, "reached") == 0 && member(record, "step") == 4 && member(record, "evaluations") == 2);
}

// The last evaluation counts as well.
TEST_TIER(targets_of_a_resumed_run, 1) {
  const char *record, *said;
  EXPECT_INT(train("target-parts", "--iters 4 --eval-every 3 --target-bbox 1 --stop-after 3", &record, &said), 0);
  EXPECT(!*record);
  char *log = file_read(in_tmp("target-parts/log.jsonl"), &(size_t){0}, NULL);
  const char *clock = log ? strstr(log, "\"at\":") : NULL;
  const double before = clock ? strtod(clock + 5, NULL) : NAN;
  free(log);
  EXPECT_INT(train("target-parts", "--iters 4 --eval-every 3 --target-bbox 1 --resume", &record, &said), 0);
  EXPECT(member(record, "evaluations") == 2 && member(record, "step") == 4 && member(record, "seconds") > before);
}

TEST_TIER(targets_mistakes, 1) {
  static const struct {
    const char *options, *says;
  } mistakes[] = {
      {"--target-segm 0.3 --eval-every end",
       "--target-segm is checked at evaluations during the run: give --eval-every STEPS"},
      {"--target-bbox 37.7 --eval-every 2", "--target-bbox takes"},
      {"--target-top1 0.9 --eval-every 2", "--target-top1 is for classifiers"},
      {"--model resnet18 --target-bbox 0.3 --eval-every 2", "--target-bbox is for detectors"},
      {"--target-bbox 0.3 --eval-epochs 1 --val-split nothing", "evaluation: "},
  };
  for (int i = 0; i < COUNT(mistakes); i++) {
    const char *record, *said;
    const int status = train("target-mistaken", mistakes[i].options, &record, &said);
    const char *end = strchr(said, '\n');
    if (!EXPECT(status == 2 && end && !end[1] && strstr(said, mistakes[i].says))) printf("    %s\n", said);
  }
}
