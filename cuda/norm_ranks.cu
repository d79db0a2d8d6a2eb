// BatchNorm over the ranks of a run, each of which holds a part of the batch: between the passes of
// cuda/norm_passes.cuh the ranks tell each other what each has reduced its part to, and each merges what all told.
#include "cuda/norm_passes.cuh"

// The second pass of a part of the batch: moments [3, c] = number of values, mean, m2. A threadblock per channel.
__global__ void norm_part_moments_kernel(NormTiling m, const float *partial, float *moments) {
  int c = blockIdx.x;
  NormMoments v = group_moments(m, partial, 0, c);
  if (threadIdx.x) return;
  moments[c] = (float)v.n;
  moments[m.x.c + c] = (float)v.mean;
  moments[2 * m.x.c + c] = (float)v.m2;
}

// Of a threadblock. Eight channels are a sector of 32 bytes, the least that L2 gives: of the 9.6 MB that a convolution
// tells of 200,000 pixels of 256 channels a multiprocessor reads a 32nd.
enum { MERGE_CHANNELS = 8, MERGE_LANES = 128 };

// From the parts' moments [parts, 3, c] to the statistics of all. A threadblock per eight channels, whose lanes reduce
// the parts and meet in order. The sums are of floats in double about the first part's mean: what Σ x² - n · mean²
// loses is below what the floats had.
__global__ void __launch_bounds__(MERGE_CHANNELS *MERGE_LANES)
    norm_merge_moments_kernel(int channels, int parts, const float *moments, float eps, float momentum,
                              float *running_mean, float *running_var, float *stats) {
  __shared__ double lanes[3][MERGE_LANES][MERGE_CHANNELS];
  grid_launch_dependents();
  grid_wait_prerequisite();
  const int i = threadIdx.x, lane = threadIdx.y, c = blockIdx.x * MERGE_CHANNELS + i;
  constexpr int N = 8; // parts whose loads are in flight at once
  double n = 0, sum = 0, squares = 0, pivot = c < channels && parts ? moments[channels + c] : 0;
  for (int first = lane; first < parts && c < channels; first += N * MERGE_LANES) {
    float told[N][3] = {};
#pragma unroll
    for (int u = 0; u < N; u++)
#pragma unroll
      for (int k = 0; k < 3; k++) {
        const int part = first + u * MERGE_LANES;
        if (part < parts) told[u][k] = moments[((size_t)part * 3 + k) * channels + c];
      }
#pragma unroll
    for (int u = 0; u < N; u++) {
      const double values = told[u][0], mean = told[u][1] - pivot;
      n += values;
      sum += values * mean;
      squares += told[u][2] + values * mean * mean;
    }
  }
  lanes[0][lane][i] = n;
  lanes[1][lane][i] = sum;
  lanes[2][lane][i] = squares;
  for (int half = MERGE_LANES / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half)
      for (int k = 0; k < 3; k++) lanes[k][lane][i] += lanes[k][lane + half][i];
  }
  if (lane || c >= channels) return;
  n = lanes[0][0][i];
  const double mean = n > 0 ? lanes[1][0][i] / n : 0, m2 = lanes[2][0][i] - n * mean * mean;
  write_stats({n, pivot + mean, m2 < 0 ? 0 : m2}, eps, momentum, c, running_mean, running_var, stats + 2 * (size_t)c);
}

// The second pass of a part of the batch: sums [3, c] = number of values, Σ dy, Σ dy · x̂; and dbeta, dgamma [c]. A
// warp per channel.
__global__ void norm_part_sums_kernel(NormTiling m, const float *partial, const float *stats, float *sums,
                                      bool accumulate, float *dgamma, float *dbeta) {
  int c = thread_index() / 32;
  if (c >= m.x.c) return;
  GradientSums v = channel_sums(m, partial, 0, c);
  v.dot *= stats[2 * c + 1];
  if (threadIdx.x % 32) return;
  sums[c] = (float)pixels_of(m);
  sums[m.x.c + c] = (float)v.sum;
  sums[2 * m.x.c + c] = (float)v.dot;
  write_parameter_gradients(v, c, accumulate, dgamma, dbeta);
}

