// Adam and AdamW over flat buffers. The count of updates and what follows from it live on the device, so that a
// captured CUDA graph goes on counting, and a step that is not finite does not count. The floor is memory traffic: a
// threadblock for each part, in accesses of 16 bytes.
#include "cuda/update.cuh"
extern "C" {
#include "exact/sgd_slots.h"
}

// One thread.
__global__ void adam_count_kernel(double beta1, double beta2, const float *stats, float *state) {
  if (stats[FINITE] != 1) return;
  state[UPDATES]++;
  state[FIRST_CORRECTION] = (float)(1 - pow(beta1, (double)state[UPDATES]));
  state[SECOND_CORRECTION] = (float)(1 - pow(beta2, (double)state[UPDATES]));
}

struct AdamStep {
  float towards, keep, take, root, eps, clip; // of all
  float step, pull, shrink;                   // of a parameter
};

static __device__ __forceinline__ void update(const AdamStep &s, float &w, float g, float &m, float &v) {
  float d = g * s.clip + s.pull * w;
  m += s.towards * (d - m);
  v = s.keep * v + s.take * d * d;
  w = w - s.shrink * w - s.step * m / (sqrtf(v) / s.root + s.eps);
}

// One update of a part of w and of its moments m, v, and its shadow, or nothing at all if the gradient is not finite.
// Vectors of four; reads four numbers and writes three and the shadow's per element.
template <class T>
__global__ void adam_kernel(const __grid_constant__ Adam p, float *w, const float *g, float *m, float *v) {
  const float *hyper = (const float *)p.hyper, *stats = (const float *)p.stats, *state = (const float *)p.state;
  const UpdatePart part = p.part[blockIdx.x];
  if (stats[FINITE] != 1) return;
  const float rate = hyper[LEARNING_RATE] * p.factors.rate[part.role];
  const float pull = hyper[DECAY] * p.factors.decay[part.role];
  const AdamStep s = {(float)(1 - p.beta1),
                      (float)p.beta2,
                      (float)(1 - p.beta2),
                      sqrtf(state[SECOND_CORRECTION]),
                      (float)p.eps,
                      gradient_clip(hyper, stats),
                      rate / state[FIRST_CORRECTION],
                      p.decoupled ? 0 : pull,
                      p.decoupled ? rate * pull : 0};
  for (int i = 4 * threadIdx.x; i < part.n; i += 4 * UPDATE_THREADS) {
    const size_t at = part.first + i;
    float4 weight = *(float4 *)(w + at), grad = *(const float4 *)(g + at);
    float4 mean = *(float4 *)(m + at), square = *(float4 *)(v + at);
    update(s, weight.x, grad.x, mean.x, square.x);
    update(s, weight.y, grad.y, mean.y, square.y);
    update(s, weight.z, grad.z, mean.z, square.z);
    update(s, weight.w, grad.w, mean.w, square.w);
    *(float4 *)(m + at) = mean;
    *(float4 *)(v + at) = square;
    *(float4 *)(w + at) = weight;
    store_shadow<T>(part, i, weight);
  }
}

static bool aligned(const void *p) { return (uintptr_t)p % sizeof(float4) == 0; }

extern "C" void cuda_adam(Device *dev, const Adam *p, void *w, const void *g, void *m, void *v) {
  if (dev->measuring) return;
  CHECK(p->eps > 0); // elements without a gradient are 0 / eps
  CHECK(aligned(w) && aligned(g) && aligned(m) && aligned(v));
  adam_count_kernel<<<1, 1, 0, stream_of(dev)>>>(p->beta1, p->beta2, (const float *)p->stats, (float *)p->state);
  LAUNCH_CHECK();
  if (!p->parts) return;
  WITH_TYPE(p->shadow, T, {
    adam_kernel<T>
        <<<p->parts, UPDATE_THREADS, 0, stream_of(dev)>>>(*p, (float *)w, (const float *)g, (float *)m, (float *)v);
  });
  LAUNCH_CHECK();
}
