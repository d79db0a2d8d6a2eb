// Catches inputs that are overwritten by what was queued before them.
#include "engine/inputs.h"
#include "test/harness/gpu.h"
#include "test/harness/synthetic.h"

// Memory is zeroed in the queue of ops, which may be busy when the first batch is copied beside it.
TEST(cuda_inputs_of_a_busy_gpu) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  const size_t much = (size_t)1 << 28;
  void *p = device_alloc(gpu, much);
  Batch batch = synthetic_batch(2, 64, 96, 3, 4, (const int[]){1, 2}, 1);
  const BatchSize size = batch_size(&batch);
  Inputs in;
  Err err;
  CHECK(p);
  inputs_plan(&in, gpu, &size, BATCH_BIT(BATCH_BYTES));
  for (int i = 0; i < 100; i++) device_zero(gpu, p, much); // ten milliseconds
  CHECK(inputs_allocate(&in, gpu, &err));
  inputs_stage(&in, gpu, &batch);
  inputs_take(&in, gpu, true);
  uint8_t *got = gpu_fetch(in.array[BATCH_BYTES].data, in.array[BATCH_BYTES].used);
  EXPECT(!memcmp(got, batch_array(&batch, BATCH_BYTES), in.array[BATCH_BYTES].used));
  free(got);
  inputs_free(&in, gpu);
  device_free(gpu, p);
  synthetic_free(&batch);
}
