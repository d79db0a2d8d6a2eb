// What GroupNorm and BatchNorm share, over one device and over ranks: how a tensor is tiled, the first pass of each
// direction's reduction, what the second makes of it, and the elementwise pass.
#pragma once
#include "cuda/common.cuh"

enum {
  THREADS = 256,
  TILE = 32,   // vectors of eight channels side by side in a threadblock at most: 512 bytes of 16-bit data
  SMS = 132,   // an H100's: threadblocks are one wave on it
  PER_SM = 4,  // threadblocks on a multiprocessor at once: at most 64 registers a thread
  SHALLOW = 4, // pixels per thread at least, to pay for fetching its channels' coefficients,
  DEEP = 64,   // and at most, so that its sums in float stay accurate
  WARPS = THREADS / 32,
  STATS_THREADS = 128 // for a group's statistics
};

// How a tensor is tiled: a threadblock has (vectors of eight channels, lanes) threads, the former a power of two, and
// takes one chunk of one set; the grid is (chunks, tiles of channels, sets). Neighbouring threads read neighbouring
// channels, so that loads are coalesced. A chunk is one row of `lanes` pixels out of every `chunks`: threadblocks, all
// of a wave at once, sweep over the tensor together, so that L2 has what they passed last. The tiling follows from the
// shape alone, and with it the order of sums.
struct NormTiling {
  Tensor x;
  bool per_image;
  int sets, groups, group_size; // group_size: channels
  int pixels;                   // of a set; on the device use pixels_of
  int chunks, lanes;
  dim3 grid, block;
};

static inline NormTiling norm_tiling(const Tensor *x, int groups, bool per_image, int per_sm = PER_SM) {
  CHECK(groups > 0 && x->c % groups == 0 && x->ldc % 8 == 0);
  CHECK(tensor_pixels(x) <= INT32_MAX / 2);
  NormTiling m = {};
  m.x = *x;
  m.per_image = per_image;
  m.sets = per_image ? x->n : 1;
  m.groups = groups;
  m.group_size = x->c / groups;
  m.pixels = x->h * x->w * (per_image ? 1 : x->n);
  int vectors = x->ldc / 8, tile = 1;
  while (tile < MIN(vectors, TILE)) tile *= 2;
  m.lanes = THREADS / tile;
  int tiles = (vectors + tile - 1) / tile;
  int of_one_wave = blocks_for((size_t)m.pixels * m.sets * tiles, m.lanes * SMS * per_sm); // pixels of a thread
  int waves = MAX(blocks_for(of_one_wave, DEEP), 1);
  m.chunks = blocks_for(m.pixels, MAX(blocks_for(of_one_wave, waves), SHALLOW) * m.lanes);
  m.grid = dim3(m.chunks, tiles, m.sets);
  m.block = dim3(tile, m.lanes);
  return m;
}

// Of group norm, or, where groups is 0, of batch norm.
static inline NormTiling tiling_of(const Tensor *x, int groups, int per_sm = PER_SM) {
  return groups ? norm_tiling(x, groups, true, per_sm) : norm_tiling(x, x->c, false, per_sm);
}

// Of the workspace: for the first pass; for what write_totals makes of it.
static inline size_t partial_elements(const NormTiling *m) { return (size_t)m->sets * m->chunks * 2 * m->x.ldc; }
static inline size_t totals_elements(const NormTiling *m) { return m->sets > 1 ? (size_t)m->sets * 2 * m->x.c : 0; }
static inline size_t slopes_elements(const NormTiling *m) { return (size_t)m->sets * m->groups * 2; }

// ---- tiles ----------------------------------------------------------------------------------------------------------

// Sets and their pixels on the device, by the count of valid rows.
static __device__ __forceinline__ int sets_of(const NormTiling &m) { return m.per_image ? rows_of(m.x) : 1; }
static __device__ __forceinline__ int pixels_of(const NormTiling &m) {
  return m.per_image ? m.pixels : m.x.h * m.x.w * rows_of(m.x);
}

static __device__ __forceinline__ int pixels_of_chunk(const NormTiling &m, int chunk) {
  const int pixels = pixels_of(m), sweep = m.chunks * m.lanes, rest = pixels % sweep - chunk * m.lanes;
  return pixels / sweep * m.lanes + min(max(rest, 0), m.lanes);
}
// The first of the thread's eight channels.
static __device__ __forceinline__ int channel_of_thread() { return (blockIdx.y * blockDim.x + threadIdx.x) * 8; }

