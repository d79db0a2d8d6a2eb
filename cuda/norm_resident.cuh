// BatchNorm whose tensor stays in shared memory between its two passes: one kernel a direction, one read of every
// input. A cluster takes a slice of channels, its threadblocks the slice's pixels in equal parts; sums cross by
// distributed shared memory, in the order of ranks. For tensors that fit into the GPU's shared memory at once; sm_90.
#pragma once
#include <cooperative_groups.h>
#include "cuda/norm_passes.cuh"

enum {
  RESIDENT_THREADS = 512, // of one threadblock on a multiprocessor, at most 128 registers each
  RESIDENT_WARPS = RESIDENT_THREADS / 32,
  RESIDENT_BYTES = 208 << 10, // at most, of a threadblock's slice; sums and the GPU's reserved memory come on top
  RESIDENT_TOTAL = 20 << 20,  // of all that is kept: above, L2 serves the second read sooner than clusters begin
  MAX_VECTORS = 8,            // of eight channels in a slice
  MAX_CHANNELS = 8 * MAX_VECTORS,
  MAX_CLUSTER = 8,
};

// The grid is (cluster, slices), the cluster a row of it; a thread takes pixels lane, lane + lanes, … of its block's.
struct ResidentTiling {
  int pixels, per_block;
  int vectors, lanes; // a slice's vectors of eight channels; lanes · vectors = RESIDENT_THREADS
  int cluster, slices;
  int turns;    // pixels of a thread at most
  size_t bytes; // of one threadblock's slice of all tensors that are kept
};

