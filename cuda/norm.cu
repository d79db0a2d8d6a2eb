// GroupNorm (Wu, He, 2018) and BatchNorm (Ioffe, Szegedy, 2015), one text for both: each normalises over a set of
// pixels and a group of channels. GroupNorm's set is an image, BatchNorm's the whole batch with every channel a group
// of its own. Each direction is a two-pass reduction (thread, threadblock, workspace, statistics, always in the same
// order) and an elementwise pass with the epilogue fused in. The floor is memory traffic: inputs are read twice, the
// result is written once.
#include "cuda/norm_images.cuh"

// Second pass: stats [sets, groups, 2]. Grid (groups, sets), a threadblock per group.
__global__ void norm_stats_kernel(NormTiling m, const float *partial, float eps, float momentum, float *running_mean,
                                  float *running_var, float *stats) {
  grid_launch_dependents();
  grid_wait_prerequisite();
  int group = blockIdx.x, set = blockIdx.y;
  if (set >= sets_of(m)) return;
  NormMoments v = group_moments(m, partial, set, group);
  if (threadIdx.x) return;
  write_stats(v, eps, momentum, group, running_mean, running_var, stats + ((size_t)set * m.groups + group) * 2);
}

// The second pass where a convolution has told moments [parts, 3, c] of x. Pixels of a part that is not of this image
// alone are read. Grid (groups, images). The sums are of floats in double about one of them, as in
// norm_merge_moments_kernel.
enum { MERGE_THREADS = 512 };
template <class T>
__global__ void __launch_bounds__(MERGE_THREADS)
    norm_merge_groups_kernel(NormTiling m, const float *moments, float eps, float *stats) {
  constexpr int N = 8, PART = CONV_MOMENTS_PIXELS; // N: whose loads are in flight at once
  grid_launch_dependents();
  grid_wait_prerequisite();
  const int size = m.group_size, c = blockIdx.x * size, first = blockIdx.y * m.pixels, last = first + m.pixels;
  const int part = (first + PART - 1) / PART, parts = max(last / PART - part, 0); // whole ones
  const int head = min(part * PART, last), tail = min((part + parts) * PART, last);
  auto value = [&](int p, int i) { return to_float(((const T *)m.x.data)[(size_t)p * m.x.ldc + c + i]); };
  const float *told = moments + (size_t)part * 3 * m.x.c + c;
  const double pivot = parts ? told[m.x.c] : value(first, 0);
  double sum = 0, squares = 0;
  for (int j = threadIdx.x; j < parts * size; j += N * MERGE_THREADS) {
    float mean[N], m2[N];
#pragma unroll
    for (int u = 0; u < N; u++) {
      const int k = j + u * MERGE_THREADS;
      if (k >= parts * size) continue;
      const float *from = told + (size_t)(k / size) * 3 * m.x.c + k % size;
      mean[u] = from[m.x.c];
      m2[u] = from[2 * m.x.c];
    }
#pragma unroll
    for (int u = 0; u < N; u++)
      if (j + u * MERGE_THREADS < parts * size) {
        const double d = mean[u] - pivot;
        sum += PART * d;
        squares += m2[u] + PART * d * d;
      }
  }
  const int before = head - first, beside = before + last - tail;
  for (int j = threadIdx.x; j < beside * size; j += MERGE_THREADS) {
    const int k = j / size;
    const double d = value(k < before ? first + k : tail + k - before, j % size) - pivot;
    sum += d;
    squares += d * d;
  }
  sum = block_sum(sum);
  squares = block_sum(squares);
  if (threadIdx.x) return;
  const double n = (double)m.pixels * size, mean = sum / n, m2 = squares - sum * mean;
  write_stats({n, pivot + mean, m2 < 0 ? 0 : m2}, eps, 0, 0, NULL, NULL,
              stats + 2 * ((size_t)blockIdx.y * m.groups + blockIdx.x));
}

// Second pass: totals [sets, 2, c] = Σ dy, Σ dy · x̂ of each channel, and from them slopes [sets, groups, 2], the
// coefficients of x - mean and of 1 in dx, of images of so many pixels. Grid (groups, sets); a warp per channel of the
// group in turn. Of a single set the totals are dgamma and dbeta.
__global__ void norm_totals_kernel(NormTiling m, int image, const float *partial, const float *gamma,
                                   const float *stats, double *totals, float *slopes, bool accumulate, float *dgamma,
                                   float *dbeta) {
  grid_launch_dependents();
  grid_wait_prerequisite();
  int group = blockIdx.x, set = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (set >= sets_of(m)) return;
  double inv_std = stats[((size_t)set * m.groups + group) * 2 + 1], group_sum = 0, group_dot = 0;
  for (int i = warp; i < m.group_size; i += blockDim.x / 32) {
    int c = group * m.group_size + i;
    GradientSums v = channel_sums(m, partial, set, c);
    v.dot *= inv_std;
    if (lane) continue;
    if (m.sets == 1) {
      write_parameter_gradients(v, c, accumulate, dgamma, dbeta);
    } else {
      totals[(size_t)set * 2 * m.x.c + c] = v.sum;
      totals[((size_t)set * 2 + 1) * m.x.c + c] = v.dot;
    }
    group_sum += gamma[c] * v.sum;
    group_dot += gamma[c] * v.dot;
  }
  group_sum = block_sum(group_sum);
  group_dot = block_sum(group_dot);
  if (threadIdx.x) return;
  const int images = m.per_image ? 1 : rows_of(m.x);
  write_slopes({group_sum, group_dot}, (double)image * images * m.group_size, inv_std,
               slopes + ((size_t)set * m.groups + group) * 2);
}

