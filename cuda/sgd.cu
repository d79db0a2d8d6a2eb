// The optimiser's step over flat buffers: the gradient's L2 norm and finiteness, whose sums are made
// part by part while others are still missing, SGD with
// momentum, weight decay and clipping by global norm (PyTorch's), and dynamic loss scaling (Micikevicius et al., 2018).
// Every hyper-parameter is read on the device, so that a captured CUDA graph follows the schedule. The floor is memory
// traffic, in accesses of 16 bytes; sums and update have a threadblock for each part.
#include <float.h>
#include "cuda/update.cuh"
extern "C" {
#include "exact/sgd_slots.h"
}

enum { THREADS = 256, VECTOR = 4 };

// Accumulates one element.
static __device__ __forceinline__ void add(GradSum &s, float g) {
  s.squares += (double)g * g; // in float 1e20² would overflow
  s.finite &= fabsf(g) <= FLT_MAX;
}

// Reduction over the threadblock, the same result in every thread.
static __device__ __forceinline__ GradSum block_stats(GradSum s) {
  return {block_sum(s.squares), __syncthreads_and((int)s.finite) != 0};
}

// sums [first …] of g [n]: a threadblock for each part; one read of g, in vectors of four. The last part comes first:
// of gradients that were just written the last are in L2.
__global__ void grad_sums_kernel(size_t n, const float *g, int first, GradSum *sums) {
  GradSum s = {0, true};
  const int part = first + (int)(gridDim.x - 1 - blockIdx.x);
  const size_t begin = (size_t)part * GRAD_PART;
  const int own = (int)min((size_t)GRAD_PART, n - begin), whole = own / VECTOR;
  const float4 *v = (const float4 *)(g + begin);
#pragma unroll 4
  for (int i = threadIdx.x; i < whole; i += THREADS) {
    float4 four = v[i];
    add(s, four.x);
    add(s, four.y);
    add(s, four.z);
    add(s, four.w);
  }
  if ((int)threadIdx.x < own % VECTOR) add(s, g[begin + whole * VECTOR + threadIdx.x]);
  s = block_stats(s);
  if (threadIdx.x == 0) sums[part] = s;
}

// stats [2] = the norm of the unscaled gradient, and 1 if it and all losses are finite. One threadblock, in a fixed
// order, so that the norm has the same bits in every run.
__global__ void grad_stats_kernel(const GradSum *sums, int parts, const float *loss, int losses, const float *hyper,
                                  float *stats) {
  GradSum s = {0, true}, of_losses = {0, true};
#pragma unroll 4
  for (int i = threadIdx.x; i < parts; i += THREADS) {
    s.squares += sums[i].squares;
    s.finite &= sums[i].finite;
  }
  for (int i = threadIdx.x; i < losses; i += THREADS) add(of_losses, loss[i]);
  s.finite &= of_losses.finite;
  s = block_stats(s);
  if (threadIdx.x) return;
  stats[NORM] = (float)(sqrt(s.squares) * hyper[INV_SCALE]);
  stats[FINITE] = s.finite;
}

struct SgdStep {
  float lr, momentum, decay, clip; // clip: times the loss scale's inverse
};
// v = momentum · v + (g · clip + decay · w), w -= lr · v.
static __device__ __forceinline__ void update(const SgdStep &s, float &w, float g, float &v) {
  v = s.momentum * v + (g * s.clip + s.decay * w);
  w -= s.lr * v;
}

// One step of a part of w and of its momentum v, and its shadow, or nothing at all if the gradient is not finite.
// Vectors of four; reads three numbers and writes two and the shadow's per element.
template <class T> __global__ void sgd_kernel(const __grid_constant__ Sgd p, float *w, const float *g, float *v) {
  const float *hyper = (const float *)p.hyper, *stats = (const float *)p.stats;
  const UpdatePart part = p.part[blockIdx.x];
  if (stats[FINITE] != 1) return;
  const SgdStep s = {hyper[LEARNING_RATE] * p.factors.rate[part.role], hyper[MOMENTUM],
                     hyper[DECAY] * p.factors.decay[part.role], gradient_clip(hyper, stats)};
  for (int i = 4 * threadIdx.x; i < part.n; i += 4 * UPDATE_THREADS) {
    const size_t at = part.first + i;
    float4 weight = *(float4 *)(w + at), velocity = *(float4 *)(v + at), grad = *(const float4 *)(g + at);
    update(s, weight.x, grad.x, velocity.x);
    update(s, weight.y, grad.y, velocity.y);
    update(s, weight.z, grad.z, velocity.z);
    update(s, weight.w, grad.w, velocity.w);
    *(float4 *)(v + at) = velocity;
    *(float4 *)(w + at) = weight;
    store_shadow<T>(part, i, weight);
  }
}

// Halves the scale of a step that is not finite, doubles it after `interval` clean ones. One thread.
__global__ void loss_scale_update_kernel(int interval, const float *stats, float *state, float *hyper) {
  if (stats[FINITE] != 1) {
    state[SCALE] /= 2;
    state[CLEAN] = 0;
    state[SKIPPED]++;
  } else if (++state[CLEAN] >= interval) {
    state[SCALE] *= 2;
    state[CLEAN] = 0;
  }
  hyper[INV_SCALE] = 1 / state[SCALE];
}

// ---- launchers ------------------------------------------------------------------------------------------------------

static bool aligned(const void *p) { return (uintptr_t)p % sizeof(float4) == 0; }

extern "C" void cuda_grad_sums(Device *dev, size_t n, const void *g, int first, int end, GradSum *sums) {
  if (dev->measuring || first == end) return;
  CHECK(aligned(g));
  grad_sums_kernel<<<end - first, THREADS, 0, stream_of(dev)>>>(n, (const float *)g, first, sums);
  LAUNCH_CHECK();
}

extern "C" void cuda_grad_stats(Device *dev, int parts, const GradSum *sums, int losses, const void *loss,
                                const void *hyper, void *stats) {
  if (dev->measuring) return;
  grad_stats_kernel<<<1, THREADS, 0, stream_of(dev)>>>(sums, parts, (const float *)loss, losses, (const float *)hyper,
                                                       (float *)stats);
  LAUNCH_CHECK();
}

extern "C" void cuda_sgd(Device *dev, const Sgd *p, void *w, const void *g, void *v) {
  if (dev->measuring || !p->parts) return;
  CHECK(aligned(w) && aligned(g) && aligned(v));
  WITH_TYPE(p->shadow, T, {
    sgd_kernel<T><<<p->parts, UPDATE_THREADS, 0, stream_of(dev)>>>(*p, (float *)w, (const float *)g, (float *)v);
  });
  LAUNCH_CHECK();
}

extern "C" void cuda_loss_scale_update(Device *dev, int interval, const void *stats, void *state, void *hyper) {
  if (dev->measuring) return;
  loss_scale_update_kernel<<<1, 1, 0, stream_of(dev)>>>(interval, (const float *)stats, (float *)state, (float *)hyper);
  LAUNCH_CHECK();
}
