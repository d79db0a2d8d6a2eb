// Catches best or periodic checkpoints that are missing, and a run continued with other options than asked for.
#include <stdlib.h>
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static int train(const char *out, const char *more, const char **said) {
  return command(said,
                 "%s --data %s --model tiny --size 64 --batch 1 --detections 10 --lr 0.01 --seed 5 --device cpu "
                 "--threads 1 --out %s %s",
                 tool("train"), shapes_set(), in_tmp(out), more);
}

static bool is_file(const char *out, const char *name) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", out, name);
  return path_is_file(in_tmp(path));
}

// Lines of the log that hold the text.
static int lines_with(const char *out, const char *text) {
  char path[256];
  int n = 0;
  snprintf(path, sizeof path, "%s/log.jsonl", out);
  char *log = file_read(in_tmp(path), &(size_t){0}, NULL);
  for (char *line = log; line && *line; line = strchr(line, '\n') + 1) {
    char *end = strchr(line, '\n');
    *end = '\0';
    n += strstr(line, text) != NULL;
    *end = '\n';
  }
  free(log);
  return n;
}

// A rate that changes no weight: the first evaluation is the best, and the run is out of patience at the third, as is
// one that goes on from there.
TEST_TIER(checkpoints_of_the_best_and_the_last, 1) {
  const char *said;
  if (!EXPECT_INT(
          train("best", "--lr 1e-12 --iters 100 --warmup 0 --eval-every 2 --patience 2 --keep 2 --val-loss", &said), 0))
    printf("    %s\n", said);
  EXPECT(strstr(said, "step 2: best so far, saved as best-bbox.safetensors, best-segm.safetensors\n"));
  EXPECT(strstr(said, "stopped early: no improvement in 2 evaluations; best weights: best-*.safetensors"));
  EXPECT_INT(lines_with("best", "\"kind\":\"train\""), 6);
  EXPECT_INT(lines_with("best", "\"val_loss\":"), 3);
  static const char *const there[] = {"best-bbox.safetensors",
                                      "best-segm.safetensors",
                                      "checkpoint-00000004.safetensors",
                                      "checkpoint-00000006.safetensors",
                                      "checkpoint.safetensors",
                                      "checkpoint-previous.safetensors",
                                      "model.safetensors"};
  for (int i = 0; i < COUNT(there); i++) EXPECT(is_file("best", there[i]));
  EXPECT(!is_file("best", "checkpoint-00000002.safetensors") && !is_file("best", "checkpoint-evaluated.safetensors"));
  EXPECT_INT(train("best", "--lr 1e-12 --iters 100 --warmup 0 --eval-every 2 --patience 2 --keep 2 --val-loss --resume",
                   &said),
             0);
  EXPECT_INT(lines_with("best", "\"kind\":\"train\""), 6);
  EXPECT_INT(train("best", "--lr 1e-12 --iters 8 --warmup 0 --eval-every 2 --resume --amend", &said), 0);
  EXPECT_INT(lines_with("best", "\"kind\":\"train\""), 8);
}

// The same with a warmup of 5 steps: the evaluations after step 2 and 4 do not count, those after 6 and 8 do.
TEST_TIER(checkpoints_of_patience_after_warmup, 1) {
  const char *said;
  EXPECT_INT(train("patient", "--lr 1e-12 --iters 100 --warmup 5 --eval-every 2 --patience 2", &said), 0);
  EXPECT(strstr(said, "stopped early: no improvement in 2 evaluations"));
  EXPECT_INT(lines_with("patient", "\"kind\":\"train\""), 8);
}