// dbeta, dgamma [c] over the sets. A warp per channel, its lanes reduce the sets.
__global__ void norm_parameter_gradients_kernel(NormTiling m, const double *totals, bool accumulate, float *dgamma,
                                                float *dbeta) {
  grid_launch_dependents();
  grid_wait_prerequisite();
  int c = thread_index() / 32, lane = threadIdx.x % 32;
  if (c >= m.x.c) return;
  double sum = 0, dot = 0;
  for (int set = lane; set < sets_of(m); set += 32) {
    sum += totals[(size_t)set * 2 * m.x.c + c];
    dot += totals[((size_t)set * 2 + 1) * m.x.c + c];
  }
  sum = warp_sum(sum);
  dot = warp_sum(dot);
  if (lane == 0) write_parameter_gradients({sum, dot}, c, accumulate, dgamma, dbeta);
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

// stats [c, 2] = mean, 1 / √(var + eps). A thread per channel.
__global__ void norm_given_kernel(int c, float eps, const float *mean, const float *var, float *stats) {
  int i = thread_index();
  if (i >= c) return;
  stats[2 * i] = mean[i];
  stats[2 * i + 1] = 1 / sqrtf(var[i] + eps);
}

// ---- launchers ------------------------------------------------------------------------------------------------------

void write_statistics(Device *dev, const NormTiling &m, const float *partial, float eps, float momentum,
                      void *running_mean, void *running_var, void *stats) {
  launch_dependent(dev, norm_stats_kernel, dim3(m.groups, m.sets), STATS_THREADS, m, partial, eps, momentum,
                   (float *)running_mean, (float *)running_var, (float *)stats);
}

static void norm_forward(Device *dev, const NormTiling &m, float eps, float momentum, const void *gamma,
                         const void *beta, void *running_mean, void *running_var, void *stats, const Dest *y) {
  float *partial = (float *)device_workspace(dev, partial_elements(&m) * sizeof(float));
  if (!partial || !tensor_elements(&m.x)) return;
  check_dest(&m.x, y);
  sum_moments(dev, m, partial);
  write_statistics(dev, m, partial, eps, momentum, running_mean, running_var, stats);
  normalise(dev, m, gamma, beta, stats, false, y);
}

void write_totals(Device *dev, const NormTiling &m, int image, const float *partial, const void *gamma,
                  const void *stats, double *totals, float *slopes, bool accumulate, void *dgamma, void *dbeta) {
  launch_dependent(dev, norm_totals_kernel, dim3(m.groups, m.sets), STATS_THREADS, m, image, partial,
                   (const float *)gamma, (const float *)stats, totals, slopes, accumulate, (float *)dgamma,
                   (float *)dbeta);
  if (m.sets > 1)
    launch_dependent(dev, norm_parameter_gradients_kernel, blocks_for(m.x.c, THREADS / 32), THREADS, m, totals,
                     accumulate, (float *)dgamma, (float *)dbeta);
}

static void norm_backward(Device *dev, const NormTiling &m, const Tensor *dy, const void *gamma, const void *stats,
                          const Dest *dx, void *dgamma, void *dbeta, bool accumulate) {
  const size_t total = totals_elements(&m), slope = slopes_elements(&m), part = partial_elements(&m);
  double *totals = (double *)device_workspace(dev, total * sizeof(double) + (slope + part) * sizeof(float));
  if (!totals || !tensor_elements(&m.x)) return;
  check_like(&m.x, dy);
  check_dest(&m.x, dx);
  float *slopes = (float *)(totals + total), *partial = slopes + slope;
  sum_gradients(dev, m, dy, stats, partial);
  write_totals(dev, m, m.x.h * m.x.w, partial, gamma, stats, totals, slopes, accumulate, dgamma, dbeta);
  write_dx(dev, m, dy, gamma, stats, slopes, dx);
}

extern "C" void cuda_group_norm_forward(Device *dev, int groups, float eps, const Tensor *x, const void *gamma,
                                        const void *beta, void *stats, const Dest *y) {
  ImageTiling t;
  if (!dev->wgmma || y->pool || !image_tiling(x, groups, 1, &t)) {
    norm_forward(dev, norm_tiling(x, groups, true), eps, 0, gamma, beta, NULL, NULL, stats, y);
  } else if (!dev->measuring) {
    check_dest(x, y);
    image_forward(dev, t, x, eps, gamma, beta, stats, y);
  }
}

void merge_groups(Device *dev, const NormTiling &m, const void *moments, float eps, void *stats) {
  CHECK(!m.x.count);
  WITH_TYPE(m.x.dtype, T,
            launch_dependent(dev, norm_merge_groups_kernel<T>, dim3(m.groups, m.sets), MERGE_THREADS, m,
                             (const float *)moments, eps, (float *)stats))
}

extern "C" void cuda_group_norm_forward_merged(Device *dev, int groups, float eps, const void *moments, const Tensor *x,
                                               const void *gamma, const void *beta, void *stats, const Dest *y) {
  if (dev->measuring || !tensor_elements(x)) return;
  check_dest(x, y);
  const NormTiling m = norm_tiling(x, groups, true);
  merge_groups(dev, m, moments, eps, stats);
  normalise(dev, m, gamma, beta, stats, true, y);
}

extern "C" void cuda_batch_norm_forward(Device *dev, float eps, float momentum, const Tensor *x, const void *gamma,
                                        const void *beta, void *running_mean, void *running_var, void *stats,
                                        const Dest *y) {
  ResidentTiling t;
  if (!dev->wgmma || y->pool || !resident_tiling(x, 1, &t)) {
    norm_forward(dev, norm_tiling(x, x->c, false), eps, momentum, gamma, beta, running_mean, running_var, stats, y);
  } else if (!dev->measuring) {
    check_dest(x, y);
    resident_forward(dev, t, x, eps, momentum, gamma, beta, running_mean, running_var, stats, y);
  }
}

extern "C" void cuda_batch_norm_inference(Device *dev, float eps, const Tensor *x, const void *gamma, const void *beta,
                                          const void *mean, const void *var, void *stats, const Dest *y) {
  if (dev->measuring || !tensor_elements(x)) return;
  check_dest(x, y);
  norm_given_kernel<<<blocks_for(x->c, THREADS), THREADS, 0, stream_of(dev)>>>(x->c, eps, (const float *)mean,
                                                                               (const float *)var, (float *)stats);
  LAUNCH_CHECK();
  normalise(dev, norm_tiling(x, x->c, false), gamma, beta, stats, true, y);
}

extern "C" void cuda_group_norm_backward(Device *dev, int groups, const Tensor *x, const Tensor *dy, const void *gamma,
                                         const void *stats, const Dest *dx, void *dgamma, void *dbeta,
                                         bool accumulate) {
  const NormTiling m = norm_tiling(x, groups, true);
  ImageTiling t;
  if (!dev->wgmma || !image_tiling(x, groups, 2, &t)) {
    norm_backward(dev, m, dy, gamma, stats, dx, dgamma, dbeta, accumulate);
    return;
  }
  double *totals = (double *)device_workspace(dev, (size_t)m.sets * 2 * x->c * sizeof(double));
  if (!totals) return;
  check_like(x, dy);
  check_dest(x, dx);
  image_backward(dev, t, x, dy, gamma, stats, dx, totals);
  launch_dependent(dev, norm_parameter_gradients_kernel, blocks_for(x->c, THREADS / 32), THREADS, m, totals, accumulate,
                   (float *)dgamma, (float *)dbeta);
}

extern "C" bool cuda_norm_pairs(Device *dev, int groups, const Tensor *x) {
  ImageTiling image;
  ResidentTiling batch;
  const bool stays = dev->wgmma && (groups ? image_tiling(x, groups, 2, &image) : resident_tiling(x, 2, &batch));
  return can_pair(groups, x) && !stays;
}

extern "C" void cuda_batch_norm_backward(Device *dev, const Tensor *x, const Tensor *dy, const void *gamma,
                                         const void *stats, const Dest *dx, void *dgamma, void *dbeta,
                                         bool accumulate) {
  ResidentTiling t;
  if (!dev->wgmma || !resident_tiling(x, 2, &t)) {
    norm_backward(dev, norm_tiling(x, x->c, false), dy, gamma, stats, dx, dgamma, dbeta, accumulate);
  } else if (!dev->measuring) {
    check_like(x, dy);
    check_dest(x, dx);
    resident_backward(dev, t, x, dy, gamma, stats, dx, dgamma, dbeta, accumulate);
  }
}

extern "C" void cuda_norm_fold(Device *dev, int c, float eps, const void *gamma, const void *beta, const void *mean,
                               const void *var, void *scale, void *shift) {
  if (dev->measuring || !c) return;
  norm_fold_kernel<<<blocks_for(c, THREADS), THREADS, 0, stream_of(dev)>>>(
      c, eps, (const float *)gamma, (const float *)beta, (const float *)mean, (const float *)var, (float *)scale,
      (float *)shift);
  LAUNCH_CHECK();
}
