// Catches defects of a ground truth that make scores wrong without a message, in train, infer and cocoeval.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/infer.h"
#include "test/harness/test.h"

static void expect_mistake(const char *says, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void expect_mistake(const char *says, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  expect_mistake_of("", says, fmt, args);
  va_end(args);
}

// shapes_set with another annotation file of a split, by an expression of sed; malloc'ed.
static char *altered(const char *name, const char *split, const char *expression) {
  char *set = xstrdup(in_tmp(name));
  CHECK(!command(NULL, "cp -r %s %s && sed -i '%s' %s/annotations/instances_%s.json", shapes_set(), set, expression,
                 set, split));
  return set;
}

#define TURNED "s/\"bbox\":\\[\\([0-9.]*\\),\\([0-9.]*\\),/\"bbox\":[\\1,\\2,-/"
#define CORNERS "s/\"bbox\":\\[[0-9.]*,[0-9.]*,/\"bbox\":[0,0,/"

static void expect_said(const char *said, const char *line) {
  if (!EXPECT(strstr(said, line))) fprintf(stderr, "  no %s in: %s\n", line, said);
}

TEST_TIER(program_tells_defects_of_the_truth, 1) {
  static const char line[] = "val: boxes with no area inside their image: ";
  char *set = altered("truth-turned", "val", TURNED), *weights = xstrdup(infer_weights());
  const char *said;
  EXPECT_INT(command(&said, "%s --device cpu --weights %s --data %s --eval --out %s", tool("infer"), weights, set,
                     in_tmp("truth-found")),
             0);
  expect_said(said, line);
  expect_said(said, "; scored as objects that no box can match; first: annotation ");
  expect_said(said, "truth-found/defects.tsv\n");
  char *list = file_read(in_tmp("truth-found/defects.tsv"), &(size_t){0}, NULL);
  EXPECT(list && strstr(list, "\nval\tbox-empty\tannotation\t"));
  free(list);
  expect_mistake("; correct the file, or leave out --strict",
                 "%s --device cpu --weights %s --data %s --eval --strict --out %s", tool("infer"), weights, set,
                 in_tmp("truth-strict"));
  EXPECT(!path_is_dir(in_tmp("truth-strict")));

  EXPECT_INT(command(&said, "%s --device cpu --data %s --model tiny --size 64 --iters 1 --detections 10 --out %s",
                     tool("train"), set, in_tmp("truth-trained")),
             0);
  expect_said(said, line);
  char *record = file_read(in_tmp("truth-trained/run.json"), &(size_t){0}, NULL);
  EXPECT(record && strstr(record, "evaluation: boxes with no area inside their image: "));
  free(record);
  expect_mistake("; correct the file, or leave out --strict",
                 "%s --device cpu --data %s --model tiny --size 64 --iters 1 --detections 10 --strict --out %s",
                 tool("train"), set, in_tmp("truth-strict"));

  char *eval = xasprintf("%s --gt %s/annotations/instances_val.json --dt %s", tool("cocoeval"), set,
                         in_tmp("truth-found/detections.json"));
  EXPECT_INT(command(&said, "%s --defects %s", eval, in_tmp("truth.tsv")), 0);
  expect_said(said, "note: --gt: boxes with no area inside their image: ");
  expect_said(said, "note: defects in --gt are listed in ");
  EXPECT(path_is_file(in_tmp("truth.tsv")));
  expect_mistake("; correct the file, or leave out --strict", "%s --strict", eval);
  free(eval);
  free(set);

  set = altered("truth-corners", "val", CORNERS);
  EXPECT_INT(command(&said, "%s --device cpu --weights %s --data %s --eval --out %s", tool("infer"), weights, set,
                     in_tmp("truth-found")),
             0);
  expect_said(said, "val: boxes that do not match their masks: ");
  free(set);
  set = altered("truth-unknown", "val", "s/\"category_id\":[0-9]*/\"category_id\":77/");
  EXPECT_INT(command(&said, "%s --device cpu --weights %s --data %s --eval --out %s", tool("infer"), weights, set,
                     in_tmp("truth-found")),
             0);
  expect_said(said, "val: annotations with an unknown category id: ");
  free(set);

  // Images of the training split under other names.
  set = altered("truth-shared", "val", "");
  CHECK(!command(NULL, "cp %s/train/000003.png %s/val/000002.png", set, set));
  EXPECT_INT(command(&said, "%s --device cpu --data %s --model tiny --size 64 --iters 1 --detections 10 --out %s",
                     tool("train"), set, in_tmp("truth-shared-run")),
             0);
  expect_said(said, "val: image files that are also in the training split: 1; scored too, which makes the scores too "
                    "high; first: image ");
  free(set);
  free(weights);
}

// Fifteen images that cannot be read are ten lines, a count and a list.
TEST_TIER(program_lists_bad_images, 1) {
  char *set = altered("truth-bad", "train", "");
  const char *said;
  CHECK(!command(NULL,
                 "cd %s/train && for i in 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15; do truncate -s 90 "
                 "0000$i.png; done",
                 set));
  EXPECT_INT(
      command(&said,
              "%s --device cpu --data %s --model tiny --size 64 --batch 2 --iters 12 --eval-every never --out %s",
              tool("train"), set, in_tmp("truth-bad-run")),
      0);
  int lines = 0, rows = 0;
  for (const char *at = said; (at = strstr(at, "unusable image replaced: ")); at++) lines++;
  EXPECT_INT(lines, 10);
  expect_said(said, "unusable images replaced: more than 10; all are listed in ");
  expect_said(said,
              "unreadable images: 15 of 24 in training (replaced by others), 0 in evaluation (left out); listed in ");
  char *list = file_read(in_tmp("truth-bad-run/defects.tsv"), &(size_t){0}, NULL);
  for (const char *at = list; at && (at = strstr(at, "\ntrain\tfile\timage\t")); at++) rows++;
  EXPECT_INT(rows, 15);
  free(list);
  free(set);
}