// From the parts' sums [parts, 3, c], added up in order, to slopes [c, 2]. A thread per channel.
__global__ void norm_merge_sums_kernel(int channels, int parts, const float *sums, const float *gamma,
                                       const float *stats, float *slopes) {
  int c = thread_index();
  if (c >= channels) return;
  GradientSums all = {};
  double values = 0;
  for (int part = 0; part < parts; part++) {
    const float *from = sums + (size_t)part * 3 * channels + c;
    values += from[0];
    all.sum += from[channels];
    all.dot += from[2 * channels];
  }
  write_slopes({gamma[c] * all.sum, gamma[c] * all.dot}, values, stats[2 * c + 1], slopes + 2 * (size_t)c);
}

// ---- launchers ------------------------------------------------------------------------------------------------------

extern "C" void cuda_batch_norm_moments(Device *dev, const Tensor *x, void *moments) {
  NormTiling m = norm_tiling(x, x->c, false);
  float *partial = (float *)device_workspace(dev, partial_elements(&m) * sizeof(float));
  if (!partial) return;
  if (m.chunks) sum_moments(dev, m, partial);
  norm_part_moments_kernel<<<x->c, STATS_THREADS, 0, stream_of(dev)>>>(m, partial, (float *)moments);
  LAUNCH_CHECK();
}

void merge_parts(Device *dev, int channels, int parts, const void *moments, float eps, float momentum,
                 void *running_mean, void *running_var, void *stats) {
  launch_dependent(dev, norm_merge_moments_kernel, blocks_for(channels, MERGE_CHANNELS),
                   dim3(MERGE_CHANNELS, MERGE_LANES), channels, parts, (const float *)moments, eps, momentum,
                   (float *)running_mean, (float *)running_var, (float *)stats);
}

extern "C" void cuda_batch_norm_forward_merged(Device *dev, float eps, float momentum, int parts, const void *moments,
                                               const Tensor *x, const void *gamma, const void *beta, void *running_mean,
                                               void *running_var, void *stats, const Dest *y) {
  if (dev->measuring) return;
  NormTiling m = norm_tiling(x, x->c, false);
  check_dest(x, y);
  merge_parts(dev, x->c, parts, moments, eps, momentum, running_mean, running_var, stats);
  if (m.chunks) normalise(dev, m, gamma, beta, stats, true, y);
}

extern "C" void cuda_batch_norm_sums(Device *dev, const Tensor *x, const Tensor *dy, const void *stats, void *sums,
                                     void *dgamma, void *dbeta, bool accumulate) {
  NormTiling m = norm_tiling(x, x->c, false);
  float *partial = (float *)device_workspace(dev, partial_elements(&m) * sizeof(float));
  if (!partial) return;
  check_like(x, dy);
  if (m.chunks) sum_gradients(dev, m, dy, stats, partial);
  norm_part_sums_kernel<<<blocks_for(x->c, THREADS / 32), THREADS, 0, stream_of(dev)>>>(
      m, partial, (const float *)stats, (float *)sums, accumulate, (float *)dgamma, (float *)dbeta);
  LAUNCH_CHECK();
}

extern "C" void cuda_batch_norm_backward_merged(Device *dev, int parts, const void *sums, const Tensor *x,
                                                const Tensor *dy, const void *gamma, const void *stats,
                                                const Dest *dx) {
  NormTiling m = norm_tiling(x, x->c, false);
  float *slopes = (float *)device_workspace(dev, (size_t)x->c * 2 * sizeof(float));
  if (!slopes || !m.chunks) return;
  check_like(x, dy);
  check_dest(x, dx);
  norm_merge_sums_kernel<<<blocks_for(x->c, STATS_THREADS), STATS_THREADS, 0, stream_of(dev)>>>(
      x->c, parts, (const float *)sums, (const float *)gamma, (const float *)stats, slopes);
  LAUNCH_CHECK();
  write_dx(dev, m, dy, gamma, stats, slopes, dx);
}
