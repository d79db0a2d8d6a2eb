// GroupNorm (Wu, He, 2018) and BatchNorm (Ioffe, Szegedy, 2015), one text for both: each normalises over a set of
// pixels and a group of channels. GroupNorm's set is an image, BatchNorm's the whole batch with every channel a group
// of its own. Each direction is a two-pass reduction (thread, threadblock, workspace, statistics, always in the same
// order) and an elementwise pass with the epilogue fused in. The floor is memory traffic: inputs are read twice, the
// result is written once.
#include "cuda/common.cuh"

enum {
  THREADS = 256,
  TILE = 32,          // vectors of eight channels side by side in a threadblock at most: 512 bytes of 16-bit data
  BLOCKS = 132 * 8,   // threadblocks aimed at: eight on each of an H100's 132 SMs
  SHALLOW = 4,        // pixels per thread at least, to pay for fetching its channels' coefficients,
  DEEP = 64,          // and at most, so that its sums in float stay accurate
  STATS_THREADS = 128 // for a group's statistics
};

// How a tensor is tiled: a threadblock has (vectors of eight channels, lanes) threads and takes the pixels of one chunk
// of one set; the grid is (chunks, tiles of channels, sets). Neighbouring threads read neighbouring channels, so that
// loads are coalesced. The tiling follows from the shape alone, and with it the order of sums.
struct NormTiling {
  Tensor x;
  bool per_image;
  int sets, groups, group_size; // group_size: channels
  int pixels;                   // of a set; on the device use pixels_of
  int chunks, per_chunk;
  dim3 grid, block;
};

static NormTiling norm_tiling(const Tensor *x, int groups, bool per_image) {
  CHECK(groups > 0 && x->c % groups == 0 && x->ldc % 8 == 0);
  CHECK(tensor_pixels(x) <= INT32_MAX / 2);
  NormTiling m = {};
  m.x = *x;
  m.per_image = per_image;
  m.sets = per_image ? x->n : 1;
  m.groups = groups;
  m.group_size = x->c / groups;
  m.pixels = x->h * x->w * (per_image ? 1 : x->n);
  int vectors = x->ldc / 8, tile = MIN(vectors, TILE), lanes = THREADS / tile, tiles = (vectors + tile - 1) / tile;
  int depth = (int)((size_t)m.pixels * m.sets * tiles / ((size_t)lanes * BLOCKS));
  m.per_chunk = MIN(MAX(depth, SHALLOW), DEEP) * lanes;
  m.chunks = blocks_for(m.pixels, m.per_chunk);
  m.grid = dim3(m.chunks, tiles, m.sets);
  m.block = dim3(tile, lanes);
  return m;
}

// Of the workspace for the first pass.
static size_t partial_elements(const NormTiling *m) { return (size_t)m->sets * m->chunks * 2 * m->x.ldc; }

// ---- tiles ----------------------------------------------------------------------------------------------------------

// Sets and their pixels on the device, by the count of valid rows.
static __device__ __forceinline__ int sets_of(const NormTiling &m) { return m.per_image ? rows_of(m.x) : 1; }
static __device__ __forceinline__ int pixels_of(const NormTiling &m) {
  return m.per_image ? m.pixels : m.x.h * m.x.w * rows_of(m.x);
}

struct PixelChunk { // [first, last) of the set
  int first, last;
};
static __device__ __forceinline__ PixelChunk chunk_of(const NormTiling &m, int chunk) {
  int pixels = pixels_of(m), first = min(chunk * m.per_chunk, pixels);
  return {first, min(first + m.per_chunk, pixels)};
}
// The first of the thread's eight channels.
static __device__ __forceinline__ int channel_of_thread() { return (blockIdx.y * blockDim.x + threadIdx.x) * 8; }

// Channels c … c+7 of pixel p of the threadblock's set.
template <class T>
static __device__ __forceinline__ Eight load_pixel(const NormTiling &m, const Tensor &t, int p, int c) {
  return load8((const T *)t.data + ((size_t)blockIdx.z * m.pixels + p) * t.ldc + c);
}

// The epilogue of channels c … c+7 of pixel p of the threadblock's set.
template <class T>
static __device__ __forceinline__ void store_pixel(const NormTiling &m, const DestArgs &d, int p, int c, Eight v) {
  int row = p / m.x.w, n = m.per_image ? blockIdx.z : row / m.x.h;
  dest_store8<T>(d, n, m.per_image ? row : row - n * m.x.h, p - row * m.x.w, c, v);
}