// The group of a channel among those of all sets. Batch norm's, a channel each, cost no division: eight of them take
// longer than all else before a thread's first load.
static __device__ __forceinline__ int group_of(const NormTiling &m, int set, int channel) {
  return set * m.groups + (m.group_size == 1 ? channel : channel / m.group_size);
}

// A thread's part of a sweep: its first position, the stride between positions, and their number. A sweep from the end
// finds in L2 what was written or passed last.
struct Sweep {
  int first, step, positions;
  bool from_end;
  __device__ __forceinline__ int pixel(int position) const { return from_end ? positions - 1 - position : position; }
};
static __device__ __forceinline__ Sweep sweep_of(const NormTiling &m, bool from_end) {
  return {(int)(blockIdx.x * m.lanes + threadIdx.y), m.chunks * m.lanes, pixels_of(m), from_end};
}

// Where channels c … c+7 of pixel p of the threadblock's set begin in a tensor of that pitch.
static __device__ __forceinline__ size_t offset_of(const NormTiling &m, int ldc, int p, int c) {
  return ((size_t)blockIdx.z * m.pixels + p) * ldc + c;
}
template <class T>
static __device__ __forceinline__ Raw8<T> read_pixel(const NormTiling &m, const Tensor &t, int p, int c) {
  return read8((const T *)t.data + offset_of(m, t.ldc, p, c));
}

// The reads of the epilogue of channels c … c+7 of pixel p of the threadblock's set, and the rest of it.
template <class T>
static __device__ __forceinline__ DestReads<T> dest_read_pixel(const NormTiling &m, const DestArgs &d, int p, int c) {
  return dest_read8<T>(d, offset_of(m, d.t.ldc, p, c));
}
template <class T>
static __device__ __forceinline__ void store_pixel(const NormTiling &m, const DestArgs &d, int p, int c, Eight v,
                                                   const DestReads<T> &reads) {
  if (d.resized) {
    int row = p / m.x.w, n = m.per_image ? blockIdx.z : row / m.x.h;
    add8(v, dest_resized8<T>(d, n, m.per_image ? row : row - n * m.x.h, p - row * m.x.w, c));
  }
  dest_write8<T>(d, offset_of(m, d.t.ldc, p, c), c, v, reads);
}

// A thread's loads that are in flight at once, of vectors of eight channels: 64 bytes, of a multiprocessor 64 KB.
template <class T> static constexpr int IN_FLIGHT = 8 / (int)sizeof(T);

// The reduction within a threadblock goes from lanes of a warp, by butterflies, to warps, through shared memory, to a
// thread per channel, which adds up the warps in order and writes partial[set, chunk, 2, channel].
static __shared__ __align__(16) float warps_a[WARPS][TILE * 8], warps_b[WARPS][TILE * 8]; // [channel of the tile]
static __shared__ float warps_n[WARPS];