// Reads are whole sectors of 32 bytes at least. Wider slices are better coalesced, narrower ones make more
// threadblocks. The shape alone decides, and with it the order of sums. False: it does not fit.
static inline bool resident_tiling(const Tensor *x, int tensors, ResidentTiling *to) {
  enum { SMS = 132, ENOUGH = 64 };
  bool found = false;
  if (x->count || tensor_pixels(x) == 0 || tensor_bytes(x) * (size_t)tensors > RESIDENT_TOTAL) return false;
  for (int vectors = MAX_VECTORS; vectors >= 2; vectors /= 2) {
    ResidentTiling t = {};
    t.vectors = vectors;
    t.lanes = RESIDENT_THREADS / vectors;
    t.pixels = (int)tensor_pixels(x);
    t.slices = (x->ldc / 8 + vectors - 1) / vectors;
    for (t.cluster = 1; t.cluster <= MAX_CLUSTER; t.cluster *= 2) {
      t.per_block = blocks_for(t.pixels, t.cluster);
      t.turns = blocks_for(t.per_block, t.lanes);
      t.bytes = (size_t)t.turns * RESIDENT_THREADS * 8 * dtype_size(x->dtype) * (size_t)tensors;
      if (t.bytes <= RESIDENT_BYTES && (t.slices * t.cluster >= ENOUGH || t.cluster == MAX_CLUSTER)) break;
    }
    if (t.cluster > MAX_CLUSTER) continue;
    if (t.slices * t.cluster > SMS) continue;
    *to = t;
    found = true;
    if (t.slices * t.cluster >= ENOUGH) break;
  }
  return found;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// What stands in shared memory before the slices.
struct ResidentSums {
  float of_warp[2][RESIDENT_WARPS][MAX_CHANNELS];
  double of_block[2][2][MAX_CHANNELS]; // [round]: a round's is read by others while the next one's is written
  double total[2][MAX_CHANNELS];
  float made[3][MAX_CHANNELS]; // what a thread a channel makes of them, for all
};

// Sums of the cluster, two for each channel of the slice, to s.total: lanes of a warp by butterflies, warps and blocks
// in order, in double. Every thread of the cluster calls it, once a round. Thread i < 8 · vectors may then read the
// totals of channel i.
static __device__ __forceinline__ void cluster_sums(ResidentSums &s, int round, int vectors, int sums, const Eight &a,
                                                    const Eight &b) {
  namespace cg = cooperative_groups;
  cg::cluster_group cluster = cg::this_cluster();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, channels = 8 * vectors, blocks = gridDim.x;
#pragma unroll
  for (int which = 0; which < 2; which++) {
    if (which >= sums) break;
#pragma unroll
    for (int k = 0; k < 8; k++) {
      float v = which ? b.v[k] : a.v[k];
      for (int offset = 16; offset >= vectors; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
      if (lane < vectors) s.of_warp[which][warp][8 * lane + k] = v;
    }
  }
  __syncthreads();
  const int which = threadIdx.x / channels, channel = threadIdx.x % channels;
  if (which < sums) {
    double v = 0;
#pragma unroll
    for (int w = 0; w < RESIDENT_WARPS; w++) v += s.of_warp[which][w][channel];
    s.of_block[round][which][channel] = v;
  }
  cluster.sync();
  if (which < sums) {
    double v = 0;
    double part[MAX_CLUSTER];
#pragma unroll
    for (int r = 0; r < MAX_CLUSTER; r++) // all reads are in flight before the first is added
      part[r] = r < blocks ? *cluster.map_shared_rank(&s.of_block[round][which][channel], r) : 0;
#pragma unroll
    for (int r = 0; r < MAX_CLUSTER; r++) v += part[r];
    s.total[which][channel] = v;
  }
  __syncthreads();
}
static __device__ __forceinline__ Eight made8(const ResidentSums &s, int which, int vector) {
  return load8(&s.made[which][8 * vector]);
}

// Where a thread works.
struct ResidentPosition {
  int vector, lane, c; // c: the first of its channels
  int first, last;     // pixels of its block
  bool idle;           // past the last channel
};
static __device__ __forceinline__ ResidentPosition position_in(const ResidentTiling &t, const Tensor &x) {
  ResidentPosition p;
  p.vector = threadIdx.x % t.vectors;
  p.lane = threadIdx.x / t.vectors;
  p.c = (blockIdx.y * t.vectors + p.vector) * 8;
  p.first = min((int)blockIdx.x * t.per_block, t.pixels);
  p.last = min(p.first + t.per_block, t.pixels);
  p.idle = p.c >= x.ldc;
  return p;
}

// Starts the thread's copies of channels c … c+7 of its pixels (cp.async): pixel `lane` + turn · lanes to place `turn`
// of `kept`, where it alone reads it.
template <class T>
static __device__ __forceinline__ void fetch_slice(const ResidentTiling &t, const ResidentPosition &at, const Tensor &x,
                                                   Raw8<T> *kept) {
  if (at.idle) return;
  int turn = 0;
  for (int p = at.first + at.lane; p < at.last; p += t.lanes, turn++) {
    const char *from = (const char *)((const T *)x.data + (size_t)p * x.ldc + at.c);
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(&kept[turn * RESIDENT_THREADS + threadIdx.x]);
#pragma unroll
    for (int i = 0; i < (int)sizeof(Raw8<T>); i += 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i), "l"(from + i) : "memory");
  }
}
static __device__ __forceinline__ void fetched() { asm volatile("cp.async.wait_all;" ::: "memory"); }
template <class T> static __device__ __forceinline__ Eight kept8(const Raw8<T> *kept, int turn) {
  return to_eight<T>(kept[turn * RESIDENT_THREADS + threadIdx.x]);
}

// Stores value(turn) of each of the thread's pixels through the epilogue, whose reads of several pixels are in flight
// before the first store.
template <class T, class F>
static __device__ __forceinline__ void store_slice(const ResidentTiling &t, const ResidentPosition &at, const Tensor &x,
                                                   const DestArgs &d, F value) {
  constexpr int N = PIXELS_AHEAD<T>;
  if (at.idle) return;
  for (int p = at.first + at.lane, turn = 0; p < at.last; p += N * t.lanes, turn += N) {
    DestReads<T> reads[N];
#pragma unroll
    for (int u = 0; u < N; u++)
      if (p + u * t.lanes < at.last) reads[u] = dest_read8<T>(d, (size_t)(p + u * t.lanes) * d.t.ldc + at.c);
#pragma unroll
    for (int u = 0; u < N; u++) {
      const int pixel = p + u * t.lanes;
      if (pixel >= at.last) break;
      Eight v = value(turn + u);
      if (d.resized) {
        const int row = pixel / x.w, n = row / x.h;
        add8(v, dest_resized8<T>(d, n, row - n * x.h, pixel - row * x.w, at.c));
      }
      dest_write8<T>(d, (size_t)pixel * d.t.ldc + at.c, at.c, v, reads[u]);
    }
  }
}

#endif

// The mean from a first sum, the variance from the squares about it.
template <class T>
__global__ void __launch_bounds__(RESIDENT_THREADS)
    resident_forward_kernel(ResidentTiling t, Tensor x, float eps, float momentum, const float *gamma,
                            const float *beta, float *running_mean, float *running_var, float *stats, DestArgs y) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) char shared[];
  __shared__ ResidentSums s;
  Raw8<T> *kept = (Raw8<T> *)shared;
  const ResidentPosition at = position_in(t, x);
  const int own = threadIdx.x, channel = blockIdx.y * t.vectors * 8 + own; // of a thread a channel
  const double n = t.pixels;
  grid_wait_prerequisite();
  fetch_slice<T>(t, at, x, kept);
  grid_launch_dependents();
  fetched();
  Eight sum = {}, mean, scale, shift;
  if (!at.idle)
    for (int p = at.first + at.lane, i = 0; p < at.last; p += t.lanes, i++) add8(sum, kept8<T>(kept, i));
  cluster_sums(s, 0, t.vectors, 1, sum, sum);
  if (own < 8 * t.vectors) s.made[0][own] = (float)(s.total[0][own] / n);
  __syncthreads();
  mean = made8(s, 0, at.vector);
  sum = {};
  if (!at.idle)
    for (int p = at.first + at.lane, i = 0; p < at.last; p += t.lanes, i++) {
      const Eight v = kept8<T>(kept, i);
#pragma unroll
      for (int k = 0; k < 8; k++) sum.v[k] += (v.v[k] - mean.v[k]) * (v.v[k] - mean.v[k]);
    }
  cluster_sums(s, 1, t.vectors, 1, sum, sum);
  if (own < 8 * t.vectors) {
    const NormMoments v = {n, s.made[0][own], s.total[0][own]};
    const float inv_std = (float)(1 / sqrt(v.m2 / n + eps));
    s.made[1][own] = gamma[min(channel, x.c - 1)] * inv_std; // padding channels take anything: they are stored as zero
    s.made[2][own] = beta[min(channel, x.c - 1)];
    if (blockIdx.x == 0 && channel < x.c)
      write_stats(v, eps, momentum, channel, running_mean, running_var, stats + 2 * (size_t)channel);
  }
  __syncthreads();
  scale = made8(s, 1, at.vector);
  shift = made8(s, 2, at.vector);
  store_slice<T>(t, at, x, y, [&](int turn) {
    Eight v = kept8<T>(kept, turn);
#pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] = (v.v[k] - mean.v[k]) * scale.v[k] + shift.v[k];
    return v;
  });
  cooperative_groups::this_cluster().sync(); // others have read this block's sums
