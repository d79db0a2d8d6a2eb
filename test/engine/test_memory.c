// Catches a memory plan that does not say what is too large or what will be allocated later.
#include "base/alloc.h"
#include "base/file.h"
#include "engine/memory.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

static bool fits(const MemoryPlan *m, Err *err) {
  Device *dev = device_open("cpu", err);
  CHECK(dev);
  bool ok = memory_fits(m, dev, err);
  device_close(dev);
  return ok;
}

TEST(memory_plan_names_what_is_too_much) {
  MemoryPlan m = {0};
  Err err;
  memory_add(&m, "activations", ON_DEVICE, 1000, "--batch");
  memory_add(&m, "nothing", ON_HOST, 0, NULL);
  EXPECT_INT(m.rows, 1);
  EXPECT(fits(&m, &err));
  memory_add(&m, "batches", ON_HOST_LOCKED, (size_t)1 << 50, "--threads");
  memory_add(&m, "names", ON_HOST, (size_t)1 << 49, NULL);
  EXPECT(memory_sum(&m, ON_HOST) == (size_t)1 << 49);
  EXPECT(!fits(&m, &err)); // the CPU's own memory is the host's
  EXPECT(strstr(err.msg, "too little memory: 1688849860.3 MB needed, ") == err.msg);
  EXPECT(
      strstr(err.msg, " MB free on the host; the largest part, 1125899906.8 MB, is for the batches: reduce --threads"));
  EXPECT_INT(err_exit(&err), EXIT_USAGE);
}

TEST(memory_plan_names_what_runs_side_by_side) {
  MemoryPlan m = {0};
  Err err;
  memory_add(&m, "activations", ON_DEVICE, (size_t)1 << 50, "--batch");
  memory_add_beside(&m, "activations of nodes that run beside others", 5000000, "--batch");
  memory_add_beside(&m, "workspace of nodes that run beside others", 0, "--batch");
  memory_add_beside(&m, "workspace of the gradients of parameters", 300000, "--batch");
  EXPECT(!fits(&m, &err));
  EXPECT(strstr(err.msg, "is for the activations: reduce --batch; besides 5.0 MB for the activations of nodes that run "
                         "beside others, 0.3 MB for the workspace of the gradients of parameters"));
}

// What is only estimated refuses nothing.
TEST(memory_plan_warns_of_what_comes_later) {
  MemoryPlan m = {0};
  Err err;
  char path[512];
  size_t size;
  snprintf(path, sizeof path, "%s/later", test_tmp());
  memory_add(&m, "results", ON_HOST_LATER, (size_t)1 << 50, "--val-limit");
  int kept = quiet_begin(path);
  EXPECT(fits(&m, &err));
  quiet_end(kept);
  char *said = file_read(path, &size, NULL);
  EXPECT(said && strstr(said, "memory may run out: 0.0 MB are needed now and about 1125899906.8 MB more later, but "));
  free(said);
}
