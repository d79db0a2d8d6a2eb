// Catches --gpus that starts another number of ranks than asked for, or on other GPUs.
//
// How many ranks --gpus asks for. test/programs/test_mistakes.c tests which GPUs are found, with a simulated GPU.
#include "comm/ranks.h"
#include "test/harness/test.h"

TEST(ranks_on_the_cpu_are_those_asked_for) {
  GpuList list;
  Err err;
  int ranks;
  EXPECT(ranks_count(1, "auto", &list, &ranks, &err) && ranks == 1 && list.count == 0);
  EXPECT(ranks_count(3, "cpu", &list, &ranks, &err) && ranks == 3 && list.count == 0);
  EXPECT(!ranks_count(0, "cpu", &list, &ranks, &err));
  EXPECT_STR(err.msg, "--gpus all cannot be used with --device cpu: give the number of processes, such as --gpus 2");
}

TEST(ranks_take_gpus_from_the_first_on) {
  GpuList list;
  Err err;
  int ranks;
  EXPECT(!ranks_count(2, "cuda:1", &list, &ranks, &err));
  EXPECT_STR(err.msg,
             "--gpus 2 always starts at cuda:0: leave out --device cuda:1, and choose GPUs by CUDA_VISIBLE_DEVICES");
  char name[16];
  list = (GpuList){.count = 4};
  ranks_device(name, sizeof name, "auto", &list, 3);
  EXPECT_STR(name, "cuda:3");
  list.count = 1; // each process is shown its own
  ranks_device(name, sizeof name, "cuda", &list, 3);
  EXPECT_STR(name, "cuda:0");
  ranks_device(name, sizeof name, "cpu", &list, 3);
  EXPECT_STR(name, "cpu");
}