// A val without an object has no score: no best, no early end, and no number where people look; a line says why.
TEST_TIER(checkpoints_without_a_score, 1) {
  const char *said;
  char set[512], more[2048], *report;
  snprintf(set, sizeof set, "%s", in_tmp("empty-val"));
  EXPECT_INT(command(&said,
                     "cp -r %s %s && cd %s/annotations && sed -i '/^\"annotations\":/,$d' instances_val.json && echo "
                     "'\"annotations\":[]}' >> instances_val.json",
                     shapes_set(), set, set),
             0);
  snprintf(more, sizeof more, "--data %s --iters 5 --warmup 0 --eval-every 1 --patience 2 --target-bbox 0", set);
  if (!EXPECT_INT(train("unscored", more, &said), 0)) printf("    %s\n", said);
  EXPECT(strstr(said, "step 1: no AP: the 6 images have no annotations  "));
  EXPECT(strstr(said, "the targets were not reached: bbox_AP undefined, target 0\n"));
  EXPECT(!strstr(said, "best") && !strstr(said, "stopped early") && !strstr(said, "-1.0") && !strstr(said, ":-1,"));
  EXPECT_INT(lines_with("unscored", "\"kind\":\"train\""), 5);
  EXPECT_INT(lines_with("unscored", "\"bbox_AP\":null"), 5);
  EXPECT(!is_file("unscored", "best.json") && !is_file("unscored", "best-bbox.safetensors"));
  EXPECT(report = file_read(in_tmp("unscored/report.html"), &(size_t){0}, NULL));
  EXPECT(report && !strstr(report, "AP\":-1") && !strstr(report, "AP -1"));
  free(report);
  snprintf(more, sizeof more, "%s --weights %s --data %s --eval --device cpu --out %s", tool("infer"),
           in_tmp("unscored/model.safetensors"), set, in_tmp("unscored-infer"));
  EXPECT_INT(command(&said, "%s", more), 0);
  EXPECT(strstr(said, "no AP: the 6 images have no annotations\n") && !strstr(said, "-1.000"));
  EXPECT(is_file("unscored-infer", "evaluation.html"));
}

// Plain --resume is exact and refuses; --amend goes on and says so, but not with other data, and not backwards.
TEST_TIER(checkpoints_are_amended_when_asked, 1) {
  const char *said;
  EXPECT_INT(train("amended", "--iters 4 --eval-every never", &said), 0);
  EXPECT_INT(train("amended", "--iters 6 --eval-every never --resume", &said), 2);
  EXPECT(strstr(said,
                "it was made with \"steps\":4, but this run has \"steps\":6: give the same options, add --amend to"));
  EXPECT_INT(train("amended", "--iters 6 --eval-every never --amend", &said), 2);
  EXPECT(strstr(said, "--amend needs --resume"));
  EXPECT_INT(train("amended", "--iters 6 --lr 0.005 --eval-every never --resume --amend", &said), 0);
  EXPECT(strstr(said, "amended at step 4: {\"steps\":[4,6],\"lr\":[0.01,0.005],"));
  EXPECT_INT(lines_with("amended", "\"kind\":\"amend\",\"changes\":{\"steps\":[4,6]"), 1);
  EXPECT_INT(lines_with("amended", "\"kind\":\"train\""), 6);
  EXPECT_INT(train("amended", "--iters 5 --eval-every never --resume --amend", &said), 2);
  EXPECT(strstr(said, " is already at step 6, past the 5 steps of this run: increase --epochs or --iters"));
  EXPECT_INT(train("amended", "--iters 8 --eval-every never --resume --amend --seed 6", &said), 2);
  EXPECT(strstr(said, "it was made with \"seed\":5, but this run has \"seed\":6, which --amend cannot change"));
  EXPECT_INT(train("amended", "--iters 8 --eval-every never --resume=previous", &said), 2);
  EXPECT_INT(train("none-yet", "--iters 8 --eval-every never --resume=previous", &said), 2);
  EXPECT(strstr(said, "--resume=previous: there is no ") && strstr(said, "none-yet/checkpoint-previous.safetensors\n"));
  EXPECT_INT(train("amended", "--iters 6 --lr 0.005 --eval-every never --resume=previous --amend", &said), 0);
  EXPECT(strstr(said, "at step 4 of 6"));
}
