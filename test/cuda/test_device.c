// Which code the driver loads: what nvcc compiled for this GPU or, where CUDA_FORCE_PTX_JIT says so, the build's PTX.
#include "cuda/conv/ladder.h"
#include "test/harness/gpu.h"

// `make test-ptx` is nothing unless PTX is what runs.
TEST(cuda_code_is_ptx_where_forced) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  const char *forced = getenv("CUDA_FORCE_PTX_JIT");
  bool from_ptx = strstr(gpu->description, "PTX compiled by the driver") != NULL;
  printf("  %s\n", gpu->description);
  if (forced && !strcmp(forced, "1")) EXPECT(from_ptx);
  EXPECT(!from_ptx || !gpu->wgmma);
}

// Code without wgmma leaves every problem to the rungs below, though the GPU be Hopper's.
TEST(cuda_code_decides_on_wgmma) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  const Conv conv = {1, 1};
  const Tensor in = tensor(BF16, 2, 16, 16, 64), w = tensor(BF16, 64, 3, 3, 64);
  for (const Rung *const *rung = gpu->conv_rungs; *rung; rung++)
    for (int op = 0; op < CONV_OPS && !strcmp((*rung)->name, "wgmma"); op++)
      EXPECT_INT((*rung)->supports(gpu, (ConvOp)op, &conv, &in, &w), gpu->wgmma);
}