static __device__ __forceinline__ void share(const Eight &a, const Eight &b) {
  int i = threadIdx.y * blockDim.x + threadIdx.x, lane = i % 32, warp = i / 32;
  if (lane < (int)blockDim.x) {
    store8(&warps_a[warp][lane * 8], a);
    store8(&warps_b[warp][lane * 8], b);
  }
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

// Moments of eight channels over the same pixels: how many, their means, m2 = Σ (x - mean)². Parts merge without
// cancellation (Chan, Golub, LeVeque, "Updating formulae … sample variances", 1979).
struct EightMoments {
  float n;
  Eight mean, m2;
};
static __device__ __forceinline__ void merge_moments(EightMoments &to, float n, const Eight &mean, const Eight &m2) {
  const float before = to.n;
  to.n += n;
  const float share = to.n > 0 ? n / to.n : 0;
#pragma unroll
  for (int k = 0; k < 8; k++) {
    const float d = mean.v[k] - to.mean.v[k];
    to.mean.v[k] += d * share;
    to.m2.v[k] += m2.v[k] + d * d * (before * share);
  }
}

// Of as many vectors as are in flight.
template <class T> static __device__ __forceinline__ void take_moments(EightMoments &to, const Raw8<T> *raw) {
  constexpr int N = IN_FLIGHT<T>;
  Eight mean = {}, m2 = {};
#pragma unroll
  for (int u = 0; u < N; u++) add8(mean, to_eight<T>(raw[u]));
#pragma unroll
  for (int k = 0; k < 8; k++) mean.v[k] *= 1.f / N;
#pragma unroll
  for (int u = 0; u < N; u++) {
    const Eight v = to_eight<T>(raw[u]);
#pragma unroll
    for (int k = 0; k < 8; k++) m2.v[k] += (v.v[k] - mean.v[k]) * (v.v[k] - mean.v[k]);
  }
  merge_moments(to, N, mean, m2);
}

// First pass: partial [sets, chunks, 2, ldc] = mean and m2 of each chunk and channel. One read of x.
template <class T>
__global__ void __launch_bounds__(THREADS, PER_SM) norm_moments_kernel(NormTiling m, float *partial) {
  constexpr int N = IN_FLIGHT<T>;
  grid_launch_dependents();
  grid_wait_prerequisite();
  if ((int)blockIdx.z >= sets_of(m)) return;
  const Sweep sweep = sweep_of(m, true);
  const int c = channel_of_thread();
  EightMoments thread = {};
  if (c < m.x.ldc) {
    Raw8<T> raw[N];
    int i = sweep.first;
    for (; i + (N - 1) * sweep.step < sweep.positions; i += N * sweep.step) {
#pragma unroll
      for (int u = 0; u < N; u++) raw[u] = read_pixel<T>(m, m.x, sweep.pixel(i + u * sweep.step), c);
      take_moments<T>(thread, raw);
    }
    for (; i < sweep.positions; i += sweep.step)
      merge_moments(thread, 1, to_eight<T>(read_pixel<T>(m, m.x, sweep.pixel(i), c)), {});
  }
  for (int offset = 16; offset >= (int)blockDim.x; offset /= 2) {
    Eight mean, m2;
#pragma unroll
    for (int k = 0; k < 8; k++) {
      mean.v[k] = __shfl_xor_sync(~0u, thread.mean.v[k], offset);
      m2.v[k] = __shfl_xor_sync(~0u, thread.m2.v[k], offset);
    }
    merge_moments(thread, __shfl_xor_sync(~0u, thread.n, offset), mean, m2);
  }
  const int i = threadIdx.y * blockDim.x + threadIdx.x, channel = blockIdx.y * blockDim.x * 8 + i;
  if (i % 32 == 0) warps_n[i / 32] = thread.n;
  share(thread.mean, thread.m2);

  if (i >= (int)blockDim.x * 8 || channel >= m.x.ldc) return;
  double n = 0, sum = 0, squares = 0;
#pragma unroll
  for (int warp = 0; warp < WARPS; warp++) {
    n += warps_n[warp];
    sum += (double)warps_n[warp] * warps_a[warp][i];
  }
  const double mean = n > 0 ? sum / n : 0;
#pragma unroll
  for (int warp = 0; warp < WARPS; warp++) {
    const double d = warps_a[warp][i] - mean;
    squares += warps_b[warp][i] + warps_n[warp] * d * d;
  }
  float *to = partial_of(m, partial, blockIdx.z, blockIdx.x) + channel;
  to[0] = (float)mean;
  to[m.x.ldc] = (float)squares;
}

struct NormMoments {
  double n, mean, m2; // m2 = Σ (x - mean)²
};

// The moments of a group, by the threadblock, the same in every thread: the partial ones of chunks and channels are
// merged in double, twice over the same few KB: first the mean, then the squares about it.
static __device__ __forceinline__ NormMoments group_moments(const NormTiling &m, const float *partial, int set,
                                                            int group) {
  double n = (double)pixels_of(m) * m.group_size, sum = 0, squares = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < m.chunks * m.group_size; i += blockDim.x) {
    int chunk = i / m.group_size, c = group * m.group_size + i % m.group_size;
    sum += (double)pixels_of_chunk(m, chunk) * partial_of(m, partial, set, chunk)[c];
  }
  sum = block_sum(sum);
  double mean = n > 0 ? sum / n : 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < m.chunks * m.group_size; i += blockDim.x) {
    int chunk = i / m.group_size, c = group * m.group_size + i % m.group_size;
    double d = partial_of(m, partial, set, chunk)[c] - mean;
    squares += partial_of(m, partial, set, chunk)[m.x.ldc + c] + pixels_of_chunk(m, chunk) * d * d;
  }
  return {n, mean, block_sum(squares)};
}

