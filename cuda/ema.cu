// The exponential moving average of the parameters over a flat buffer. The floor is memory traffic: reads two numbers
// and writes one per element, in accesses of 16 bytes.
#include "cuda/common.cuh"
extern "C" {
#include "exact/sgd_slots.h"
}

enum { THREADS = 256 };

static __device__ __forceinline__ void update(float share, float w, float &a) { a += share * (w - a); }

__global__ void ema_kernel(size_t vectors, const float *stats, const float *towards, const float4 *w, float4 *a) {
  const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= vectors || stats[FINITE] != 1) return;
  const float share = *towards;
  const float4 weight = w[i];
  float4 average = a[i];
  update(share, weight.x, average.x);
  update(share, weight.y, average.y);
  update(share, weight.z, average.z);
  update(share, weight.w, average.w);
  a[i] = average;
}

static bool aligned(const void *p) { return (uintptr_t)p % sizeof(float4) == 0; }

extern "C" void cuda_ema(Device *dev, size_t n, const void *stats, const void *towards, const void *w, void *a) {
  if (dev->measuring || n == 0) return;
  CHECK(n % 4 == 0 && aligned(w) && aligned(a));
  const size_t vectors = n / 4;
  ema_kernel<<<(unsigned)((vectors + THREADS - 1) / THREADS), THREADS, 0, stream_of(dev)>>>(
      vectors, (const float *)stats, (const float *)towards, (const float4 *)w, (float4 *)a);
  LAUNCH_CHECK();
}
