// Catches GPU times and ceilings that are off.
#include "base/clock.h"
#include "nn/timing.h"
#include "test/harness/gpu.h"

// What is between two marks takes time, but none that the host did not see pass; marks are used again.
TEST(cuda_timing_marks) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  const Timing *timing = gpu->memory->timing;
  size_t bytes = (size_t)1 << 28;
  void *p = device_alloc(gpu, bytes);
  CHECK(p);
  Mark from = {0}, to = {0};
  for (int i = 0; i < 3; i++) {
    device_sync(gpu);
    double start = now_seconds();
    timing->mark(gpu, &from);
    device_zero(gpu, p, bytes);
    timing->mark(gpu, &to);
    double seconds = timing->elapsed(gpu, &from, &to), host = now_seconds() - start;
    EXPECT(seconds > 0 && seconds < host + 1e-6); // the clock's resolution is half a microsecond
  }
  device_record(gpu); // the same in a program, of which every replay is timed
  timing->mark(gpu, &from);
  device_zero(gpu, p, bytes);
  timing->mark(gpu, &to);
  void *program = device_record_end(gpu);
  for (int i = 0; i < 3; i++) {
    device_sync(gpu);
    const double start = now_seconds();
    device_replay(gpu, program);
    const double seconds = timing->elapsed(gpu, &from, &to), host = now_seconds() - start;
    EXPECT(seconds > (double)bytes / 20e12 && seconds < host + 1e-6); // no GPU's memory is written faster
  }
  device_forget(gpu, program);
  timing->forget(gpu, &from);
  timing->forget(gpu, &to);
  device_free(gpu, p);
}

// The meter counts up, and no less than an idle GPU takes nor more than any is given.
TEST(cuda_meter_counts) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  const Timing *timing = gpu->memory->timing;
  void *meter = timing->meter_open(gpu), *p = device_alloc(gpu, (size_t)1 << 28);
  CHECK(p);
  MeterReading first, now;
  if (!meter) {
    device_free(gpu, p);
    return test_skip("NVML does not count this GPU's energy");
  }
  EXPECT(timing->meter_read(meter, &first) && first.joules > 0 && first.mhz > 0);
  const double start = now_seconds();
  do {
    device_zero(gpu, p, (size_t)1 << 28);
    device_sync(gpu);
    EXPECT(timing->meter_read(meter, &now));
  } while (now_seconds() < start + 0.5);
  const double watts = (now.joules - first.joules) / (now_seconds() - start);
  printf("  %.0f W at %d MHz\n", watts, now.mhz);
  EXPECT(watts > 5 && watts < 2000);
  timing->meter_close(meter);
  device_free(gpu, p);
}

// Between an embedded GPU and a hundred of today's largest. Tensor cores do at least four times what CUDA cores do.
TEST_TIER(cuda_timing_ceiling, 1) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  Ceiling c;
  gpu->memory->timing->ceiling(gpu, &c);
  printf("  copy %.4g GB/s, products %.4g TFLOP/s in fp32, %.4g in bf16\n", c.bytes / 1e9, c.flops[F32] / 1e12,
         c.flops[BF16] / 1e12);
  EXPECT(c.bytes > 1e10 && c.bytes < 1e15);
  EXPECT(c.flops[BF16] >= 4 * c.flops[F32] && c.flops[F16] == c.flops[BF16] && c.flops[BF16] < 1e17);
}