// stats [2] = mean, 1 / √(var + eps), and BatchNorm's running statistics of a channel where they are given.
static __device__ __forceinline__ void write_stats(const NormMoments &v, float eps, float momentum, int channel,
                                                   float *running_mean, float *running_var, float *stats) {
  stats[0] = (float)v.mean;
  stats[1] = (float)(1 / sqrt((v.n > 0 ? v.m2 / v.n : 0) + eps));
  if (!(v.n > 0)) return;
  // A single value tells nothing about the spread: 0 rather than PyTorch's error.
  double unbiased = v.n > 1 ? v.m2 / (v.n - 1) : 0, keep = 1 - (double)momentum;
  if (running_mean) running_mean[channel] = (float)(keep * running_mean[channel] + momentum * v.mean);
  if (running_var) running_var[channel] = (float)(keep * running_var[channel] + momentum * unbiased);
}

// Pixels that a thread of an elementwise pass has under way: all that so many tensors hold of them is in flight before
// the first store.
template <class T, int TENSORS = 1>
static constexpr int PIXELS_AHEAD = IN_FLIGHT<T> > TENSORS ? IN_FLIGHT<T> / TENSORS : 1;

// What of a Dest's optional inputs a kernel is made for. It holds no registers for what it knows to be absent, so that
// PER_SM threadblocks fit on a multiprocessor; without any input, or with an addend alone, most norms are.
enum DestInputs { NO_INPUT, ADDEND, ANY_INPUT };
static constexpr int blocks_per_sm(DestInputs inputs) { return inputs == ANY_INPUT ? PER_SM / 2 : PER_SM; }
static inline DestInputs inputs_of(const DestArgs &d) {
  return d.accumulate || d.mask.data || d.resized ? ANY_INPUT : d.addend.data ? ADDEND : NO_INPUT;
}
template <DestInputs INPUTS> static __device__ __forceinline__ DestArgs with_inputs(DestArgs d) {
  if (INPUTS != ANY_INPUT) {
    d.accumulate = d.resized = false;
    d.mask.data = NULL;
  }
  if (INPUTS == NO_INPUT) d.addend.data = NULL;
  return d;
}
// Instantiates its last argument with INPUTS = inputs.
#define WITH_INPUTS(inputs, INPUTS, ...)                                                                               \
  switch (inputs) {                                                                                                    \
  case NO_INPUT: {                                                                                                     \
    constexpr DestInputs INPUTS = NO_INPUT;                                                                            \
    __VA_ARGS__;                                                                                                       \
    break;                                                                                                             \
  }                                                                                                                    \
  case ADDEND: {                                                                                                       \
    constexpr DestInputs INPUTS = ADDEND;                                                                              \
    __VA_ARGS__;                                                                                                       \
    break;                                                                                                             \
  }                                                                                                                    \
  case ANY_INPUT: {                                                                                                    \
    constexpr DestInputs INPUTS = ANY_INPUT;                                                                           \
    __VA_ARGS__;                                                                                                       \
    break;                                                                                                             \
  }                                                                                                                    \
  }