#endif
}

// dx, and dgamma and dbeta where they are wanted, as the kernels of norm_passes.cuh define them.
template <class T>
__global__ void __launch_bounds__(RESIDENT_THREADS)
    resident_backward_kernel(ResidentTiling t, Tensor x, Tensor dy, const float *gamma, const float *stats, DestArgs dx,
                             float *dgamma, float *dbeta, bool accumulate) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) char shared[];
  __shared__ ResidentSums s;
  Raw8<T> *kept = (Raw8<T> *)shared, *kept_dy = kept + t.turns * RESIDENT_THREADS;
  const ResidentPosition at = position_in(t, x);
  const int own = threadIdx.x, channel = blockIdx.y * t.vectors * 8 + own; // of a thread a channel
  grid_wait_prerequisite();
  fetch_slice<T>(t, at, x, kept);
  fetch_slice<T>(t, at, dy, kept_dy);
  grid_launch_dependents();
  Eight mean, sum = {}, dot = {};
#pragma unroll
  for (int k = 0; k < 8; k++) mean.v[k] = stats[2 * (size_t)min(at.c + k, x.c - 1)];
  fetched();
  if (!at.idle)
    for (int p = at.first + at.lane, i = 0; p < at.last; p += t.lanes, i++) {
      const Eight v = kept8<T>(kept, i), g = kept8<T>(kept_dy, i);
#pragma unroll
      for (int k = 0; k < 8; k++) {
        sum.v[k] += g.v[k];
        dot.v[k] += g.v[k] * (v.v[k] - mean.v[k]);
      }
    }
  cluster_sums(s, 0, t.vectors, 2, sum, dot);
  if (own < 8 * t.vectors) {
    const float g = gamma[min(channel, x.c - 1)];
    const double inv_std = stats[2 * (size_t)min(channel, x.c - 1) + 1];
    const GradientSums total = {s.total[0][own], s.total[1][own] * inv_std};
    float slopes[2];
    write_slopes({g * total.sum, g * total.dot}, t.pixels, inv_std, slopes);
    s.made[0][own] = (float)(g * inv_std);
    s.made[1][own] = slopes[0];
    s.made[2][own] = slopes[1];
    if (blockIdx.x == 0 && channel < x.c) write_parameter_gradients(total, channel, accumulate, dgamma, dbeta);
  }
  __syncthreads();
  const Eight of_dy = made8(s, 0, at.vector), of_x = made8(s, 1, at.vector), constant = made8(s, 2, at.vector);
  store_slice<T>(t, at, x, dx, [&](int turn) {
    Eight v = kept8<T>(kept, turn), g = kept8<T>(kept_dy, turn);
#pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] = of_dy.v[k] * g.v[k] + (of_x.v[k] * (v.v[k] - mean.v[k]) + constant.v[k]);
    return v;
  });
  cooperative_groups::this_cluster().sync();