// The reduction within a threadblock: two numbers per channel from every lane, through shared memory; then a thread per
// channel adds up the lanes in order and writes partial[set, chunk, 2, channel].
static __shared__ __align__(16) float lanes_a[THREADS * 8], lanes_b[THREADS * 8]; // [lane, channel of the tile]

static __device__ __forceinline__ void share(const Eight &a, const Eight &b) {
  int i = (threadIdx.y * blockDim.x + threadIdx.x) * 8;
  store8(lanes_a + i, a);
  store8(lanes_b + i, b);
  __syncthreads();
}
static __device__ __forceinline__ float *partial_of(const NormTiling &m, float *partial, int set, int chunk) {
  return partial + ((size_t)set * m.chunks + chunk) * 2 * m.x.ldc;
}
static __device__ __forceinline__ const float *partial_of(const NormTiling &m, const float *partial, int set,
                                                          int chunk) {
  return partial + ((size_t)set * m.chunks + chunk) * 2 * m.x.ldc;
}

// ---- forward --------------------------------------------------------------------------------------------------------

// First pass: partial [sets, chunks, 2, ldc] = mean and m2 = Σ (x - mean)² of each chunk and channel. A thread follows
// Welford ("Note on a method for calculating corrected sums of squares and products", 1962) over its pixels; means of
// parts merge without cancellation as Σ m2 + Σ n · (mean of the part - mean)². One read of x; unrolled, to have four
// loads in flight.
template <class T> __global__ void norm_moments_kernel(NormTiling m, float *partial) {
  if ((int)blockIdx.z >= sets_of(m)) return;
  PixelChunk all = chunk_of(m, blockIdx.x);
  int c = channel_of_thread();
  Eight mean = {}, m2 = {};
  float n = 0;
  if (c < m.x.ldc)
#pragma unroll 4
    for (int p = all.first + threadIdx.y; p < all.last; p += blockDim.y) {
      Eight v = load_pixel<T>(m, m.x, p, c);
      n++;
      float share = 1 / n;
#pragma unroll
      for (int k = 0; k < 8; k++) {
        float d = v.v[k] - mean.v[k];
        mean.v[k] += d * share;
        m2.v[k] += d * (v.v[k] - mean.v[k]);
      }
    }
  share(mean, m2);

  int channels = blockDim.x * 8, i = threadIdx.y * blockDim.x + threadIdx.x, channel = blockIdx.y * channels + i;
  if (i >= channels || channel >= m.x.ldc) return;
  int count = all.last - all.first;
  double sum = 0, squares = 0;
  for (int lane = 0; lane < (int)blockDim.y; lane++) {
    int of_lane = max(count - lane + (int)blockDim.y - 1, 0) / blockDim.y;
    sum += (double)of_lane * lanes_a[lane * channels + i];
  }
  double mean_of_all = count ? sum / count : 0;
  for (int lane = 0; lane < (int)blockDim.y; lane++) {
    int of_lane = max(count - lane + (int)blockDim.y - 1, 0) / blockDim.y;
    double d = lanes_a[lane * channels + i] - mean_of_all;
    squares += lanes_b[lane * channels + i] + of_lane * d * d;
  }
  float *to = partial_of(m, partial, blockIdx.z, blockIdx.x) + channel;
  to[0] = (float)mean_of_all;
  to[m.x.ldc] = (float)squares;
}

// Second pass: stats [sets, groups, 2] = mean, 1 / √(var + eps), and BatchNorm's running statistics where they are
// given. Grid (groups, sets), a threadblock per group; the partial moments of chunks and channels are merged in double,
// twice over the same few KB: first the mean, then the squares about it.
__global__ void norm_stats_kernel(NormTiling m, const float *partial, float eps, float momentum, float *running_mean,
                                  float *running_var, float *stats) {
  int group = blockIdx.x, set = blockIdx.y;
  if (set >= sets_of(m)) return;
  double n = (double)pixels_of(m) * m.group_size, sum = 0, squares = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < m.chunks * m.group_size; i += blockDim.x) {
    int chunk = i / m.group_size, c = group * m.group_size + i % m.group_size;
    PixelChunk part = chunk_of(m, chunk);
    sum += (double)(part.last - part.first) * partial_of(m, partial, set, chunk)[c];
  }
  sum = block_sum(sum);
  double mean = n > 0 ? sum / n : 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < m.chunks * m.group_size; i += blockDim.x) {
    int chunk = i / m.group_size, c = group * m.group_size + i % m.group_size;
    PixelChunk part = chunk_of(m, chunk);
    double d = partial_of(m, partial, set, chunk)[c] - mean;
    squares += partial_of(m, partial, set, chunk)[m.x.ldc + c] + (part.last - part.first) * d * d;
  }
  squares = block_sum(squares);
  if (threadIdx.x) return;
  float *s = stats + ((size_t)set * m.groups + group) * 2;
  s[0] = (float)mean;
  s[1] = (float)(1 / sqrt((n > 0 ? squares / n : 0) + eps));
  if (!(n > 0)) return;
  // A single value tells nothing about the spread: 0 rather than PyTorch's error.
  double unbiased = n > 1 ? squares / (n - 1) : 0, keep = 1 - (double)momentum;
  if (running_mean) running_mean[group] = (float)(keep * running_mean[group] + momentum * mean);
  if (running_var) running_var[group] = (float)(keep * running_var[group] + momentum * unbiased);
}

