// The GPU as a device. Which code the driver loads: what nvcc compiled for this GPU or, where CUDA_FORCE_PTX_JIT says
// so, the build's PTX. Copies beside the computation.
#include <pthread.h>
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

static void *wait_for_save(void *gpu) { return device_save_wait(gpu) ? gpu : NULL; }

// What is saved is what stood there when the copy was queued, behind the ops before it; ops queued afterwards, which it
// must not wait for, are not seen.
TEST(cuda_save_copies_beside_the_computation) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  enum { BYTES = 32 << 20, ROUNDS = 8 };
  uint8_t *host = device_host_alloc(gpu, BYTES), *value = device_host_alloc(gpu, BYTES);
  void *master = device_alloc(gpu, BYTES), *copy = device_alloc(gpu, BYTES);
  if (!EXPECT(host && value && master && copy)) return;
  for (int round = 0; round < ROUNDS; round++) {
    memset(value, 'a' + round, BYTES);
    device_upload(gpu, master, value, BYTES);
    device_copy(gpu, copy, master, BYTES);
    device_save(gpu, host, copy, BYTES);
    for (int i = 0; i < 20; i++) device_zero(gpu, master, BYTES); // the step after it
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, wait_for_save, gpu));
    void *there = NULL;
    CHECK(!pthread_join(thread, &there));
    EXPECT(there && !memcmp(host, value, BYTES));
  }
  device_sync(gpu);
  device_free(gpu, master);
  device_free(gpu, copy);
  device_host_free(gpu, host);
  device_host_free(gpu, value);
}
