// For timing kernels as a step runs them: with nothing of theirs in the L2 cache.
#pragma once
#include "cuda/common.cuh"
extern "C" {
#include "base/rng.h"
}

static const size_t sweep_bytes = (size_t)256 << 20; // several times any L2 cache

// Loads, not stores: the cache is left with clean lines, whose eviction costs the kernel that is timed nothing.
static __global__ void sweep_kernel(const uint4 *p, size_t vectors, uint32_t *never) {
  uint32_t sum = 0;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += (size_t)gridDim.x * blockDim.x)
    sum |= p[i].x | p[i].y | p[i].z | p[i].w;
  if (sum) *never = sum; // p holds zeros; or the loads would be left out
}

// Nothing: a launch that shifts the count.
static __global__ void idle_kernel() {}

// The n-th sweep of so many, by p: sweep_bytes of zeros. Long enough to hide what it takes to launch the next kernels.
// On an H200 one launch in four takes 0.5 to 1 µs longer, as it seems by count. Of those who take turns one might meet
// it in every round, so that none to three idle launches, drawn by n, come first.
static inline void sweep_l2(cudaStream_t stream, void *p, uint64_t n) {
  for (int idle = rng_u32(RNG_TEST, n) % 4; idle > 0; idle--) idle_kernel<<<1, 1, 0, stream>>>();
  sweep_kernel<<<1024, 256, 0, stream>>>((const uint4 *)p, sweep_bytes / sizeof(uint4), (uint32_t *)p);
  LAUNCH_CHECK();
}