// Elementwise pass: y [n, h, w, c] = (x - mean) · (gamma / std) + beta and the epilogue; the mean is subtracted first,
// where it is exact. A thread keeps the coefficients of its eight channels in registers and walks down its chunk.
template <class T>
__global__ void norm_normalise_kernel(NormTiling m, const float *gamma, const float *beta, const float *stats,
                                      DestArgs y) {
  int set = blockIdx.z, c = channel_of_thread();
  if (set >= sets_of(m) || c >= m.x.ldc) return;
  Eight mean, scale, shift;
#pragma unroll
  for (int k = 0; k < 8; k++) {
    int channel = min(c + k, m.x.c - 1); // padding channels take anything: they are stored as zero
    const float *s = stats + ((size_t)set * m.groups + channel / m.group_size) * 2;
    mean.v[k] = s[0];
    scale.v[k] = gamma[channel] * s[1];
    shift.v[k] = beta[channel];
  }
  PixelChunk all = chunk_of(m, blockIdx.x);
  for (int p = all.first + threadIdx.y; p < all.last; p += blockDim.y) {
    Eight v = load_pixel<T>(m, m.x, p, c);
#pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] = (v.v[k] - mean.v[k]) * scale.v[k] + shift.v[k];
    store_pixel<T>(m, y, p, c, v);
  }
}

// ---- backward -------------------------------------------------------------------------------------------------------

// First pass: partial [sets, chunks, 2, ldc] = Σ dy and Σ dy · (x - mean) of each chunk and channel. Threads and their
// reduction as in norm_moments_kernel; one read of x and dy.
template <class T>
__global__ void norm_gradient_sums_kernel(NormTiling m, Tensor dy, const float *stats, float *partial) {
  int set = blockIdx.z, c = channel_of_thread();
  if (set >= sets_of(m)) return;
  PixelChunk all = chunk_of(m, blockIdx.x);
  Eight mean, sum = {}, dot = {};
#pragma unroll
  for (int k = 0; k < 8; k++) mean.v[k] = stats[((size_t)set * m.groups + min(c + k, m.x.c - 1) / m.group_size) * 2];
  if (c < m.x.ldc)
#pragma unroll 4
    for (int p = all.first + threadIdx.y; p < all.last; p += blockDim.y) {
      Eight v = load_pixel<T>(m, m.x, p, c), g = load_pixel<T>(m, dy, p, c);
#pragma unroll
      for (int k = 0; k < 8; k++) {
        sum.v[k] += g.v[k];
        dot.v[k] += g.v[k] * (v.v[k] - mean.v[k]);
      }
    }
  share(sum, dot);

  int channels = blockDim.x * 8, i = threadIdx.y * blockDim.x + threadIdx.x, channel = blockIdx.y * channels + i;
  if (i >= channels || channel >= m.x.ldc) return;
  double sum_of_all = 0, dot_of_all = 0;
  for (int lane = 0; lane < (int)blockDim.y; lane++) {
    sum_of_all += lanes_a[lane * channels + i];
    dot_of_all += lanes_b[lane * channels + i];
  }
  float *to = partial_of(m, partial, set, blockIdx.x) + channel;
  to[0] = (float)sum_of_all;
  to[m.x.ldc] = (float)dot_of_all;
}

