// Group norm whose images stay in shared memory between its two passes: one kernel a direction, each input read once.
// A cluster takes a slice of an image, of whole groups, as norm_resident.cuh takes one of the batch. A multiprocessor
// has two threadblocks, of which one loads while the other writes. sm_90.
#pragma once
#include "cuda/norm_resident.cuh"

enum { IMAGE_BYTES = 96 << 10 }; // of a threadblock's slice, at most

// The grid is (cluster, slices, images), the cluster a row of it; a thread takes pixels lane, lane + lanes, … of its
// block's.
struct ImageTiling {
  int sets, groups, group_size; // as NormTiling's
  int pixels, per_block;        // of an image; of a threadblock
  int vectors, lanes;           // a slice's vectors of eight channels; lanes · vectors = RESIDENT_THREADS
  int cluster, slices;
  int turns;    // pixels of a thread at most
  size_t bytes; // of one threadblock's slice of all tensors that are kept
};

// Rows of 128 bytes are read fastest; of 64 only so that a slice fits. False: it does not, or is not of 16 bits.
static inline bool image_tiling(const Tensor *x, int groups, int tensors, ImageTiling *to) {
  enum { ENOUGH = 128 };
  if (x->count || dtype_size(x->dtype) != 2 || tensor_pixels(x) == 0 || x->c % 8 || x->n > UINT16_MAX) return false;
  for (int vectors = MAX_VECTORS; vectors >= MAX_VECTORS / 2; vectors /= 2) {
    ImageTiling t = {x->n, groups, x->c / groups};
    if (8 * vectors % t.group_size) continue;
    t.vectors = vectors;
    t.lanes = RESIDENT_THREADS / vectors;
    t.pixels = x->h * x->w;
    t.slices = blocks_for(x->c / 8, vectors);
    for (t.cluster = 1;; t.cluster *= 2) {
      t.per_block = blocks_for(t.pixels, t.cluster);
      t.turns = blocks_for(t.per_block, t.lanes);
      t.bytes = (size_t)t.turns * RESIDENT_THREADS * 16 * (size_t)tensors;
      if (t.cluster == MAX_CLUSTER || (t.bytes <= IMAGE_BYTES && t.slices * t.sets * t.cluster >= ENOUGH)) break;
    }
    if (t.bytes > IMAGE_BYTES) continue;
    *to = t;
    return true;
  }
  return false;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// What stands in shared memory before the slices.
struct ImageSums {
  float of_warp[2][RESIDENT_WARPS][MAX_CHANNELS];
  double of_block[2][2][MAX_CHANNELS]; // [round]: a round's is read by others while the next one's is written
  double total[2][MAX_CHANNELS], of_group[MAX_CHANNELS];
  float made[3][MAX_CHANNELS]; // what a thread a channel makes of them, for all
};

// Sums of the cluster, two for each channel of the slice, to s.total: lanes of a warp by butterflies, warps and blocks
// in order, in double. Every thread of the cluster calls it, once a round. Thread i < 8 · vectors may then read the
// totals of channel i.
static __device__ __forceinline__ void image_sums(ImageSums &s, int round, int vectors, int sums, const Eight &a,
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
static __device__ __forceinline__ Eight made8(const ImageSums &s, int which, int vector) {
  return load8(&s.made[which][8 * vector]);
}

// Of thread i, for which it is the slice's channel i: the sum over its group of what each thread has.
static __device__ __forceinline__ double group_sum(const ImageTiling &t, double (&of_channel)[MAX_CHANNELS], int i,
                                                   double v) {
  if (t.group_size == 1) return v;
  __syncthreads();
  if (i < 8 * t.vectors) of_channel[i] = v;
  __syncthreads();
  if (i >= 8 * t.vectors) return 0;
  const double *group = of_channel + i / t.group_size * t.group_size;
  double even = 0, odd = 0;
  for (int k = 0; k + 1 < t.group_size; k += 2) {
    even += group[k];
    odd += group[k + 1];
  }
  return even + odd + (t.group_size % 2 ? group[t.group_size - 1] : 0);
}

static __device__ __forceinline__ SlicePosition position_in(const ImageTiling &t, const Tensor &x) {
  SlicePosition p;
  p.vector = threadIdx.x % t.vectors;
  p.lane = threadIdx.x / t.vectors;
  p.c = (blockIdx.y * t.vectors + p.vector) * 8;
  p.first = blockIdx.z * t.pixels + min((int)blockIdx.x * t.per_block, t.pixels);
  p.last = min(p.first + t.per_block, (int)(blockIdx.z + 1) * t.pixels);
  p.idle = p.c >= x.ldc;
  return p;
}

#endif

// Of a thread a channel: where its group's statistics are.
static __device__ __forceinline__ size_t image_group(const ImageTiling &t, const Tensor &x, int channel) {
  const int c = min(channel, x.c - 1);
  return (size_t)blockIdx.z * t.groups + (t.group_size == 1 ? c : c / t.group_size); // as group_of
}
static constexpr int image_blocks_per_sm(DestInputs inputs) { return inputs == ANY_INPUT ? 1 : 2; }

// The mean from a first sum, the variance from the squares about it.
template <class T, DestInputs INPUTS>
__global__ void __launch_bounds__(RESIDENT_THREADS, image_blocks_per_sm(INPUTS))
    image_forward_kernel(ImageTiling t, Tensor x, float eps, const float *gamma, const float *beta, float *stats,
                         DestArgs dest) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) char shared[];
  __shared__ ImageSums s;
  Raw8<T> *kept = (Raw8<T> *)shared;
  const DestArgs y = with_inputs<INPUTS>(dest);
  const SlicePosition at = position_in(t, x);
  const int own = threadIdx.x, channel = blockIdx.y * t.vectors * 8 + own; // of a thread a channel
  const double n = (double)t.pixels * t.group_size;
  grid_wait_prerequisite();
  fetch_slice<T>(t.lanes, at, x, kept);
  grid_launch_dependents();
  fetched();
  Eight sum = {}, mean, scale, shift;
  if (!at.idle)
    for (int p = at.first + at.lane, i = 0; p < at.last; p += t.lanes, i++) add8(sum, kept8<T>(kept, i));
  image_sums(s, 0, t.vectors, 1, sum, sum);
  double total = group_sum(t, s.of_group, own, own < 8 * t.vectors ? s.total[0][own] : 0);
  if (own < 8 * t.vectors) s.made[0][own] = (float)(total / n);
  __syncthreads();
  mean = made8(s, 0, at.vector);
  sum = {};
  if (!at.idle)
    for (int p = at.first + at.lane, i = 0; p < at.last; p += t.lanes, i++) {
      const Eight v = kept8<T>(kept, i);
#pragma unroll
      for (int k = 0; k < 8; k++) sum.v[k] += (v.v[k] - mean.v[k]) * (v.v[k] - mean.v[k]);
    }
  image_sums(s, 1, t.vectors, 1, sum, sum);
  total = group_sum(t, s.of_group, own, own < 8 * t.vectors ? s.total[0][own] : 0);
  if (own < 8 * t.vectors) {
    const NormMoments v = {n, s.made[0][own], total};
    const float inv_std = (float)(1 / sqrt(v.m2 / n + eps));
    s.made[1][own] = gamma[min(channel, x.c - 1)] * inv_std; // padding channels take anything: they are stored as zero
    s.made[2][own] = beta[min(channel, x.c - 1)];
    if (blockIdx.x == 0 && channel < x.c && channel % t.group_size == 0)
      write_stats(v, eps, 0, channel, NULL, NULL, stats + 2 * image_group(t, x, channel));
  }
  __syncthreads();
  scale = made8(s, 1, at.vector);
  shift = made8(s, 2, at.vector);
  store_slice<T>(t.lanes, at, x, y, [&](int turn) {
    Eight v = kept8<T>(kept, turn);
#pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] = (v.v[k] - mean.v[k]) * scale.v[k] + shift.v[k];
    return v;
  });
  ends_with_cluster(); // others have read this block's sums
#endif
}

