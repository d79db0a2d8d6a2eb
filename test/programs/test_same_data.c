// Catches runs that go on with other data, and scores of another set or of training's own images that look like others.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static char *text_of(const char *folder, const char *name) {
  char *path = xasprintf("%s/%s", folder, name), *text = file_read(path, &(size_t){0}, NULL);
  free(path);
  return text ? text : xstrdup("");
}

static bool says(const char *folder, const char *name, const char *what) {
  char *text = text_of(folder, name);
  const bool found = strstr(text, what);
  free(text);
  return found;
}

TEST_TIER(program_resumes_on_the_same_data_only, 1) {
  static const struct {
    const char *change, *undo, *says;
  } cases[] = {{"cd train && mv 000001.png x && mv 000002.png 000001.png && mv x 000002.png",
                "cd train && mv 000001.png x && mv 000002.png 000001.png && mv x 000002.png",
                "image files (names, lengths or sizes); give the same data"},
               {"sed -E -i.was '0,/\"bbox\":\\[[0-9]+/s//\"bbox\":[1/' annotations/instances_train.json",
                "mv annotations/instances_train.json.was annotations/instances_train.json", "annotations;"},
               {"sed -E -i.was 's/\"category_id\":1,/\"category_id\":x,/; s/\"category_id\":2,/\"category_id\":1,/; "
                "s/\"category_id\":x,/\"category_id\":2,/' annotations/instances_train.json",
                "mv annotations/instances_train.json.was annotations/instances_train.json", "annotations;"}};
  const char *said;
  char train[512], *set = xstrdup(in_tmp("same-data"));
  CHECK(!command(NULL, "cp -r %s %s", shapes_set(), set));
  snprintf(train, sizeof train,
           "%s --data %s --model tiny --size 64 --detections 20 --batch 2 --iters 4 --eval-every never --device cpu "
           "--out %s",
           tool("train"), set, in_tmp("same-data-run"));
  if (!EXPECT_INT(command(&said, "%s --stop-after 2", train), 0)) return;
  for (int i = 0; i < COUNT(cases); i++) {
    CHECK(!command(NULL, "cd %s && %s", set, cases[i].change));
    EXPECT_INT(command(&said, "%s --resume", train), 2);
    if (!EXPECT(strstr(said, " differs from the data of this run in its ") && strstr(said, cases[i].says)))
      fprintf(stderr, "%s", said);
    if (i > 0) EXPECT_INT(command(&said, "%s --resume --amend", train), 2);
    CHECK(!command(NULL, "cd %s && %s", set, cases[i].undo));
  }
  CHECK(!command(NULL, "cd %s && %s", set, cases[0].change)); // from here on
  EXPECT_INT(command(&said, "%s --resume --amend --stop-after 1", train), 0);
  EXPECT(strstr(said, "image files (names, lengths or sizes); accepted because of --amend"));
  EXPECT_INT(command(&said, "%s --resume", train), 0);
  EXPECT(says(in_tmp("same-data-run"), "run.json", "\"trained_on\":{\"images\":24,\"files\":"));
  free(set);
}

TEST_TIER(program_compares_scores_of_the_same_set, 1) {
  const char *said;
  char train[512];
  snprintf(train, sizeof train,
           "%s --data %s --model tiny --size 64 --detections 20 --batch 2 --iters 8 --eval-every 2 --lr 0.01 --device "
           "cpu --out %s",
           tool("train"), shapes_set(), in_tmp("two-sets"));
  if (!EXPECT_INT(command(&said, "%s --stop-after 4", train), 0)) return;
  char *best = text_of(in_tmp("two-sets"), "best.json");
  EXPECT(strstr(best, "\"scored_set\":"));
  EXPECT_INT(command(&said, "%s --val-limit 2 --resume", train), 0);
  EXPECT(strstr(said, "step 6: evaluated on other data than the best so far (now 2 images); not compared with it"));
  EXPECT(!strstr(said, "best result so far, saved"));
  char *after = text_of(in_tmp("two-sets"), "best.json");
  EXPECT_STR(after, best);
  free(best);
  free(after);
}

TEST_TIER(program_tells_scores_of_images_trained_on, 1) {
  const char *said;
  char infer[512];
  if (!EXPECT_INT(train_shapes("", "learnt-from", "--iters 2"), 0)) return;
  snprintf(infer, sizeof infer, "%s --eval --device cpu --weights %s/model.safetensors --data %s --out", tool("infer"),
           in_tmp("learnt-from"), shapes_set());
  EXPECT_INT(command(&said, "%s %s --split train", infer, in_tmp("scored-train")), 0);
  EXPECT(strstr(said, " on 24 images; 24 of them were used for training: not a held-out score\n"));
  EXPECT(says(in_tmp("scored-train"), "scores.json", "\"scored_on_training_images\":24,"));
  EXPECT(says(in_tmp("scored-train"), "evaluation.html", "\"scored_on_training_images\":24,"));
  EXPECT_INT(command(&said, "%s %s", infer, in_tmp("scored-val")), 0);
  EXPECT(strstr(said, " on 6 images\n") && says(in_tmp("scored-val"), "scores.json", "_training_images\":0,"));
  // Weights of a run that began with these know of both.
  EXPECT_INT(
      command(
          NULL,
          "%s --data %s --train-split val --val-split train --model tiny --size 64 --detections 20 --batch 2 --iters 1 "
          "--eval-every never --device cpu --weights %s/model.safetensors --out %s",
          tool("train"), shapes_set(), in_tmp("learnt-from"), in_tmp("learnt-on")),
      0);
  EXPECT_INT(command(&said,
                     "%s --eval --device cpu --weights %s/learnt-on/model.safetensors --data %s --out %s "
                     "--split train --limit 5",
                     tool("infer"), test_tmp(), shapes_set(), in_tmp("scored-first")),
             0);
  EXPECT(strstr(said, " on 5 images; 5 of them were used for training: not a held-out score\n"));
}