// Second pass: totals [sets, 2, c] = Σ dy, Σ dy · x̂ of each channel, and from them slopes [sets, groups, 2], the
// coefficients of x - mean and of 1 in dx. Grid (groups, sets); a warp per channel of the group in turn, its lanes
// reduce the chunks.
__global__ void norm_totals_kernel(NormTiling m, const float *partial, const float *gamma, const float *stats,
                                   double *totals, float *slopes) {
  int group = blockIdx.x, set = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (set >= sets_of(m)) return;
  double inv_std = stats[((size_t)set * m.groups + group) * 2 + 1], group_sum = 0, group_dot = 0;
  for (int i = warp; i < m.group_size; i += blockDim.x / 32) {
    int c = group * m.group_size + i;
    double sum = 0, dot = 0;
#pragma unroll 4
    for (int chunk = lane; chunk < m.chunks; chunk += 32) {
      const float *from = partial_of(m, partial, set, chunk) + c;
      sum += from[0];
      dot += from[m.x.ldc];
    }
    sum = warp_sum(sum);
    dot = warp_sum(dot) * inv_std;
    if (lane) continue;
    totals[(size_t)set * 2 * m.x.c + c] = sum;
    totals[((size_t)set * 2 + 1) * m.x.c + c] = dot;
    group_sum += gamma[c] * sum;
    group_dot += gamma[c] * dot;
  }
  group_sum = block_sum(group_sum);
  group_dot = block_sum(group_dot);
  if (threadIdx.x) return;
  double values = (double)pixels_of(m) * m.group_size;
  float *to = slopes + ((size_t)set * m.groups + group) * 2;
  to[0] = (float)(-inv_std * inv_std * group_dot / values);
  to[1] = (float)(-inv_std * group_sum / values);
}

// dbeta [c] (+)= Σ dy, dgamma [c] (+)= Σ dy · x̂ over the sets. A warp per channel, its lanes reduce the sets.
__global__ void norm_parameter_gradients_kernel(NormTiling m, const double *totals, bool accumulate, float *dgamma,
                                                float *dbeta) {
  int c = thread_index() / 32, lane = threadIdx.x % 32;
  if (c >= m.x.c) return;
  double sum = 0, dot = 0;
  for (int set = lane; set < sets_of(m); set += 32) {
    sum += totals[(size_t)set * 2 * m.x.c + c];
    dot += totals[((size_t)set * 2 + 1) * m.x.c + c];
  }
  sum = warp_sum(sum);
  dot = warp_sum(dot);
  if (lane) return;
  if (dbeta) dbeta[c] = (float)(sum + (accumulate ? dbeta[c] : 0));
  if (dgamma) dgamma[c] = (float)(dot + (accumulate ? dgamma[c] : 0));
}

// Elementwise pass, with m values in a group: dx = (gamma · dy - Σ gamma · dy / m - x̂ · Σ gamma · dy · x̂ / m) / std,
// and the epilogue. A thread keeps the mean and three coefficients of each of its eight channels in registers and walks
// down its chunk.
template <class T>
__global__ void norm_backward_kernel(NormTiling m, Tensor dy, const float *gamma, const float *stats,
                                     const float *slopes, DestArgs dx) {
  int set = blockIdx.z, c = channel_of_thread();
  if (set >= sets_of(m) || c >= m.x.ldc) return;
  Eight mean, of_dy, of_x, constant;
#pragma unroll
  for (int k = 0; k < 8; k++) {
    int channel = min(c + k, m.x.c - 1); // padding channels take anything: they are stored as zero
    size_t group = (size_t)set * m.groups + channel / m.group_size;
    mean.v[k] = stats[group * 2];
    of_dy.v[k] = gamma[channel] * stats[group * 2 + 1];
    of_x.v[k] = slopes[group * 2];
    constant.v[k] = slopes[group * 2 + 1];
  }
  PixelChunk all = chunk_of(m, blockIdx.x);
  for (int p = all.first + threadIdx.y; p < all.last; p += blockDim.y) {
    Eight v = load_pixel<T>(m, m.x, p, c), g = load_pixel<T>(m, dy, p, c);
#pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] = of_dy.v[k] * g.v[k] + (of_x.v[k] * (v.v[k] - mean.v[k]) + constant.v[k]);
    store_pixel<T>(m, dx, p, c, v);
  }
}

// ---- folded ---------------------------------------------------------------------------------------------------------

// scale = gamma / √(var + eps), shift = beta - mean · scale. A thread per channel.
__global__ void norm_fold_kernel(int c, float eps, const float *gamma, const float *beta, const float *mean,
                                 const float *var, float *scale, float *shift) {
  int i = thread_index();
  if (i >= c) return;
  scale[i] = gamma[i] / sqrtf(var[i] + eps);
  shift[i] = beta[i] - mean[i] * scale[i];
}

// ---- launchers ------------------------------------------------------------------------------------------------------

static void check_like(const Tensor *x, const Tensor *t) {
  CHECK(t->dtype == x->dtype && t->ldc == x->ldc && t->c == x->c && t->n == x->n && t->h == x->h && t->w == x->w);
}

