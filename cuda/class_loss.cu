// The loss of a classifier: softmax cross-entropy with label smoothing, torch.nn.CrossEntropyLoss's, with the number of
// rows whose class is among the best; and probabilities. A two-pass reduction in double and in a fixed order, without
// atomics; a warp for each row of logits, whose reads are coalesced. Few rows: bound by latency.
#include "cuda/softmax.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, REDUCE_THREADS = 1024 };

struct LossPart {
  double loss;
  int rank; // how many classes stand before the row's own; -1: the row does not count
};

static __device__ __forceinline__ bool counts(int label, int classes) { return label >= 0 && label < classes; }

// By CUDA's expf: neither losses nor probabilities decide an index.
template <class T> static __device__ __forceinline__ Softmax softmax_of(const T *x, int classes) {
  return warp_softmax(x, classes, [](float v) { return expf(v); });
}

// First pass: row[r] = log Σ exp(x) - (1 - smoothing) · x[label] - smoothing · mean(x), from x - max, and the rank.
template <class T>
__global__ void class_loss_kernel(double smoothing, const int *labels, Tensor logits, LossPart *row) {
  int r = thread_index() / 32, lane = threadIdx.x % 32, classes = logits.c;
  if (r >= logits.n) return;
  int label = labels[r];
  if (!counts(label, classes)) {
    if (lane == 0) row[r] = {0, -1};
    return;
  }
  const T *x = pixel<T>(logits, r, 0, 0);
  Softmax s = softmax_of(x, classes);
  float own = to_float(x[label]);
  double sum = 0;
  int rank = 0;
  for (int c = lane; c < classes; c += 32) {
    float v = to_float(x[c]);
    sum += v - s.max;
    rank += !(v <= own) || (v == own && c < label);
  }
  sum = warp_sum(sum);
  rank = warp_sum(rank);
  if (lane) return;
  double loss = logf(s.sum) - (1 - smoothing) * (own - s.max);
  if (smoothing > 0) loss -= smoothing / classes * sum; // without, -inf of a class costs nothing
  row[r] = {loss, rank};
}

// Second pass, one threadblock: the weighted mean over the rows that count, and how many of them are right.
__global__ void class_mean_kernel(double weight, const LossPart *row, int rows, float *loss, Hits hits) {
  double sum = 0;
  int count = 0, top1 = 0, top5 = 0;
  for (int r = threadIdx.x; r < rows; r += blockDim.x) {
    if (row[r].rank < 0) continue;
    sum += row[r].loss;
    count++;
    top1 += row[r].rank < 1;
    top5 += row[r].rank < 5;
  }
  sum = block_sum(sum);
  count = block_sum(count);
  top1 = block_sum(top1);
  top5 = block_sum(top5);
  if (threadIdx.x) return;
  *loss = count ? (float)(weight * sum / count) : 0;
  *hits.top1 = top1;
  *hits.top5 = top5;
}

// dlogits = (softmax - (1 - smoothing) · one-hot - smoothing / classes) · weight · scale / rows that count, which every
// warp finds for itself; a lane for each vector of eight channels.
template <class T>
__global__ void class_loss_backward_kernel(ClassLoss p, const int *labels, Tensor logits, const float *scale,
                                           Tensor dlogits) {
  int r = thread_index() / 32, lane = threadIdx.x % 32, classes = logits.c, count = 0;
  if (r >= logits.n) return;
  for (int i = lane; i < logits.n; i += 32) count += counts(labels[i], classes);
  count = warp_sum(count);
  int label = labels[r];
  bool counted = counts(label, classes);
  float factor = counted ? p.weight * (scale ? *scale : 1) / (float)count : 0;
  float own = 1 - p.smoothing, each = p.smoothing / classes;
  const T *x = pixel<T>(logits, r, 0, 0);
  Softmax s = {};
  if (counted) s = softmax_of(x, classes);
  for (int c = lane * 8; c < dlogits.ldc; c += 32 * 8) {
    Eight g = {};
    if (counted) {
      Eight v = load8(x + c);
#pragma unroll
      for (int k = 0; k < 8; k++)
        if (c + k < classes) g.v[k] = factor * (expf(v.v[k] - s.max) / s.sum - (c + k == label ? own : 0) - each);
    }
    store8(pixel<T>(dlogits, r, 0, 0) + c, g);
  }
}

template <class T> __global__ void class_probs_kernel(Tensor logits, Tensor probs) {
  int r = thread_index() / 32, lane = threadIdx.x % 32, classes = logits.c;
  if (r >= logits.n) return;
  const T *x = pixel<T>(logits, r, 0, 0);
  Softmax s = softmax_of(x, classes);
  for (int c = lane; c < classes; c += 32) pixel<float>(probs, r, 0, 0)[c] = expf(to_float(x[c]) - s.max) / s.sum;
}

// ---- launchers ------------------------------------------------------------------------------------------------------

static void check_logits(const Tensor *logits) { CHECK(logits->h == 1 && logits->w == 1 && !logits->count); }

extern "C" void cuda_class_loss(Device *dev, const ClassLoss *p, const int *label, const Tensor *logits,
                                const Tensor *loss, const Hits *hits) {
  LossPart *row = (LossPart *)device_workspace(dev, (size_t)logits->n * sizeof *row);
  if (!row) return;
  check_logits(logits);
  WITH_TYPE(logits->dtype, T, {
    class_loss_kernel<T>
        <<<blocks_for(logits->n, WARPS), THREADS, 0, stream_of(dev)>>>(p->smoothing, label, *logits, row);
    LAUNCH_CHECK();
  })
  class_mean_kernel<<<1, REDUCE_THREADS, 0, stream_of(dev)>>>(p->weight, row, logits->n, (float *)loss->data, *hits);
  LAUNCH_CHECK();
}

extern "C" void cuda_class_loss_backward(Device *dev, const ClassLoss *p, const int *label, const Tensor *logits,
                                         LossScale scale, const Tensor *dlogits) {
  if (dev->measuring) return;
  check_logits(logits);
  CHECK(dlogits->dtype == logits->dtype && dlogits->n == logits->n && dlogits->ldc == logits->ldc);
  CHECK(logits->ldc % 8 == 0);
  WITH_TYPE(logits->dtype, T, {
    class_loss_backward_kernel<T><<<blocks_for(logits->n, WARPS), THREADS, 0, stream_of(dev)>>>(
        *p, label, *logits, (const float *)scale, *dlogits);
    LAUNCH_CHECK();
  })
}

extern "C" void cuda_class_probs(Device *dev, const Tensor *logits, const Tensor *probs) {
  if (dev->measuring) return;
  check_logits(logits);
  CHECK(probs->dtype == F32 && probs->n == logits->n && probs->c == logits->c);
  WITH_TYPE(logits->dtype, T, {
    class_probs_kernel<T><<<blocks_for(logits->n, WARPS), THREADS, 0, stream_of(dev)>>>(*logits, *probs);
    LAUNCH_CHECK();
  })
}