// Which images were scored, and the scores; malloc'ed.
static char *scores_of(const char *folder, const char *name) {
  static const char *const key[] = {"\"scored_set\":", "\"metrics\":{", "\"confusion\":{"};
  static const char end[] = ",}}";
  char *text = text_of(folder, name), *found = xstrdup("");
  for (int i = 0; i < COUNT(key); i++) {
    const char *from = strstr(text, key[i]), *to = from ? strchr(from, end[i]) : NULL;
    if (!EXPECT(to)) break;
    char *longer = xasprintf("%s%.*s\n", found, (int)(to - from), from);
    free(found);
    found = longer;
  }
  free(text);
  return found;
}

TEST_TIER(program_scores_what_training_held_out, 1) {
  const char *said;
  char train[700], *set = xstrdup(in_tmp("held-out-set")), *moved = xstrdup(in_tmp("held-out-moved")), infer[700];
  CHECK(!command(NULL, "cp -r %s %s", shapes_set(), set));
  snprintf(train, sizeof train,
           "%s --train-json %s/annotations/instances_train.json --train-images %s/train --model tiny --size 64 "
           "--detections 20 --batch 2 --iters 2 --eval-every end --device cpu --out %s",
           tool("train"), set, set, in_tmp("held-out-run"));
  if (!EXPECT_INT(command(&said, "%s --stop-after 1 --fold 1/3", train), 0)) fprintf(stderr, "%s", said);
  EXPECT(strstr(said, "--fold 1/3 --split-seed 1 holds out 8 of 24 images (33.3 %) for evaluation"));
  EXPECT_INT(command(&said, "%s --resume --fold 2/3", train), 2);
  EXPECT(strstr(said, "it was made with \"fold\":\"1/3\", but this run has \"fold\":\"2/3\""));
  EXPECT_INT(command(&said, "%s --resume --fold 1/3 --group 00000.", train), 2);
  EXPECT(strstr(said, "it was made with \"group\":null, but this run has "));
  EXPECT_INT(command(&said, "%s --resume --fold 1/3", train), 0);
  // In another place, as a data set or a file.
  CHECK(!command(NULL, "mv %s %s", set, moved));
  snprintf(infer, sizeof infer, "%s --eval --device cpu --weights %s/model.safetensors", tool("infer"),
           in_tmp("held-out-run"));
  EXPECT_INT(command(&said, "%s --data %s --out %s", infer, moved, in_tmp("held-out-a")), 0);
  if (!EXPECT(strstr(said, "val: 8 images that training held out (--fold 1/3 --split-seed 1)")))
    fprintf(stderr, "%s", said);
  EXPECT_INT(command(&said,
                     "%s --val-json %s/annotations/instances_train.json --val-images %s/train --split val --out %s",
                     infer, moved, moved, in_tmp("held-out-b")),
             0);
  char *trained = scores_of(in_tmp("held-out-run"), "evaluation.json"),
       *a = scores_of(in_tmp("held-out-a"), "scores.json"), *b = scores_of(in_tmp("held-out-b"), "scores.json");
  EXPECT_STR(a, trained);
  EXPECT_STR(b, trained);
  char *const all[] = {set, moved, trained, a, b};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}

// Small, medium and large objects are those of training, whatever the file calls their areas.
TEST_TIER(program_takes_annotations_as_in_training, 1) {
  const char *said;
  char train[512], infer[512];
  snprintf(train, sizeof train,
           "%s --data test/exports/layout-roboflow --model tiny --size 64 --detections 5 --batch 1 --iters 2 "
           "--device cpu --out %s",
           tool("train"), in_tmp("annotations-run"));
  EXPECT_INT(command(&said, "%s --stop-after 1 --areas mask --boxes mask", train), 0);
  EXPECT_INT(command(&said, "%s --resume --areas mask", train), 2);
  EXPECT(strstr(said, "it was made with \"boxes\":\"mask\", but this run has \"boxes\":"));
  EXPECT_INT(command(&said, "%s --resume --areas mask --boxes mask", train), 0);
  snprintf(infer, sizeof infer, "%s --data test/exports/layout-roboflow --eval --device cpu --weights %s --out %s",
           tool("infer"), in_tmp("annotations-run/model.safetensors"), in_tmp("annotations-out"));
  EXPECT_INT(command(&said, "%s", infer), 0);
  EXPECT(strstr(said, "val: --areas mask, as in training; --boxes mask, as in training\n"));
  EXPECT(!strstr(said, "the areas are those of the boxes"));
  EXPECT_INT(command(&said, "%s --areas file", infer), 0);
  EXPECT(strstr(said, "val: --areas file, but training had --areas mask; --boxes mask, as in training\n"));
  EXPECT(strstr(said, "the areas are those of the boxes"));
}
