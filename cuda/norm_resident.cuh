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
  enum { SMS = 132, ENOUGH = 64, FEW = 48, FEW_BYTES = 128 << 10 }; // of fewer than FEW threadblocks, at most
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
  return found && (to->slices * to->cluster >= FEW || to->bytes <= FEW_BYTES);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// What stands in shared memory before the slices: two numbers of each channel, by warps and of the block, and what a
// thread a channel makes of the cluster's, for all.
struct ResidentSums {
  float of_warp[2][RESIDENT_WARPS][MAX_CHANNELS], warp_pixels[RESIDENT_WARPS];
  double of_block[2][MAX_CHANNELS];
  float made[3][MAX_CHANNELS];
};
struct ResidentPair {
  double a, b;
};

static __device__ __forceinline__ void share_warp(ResidentSums &s, int vectors, const Eight &a, const Eight &b) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane >= vectors) return;
  store8(&s.of_warp[0][warp][8 * lane], a);
  store8(&s.of_warp[1][warp][8 * lane], b);
}

// f(warp) of all, added up by fours.
template <class F> static __device__ __forceinline__ double over_warps(F f) {
  double v[4];
#pragma unroll
  for (int w = 0; w < RESIDENT_WARPS; w++) v[w % 4] = w < 4 ? f(w) : v[w % 4] + f(w);
  return v[0] + v[1] + (v[2] + v[3]);
}

// Of a thread's channel, what each block of the cluster has of it, zeros of those that are not there. Every thread of
// the cluster calls it once, and ends_with_cluster before it ends.
static __device__ __forceinline__ void of_cluster(ResidentSums &s, bool own, ResidentPair *part) {
  namespace cg = cooperative_groups;
  cg::cluster_group cluster = cg::this_cluster();
  const int blocks = gridDim.x, channel = threadIdx.x;
  cluster.sync();
  if (own)
#pragma unroll
    for (int r = 0; r < MAX_CLUSTER; r++) {
      part[r].a = r < blocks ? *cluster.map_shared_rank(&s.of_block[0][channel], r) : 0;
      part[r].b = r < blocks ? *cluster.map_shared_rank(&s.of_block[1][channel], r) : 0;
    }
}
static __device__ __forceinline__ void ends_with_cluster() { cooperative_groups::this_cluster().sync(); }

// Sums of the cluster, two for each channel of the slice: lanes of a warp by butterflies, warps and blocks in order, in
// double. Of thread i < 8 · vectors those of channel i.
static __device__ __forceinline__ ResidentPair cluster_sums(ResidentSums &s, int vectors, Eight a, Eight b) {
  for (int offset = 16; offset >= vectors; offset /= 2)
#pragma unroll
    for (int k = 0; k < 8; k++) {
      a.v[k] += __shfl_xor_sync(~0u, a.v[k], offset);
      b.v[k] += __shfl_xor_sync(~0u, b.v[k], offset);
    }
  share_warp(s, vectors, a, b);
  __syncthreads();
  const bool own = threadIdx.x < 8 * vectors;
  const int channel = threadIdx.x;
  if (own)
    for (int which = 0; which < 2; which++)
      s.of_block[which][channel] = over_warps([&](int w) { return (double)s.of_warp[which][w][channel]; });
  ResidentPair part[MAX_CLUSTER], all = {};
  of_cluster(s, own, part);
  if (own)
#pragma unroll
    for (int r = 0; r < MAX_CLUSTER; r++) {
      all.a += part[r].a;
      all.b += part[r].b;
    }
  return all;
}

// Likewise from a thread's moments the slice's, n excepted, by merging (Chan et al. as in norm_passes.cuh).
static __device__ __forceinline__ ResidentPair cluster_moments(ResidentSums &s, const ResidentTiling &t,
                                                               EightMoments m) {
  const int vectors = t.vectors, channel = threadIdx.x;
  for (int offset = 16; offset >= vectors; offset /= 2) {
    EightMoments other;
    other.n = __shfl_xor_sync(~0u, m.n, offset);
#pragma unroll
    for (int k = 0; k < 8; k++) {
      other.mean.v[k] = __shfl_xor_sync(~0u, m.mean.v[k], offset);
      other.m2.v[k] = __shfl_xor_sync(~0u, m.m2.v[k], offset);
    }
    merge_moments(m, other.n, other.mean, other.m2);
  }
  share_warp(s, vectors, m.mean, m.m2);
  if (threadIdx.x % 32 == 0) s.warp_pixels[threadIdx.x / 32] = m.n; // the same of all its vectors
  __syncthreads();
  const bool own = threadIdx.x < 8 * vectors;
  auto pixels_of_block = [&](int r) { return (double)min(max(t.pixels - r * t.per_block, 0), t.per_block); };
  if (own) {
    const double n = pixels_of_block(blockIdx.x);
    const double mean =
        over_warps([&](int w) { return (double)s.warp_pixels[w] * s.of_warp[0][w][channel]; }) / max(n, 1.);
    s.of_block[0][channel] = mean;
    s.of_block[1][channel] = over_warps([&](int w) {
      const double d = s.of_warp[0][w][channel] - mean;
      return s.of_warp[1][w][channel] + s.warp_pixels[w] * d * d;
    });
  }
  ResidentPair part[MAX_CLUSTER], all = {};
  of_cluster(s, own, part);
  if (own) {
#pragma unroll
    for (int r = 0; r < MAX_CLUSTER; r++) all.a += pixels_of_block(r) * part[r].a;
    all.a /= t.pixels;
#pragma unroll
    for (int r = 0; r < MAX_CLUSTER; r++) {
      const double d = part[r].a - all.a;
      all.b += part[r].b + pixels_of_block(r) * d * d;
    }
  }
  return all;
}
static __device__ __forceinline__ Eight made8(const ResidentSums &s, int which, int vector) {
  return load8(&s.made[which][8 * vector]);
}