// Elementwise pass: y [n, h, w, c] = (x - mean) · (gamma / std) + beta and the epilogue; the mean is subtracted first,
// where it is exact. A thread keeps the coefficients of its eight channels in registers and walks down its chunk.
template <class T, DestInputs INPUTS>
__global__ void __launch_bounds__(THREADS, blocks_per_sm(INPUTS))
    norm_normalise_kernel(NormTiling m, const float *gamma, const float *beta, const float *stats, bool from_end,
                          DestArgs dest) {
  constexpr int N = PIXELS_AHEAD<T, (INPUTS == ADDEND ? 2 : 1)>; // x, and the addend
  const DestArgs y = with_inputs<INPUTS>(dest);
  const int set = blockIdx.z, c = channel_of_thread();
  grid_wait_prerequisite();
  if (set >= sets_of(m) || c >= m.x.ldc) return;
  Eight mean, scale, shift;
#pragma unroll
  for (int k = 0; k < 8; k++) {
    int channel = min(c + k, m.x.c - 1); // padding channels take anything: they are stored as zero
    const float *s = stats + 2 * group_of(m, set, channel);
    mean.v[k] = s[0];
    scale.v[k] = gamma[channel] * s[1];
    shift.v[k] = beta[channel];
  }
  const Sweep sweep = sweep_of(m, from_end);
  for (int i = sweep.first; i < sweep.positions; i += N * sweep.step) {
    Raw8<T> x[N];
    DestReads<T> reads[N];
#pragma unroll
    for (int u = 0; u < N; u++)
      if (i + u * sweep.step < sweep.positions) {
        const int p = sweep.pixel(i + u * sweep.step);
        x[u] = read_pixel<T>(m, m.x, p, c);
        reads[u] = dest_read_pixel<T>(m, y, p, c);
      }
#pragma unroll
    for (int u = 0; u < N; u++)
      if (i + u * sweep.step < sweep.positions) {
        Eight v = to_eight<T>(x[u]);
#pragma unroll
        for (int k = 0; k < 8; k++) v.v[k] = (v.v[k] - mean.v[k]) * scale.v[k] + shift.v[k];
        store_pixel<T>(m, y, sweep.pixel(i + u * sweep.step), c, v, reads[u]);
      }
  }
}

// ---- backward -------------------------------------------------------------------------------------------------------

// First pass: partial [sets, chunks, 2, ldc] = Σ dy and Σ dy · (x - mean) of each chunk and channel. Threads and their
// reduction as in norm_moments_kernel; one read of x and dy.
template <class T>
__global__ void __launch_bounds__(THREADS, PER_SM)
    norm_gradient_sums_kernel(NormTiling m, Tensor dy, const float *stats, float *partial) {
  constexpr int N = IN_FLIGHT<T> / 2;
  grid_launch_dependents();
  grid_wait_prerequisite();
  const int set = blockIdx.z, c = channel_of_thread();
  if (set >= sets_of(m)) return;
  const Sweep sweep = sweep_of(m, true);
  Eight mean, sum = {}, dot = {};
#pragma unroll
  for (int k = 0; k < 8; k++) mean.v[k] = stats[2 * group_of(m, set, min(c + k, m.x.c - 1))];
  if (c < m.x.ldc)
    for (int i = sweep.first; i < sweep.positions; i += N * sweep.step) {
      Raw8<T> x[N], g[N];
#pragma unroll
      for (int u = 0; u < N; u++)
        if (i + u * sweep.step < sweep.positions) {
          const int p = sweep.pixel(i + u * sweep.step);
          x[u] = read_pixel<T>(m, m.x, p, c);
          g[u] = read_pixel<T>(m, dy, p, c);
        }
#pragma unroll
      for (int u = 0; u < N; u++)
        if (i + u * sweep.step < sweep.positions) {
          const Eight v = to_eight<T>(x[u]), d = to_eight<T>(g[u]);
#pragma unroll
          for (int k = 0; k < 8; k++) {
            sum.v[k] += d.v[k];
            dot.v[k] += d.v[k] * (v.v[k] - mean.v[k]);
          }
        }
    }
  for (int offset = 16; offset >= (int)blockDim.x; offset /= 2)
#pragma unroll
    for (int k = 0; k < 8; k++) {
      sum.v[k] += __shfl_xor_sync(~0u, sum.v[k], offset);
      dot.v[k] += __shfl_xor_sync(~0u, dot.v[k], offset);
    }
  share(sum, dot);

  const int i = threadIdx.y * blockDim.x + threadIdx.x, channel = blockIdx.y * blockDim.x * 8 + i;
  if (i >= (int)blockDim.x * 8 || channel >= m.x.ldc) return;
  double sum_of_all = 0, dot_of_all = 0;
#pragma unroll
  for (int warp = 0; warp < WARPS; warp++) {
    sum_of_all += warps_a[warp][i];
    dot_of_all += warps_b[warp][i];
  }
  float *to = partial_of(m, partial, set, blockIdx.x) + channel;
  to[0] = (float)sum_of_all;
  to[m.x.ldc] = (float)dot_of_all;
}

struct GradientSums {
  double sum, dot; // Σ dy; Σ dy · (x - mean), or · x̂
};