#endif
}

// ---- launchers ------------------------------------------------------------------------------------------------------

template <class... Formal, class... Actual>
static void launch_resident(Device *dev, const ResidentTiling &t, void (*kernel)(Formal...), Actual... args) {
  allow_shared(kernel, t.bytes + sizeof(float));
  cudaLaunchAttribute attribute[2] = {};
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = (unsigned)t.cluster;
  attribute[0].val.clusterDim.y = attribute[0].val.clusterDim.z = 1;
  attribute[1] = dependent_launch_attribute();
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(t.cluster, t.slices);
  config.blockDim = dim3(RESIDENT_THREADS);
  config.dynamicSmemBytes = t.bytes;
  config.stream = stream_of(dev);
  config.attrs = attribute;
  config.numAttrs = COUNT(attribute);
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, args...));
}

static void resident_forward(Device *dev, const ResidentTiling &t, const Tensor *x, float eps, float momentum,
                             const void *gamma, const void *beta, void *running_mean, void *running_var, void *stats,
                             const Dest *y) {
  WITH_TYPE(x->dtype, T,
            launch_resident(dev, t, resident_forward_kernel<T>, t, *x, eps, momentum, (const float *)gamma,
                            (const float *)beta, (float *)running_mean, (float *)running_var, (float *)stats,
                            dest_args(y)))
}

static void resident_backward(Device *dev, const ResidentTiling &t, const Tensor *x, const Tensor *dy,
                              const void *gamma, const void *stats, const Dest *dx, void *dgamma, void *dbeta,
                              bool accumulate) {
  WITH_TYPE(x->dtype, T,
            launch_resident(dev, t, resident_backward_kernel<T>, t, *x, *dy, (const float *)gamma, (const float *)stats,
                            dest_args(dx), (float *)dgamma, (float *)dbeta, accumulate))
}
