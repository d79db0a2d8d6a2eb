// Two norms whose sum goes through a ReLU: where the shortcut of a residual block has a norm of its own. Their
// elementwise passes are one, and so are the passes over dy. For tensors that clusters do not keep
// (cuda/norm_resident.cuh).
#include "cuda/norm_passes.cuh"

// Of one of the two; m.x of the tiling is the first's x, and the second's has its shape.
struct PairArgs {
  const void *x;
  const float *gamma, *beta, *stats, *slopes;
};

// A statistic of a vector's eight channels: one, where they are of a group, or each channel's. Those are registers that
// are not there for loads, and with them fewer threadblocks are on a multiprocessor.
enum PairGroups { SHARED_GROUP = 1, GROUPS_OF_ONE = 8 };
static constexpr int sums_per_sm(PairGroups g) { return g == SHARED_GROUP ? PER_SM : PER_SM - 1; }
static constexpr int writes_per_sm(PairGroups g) { return g == SHARED_GROUP ? PER_SM - 1 : PER_SM / 2; }
template <PairGroups N> struct EightOf {
  float v[N];
  __device__ __forceinline__ float operator[](int k) const { return v[N == 1 ? 0 : k]; }
};
template <PairGroups N> struct EightPairs { EightOf<N> first, second; };
// From pairs [sets, groups, 2]: mean and 1 / deviation, or slopes.
template <PairGroups N>
static __device__ __forceinline__ EightPairs<N> load_pairs(const NormTiling &m, const float *pairs, int c) {
  const float2 *from = (const float2 *)pairs + group_of(m, blockIdx.z, c);
  EightPairs<N> e;
#pragma unroll
  for (int k = 0; k < N; k++) {
    e.first.v[k] = from[k].x;
    e.second.v[k] = from[k].y;
  }
  return e;
}
template <PairGroups N> static __device__ __forceinline__ Eight scaled(const float *gamma, const EightOf<N> &inv_std) {
  Eight e = load8(gamma);
#pragma unroll
  for (int k = 0; k < 8; k++) e.v[k] *= inv_std[k];
  return e;
}

template <class T>
static __device__ __forceinline__ Raw8<T> read_pair(const NormTiling &m, const PairArgs &a, int p, int c) {
  return read8((const T *)a.x + offset_of(m, m.x.ldc, p, c));
}

// y = max(0, Σ (x - mean) · (gamma / std) + beta).
template <class T, PairGroups G>
__global__ void __launch_bounds__(THREADS, writes_per_sm(G))
    norm_pair_normalise_kernel(NormTiling m, PairArgs a, PairArgs b, bool from_end, Tensor y) {
  constexpr int N = PIXELS_AHEAD<T, 1>;
  const int set = blockIdx.z, c = channel_of_thread();
  grid_wait_prerequisite();
  if (set >= sets_of(m) || c >= m.x.ldc) return;
  const EightPairs<G> of_a = load_pairs<G>(m, a.stats, c), of_b = load_pairs<G>(m, b.stats, c);
  const Eight scale_a = scaled(a.gamma + c, of_a.second), scale_b = scaled(b.gamma + c, of_b.second);
  Eight shift = load8(a.beta + c);
  add8(shift, load8(b.beta + c));
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
          v.v[k] = (v.v[k] - of_a.first[k]) * scale_a.v[k] + ((w.v[k] - of_b.first[k]) * scale_b.v[k] + shift.v[k]);
          v.v[k] = v.v[k] < 0.f ? 0.f : v.v[k]; // NaN stays
        }
        store8((T *)y.data + offset_of(m, y.ldc, sweep.pixel(i + u * sweep.step), c), v);
      }
  }
}

// The first pass of both gradients, as norm_gradient_sums_kernel, whose partial sums it writes for each: one read of
// dy.
template <class T, PairGroups G>
__global__ void __launch_bounds__(THREADS, sums_per_sm(G))
    norm_pair_sums_kernel(NormTiling m, PairArgs a, PairArgs b, Tensor dy, float *partial_a, float *partial_b) {
  constexpr int N = IN_FLIGHT<T> / 2;
  grid_launch_dependents();
  grid_wait_prerequisite();
  const int set = blockIdx.z, c = channel_of_thread();
  if (set >= sets_of(m)) return;
  const Sweep sweep = sweep_of(m, true);
  Eight sum = {}, dot_a = {}, dot_b = {};
  if (c < m.x.ldc) {
    const EightOf<G> mean_a = load_pairs<G>(m, a.stats, c).first, mean_b = load_pairs<G>(m, b.stats, c).first;
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
            dot_a.v[k] += d.v[k] * (v.v[k] - mean_a[k]);
            dot_b.v[k] += d.v[k] * (w.v[k] - mean_b[k]);
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
template <class T, PairGroups G, DestInputs INPUTS>
__global__ void __launch_bounds__(THREADS, INPUTS == NO_INPUT ? writes_per_sm(G) : PER_SM / 2)
    norm_pair_backward_kernel(NormTiling m, PairArgs a, PairArgs b, Tensor dy, DestArgs to_a, DestArgs to_b) {
  constexpr int N = INPUTS == ANY_INPUT ? 1 : PIXELS_AHEAD<T, 2>;
  const DestArgs dx_a = with_inputs<INPUTS>(to_a), dx_b = with_inputs<INPUTS>(to_b);
  const int set = blockIdx.z, c = channel_of_thread();
  grid_wait_prerequisite();
  if (set >= sets_of(m) || c >= m.x.ldc) return;
  const EightPairs<G> of_a = load_pairs<G>(m, a.stats, c), of_b = load_pairs<G>(m, b.stats, c);
  const EightPairs<G> slope_a = load_pairs<G>(m, a.slopes, c), slope_b = load_pairs<G>(m, b.slopes, c);
  const Eight of_dy_a = scaled(a.gamma + c, of_a.second), of_dy_b = scaled(b.gamma + c, of_b.second);
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
          v.v[k] = of_dy_a.v[k] * d.v[k] + (slope_a.first[k] * (v.v[k] - of_a.first[k]) + slope_a.second[k]);
          w.v[k] = of_dy_b.v[k] * d.v[k] + (slope_b.first[k] * (w.v[k] - of_b.first[k]) + slope_b.second[k]);
        }
        store_pixel<T>(m, dx_a, p, c, v, reads_a[u]);
        store_pixel<T>(m, dx_b, p, c, w, reads_b[u]);
      }
  }
}