static void norm_forward(Device *dev, const NormTiling &m, float eps, float momentum, const void *gamma,
                         const void *beta, void *running_mean, void *running_var, void *stats, const Dest *y) {
  float *partial = (float *)device_workspace(dev, partial_elements(&m) * sizeof(float));
  if (!partial || !tensor_elements(&m.x)) return;
  check_like(&m.x, &y->t);
  cudaStream_t stream = stream_of(dev);
  WITH_TYPE(m.x.dtype, T, {
    norm_moments_kernel<T><<<m.grid, m.block, 0, stream>>>(m, partial);
    LAUNCH_CHECK();
    norm_stats_kernel<<<dim3(m.groups, m.sets), STATS_THREADS, 0, stream>>>(
        m, partial, eps, momentum, (float *)running_mean, (float *)running_var, (float *)stats);
    LAUNCH_CHECK();
    norm_normalise_kernel<T><<<m.grid, m.block, 0, stream>>>(m, (const float *)gamma, (const float *)beta,
                                                             (const float *)stats, dest_args(y));
    LAUNCH_CHECK();
  })
}

static void norm_backward(Device *dev, const NormTiling &m, const Tensor *dy, const void *gamma, const void *stats,
                          const Dest *dx, void *dgamma, void *dbeta, bool accumulate) {
  size_t total = (size_t)m.sets * 2 * m.x.c, slope = (size_t)m.sets * m.groups * 2;
  double *totals =
      (double *)device_workspace(dev, total * sizeof(double) + (slope + partial_elements(&m)) * sizeof(float));
  if (!totals || !tensor_elements(&m.x)) return;
  check_like(&m.x, dy);
  check_like(&m.x, &dx->t);
  float *slopes = (float *)(totals + total), *partial = slopes + slope;
  cudaStream_t stream = stream_of(dev);
  WITH_TYPE(m.x.dtype, T, {
    norm_gradient_sums_kernel<T><<<m.grid, m.block, 0, stream>>>(m, *dy, (const float *)stats, partial);
    LAUNCH_CHECK();
    norm_totals_kernel<<<dim3(m.groups, m.sets), STATS_THREADS, 0, stream>>>(m, partial, (const float *)gamma,
                                                                             (const float *)stats, totals, slopes);
    LAUNCH_CHECK();
    norm_parameter_gradients_kernel<<<blocks_for(m.x.c, THREADS / 32), THREADS, 0, stream>>>(
        m, totals, accumulate, (float *)dgamma, (float *)dbeta);
    LAUNCH_CHECK();
    norm_backward_kernel<T>
        <<<m.grid, m.block, 0, stream>>>(m, *dy, (const float *)gamma, (const float *)stats, slopes, dest_args(dx));
    LAUNCH_CHECK();
  })
}

extern "C" void cuda_group_norm_forward(Device *dev, int groups, float eps, const Tensor *x, const void *gamma,
                                        const void *beta, void *stats, const Dest *y) {
  norm_forward(dev, norm_tiling(x, groups, true), eps, 0, gamma, beta, NULL, NULL, stats, y);
}

extern "C" void cuda_batch_norm_forward(Device *dev, float eps, float momentum, const Tensor *x, const void *gamma,
                                        const void *beta, void *running_mean, void *running_var, void *stats,
                                        const Dest *y) {
  norm_forward(dev, norm_tiling(x, x->c, false), eps, momentum, gamma, beta, running_mean, running_var, stats, y);
}

extern "C" void cuda_group_norm_backward(Device *dev, int groups, const Tensor *x, const Tensor *dy, const void *gamma,
                                         const void *stats, const Dest *dx, void *dgamma, void *dbeta,
                                         bool accumulate) {
  norm_backward(dev, norm_tiling(x, groups, true), dy, gamma, stats, dx, dgamma, dbeta, accumulate);
}

extern "C" void cuda_batch_norm_backward(Device *dev, const Tensor *x, const Tensor *dy, const void *gamma,
                                         const void *stats, const Dest *dx, void *dgamma, void *dbeta,
                                         bool accumulate) {
  norm_backward(dev, norm_tiling(x, x->c, false), dy, gamma, stats, dx, dgamma, dbeta, accumulate);
}

extern "C" void cuda_norm_fold(Device *dev, int c, float eps, const void *gamma, const void *beta, const void *mean,
                               const void *var, void *scale, void *shift) {
  if (dev->measuring || !c) return;
  norm_fold_kernel<<<blocks_for(c, THREADS), THREADS, 0, stream_of(dev)>>>(
      c, eps, (const float *)gamma, (const float *)beta, (const float *)mean, (const float *)var, (float *)scale,
      (float *)shift);
  LAUNCH_CHECK();
}