// Where a thread works.
struct SlicePosition {
  int vector, lane, c; // c: the first of its channels
  int first, last;     // pixels of its block
  bool idle;           // past the last channel
};
static __device__ __forceinline__ SlicePosition position_in(const ResidentTiling &t, const Tensor &x) {
  SlicePosition p;
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
static __device__ __forceinline__ void fetch_slice(int lanes, const SlicePosition &at, const Tensor &x, Raw8<T> *kept) {
  if (at.idle) return;
  int turn = 0;
  for (int p = at.first + at.lane; p < at.last; p += lanes, turn++) {
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
static __device__ __forceinline__ void store_slice(int lanes, const SlicePosition &at, const Tensor &x,
                                                   const DestArgs &d, F value) {
  constexpr int N = PIXELS_AHEAD<T>;
  if (at.idle) return;
  for (int p = at.first + at.lane, turn = 0; p < at.last; p += N * lanes, turn += N) {
    DestReads<T> reads[N];
#pragma unroll
    for (int u = 0; u < N; u++)
      if (p + u * lanes < at.last) reads[u] = dest_read8<T>(d, (size_t)(p + u * lanes) * d.t.ldc + at.c);
#pragma unroll
    for (int u = 0; u < N; u++) {
      const int pixel = p + u * lanes;
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

// Each thread's moments about its first value, merged; then the elementwise pass.
template <class T>
__global__ void __launch_bounds__(RESIDENT_THREADS)
    resident_forward_kernel(ResidentTiling t, Tensor x, float eps, float momentum, const float *gamma,
                            const float *beta, float *running_mean, float *running_var, float *stats, DestArgs y) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) char shared[];
  __shared__ ResidentSums s;
  Raw8<T> *kept = (Raw8<T> *)shared;
  const SlicePosition at = position_in(t, x);
  const int channel = blockIdx.y * t.vectors * 8 + threadIdx.x; // of a thread a channel
  const bool own = threadIdx.x < 8 * t.vectors, writes = own && blockIdx.x == 0 && channel < x.c;
  grid_wait_prerequisite();
  fetch_slice<T>(t.lanes, at, x, kept);
  grid_launch_dependents();
  // Loaded before they are needed. Padding channels take anything: they are stored as zero.
  float of_gamma = 0, of_beta = 0, old_mean = 0, old_var = 0;
  if (own) {
    of_gamma = gamma[min(channel, x.c - 1)];
    of_beta = beta[min(channel, x.c - 1)];
    if (writes && running_mean) old_mean = running_mean[channel];
    if (writes && running_var) old_var = running_var[channel];
  }
  fetched();
  EightMoments m = {};
  if (!at.idle && at.first + at.lane < at.last) {
    const Eight pivot = kept8<T>(kept, 0);
    int i = 1;
    for (int p = at.first + at.lane + t.lanes; p < at.last; p += t.lanes, i++) {
      const Eight v = kept8<T>(kept, i);
#pragma unroll
      for (int k = 0; k < 8; k++) {
        const float d = v.v[k] - pivot.v[k];
        m.mean.v[k] += d; // their sum
        m.m2.v[k] += d * d;
      }
    }
    m.n = i;
    const float share = 1.f / m.n;
#pragma unroll
    for (int k = 0; k < 8; k++) {
      m.m2.v[k] -= m.mean.v[k] * m.mean.v[k] * share;
      m.mean.v[k] = pivot.v[k] + m.mean.v[k] * share;
    }
  }
  const ResidentPair all = cluster_moments(s, t, m);
  if (own) {
    const NormMoments v = {(double)t.pixels, all.a, fmax(all.b, 0.)};
    float made[2];
    write_stats(v, eps, momentum, 0, &old_mean, &old_var, made);
    s.made[0][threadIdx.x] = made[0];
    s.made[1][threadIdx.x] = of_gamma * made[1];
    s.made[2][threadIdx.x] = of_beta;
    if (writes) {
      stats[2 * (size_t)channel] = made[0];
      stats[2 * (size_t)channel + 1] = made[1];
      if (running_mean) running_mean[channel] = old_mean;
      if (running_var) running_var[channel] = old_var;
    }
  }
  __syncthreads();
  const Eight mean = made8(s, 0, at.vector), scale = made8(s, 1, at.vector), shift = made8(s, 2, at.vector);
  store_slice<T>(t.lanes, at, x, y, [&](int turn) {
    Eight v = kept8<T>(kept, turn);
#pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] = (v.v[k] - mean.v[k]) * scale.v[k] + shift.v[k];
    return v;
  });
  ends_with_cluster(); // others have read this block's sums
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
  const SlicePosition at = position_in(t, x);
  const int channel = blockIdx.y * t.vectors * 8 + threadIdx.x; // of a thread a channel
  const bool own = threadIdx.x < 8 * t.vectors;
  grid_wait_prerequisite();
  fetch_slice<T>(t.lanes, at, x, kept);
  fetch_slice<T>(t.lanes, at, dy, kept_dy);
  grid_launch_dependents();
  float g = 0, inv_std = 0; // loaded before they are needed
  if (own) {
    g = gamma[min(channel, x.c - 1)];
    inv_std = stats[2 * (size_t)min(channel, x.c - 1) + 1];
  }
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
  const ResidentPair all = cluster_sums(s, t.vectors, sum, dot);
  if (own) {
    const GradientSums total = {all.a, all.b * inv_std};
    float slopes[2];
    write_slopes({g * total.sum, g * total.dot}, t.pixels, inv_std, slopes);
    s.made[0][threadIdx.x] = g * inv_std;
    s.made[1][threadIdx.x] = slopes[0];
    s.made[2][threadIdx.x] = slopes[1];
    if (blockIdx.x == 0 && channel < x.c) write_parameter_gradients(total, channel, accumulate, dgamma, dbeta);
  }
  __syncthreads();
  const Eight of_dy = made8(s, 0, at.vector), of_x = made8(s, 1, at.vector), constant = made8(s, 2, at.vector);
  store_slice<T>(t.lanes, at, x, dx, [&](int turn) {
    Eight v = kept8<T>(kept, turn), g = kept8<T>(kept_dy, turn);
#pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] = of_dy.v[k] * g.v[k] + (of_x.v[k] * (v.v[k] - mean.v[k]) + constant.v[k]);
    return v;
  });
  ends_with_cluster();
#endif
}

// ---- launchers ------------------------------------------------------------------------------------------------------

// The grid's rows are clusters; `bytes` of a threadblock's shared memory are for what it keeps.
template <class... Formal, class... Actual>
static void launch_clusters(Device *dev, dim3 grid, size_t bytes, void (*kernel)(Formal...), Actual... args) {
  allow_shared(kernel, bytes + sizeof(float));
  cudaLaunchAttribute attribute[2] = {};
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = grid.x;
  attribute[0].val.clusterDim.y = attribute[0].val.clusterDim.z = 1;
  attribute[1] = dependent_launch_attribute();
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(RESIDENT_THREADS);
  config.dynamicSmemBytes = bytes;
  config.stream = stream_of(dev);
  config.attrs = attribute;
  config.numAttrs = COUNT(attribute);
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, args...));
}

static void resident_forward(Device *dev, const ResidentTiling &t, const Tensor *x, float eps, float momentum,
                             const void *gamma, const void *beta, void *running_mean, void *running_var, void *stats,
                             const Dest *y) {
  WITH_TYPE(x->dtype, T,
            launch_clusters(dev, dim3(t.cluster, t.slices), t.bytes, resident_forward_kernel<T>, t, *x, eps, momentum,
                            (const float *)gamma, (const float *)beta, (float *)running_mean, (float *)running_var,
                            (float *)stats, dest_args(y)))
}

static void resident_backward(Device *dev, const ResidentTiling &t, const Tensor *x, const Tensor *dy,
                              const void *gamma, const void *stats, const Dest *dx, void *dgamma, void *dbeta,
                              bool accumulate) {
  WITH_TYPE(x->dtype, T,
            launch_clusters(dev, dim3(t.cluster, t.slices), t.bytes, resident_backward_kernel<T>, t, *x, *dy,
                            (const float *)gamma, (const float *)stats, dest_args(dx), (float *)dgamma, (float *)dbeta,
                            accumulate))
}
