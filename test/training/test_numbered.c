// Catches numbered checkpoints that pile up, and other files removed with them.
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"
#include "training/numbered.h"

static const int64_t steps[] = {5, 40, 300, 2000, 123456789};
static const char *const others[] = {"checkpoint-00000040.safetensors.tmp", "checkpoint-x.safetensors",
                                     "checkpoint-00000040", "last.safetensors"};

// After pruning at `step`: those between `from` and `to`, in the order of `steps`, are there.
static void expect_kept(int64_t step, int keep, int from, int to) {
  char *folder = xasprintf("%s/numbered", test_tmp());
  CHECK(dirs_make(folder, NULL));
  for (int i = 0; i < COUNT(steps); i++) {
    char *name = numbered_name(folder, steps[i]);
    write_text(name, "");
    free(name);
  }
  for (int i = 0; i < COUNT(others); i++) {
    char *name = xasprintf("%s/%s", folder, others[i]);
    write_text(name, "");
    free(name);
  }
  numbered_prune(folder, step, keep);
  for (int i = 0; i < COUNT(steps); i++) {
    char *name = numbered_name(folder, steps[i]);
    EXPECT_INT(path_is_file(name), i >= from && i < to);
    free(name);
  }
  for (int i = 0; i < COUNT(others); i++) {
    char *name = xasprintf("%s/%s", folder, others[i]);
    EXPECT(path_is_file(name));
    free(name);
  }
  free(folder);
}

TEST(numbered_keeps_the_latest) {
  expect_kept(123456789, 2, 3, 5);
  expect_kept(2000, 2, 2, 4); // what is later belongs to a course that was left
  expect_kept(1999, 3, 0, 3);
  expect_kept(1999, 99, 0, 3);
  expect_kept(2000, 0, 0, 0);
  expect_kept(4, 2, 0, 0);
}

TEST(numbered_without_a_folder) {
  char *folder = xasprintf("%s/nowhere", test_tmp()), *name = numbered_name(folder, 7);
  numbered_prune(folder, 7, 1);
  EXPECT(strstr(name, "/nowhere/checkpoint-00000007.safetensors"));
  free(name);
  free(folder);
}