// ---- launchers ------------------------------------------------------------------------------------------------------

// Instantiates its last argument with G = how norms of so many groups, 0 for batch norm, share statistics.
#define WITH_GROUPS(groups, G, ...)                                                                                    \
  if (groups) {                                                                                                        \
    constexpr PairGroups G = SHARED_GROUP;                                                                             \
    __VA_ARGS__;                                                                                                       \
  } else {                                                                                                             \
    constexpr PairGroups G = GROUPS_OF_ONE;                                                                            \
    __VA_ARGS__;                                                                                                       \
  }

static PairGroups pair_groups(int groups) { return groups ? SHARED_GROUP : GROUPS_OF_ONE; }
static PairArgs pair_args(const PairedNorm &n, const float *slopes) {
  return {n.x.data, (const float *)n.gamma, (const float *)n.beta, (const float *)n.stats, slopes};
}

extern "C" void cuda_norm_pair_forward(Device *dev, int groups, float eps, float momentum, const PairedNorm in[2],
                                       const Tensor *y) {
  const NormTiling m[2] = {tiling_of(&in[0].x, groups), tiling_of(&in[1].x, groups)};
  float *partial = (float *)device_workspace(dev, partial_elements(&m[0]) * sizeof(float));
  if (!partial || !tensor_elements(y)) return;
  CHECK(can_pair(groups, y));
  check_like(y, &in[0].x);
  check_like(y, &in[1].x);
  for (int i = 1; i >= 0; i--) {
    const PairedNorm &n = in[i];
    if (!n.moments) {
      sum_moments(dev, m[i], partial);
      write_statistics(dev, m[i], partial, eps, momentum, n.running_mean, n.running_var, n.stats);
    } else if (groups) {
      merge_groups(dev, m[i], n.moments, eps, n.stats);
    } else {
      merge_parts(dev, y->c, n.parts, n.moments, eps, momentum, n.running_mean, n.running_var, n.stats);
    }
  }
  const NormTiling writes = tiling_of(y, groups, writes_per_sm(pair_groups(groups)));
  WITH_TYPE(y->dtype, T,
            {WITH_GROUPS(groups, G,
                         launch_dependent(dev, norm_pair_normalise_kernel<T, G>, writes.grid, writes.block, writes,
                                          pair_args(in[0], NULL), pair_args(in[1], NULL), in[0].moments != NULL, *y))})
}

template <class T, PairGroups G>
static void pair_backward(Device *dev, const NormTiling &m, const PairedNorm in[2], const Tensor *dy,
                          const PairedNormGrad to[2], float *partial, double *totals, float *slopes) {
  const size_t part = partial_elements(&m), slope = slopes_elements(&m);
  const PairArgs a = pair_args(in[0], slopes), b = pair_args(in[1], slopes + slope);
  launch_first_pass(dev, norm_pair_sums_kernel<T, G>, m, a, b, *dy, partial, partial + part);
  for (int i = 0; i < 2; i++)
    write_totals(dev, m, m.x.h * m.x.w, partial + i * part, in[i].gamma, in[i].stats, totals, slopes + i * slope,
                 to[i].accumulate, to[i].dgamma, to[i].dbeta);
  const DestArgs dx_a = dest_args(&to[0].dx), dx_b = dest_args(&to[1].dx);
  const bool plain = inputs_of(dx_a) == NO_INPUT && inputs_of(dx_b) == NO_INPUT;
  const NormTiling writes = tiling_of(&m.x, m.per_image ? m.groups : 0, writes_per_sm(G));
  launch_dependent(dev, plain ? norm_pair_backward_kernel<T, G, NO_INPUT> : norm_pair_backward_kernel<T, G, ANY_INPUT>,
                   writes.grid, writes.block, writes, a, b, *dy, dx_a, dx_b);
}

extern "C" void cuda_norm_pair_backward(Device *dev, int groups, const PairedNorm in[2], const Tensor *dy,
                                        const PairedNormGrad to[2]) {
  const Tensor *x = &in[0].x;
  const NormTiling m = tiling_of(x, groups, sums_per_sm(pair_groups(groups)));
  const size_t total = totals_elements(&m), slope = slopes_elements(&m), part = partial_elements(&m);
  double *totals = (double *)device_workspace(dev, total * sizeof(double) + 2 * (slope + part) * sizeof(float));
  if (!totals || !tensor_elements(x)) return;
  float *slopes = (float *)(totals + total), *partial = slopes + 2 * slope;
  CHECK(can_pair(groups, x));
  check_like(x, &in[1].x);
  check_like(x, dy);
  for (int i = 0; i < 2; i++) check_dest(x, &to[i].dx);
  WITH_TYPE(x->dtype, T, {WITH_GROUPS(groups, G, (pair_backward<T, G>(dev, m, in, dy, to, partial, totals, slopes)))})
}