// dx as the kernels of norm_passes.cuh define it, and the totals [sets, 2, c] of norm_parameter_gradients_kernel.
template <class T, DestInputs INPUTS>
__global__ void __launch_bounds__(RESIDENT_THREADS, image_blocks_per_sm(INPUTS))
    image_backward_kernel(ImageTiling t, Tensor x, Tensor dy, const float *gamma, const float *stats, DestArgs dest,
                          double *totals) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) char shared[];
  __shared__ ImageSums s;
  Raw8<T> *kept = (Raw8<T> *)shared, *kept_dy = kept + t.turns * RESIDENT_THREADS;
  const DestArgs dx = with_inputs<INPUTS>(dest);
  const SlicePosition at = position_in(t, x);
  const int own = threadIdx.x, channel = blockIdx.y * t.vectors * 8 + own; // of a thread a channel
  grid_wait_prerequisite();
  fetch_slice<T>(t.lanes, at, x, kept);
  fetch_slice<T>(t.lanes, at, dy, kept_dy);
  grid_launch_dependents();
  Eight mean, sum = {}, dot = {};
#pragma unroll
  for (int k = 0; k < 8; k++) mean.v[k] = stats[2 * image_group(t, x, at.c + k)];
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
  image_sums(s, 0, t.vectors, 2, sum, dot);
  GradientSums total = {}, weighted = {};
  float g = 0;
  double inv_std = 0;
  if (own < 8 * t.vectors) {
    g = gamma[min(channel, x.c - 1)];
    inv_std = stats[2 * image_group(t, x, channel) + 1];
    total = {s.total[0][own], s.total[1][own] * inv_std};
    weighted = {g * total.sum, g * total.dot};
  }
  weighted.sum = group_sum(t, s.of_group, own, weighted.sum);
  weighted.dot = group_sum(t, s.of_group, own, weighted.dot);
  if (own < 8 * t.vectors) {
    float slopes[2];
    write_slopes(weighted, (double)t.pixels * t.group_size, inv_std, slopes);
    s.made[0][own] = (float)(g * inv_std);
    s.made[1][own] = slopes[0];
    s.made[2][own] = slopes[1];
    if (blockIdx.x == 0 && channel < x.c) {
      totals[(size_t)blockIdx.z * 2 * x.c + channel] = total.sum;
      totals[((size_t)blockIdx.z * 2 + 1) * x.c + channel] = total.dot;
    }
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

static void image_forward(Device *dev, const ImageTiling &t, const Tensor *x, float eps, const void *gamma,
                          const void *beta, void *stats, const Dest *y) {
  const DestArgs to = dest_args(y);
  WITH_TYPE(
      x->dtype, T,
      {WITH_INPUTS(inputs_of(to), INPUTS,
                   launch_clusters(dev, dim3(t.cluster, t.slices, t.sets), t.bytes, image_forward_kernel<T, INPUTS>, t,
                                   *x, eps, (const float *)gamma, (const float *)beta, (float *)stats, to))})
}

static void image_backward(Device *dev, const ImageTiling &t, const Tensor *x, const Tensor *dy, const void *gamma,
                           const void *stats, const Dest *dx, double *totals) {
  const DestArgs to = dest_args(dx);
  WITH_TYPE(
      x->dtype, T,
      {WITH_INPUTS(inputs_of(to), INPUTS,
                   launch_clusters(dev, dim3(t.cluster, t.slices, t.sets), t.bytes, image_backward_kernel<T, INPUTS>, t,
                                   *x, *dy, (const float *)gamma, (const float *)stats, to, totals))})
}
