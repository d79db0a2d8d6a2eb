// Two group norms whose sum goes through a ReLU: where the shortcut of a residual block has a norm of its own. Their
// elementwise passes are one, and so are the passes over dy. Groups are of whole vectors of eight channels, so that a
// vector has one mean. For tensors that clusters do not keep (cuda/norm_resident.cuh).
#pragma once
#include "cuda/norm_passes.cuh"

// Of one of the two; m.x of the tiling is the first's x, and the second's has its shape.
struct PairArgs {
  const void *x;
  const float *gamma, *beta, *stats, *slopes;
};
template <class T>
static __device__ __forceinline__ Raw8<T> read_pair(const NormTiling &m, const PairArgs &a, int p, int c) {
  return read8((const T *)a.x + offset_of(m, m.x.ldc, p, c));
}

// y = max(0, Σ (x - mean) · (gamma / std) + beta).
template <class T>
__global__ void __launch_bounds__(THREADS, PER_SM - 1)
    norm_pair_normalise_kernel(NormTiling m, PairArgs a, PairArgs b, bool from_end, Tensor y) {
  constexpr int N = PIXELS_AHEAD<T, 1>;
  const int set = blockIdx.z, c = channel_of_thread();
  grid_wait_prerequisite();
  if (set >= sets_of(m) || c >= m.x.ldc) return;
  const float2 of_a = ((const float2 *)a.stats)[group_of(m, set, c)],
               of_b = ((const float2 *)b.stats)[group_of(m, set, c)];
  Eight scale_a = load8(a.gamma + c), scale_b = load8(b.gamma + c), shift = load8(a.beta + c);
  add8(shift, load8(b.beta + c));
#pragma unroll
  for (int k = 0; k < 8; k++) {
    scale_a.v[k] *= of_a.y;
    scale_b.v[k] *= of_b.y;
  }
  const Sweep sweep = sweep_of(m, from_end);
  for (int i = sweep.first; i < sweep.positions; i += N * sweep.step) {
    Raw8<T> x_a[N], x_b[N];
#pragma unroll
    for (int u = 0; u < N; u++)
      if (i + u * sweep.step < sweep.positions) {
        const int p = sweep.pixel(i + u * sweep.step);
        x_a[u] = read_pair<T>(m, a, p, c);
        x_b[u] = read_pair<T>(m, b, p, c);
      }
#pragma unroll
    for (int u = 0; u < N; u++)
      if (i + u * sweep.step < sweep.positions) {
        Eight v = to_eight<T>(x_a[u]), w = to_eight<T>(x_b[u]);
#pragma unroll
        for (int k = 0; k < 8; k++) {
          v.v[k] = (v.v[k] - of_a.x) * scale_a.v[k] + ((w.v[k] - of_b.x) * scale_b.v[k] + shift.v[k]);
          v.v[k] = v.v[k] < 0.f ? 0.f : v.v[k]; // NaN stays
        }
        store8((T *)y.data + offset_of(m, y.ldc, sweep.pixel(i + u * sweep.step), c), v);
      }
  }
}

