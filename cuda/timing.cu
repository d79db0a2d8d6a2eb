// The GPU's clock, by events in the stream, and its ceilings: memory measured, arithmetic from data sheets.
#include "cuda/common.cuh"
extern "C" {
#include "nn/timing.h"
void *cuda_meter_open(Device *dev); // machine.cu, and the others
bool cuda_meter_read(void *meter, MeterReading *r);
void cuda_meter_close(void *meter);
}

// A kernel of a recorded step: events recorded there cost three times as much. It begins while the one before it ends,
// and lets the next begin, as these would without it.
static __global__ void stamp_kernel(uint64_t *ticks) {
  grid_launch_dependents();
  grid_wait_prerequisite();
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
  *ticks = now;
}

static void *allocate_ticks() {
  void *ticks;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed; // nothing that is recorded depends on it
  CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  CUDA_CHECK(cudaMalloc(&ticks, sizeof(uint64_t)));
  CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  return ticks;
}

static void mark(Device *dev, Mark *m) {
  cudaStreamCaptureStatus status;
  CUDA_CHECK(cudaStreamIsCapturing(stream_of(dev), &status));
  m->recorded = status == cudaStreamCaptureStatusActive;
  if (m->recorded) {
    if (!m->ticks) m->ticks = allocate_ticks();
    if (dev->contended || dev->queue != QUEUE_OPS)
      stamp_kernel<<<1, 1, 0, stream_of(dev)>>>((uint64_t *)m->ticks);
    else
      launch_dependent(dev, stamp_kernel, 1, 1, m->ticks);
    LAUNCH_CHECK();
    return;
  }
  if (!m->event) {
    cudaEvent_t event;
    CUDA_CHECK(cudaEventCreate(&event));
    m->event = event;
  }
  CUDA_CHECK(cudaEventRecord((cudaEvent_t)m->event, stream_of(dev)));
}

static uint64_t ticks_of(const Mark *m) {
  uint64_t ticks;
  CUDA_CHECK(cudaMemcpy(&ticks, m->ticks, sizeof ticks, cudaMemcpyDeviceToHost));
  return ticks;
}

static double elapsed(Device *dev, const Mark *from, const Mark *to) {
  float ms;
  CHECK(from->recorded == to->recorded);
  if (to->recorded) {
    CUDA_CHECK(cudaStreamSynchronize(stream_of(dev)));
    return 1e-9 * (double)(int64_t)(ticks_of(to) - ticks_of(from));
  }
  CUDA_CHECK(cudaEventSynchronize((cudaEvent_t)to->event));
  CUDA_CHECK(cudaEventElapsedTime(&ms, (cudaEvent_t)from->event, (cudaEvent_t)to->event));
  return 1e-3 * ms;
}

static void forget(Device *dev, Mark *m) {
  (void)dev;
  if (m->event) CUDA_CHECK(cudaEventDestroy((cudaEvent_t)m->event));
  if (m->ticks) CUDA_CHECK(cudaFree(m->ticks));
  *m = Mark{};
}

// ---- ceilings -----------------------------------------------------------------------------------------------------

// Bytes a second, read and written, of copying `bytes` within the device: the best of several.
static double copy_speed(Device *dev, void *to, const void *from, size_t bytes) {
  Mark before = {}, after = {};
  double best = 0;
  for (int i = 0; i < 5; i++) {
    mark(dev, &before);
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(dev)));
    mark(dev, &after);
    best = MAX(best, 2.0 * bytes / elapsed(dev, &before, &after));
  }
  forget(dev, &before);
  forget(dev, &after);
  return best;
}

// A buffer many times the cache, or as large as the model leaves room for; 0 if there is no room.
static double memory_speed(Device *dev) {
  for (size_t bytes = (size_t)1 << 30; bytes >= (size_t)1 << 27; bytes /= 2) {
    void *from = device_alloc(dev, bytes), *to = from ? device_alloc(dev, bytes) : NULL;
    double speed = to ? copy_speed(dev, to, from, bytes) : 0;
    device_free(dev, from);
    device_free(dev, to);
    if (speed > 0) return speed;
  }
  return 0;
}

// Multiply-adds of one SM in a clock, dense, results in fp32: on the CUDA cores in fp32, on the tensor cores in 16 bit.
// They are the peaks that NVIDIA publishes over SMs and boost clock: A100 19.5 and 312 TFLOP/s, A40 37.4 and 149.7,
// L40S 91.6 and 362, H100 60 and 1000. TF32 is half of 16 bit in all four. Of other chips no share is printed.
static const struct {
  int capability, fp32, tensor;
} chips[] = {{80, 64, 1024}, {86, 128, 512}, {89, 128, 512}, {90, 128, 2048}};

// 2 · multiply-adds · SMs · the highest clock that the driver names. Under load the clock may be lower: the ceiling is
// of the chip, not of its power supply.
static void ceiling(Device *dev, Ceiling *c) {
  int major, minor, sms, khz;
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, dev->index));
  CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, dev->index));
  CUDA_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, dev->index));
  CUDA_CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, dev->index));
  *c = Ceiling{};
  c->bytes = memory_speed(dev);
  for (auto &chip : chips) {
    if (chip.capability != 10 * major + minor) continue;
    double one = 2.0 * sms * 1e3 * khz; // a multiply-add in every SM and clock
    c->flops[BF16] = c->flops[F16] = one * chip.tensor;
    c->flops[F32] = one * (dev->tf32 ? chip.tensor / 2 : chip.fp32);
  }
}

extern "C" const Timing timing_cuda = {
    mark, elapsed, forget, ceiling, cuda_meter_open, cuda_meter_read, cuda_meter_close};
