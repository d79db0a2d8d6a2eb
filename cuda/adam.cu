// Adam and AdamW over flat buffers. The count of updates and what follows from it live on the device, so that a
// captured CUDA graph goes on counting, and a step that is not finite does not count. The floor is memory traffic:
// grid-stride loops of 16-byte accesses.
#include "cuda/common.cuh"
extern "C" {
#include "exact/sgd_slots.h"
}

enum { THREADS = 256, BLOCKS = 132 * 8 }; // fills an H100's 132 SMs

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

static __device__ __forceinline__ void set_rates(AdamStep &s, const Adam &p, size_t i) {
  const float *hyper = (const float *)p.hyper;
  int kind = p.kind ? p.kind[i / PARAM_ALIGN] : 0;
  float rate = hyper[LEARNING_RATE] * (p.kind ? p.factors.rate[kind] : 1);
  float pull = hyper[DECAY] * (p.kind ? p.factors.decay[kind] : 1);
  s.step = rate / ((const float *)p.state)[FIRST_CORRECTION];
  s.pull = p.decoupled ? 0 : pull;
  s.shrink = p.decoupled ? rate * pull : 0;
}

// One update of w [n] and its moments m, v [n], or nothing at all if the gradient is not finite. Grid-stride loop over
// vectors of four, whose elements are of one parameter; reads four numbers and writes three per element.
__global__ void adam_kernel(const __grid_constant__ Adam p, size_t n, float *w, const float *g, float *m, float *v) {
  const float *hyper = (const float *)p.hyper, *stats = (const float *)p.stats, *state = (const float *)p.state;
  if (stats[FINITE] != 1) return;
  AdamStep s = {(float)(1 - p.beta1), (float)p.beta2,
                (float)(1 - p.beta2), sqrtf(state[SECOND_CORRECTION]),
                (float)p.eps,         gradient_clip(hyper, stats)};
  size_t first = thread_index(), step = gridDim.x * blockDim.x;
  for (size_t i = first; i < n / 4; i += step) {
    set_rates(s, p, 4 * i);
    float4 weight = ((float4 *)w)[i], mean = ((float4 *)m)[i], square = ((float4 *)v)[i], grad = ((const float4 *)g)[i];
    update(s, weight.x, grad.x, mean.x, square.x);
    update(s, weight.y, grad.y, mean.y, square.y);
    update(s, weight.z, grad.z, mean.z, square.z);
    update(s, weight.w, grad.w, mean.w, square.w);
    ((float4 *)m)[i] = mean;
    ((float4 *)v)[i] = square;
    ((float4 *)w)[i] = weight;
  }
  size_t i = n / 4 * 4 + first;
  if (i >= n) return;
  set_rates(s, p, i);
  update(s, w[i], g[i], m[i], v[i]);
}

static bool aligned(const void *p) { return (uintptr_t)p % sizeof(float4) == 0; }

extern "C" void cuda_adam(Device *dev, const Adam *p, size_t n, void *w, const void *g, void *m, void *v) {
  if (dev->measuring) return;
  CHECK(p->eps > 0); // elements without a gradient are 0 / eps
  CHECK(aligned(w) && aligned(g) && aligned(m) && aligned(v));
  adam_count_kernel<<<1, 1, 0, stream_of(dev)>>>(p->beta1, p->beta2, (const float *)p->stats, (float *)p->state);
  LAUNCH_CHECK();
  int blocks = MIN(MAX(blocks_for(n, 4 * THREADS), 1), BLOCKS);
  adam_kernel<<<blocks, THREADS, 0, stream_of(dev)>>>(*p, n, (float *)w, (const float *)g, (float *)m, (float *)v);
  LAUNCH_CHECK();
}
