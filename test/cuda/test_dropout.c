// Catches dropout of other elements than the contract says, or of another share.
//
// Dropout on the GPU against the CPU reference: the same elements, to the bit in F32; and in a recorded program, by the
// step's number in device memory.
#include "test/harness/gpu.h"

static const DType dtypes[] = {F32, BF16, F16};

typedef struct DropoutTwins {
  Dropout p;
  TwinArray step;
  Twin x;
} DropoutTwins;
static void run_dropout(Device *dev, bool gpu, void *context, const Dest *y) {
  DropoutTwins *a = context;
  Dropout p = a->p;
  p.step = twin_array_data(&a->step, gpu);
  dev->ops->dropout(dev, &p, twin_side(&a->x, gpu), y);
}

TEST(cuda_dropout_equals_cpu) {
  if (!gpu_device()) return;
  const float ps[] = {0, 0.25f, 0.5f, 0.9f, 1};
  const int shapes[][4] = {{3, 5, 4, 11}, {2, 1, 1, 4096}, {1, 31, 17, 64}};
  const uint64_t step = 12345;
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int s = 0; s < COUNT(shapes); s++)
      for (int i = 0; i < COUNT(ps); i++) {
        const int *n = shapes[s];
        DropoutTwins a = {.p = {.p = ps[i], .key = 3, .first_row = s}, .step = twin_array(1, sizeof step, &step)};
        a.x = twin_random(dtypes[d], n[0], n[1], n[2], n[3], 1, 1);
        if (s == 0) twin_rows(&a.x, 2);
        Twin y = twin_poisoned_like(&a.x);
        twin_run(run_dropout, &a, &y);
        if (!twin_check(&y, NULL, dtypes[d] == F32 ? 0 : 1)) printf("  dtype %d, p %g\n", dtypes[d], (double)ps[i]);
        twin_check_guards(&y, false);
        if (s == 0 && i == 2) twin_check_dests(run_dropout, &a, &a.x, NULL, dtypes[d] == F32 ? 0 : 1, 10);
        twin_check_guards(&a.x, true);
        twin_free(&y);
        twin_free(&a.x);
        twin_array_free(&a.step);
      }
}

// Replayed, a program draws what each step draws alone.
TEST(cuda_dropout_replays_by_step) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  uint64_t step = 0;
  DropoutTwins a = {.p = {.p = 0.5f, .key = 3}, .step = twin_array(1, sizeof step, &step)};
  a.x = twin_random(F32, 2, 3, 3, 16, 1, 1);
  Twin y = twin_poisoned_like(&a.x);
  CHECK(device_record(gpu));
  run_dropout(gpu, true, &a, &(Dest){.t = y.gpu});
  void *program = device_record_end(gpu);
  float *before = NULL;
  for (step = 0; step < 3; step++) {
    *(uint64_t *)a.step.cpu = step;
    device_upload(gpu, a.step.gpu, &step, sizeof step);
    device_replay(gpu, program);
    device_sync(gpu);
    run_dropout(cpu_device(), false, &a, &(Dest){.t = y.cpu});
    twin_check(&y, NULL, 0);
    float *now = gpu_fetch_floats(&y.gpu);
    if (before) EXPECT(memcmp(before, now, tensor_bytes(&y.cpu)) && "another step, another draw");
    free(before);
    before = now;
  }
  free(before);
  device_forget(gpu, program);
  twin_free(&y);
  twin_free(&a.x);
  twin_array_free(&a.step);
}