// A channel's, by the warp, the same in every lane: the lanes reduce the chunks.
static __device__ __forceinline__ GradientSums channel_sums(const NormTiling &m, const float *partial, int set, int c) {
  constexpr int N = 8; // chunks whose loads are in flight at once
  GradientSums v = {};
  for (int first = threadIdx.x % 32; first < m.chunks; first += N * 32) {
    float sum[N] = {}, dot[N] = {};
#pragma unroll
    for (int u = 0; u < N; u++)
      if (first + u * 32 < m.chunks) {
        const float *from = partial_of(m, partial, set, first + u * 32) + c;
        sum[u] = from[0];
        dot[u] = from[m.x.ldc];
      }
#pragma unroll
    for (int u = 0; u < N; u++) {
      v.sum += sum[u];
      v.dot += dot[u];
    }
  }
  return {warp_sum(v.sum), warp_sum(v.dot)};
}

// slopes [2]: the coefficients of x - mean and of 1 in dx, from the sums times gamma over so many values.
static __device__ __forceinline__ void write_slopes(const GradientSums &v, double values, double inv_std,
                                                    float *slopes) {
  slopes[0] = (float)(-inv_std * inv_std * v.dot / values);
  slopes[1] = (float)(-inv_std * v.sum / values);
}

// dbeta (+)= Σ dy, dgamma (+)= Σ dy · x̂ of channel c, each where it is wanted.
static __device__ __forceinline__ void write_parameter_gradients(const GradientSums &v, int c, bool accumulate,
                                                                 float *dgamma, float *dbeta) {
  if (dbeta) dbeta[c] = (float)(v.sum + (accumulate ? dbeta[c] : 0));
  if (dgamma) dgamma[c] = (float)(v.dot + (accumulate ? dgamma[c] : 0));
}

// Elementwise pass, with m values in a group: dx = (gamma · dy - Σ gamma · dy / m - x̂ · Σ gamma · dy · x̂ / m) / std,
// and the epilogue. A thread keeps the mean and three coefficients of each of its eight channels in registers and walks
// down its chunk.
template <class T, DestInputs INPUTS>
__global__ void __launch_bounds__(THREADS, blocks_per_sm(INPUTS))
    norm_backward_kernel(NormTiling m, Tensor dy, const float *gamma, const float *stats, const float *slopes,
                         DestArgs dest) {
  constexpr int N = PIXELS_AHEAD<T, (INPUTS == ADDEND ? 3 : 2)>; // x, dy, and the addend
  const DestArgs dx = with_inputs<INPUTS>(dest);
  const int set = blockIdx.z, c = channel_of_thread();
  grid_wait_prerequisite();
  if (set >= sets_of(m) || c >= m.x.ldc) return;
  Eight mean, of_dy, of_x, constant;
#pragma unroll
  for (int k = 0; k < 8; k++) {
    int channel = min(c + k, m.x.c - 1); // padding channels take anything: they are stored as zero
    int group = group_of(m, set, channel);
    mean.v[k] = stats[group * 2];
    of_dy.v[k] = gamma[channel] * stats[group * 2 + 1];
    of_x.v[k] = slopes[group * 2];
    constant.v[k] = slopes[group * 2 + 1];
  }
  const Sweep sweep = sweep_of(m, false);
  for (int i = sweep.first; i < sweep.positions; i += N * sweep.step) {
    Raw8<T> x[N], g[N];
    DestReads<T> reads[N];
#pragma unroll
    for (int u = 0; u < N; u++)
      if (i + u * sweep.step < sweep.positions) {
        const int p = sweep.pixel(i + u * sweep.step);
        x[u] = read_pixel<T>(m, m.x, p, c);
        g[u] = read_pixel<T>(m, dy, p, c);
        reads[u] = dest_read_pixel<T>(m, dx, p, c);
      }
#pragma unroll
    for (int u = 0; u < N; u++)
      if (i + u * sweep.step < sweep.positions) {
        Eight v = to_eight<T>(x[u]), d = to_eight<T>(g[u]);
#pragma unroll
        for (int k = 0; k < 8; k++) v.v[k] = of_dy.v[k] * d.v[k] + (of_x.v[k] * (v.v[k] - mean.v[k]) + constant.v[k]);
        store_pixel<T>(m, dx, sweep.pixel(i + u * sweep.step), c, v, reads[u]);
      }
  }
}

