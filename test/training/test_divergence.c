// Catches a diverged run that does not say which loss and images, or goes back to a bad checkpoint.
#include <math.h>
#include "base/alloc.h"
#include "test/harness/test.h"
#include "training/divergence.h"

// All losses of the step, and the names of all its images; a place of the batch may be empty.
TEST(divergence_names_losses_and_images) {
  char *name[] = {"a.png", "b.png", "c.png"};
  CocoImage image[COUNT(name)];
  for (int i = 0; i < COUNT(name); i++) image[i] = (CocoImage){.file_name = name[i]};
  int usable[] = {2, 0};
  const Dataset d = {.coco.images = image, .image = usable};
  const Model m = {.loss = {{.name = "box"}, {.name = "mask"}}};
  Divergence found;
  const StepResult r = {.loss = {-NAN, 0.5}, .grad_norm = INFINITY, .index = (int[]){1, -1, 0}};
  divergence_take(&found, &m, &d, 3, 7, 0.02, &r);
  EXPECT_STR(found.losses, "box nan, mask 0.5, gradient norm inf");
  EXPECT_STR(found.images, "a.png, c.png");
  EXPECT(found.step == 7 && found.rate == 0.02);
}

TEST(divergence_goes_back_to_what_was_good) {
  static const struct {
    long newest, older;
    bool newest_is_good;
    int from; // -1: nowhere
    const char *how, *saved;
  } cases[] = {
      {-1, -1, true, RESUME_NO, "train --lr 0.01", "there is no checkpoint yet"},
      {8, 4, true, RESUME_PREVIOUS, "train --resume=previous --amend --lr 0.01",
       "saved: there/checkpoint.safetensors (step 8), checkpoint-previous.safetensors (step 4)"},
      {8, 4, false, RESUME_PREVIOUS, "train --resume=previous --amend --lr 0.01",
       "saved: there/checkpoint.safetensors (step 8), checkpoint-previous.safetensors (step 4)"},
      {8, -1, true, RESUME_LAST, "train --resume --amend --lr 0.01", "saved: there/checkpoint.safetensors (step 8)"},
      {8, -1, false, -1, "train --lr 0.01 --out there-lr0.01", "saved: there/checkpoint.safetensors (step 8)"},
      {9, -1, true, -1, "train --lr 0.01 --out there-lr0.01",
       "saved: there/checkpoint.safetensors (step 9)"}, // its own step: nothing tells that it was good
  };
  const Divergence d = {.step = 10, .rate = 0.02, .losses = "loss nan", .images = "a.png"};
  for (int i = 0; i < COUNT(cases); i++) {
    const RunFiles f = {.checkpoint = (char *)"there/checkpoint.safetensors",
                        .previous = (char *)"there/checkpoint-previous.safetensors",
                        .newest = cases[i].newest,
                        .older = cases[i].older,
                        .newest_is_good = cases[i].newest_is_good};
    const TrainSpec o = {.out = "there", .command = "train"};
    SessionStart next = {0};
    Err err;
    divergence_explain(&d, &f, &err);
    char *want = xasprintf("step 10: loss or gradient is not finite (loss nan), images a.png; the weights were not "
                           "updated; %s",
                           cases[i].saved);
    EXPECT_STR(err.msg, want);
    free(want);
    char *command = divergence_command(&d, &o, &f);
    EXPECT_STR(command, cases[i].how);
    free(command);
    EXPECT(divergence_roll_back(&d, &f, &next) == (cases[i].from >= 0));
    if (cases[i].from < 0) continue;
    EXPECT_INT(next.resume, cases[i].from);
    EXPECT_INT(next.amend, cases[i].from != RESUME_NO);
    EXPECT_NEAR(next.lr, 0.01f, 0);
  }
}

// Phases have rates of their own, all of which are halved.
TEST(divergence_halves_phases) {
  const Divergence d = {.step = 10, .rate = 0.5, .losses = "loss nan", .images = "a.png"};
  const RunFiles f = {.newest = 8, .older = -1, .newest_is_good = true};
  TrainSpec o = {.out = "there", .command = "train --phases 1@0.5,2@0.25"};
  Err err;
  CHECK(phases_parse(&o.phase_list, "1@0.5,2@0.25", &err));
  char *command = divergence_command(&d, &o, &f);
  EXPECT_STR(command, "train --resume --amend --phases 1@0.25,2@0.125");
  free(command);
}

// An option that the command has already is replaced, however it is written, and no other is touched.
TEST(divergence_replaces_options) {
  const Divergence d = {.step = 10, .rate = 0.5};
  const RunFiles f = {.newest = 8, .older = 4};
  static const char *const given[] = {"./train --lr 0.5 --data 'a --lr b' --resume --lr-schedule x",
                                      "./train --data 'a --lr b' --lr=0.5 --amend --lr-schedule x",
                                      "./train --data 'a --lr b' --lr-schedule x --resume=previous --lr 1 --lr 0.5"};
  for (int i = 0; i < COUNT(given); i++) {
    char *command = divergence_command(&d, &(TrainSpec){.out = "o", .command = (char *)given[i]}, &f);
    EXPECT_STR(command, "./train --data 'a --lr b' --lr-schedule x --resume=previous --amend --lr 0.25");
    free(command);
  }
  // Into another folder where no checkpoint is good.
  char *command = divergence_command(&d, &(TrainSpec){.out = "my run", .command = (char *)"./train --out 'my run'"},
                                     &(RunFiles){.newest = 9, .older = -1});
  EXPECT_STR(command, "./train --lr 0.25 --out 'my run-lr0.25'");
  free(command);
}
