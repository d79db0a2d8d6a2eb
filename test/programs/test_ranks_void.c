// Catches a step with an unreadable image on one rank that is lost or counted twice.
#include "base/error.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static const char *file_of(const char *out, const char *file) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", out, file);
  return in_tmp(path);
}

static int run_of(const char *set, const char *out, const char *more, const char **said) {
  return command(said,
                 "env OMP_NUM_THREADS=1 %s --data %s --out %s --model tiny --size 64 --batch 2 --gpus 2 --iters 6 "
                 "--lr 0.01 --seed 5 --strict --threads 1 --device cpu --eval-every never %s",
                 tool("train"), set, in_tmp(out), more);
}

static void expect_run(const char *set, const char *out, const char *more) {
  const char *said;
  if (!EXPECT_INT(run_of(set, out, more, &said), 0)) printf("    %s\n", said);
}

// A copy of the set whose image of this number is zeros from its 100th byte on: its length, by which a resumed run
// recognises its data, stays.
static const char *set_without(const char *image) {
  static char set[512];
  snprintf(set, sizeof set, "%s", in_tmp("set-cut"));
  CHECK(!command(NULL, "rm -rf %s && cp -r %s %s", set, shapes_set(), set));
  CHECK(!command(NULL, "f=%s/train/%s.png; n=$(stat -c %%s $f); truncate -s 100 $f && truncate -s $n $f", set, image));
  return set;
}

static void mend(const char *image) {
  CHECK(!command(NULL, "cp %s/train/%s.png %s", shapes_set(), image, in_tmp("set-cut/train")));
}

// Rank 1 is to read 000003.png for step 4, one after the checkpoint of step 3. Batch norms' running statistics have
// moved in the void step, so that the checkpoint of step 2 is the last one where that is all there is.
TEST_TIER(ranks_void_step_is_made_again, 1) {
  static const struct {
    const char *norm, *every, *kept;
  } cases[] = {{"gn", "2", "has step 3, and checkpoint-previous.safetensors has step 2"},
               {"gn", "3", "has step 3; "},
               {"bn", "2", "has step 2; "},
               {"syncbn", "2", "has step 2; "}};
  for (int i = 0; i < COUNT(cases); i++) {
    const char *said, *set = set_without("000003");
    char more[96], out[32], whole[32];
    snprintf(more, sizeof more, "--norm %s --checkpoint-every %s", cases[i].norm, cases[i].every);
    snprintf(out, sizeof out, "void-%d", i);
    snprintf(whole, sizeof whole, "void-%d-whole", i);
    EXPECT_INT(run_of(set, out, more, &said), 2);
    const char *why = strstr(said, "train: rank 1 on ");
    if (!EXPECT(why && strstr(why, "000003.png: cannot read the image") && strstr(why, cases[i].kept)) ||
        !EXPECT(why && !strstr(why + 1, "train: ")))
      printf("    wanted: %s\n    said: %s\n", cases[i].kept, said);
    mend("000003");
    strcat(more, " --resume");
    expect_run(set, out, more);
    expect_run(set, whole, more);
    EXPECT(same_file(file_of(out, "model.safetensors"), file_of(whole, "model.safetensors")));
    EXPECT(same_file(file_of(out, "checkpoint.safetensors"), file_of(whole, "checkpoint.safetensors")));
  }
}

// Each rank meets one of two images that are cut off; without --strict both are replaced, and the first rank counts
// both.
TEST_TIER(ranks_void_of_images_count_each_once, 1) {
  const char *said, *set = set_without("000003");
  CHECK(!command(NULL, "head -c 100 %s/train/000020.png >%s/train/000020.png", shapes_set(), set));
  EXPECT_INT(command(&said,
                     "env OMP_NUM_THREADS=1 %s --data %s --out %s --model tiny --size 64 --batch 2 --gpus 2 --iters 12 "
                     "--lr 0.01 --seed 5 --threads 1 --device cpu --eval-every never",
                     tool("train"), set, in_tmp("void-replaced")),
             0);
  if (!EXPECT(strstr(said, "unreadable images: 2 of 24 in training (replaced by others), "))) printf("    %s\n", said);
}

// The checkpoint that was made at the step before is not made again: the older one beside it stays.
TEST_TIER(ranks_void_step_after_a_checkpoint_keeps_the_older, 1) {
  const char *said, *set = set_without("000018");
  EXPECT_INT(run_of(set, "void-older", "--checkpoint-every 2", &said), 2);
  if (!EXPECT(strstr(said, "has step 4, and checkpoint-previous.safetensors has step 2"))) printf("    %s\n", said);
}