// ---- launchers ------------------------------------------------------------------------------------------------------

// t may be a slice.
static inline void check_like(const Tensor *x, const Tensor *t) {
  CHECK(t->ldc >= x->ldc && t->ldc % 8 == 0);
  CHECK(t->dtype == x->dtype && t->c == x->c && t->n == x->n && t->h == x->h && t->w == x->w);
}

static inline void check_dest(const Tensor *x, const Dest *d) {
  if (d->pool) return; // normalise_pooled checks
  check_like(x, &d->t);
  CHECK(d->t.ldc == x->ldc || (!d->addend && !d->mask));
}

// Of a first pass: dependent, unless multiprocessors are left to collectives, on which it would wait for the end of
// what may be a long kernel.
template <class... Formal, class... Actual>
static void launch_first_pass(Device *dev, void (*kernel)(Formal...), const NormTiling &m, Actual... args) {
  if (dev->granted == dev->multiprocessors) return launch_dependent(dev, kernel, m.grid, m.block, m, args...);
  kernel<<<m.grid, m.block, 0, stream_of(dev)>>>(m, args...);
  LAUNCH_CHECK();
}

static inline void sum_moments(Device *dev, const NormTiling &m, float *partial) {
  WITH_TYPE(m.x.dtype, T, launch_first_pass(dev, norm_moments_kernel<T>, m, partial))
}

// Second passes to statistics: of the first pass (norm.cu), and of moments that a convolution told, by images (norm.cu)
// or of the batch (norm_ranks.cu).
void write_statistics(Device *dev, const NormTiling &m, const float *partial, float eps, float momentum,
                      void *running_mean, void *running_var, void *stats);
void merge_groups(Device *dev, const NormTiling &m, const void *moments, float eps, void *stats);
void merge_parts(Device *dev, int channels, int parts, const void *moments, float eps, float momentum,
                 void *running_mean, void *running_var, void *stats);

// Whether norm_pair.cu takes norms of x: vectors of eight channels have one mean, or one each, and no padding.
static inline bool can_pair(int groups, const Tensor *x) { return x->c / MAX(groups, 1) % 8 == 0 && !x->count; }

// Of y with a pool (norm_pool.cu).
void normalise_pooled(Device *dev, const NormTiling &m, const void *gamma, const void *beta, const void *stats,
                      bool from_end, const Dest *y);
// from_end: x was last passed, or written, from its beginning.
static inline void normalise(Device *dev, const NormTiling &m, const void *gamma, const void *beta, const void *stats,
                             bool from_end, const Dest *y) {
  if (y->pool) return normalise_pooled(dev, m, gamma, beta, stats, from_end, y);
  const DestArgs to = dest_args(y);
  WITH_TYPE(
      m.x.dtype, T,
      {WITH_INPUTS(inputs_of(to), INPUTS,
                   launch_dependent(dev, norm_normalise_kernel<T, INPUTS>, m.grid, m.block, m, (const float *)gamma,
                                    (const float *)beta, (const float *)stats, from_end, to))})
}

static inline void sum_gradients(Device *dev, const NormTiling &m, const Tensor *dy, const void *stats,
                                 float *partial) {
  WITH_TYPE(m.x.dtype, T, launch_first_pass(dev, norm_gradient_sums_kernel<T>, m, *dy, (const float *)stats, partial))
}

// The second pass (norm.cu): slopes, dgamma and dbeta; `image`: pixels of an image that the norm was taken over.
void write_totals(Device *dev, const NormTiling &m, int image, const float *partial, const void *gamma,
                  const void *stats, double *totals, float *slopes, bool accumulate, void *dgamma, void *dbeta);

static inline void write_dx(Device *dev, const NormTiling &m, const Tensor *dy, const void *gamma, const void *stats,
                            const float *slopes, const Dest *dx) {
  const DestArgs to = dest_args(dx);
  WITH_TYPE(m.x.dtype, T,
            {WITH_INPUTS(inputs_of(to), INPUTS,
                         launch_dependent(dev, norm_backward_kernel<T, INPUTS>, m.grid, m.block, m, *dy,
                                          (const float *)gamma, (const float *)stats, slopes, to))})
}