// The first pass of both gradients, as norm_gradient_sums_kernel, whose partial sums it writes for each: one read of
// dy.
template <class T>
__global__ void __launch_bounds__(THREADS, PER_SM)
    norm_pair_sums_kernel(NormTiling m, PairArgs a, PairArgs b, Tensor dy, float *partial_a, float *partial_b) {
  constexpr int N = IN_FLIGHT<T> / 2;
  grid_launch_dependents();
  grid_wait_prerequisite();
  const int set = blockIdx.z, c = channel_of_thread();
  if (set >= sets_of(m)) return;
  const Sweep sweep = sweep_of(m, true);
  Eight sum = {}, dot_a = {}, dot_b = {};
  if (c < m.x.ldc) {
    const float mean_a = a.stats[2 * group_of(m, set, c)], mean_b = b.stats[2 * group_of(m, set, c)];
    for (int i = sweep.first; i < sweep.positions; i += N * sweep.step) {
      Raw8<T> x_a[N], x_b[N], g[N];
#pragma unroll
      for (int u = 0; u < N; u++)
        if (i + u * sweep.step < sweep.positions) {
          const int p = sweep.pixel(i + u * sweep.step);
          x_a[u] = read_pair<T>(m, a, p, c);
          x_b[u] = read_pair<T>(m, b, p, c);
          g[u] = read_pixel<T>(m, dy, p, c);
        }
#pragma unroll
      for (int u = 0; u < N; u++)
        if (i + u * sweep.step < sweep.positions) {
          const Eight v = to_eight<T>(x_a[u]), w = to_eight<T>(x_b[u]), d = to_eight<T>(g[u]);
#pragma unroll
          for (int k = 0; k < 8; k++) {
            sum.v[k] += d.v[k];
            dot_a.v[k] += d.v[k] * (v.v[k] - mean_a);
            dot_b.v[k] += d.v[k] * (w.v[k] - mean_b);
          }
        }
    }
  }
  for (int offset = 16; offset >= (int)blockDim.x; offset /= 2)
#pragma unroll
    for (int k = 0; k < 8; k++) {
      sum.v[k] += __shfl_xor_sync(~0u, sum.v[k], offset);
      dot_a.v[k] += __shfl_xor_sync(~0u, dot_a.v[k], offset);
      dot_b.v[k] += __shfl_xor_sync(~0u, dot_b.v[k], offset);
    }
  const int i = threadIdx.y * blockDim.x + threadIdx.x, channel = blockIdx.y * blockDim.x * 8 + i;
  const bool has_channel = i < (int)blockDim.x * 8 && channel < m.x.ldc;
#pragma unroll
  for (int which = 0; which < 2; which++) {
    if (which) __syncthreads(); // the first's have been read
    share(sum, which ? dot_b : dot_a);
    if (!has_channel) continue;
    double sum_of_all = 0, dot_of_all = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; warp++) {
      sum_of_all += warps_a[warp][i];
      dot_of_all += warps_b[warp][i];
    }
    float *to = partial_of(m, which ? partial_b : partial_a, set, blockIdx.x) + channel;
    to[0] = (float)sum_of_all;
    to[m.x.ldc] = (float)dot_of_all;
  }
}

// The elementwise pass of both, as norm_backward_kernel.
template <class T, DestInputs INPUTS>
__global__ void __launch_bounds__(THREADS, INPUTS == ANY_INPUT ? PER_SM / 2 : PER_SM - 1)
    norm_pair_backward_kernel(NormTiling m, PairArgs a, PairArgs b, Tensor dy, DestArgs to_a, DestArgs to_b) {
  constexpr int N = PIXELS_AHEAD<T, 2>;
  const DestArgs dx_a = with_inputs<INPUTS>(to_a), dx_b = with_inputs<INPUTS>(to_b);
  const int set = blockIdx.z, c = channel_of_thread();
  grid_wait_prerequisite();
  if (set >= sets_of(m) || c >= m.x.ldc) return;
  const int group = group_of(m, set, c);
  const float2 of_a = ((const float2 *)a.stats)[group], of_b = ((const float2 *)b.stats)[group];
  const float2 slope_a = ((const float2 *)a.slopes)[group], slope_b = ((const float2 *)b.slopes)[group];
  Eight of_dy_a = load8(a.gamma + c), of_dy_b = load8(b.gamma + c);
#pragma unroll
  for (int k = 0; k < 8; k++) {
    of_dy_a.v[k] *= of_a.y;
    of_dy_b.v[k] *= of_b.y;
  }
  const Sweep sweep = sweep_of(m, false);
  for (int i = sweep.first; i < sweep.positions; i += N * sweep.step) {
    Raw8<T> x_a[N], x_b[N], g[N];
    DestReads<T> reads_a[N], reads_b[N];
#pragma unroll
    for (int u = 0; u < N; u++)
      if (i + u * sweep.step < sweep.positions) {
        const int p = sweep.pixel(i + u * sweep.step);
        x_a[u] = read_pair<T>(m, a, p, c);
        x_b[u] = read_pair<T>(m, b, p, c);
        g[u] = read_pixel<T>(m, dy, p, c);
        reads_a[u] = dest_read_pixel<T>(m, dx_a, p, c);
        reads_b[u] = dest_read_pixel<T>(m, dx_b, p, c);
      }
#pragma unroll
    for (int u = 0; u < N; u++)
      if (i + u * sweep.step < sweep.positions) {
        const int p = sweep.pixel(i + u * sweep.step);
        Eight v = to_eight<T>(x_a[u]), w = to_eight<T>(x_b[u]), d = to_eight<T>(g[u]);
#pragma unroll
        for (int k = 0; k < 8; k++) {
          v.v[k] = of_dy_a.v[k] * d.v[k] + (slope_a.x * (v.v[k] - of_a.x) + slope_a.y);
          w.v[k] = of_dy_b.v[k] * d.v[k] + (slope_b.x * (w.v[k] - of_b.x) + slope_b.y);
        }
        store_pixel<T>(m, dx_a, p, c, v, reads_a[u]);
        store_pixel<T>(m, dx_b, p, c, w, reads_b[u]);
      }
  }
}
