// Losses of the RPN, the box head and the mask head, and their gradients: torchvision's rpn.compute_loss, fastrcnn_loss
// and maskrcnn_loss. A loss is a two-pass reduction in double and in a fixed order, without atomics; gradients are
// written densely, zeros included, so that no other kernel clears them. Few elements count, and they are far apart:
// bound by the latency of their loads (mask_loss at 0.0 % of the memory ceiling in results/profile-b4-h200.txt), but
// for the fills of the gradients.
#include "cuda/softmax.cuh"
#include "exact/anchor_cell.h"
#include "exact/mask_bins.h"

enum {
  THREADS = 256,
  WARPS = THREADS / 32,
  REDUCE_THREADS = 1024,
  VECTORS_OF_A_THREAD = 16, // of a mask's gradient
  FILL_BLOCKS = 132 * 8     // per level: eight threadblocks on each of an H100's 132 SMs
};

// ---- element losses and their derivatives ---------------------------------------------------------------------------

// Binary cross-entropy with logits: -t·log σ(x) - (1 - t)·log(1 - σ(x)), in the form that neither overflows nor takes
// the log of 0.
static __device__ __forceinline__ double bce(float x, float t) {
  return (x > 0 ? x : 0) - x * t + log1pf(expf(-fabsf(x)));
}

// d bce / dx = σ(x) - t. By CUDA's expf: a gradient decides no index, so it need not be portable as the sigmoid of
// exact/geometry.h is.
static __device__ __forceinline__ float bce_sigmoid(float x) {
  float e = expf(-fabsf(x)); // never overflows
  return (x < 0 ? e : 1) / (1 + e);
}

// Girshick, "Fast R-CNN", 2015, eq. 3, with PyTorch's beta; beta = 0 is L1.
static __device__ __forceinline__ double smooth_l1(float x, float t, float beta) {
  float d = fabsf(x - t);
  return d < beta ? 0.5f * d * d / beta : d - 0.5f * beta;
}
// d smooth_l1 / dx; 0 at x = t also for L1, NaN for NaN.
static __device__ __forceinline__ float smooth_l1_grad(float x, float t, float beta) {
  float e = x - t;
  if (fabsf(e) < beta) return e / beta;
  return e > 0 ? 1 : e < 0 ? -1 : e;
}

// 0 of nothing.
static __device__ __forceinline__ float mean(double sum, double count) { return count > 0 ? (float)(sum / count) : 0; }

// What the gradient of a mean over `count` is multiplied by.
static __device__ __forceinline__ float gradient_factor(const float *scale, double count) {
  return count > 0 ? (scale ? *scale : 1) / (float)count : 0;
}

// Second pass of a loss: loss[j] = Σ parts[j, row] over the valid rows / (rows · per_row). One threadblock per j.
__global__ void loss_mean_kernel(const double *parts, int capacity, const int *rows, double per_row, float *loss) {
  int count = *rows;
  double sum = 0;
  for (int i = threadIdx.x; i < count; i += blockDim.x) sum += parts[(size_t)blockIdx.x * capacity + i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) loss[blockIdx.x] = mean(sum, count * per_row);
}

// ---- RPN ------------------------------------------------------------------------------------------------------------

struct RpnArgs {
  RpnLoss p;
  Anchors anchors;
  RpnTargets targets;
  Tensor logits[MAX_LEVELS], deltas[MAX_LEVELS], dlogits[MAX_LEVELS], ddeltas[MAX_LEVELS];
  bool joined; // dlogits are channels of ddeltas' tensors
};

struct AnchorOffsets { // where the predictions of an anchor stand: its level, and elements of that level's maps
  int level;
  size_t logit, delta;
};
static __device__ AnchorOffsets anchor_offsets(const RpnArgs &p, int image, int row) {
  const AnchorCell at = anchor_cell(&p.anchors, p.targets.index[row]);
  const AnchorLevel &level = p.anchors.level[at.level];
  const int l = p.p.sampled ? 0 : at.level;
  const size_t cell = p.p.sampled ? row : ((size_t)image * level.h + at.y) * level.w + at.x;
  return {l, cell * p.logits[l].ldc + at.a, cell * p.deltas[l].ldc + 4 * at.a};
}

// The divisor of both losses: the anchors sampled, or the nominal batch.
static __device__ double rpn_divisor(const RpnLoss &p, const RpnTargets &targets) {
  if (p.by_batch) return (double)targets.images * targets.batch;
  int sampled = 0;
  for (int n = 0; n < targets.images; n++) sampled += targets.count[n];
  return sampled;
}

// loss [2] = mean binary cross-entropy of the sampled logits, smooth L1 of the positives' deltas. One threadblock, a
// thread per sampled anchor in turn: there are a few thousand at most, read from scattered cells of the maps, so that
// it is bound by the latency of those loads; a second pass would cost a launch.
template <class T> __global__ void rpn_loss_kernel(const __grid_constant__ RpnArgs p, float *loss) {
  const RpnTargets &t = p.targets;
  double objectness = 0, regression = 0;
  for (int row = threadIdx.x; row < t.images * t.batch; row += blockDim.x) {
    int n = row / t.batch, i = row % t.batch;
    if (i >= t.count[n]) continue;
    bool object = i < t.positives[n];
    AnchorOffsets offsets = anchor_offsets(p, n, row);
    objectness += bce(to_float(((const T *)p.logits[offsets.level].data)[offsets.logit]), object);
    const T *delta = (const T *)p.deltas[offsets.level].data + offsets.delta;
    const float *target = (const float *)t.delta.data + (size_t)row * t.delta.ldc;
    for (int k = 0; object && k < 4; k++) regression += smooth_l1(to_float(delta[k]), target[k], p.p.beta);
  }
  objectness = block_sum(objectness);
  regression = block_sum(regression);
  if (threadIdx.x) return;
  double divisor = rpn_divisor(p.p, t);
  loss[0] = mean(objectness, divisor);
  loss[1] = mean(regression, divisor);
}

// Grid-stride loop of 16-byte stores.
static __device__ void zero(const Tensor &t, size_t element_size) {
  size_t n = (size_t)t.n * t.h * t.w * t.ldc * element_size / sizeof(uint4);
  for (size_t i = thread_index(); i < n; i += gridDim.x * blockDim.x) ((uint4 *)t.data)[i] = uint4{};
}
// dlogits, ddeltas = 0 on all levels at once; blockIdx.y is the level. The floor is memory: nearly all of the gradient
// is zero, so it is a fill, and the few sampled anchors are scattered into it by the next kernel.
template <class T> __global__ void rpn_zero_kernel(const __grid_constant__ RpnArgs p) {
  if (!p.joined) zero(p.dlogits[blockIdx.y], sizeof(T));
  zero(p.ddeltas[blockIdx.y], sizeof(T));
}

// Scatters the gradients of the sampled anchors: dlogits = factor · (σ(logit) - t), ddeltas = factor · smooth L1'. A
// thread per sampled anchor; none is sampled twice, so a plain store is enough.
template <class T> __global__ void rpn_loss_backward_kernel(const __grid_constant__ RpnArgs p, const float *scale) {
  const RpnTargets &t = p.targets;
  int row = thread_index(), n = row / t.batch, i = row % t.batch;
  if (n >= t.images || i >= t.count[n]) return;
  bool object = i < t.positives[n];
  float factor = gradient_factor(scale, rpn_divisor(p.p, t));
  AnchorOffsets offsets = anchor_offsets(p, n, row);
  float logit = to_float(((const T *)p.logits[offsets.level].data)[offsets.logit]);
  ((T *)p.dlogits[offsets.level].data)[offsets.logit] = from_float<T>(factor * (bce_sigmoid(logit) - object));
  const T *delta = (const T *)p.deltas[offsets.level].data + offsets.delta;
  const float *target = (const float *)t.delta.data + (size_t)row * t.delta.ldc;
  T *ddelta = (T *)p.ddeltas[offsets.level].data + offsets.delta;
  for (int k = 0; object && k < 4; k++)
    ddelta[k] = from_float<T>(factor * smooth_l1_grad(to_float(delta[k]), target[k], p.p.beta));
}

// ---- box head -------------------------------------------------------------------------------------------------------

// Softmax by CUDA's expf: a loss decides no index, so it need not be portable as the scores of detections are.
template <class T> static __device__ Softmax loss_softmax(const T *x, int classes) {
  return warp_softmax(x, classes, [](float v) { return expf(v); });
}

// First pass: parts[0, roi] = cross-entropy, parts[1, roi] = smooth L1 of the deltas of the RoI's own class. A warp per
// RoI, so that its row of logits is one coalesced read and the softmax a warp-shuffle reduction.
template <class T>
__global__ void box_loss_kernel(float beta, RoiTargets t, Tensor logits, Tensor deltas, double *parts) {
  int r = thread_index() / 32, lane = threadIdx.x % 32;
  if (r >= *t.rois.count) return;
  int label = t.label[r];
  const T *x = pixel<T>(logits, r, 0, 0), *delta = pixel<T>(deltas, r, 0, 0) + 4 * label;
  const float *target = pixel<float>(t.delta, r, 0, 0);
  Softmax s = loss_softmax(x, logits.c);
  if (lane) return;
  parts[r] = s.max - to_float(x[label]) + logf(s.sum);
  double regression = 0;
  for (int k = 0; label > 0 && k < 4; k++) regression += smooth_l1(to_float(delta[k]), target[k], beta);
  parts[t.rois.capacity + r] = regression;
}

// dlogits [rois, classes] = factor · (softmax - one-hot), ddeltas [rois, 4·classes] = factor · smooth L1' in the RoI's
// own class, zero elsewhere. A warp per RoI, a lane per vector of eight channels.
template <class T>
__global__ void box_loss_backward_kernel(float beta, RoiTargets t, Tensor logits, Tensor deltas, const float *scale,
                                         Tensor dlogits, Tensor ddeltas) {
  int r = thread_index() / 32, lane = threadIdx.x % 32, count = *t.rois.count;
  if (r >= count) return;
  float factor = gradient_factor(scale, count);
  int label = t.label[r];
  const T *x = pixel<T>(logits, r, 0, 0), *delta = pixel<T>(deltas, r, 0, 0);
  const float *target = pixel<float>(t.delta, r, 0, 0);
  Softmax s = loss_softmax(x, logits.c);
  for (int c = lane * 8; c < dlogits.ldc; c += 32 * 8) {
    Eight g = load8(x + c);
#pragma unroll
    for (int k = 0; k < 8; k++)
      g.v[k] = c + k < logits.c ? factor * (expf(g.v[k] - s.max) / s.sum - (c + k == label)) : 0;
    store8(pixel<T>(dlogits, r, 0, 0) + c, g);
  }
  for (int c = lane * 8; c < ddeltas.ldc; c += 32 * 8) {
    Eight g = {};
#pragma unroll
    for (int k = 0; k < 8; k++)
      if (label > 0 && (c + k) / 4 == label)
        g.v[k] = factor * smooth_l1_grad(to_float(delta[c + k]), target[k % 4], beta);
    store8(pixel<T>(ddeltas, r, 0, 0) + c, g);
  }
}

// ---- mask head ------------------------------------------------------------------------------------------------------

// First pass: parts[object] = Σ over the m × m pixels of its own class channel. A threadblock per object; of each
// pixel's classes one is read, so that loads are strided by the pitch and their latency bounds it.
template <class T> __global__ void mask_loss_kernel(RoiTargets t, Tensor logits, Tensor target, double *parts) {
  int r = blockIdx.x;
  if (r >= *t.objects.count) return;
  int pixels = logits.h * logits.w;
  const T *x = pixel<T>(logits, r, 0, 0) + (logits.c > 1 ? t.object_label[r] : 0);
  const float *wanted = pixel<float>(target, r, 0, 0);
  double sum = 0;
  for (int i = threadIdx.x; target_counts(*wanted) && i < pixels; i += blockDim.x)
    sum += bce(to_float(x[(size_t)i * logits.ldc]), wanted[(size_t)i * target.ldc]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) parts[r] = sum;
}

// How many of `count` objects have a mask, for all threads of a block, which must all call it.
static __device__ int masks_of(const Tensor &target, int count) {
  int masks = 0;
  for (int first = 0; first < count; first += blockDim.x) {
    const int r = first + threadIdx.x;
    masks += __syncthreads_count(r < count && target_counts(*pixel<float>(target, r, 0, 0)));
  }
  return masks;
}

// Second pass: the mean over the pixels of objects that have a mask. One threadblock.
__global__ void mask_loss_mean_kernel(const double *parts, const int *rows, Tensor target, double per_row,
                                      float *loss) {
  const int count = *rows, masks = masks_of(target, count);
  double sum = 0;
  for (int i = threadIdx.x; i < count; i += blockDim.x) sum += parts[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *loss = mean(sum, masks * per_row);
}

// dlogits [objects, m, m, classes]: factor · (σ(x) - t) in the object's own class channel, zero elsewhere. A
// threadblock has some of an object's pixels, `across` threads one of them, each of these vectors of eight channels.
// The floor is the stores, of which nearly all are zeros. Grid (objects, parts).
template <class T>
__global__ void mask_loss_backward_kernel(RoiTargets t, Tensor logits, Tensor target, const float *scale,
                                          Tensor dlogits) {
  const int n = blockIdx.x, count = *t.objects.count;
  if (n >= count) return;
  const int masks = masks_of(target, count);
  const int across = min(dlogits.ldc / 8, THREADS), down = THREADS / across, row = threadIdx.x / across;
  const int label = target_counts(*pixel<float>(target, n, 0, 0)) ? t.object_label[n] : -1;
  const int pixels = dlogits.h * dlogits.w;
  const float factor = gradient_factor(scale, (double)masks * pixels), *wanted = pixel<float>(target, n, 0, 0);
  for (int i = blockIdx.y * down + row; i < pixels && row < down; i += gridDim.y * down)
    for (int c = (threadIdx.x - row * across) * 8; c < dlogits.ldc; c += across * 8) {
      Eight g = {};
      if (label >= c && label < c + 8) {
        const float x = to_float(pixel<T>(logits, n, 0, 0)[(size_t)i * logits.ldc + label]);
        const float own = factor * (bce_sigmoid(x) - wanted[(size_t)i * target.ldc]);
#pragma unroll
        for (int k = 0; k < 8; k++) g.v[k] = c + k == label ? own : 0;
      }
      store8(pixel<T>(dlogits, n, 0, 0) + (size_t)i * dlogits.ldc + c, g);
    }
}

// The same of logits of the object's own class alone.
template <class T>
__global__ void mask_loss_own_backward_kernel(RoiTargets t, Tensor logits, Tensor target, const float *scale,
                                              Tensor dlogits) {
  const int n = blockIdx.x, count = *t.objects.count, pixels = dlogits.h * dlogits.w;
  if (n >= count) return;
  const int masks = masks_of(target, count);
  const float factor = gradient_factor(scale, (double)masks * pixels), *wanted = pixel<float>(target, n, 0, 0);
  const T *x = pixel<T>(logits, n, 0, 0);
  T *dx = pixel<T>(dlogits, n, 0, 0);
  for (int i = blockIdx.y * THREADS + threadIdx.x; i < pixels; i += gridDim.y * THREADS)
    dx[i] = from_float<T>(target_counts(*wanted) ? factor * (bce_sigmoid(to_float(x[i])) - wanted[i]) : 0.f);
}

// ---- launchers ------------------------------------------------------------------------------------------------------

static void check_like(const Tensor *x, const Tensor *dx) {
  CHECK(dx->dtype == x->dtype && dx->n == x->n && dx->h == x->h && dx->w == x->w && dx->ldc == x->ldc);
  CHECK(dx->ldc % 8 == 0);
}

static int rpn_maps(const RpnLoss *p, const Anchors *anchors) { return p->sampled ? 1 : anchors->levels; }
static RpnArgs rpn_args(const RpnLoss *loss, const Anchors *anchors, const RpnTargets *targets, const Tensor *logits,
                        const Tensor *deltas) {
  RpnArgs p = {*loss, *anchors, *targets, {}, {}, {}, {}, false};
  for (int l = 0; l < rpn_maps(loss, anchors); l++) {
    CHECK(logits[l].dtype == logits[0].dtype && deltas[l].dtype == logits[0].dtype);
    p.logits[l] = logits[l];
    p.deltas[l] = deltas[l];
  }
  return p;
}

extern "C" void cuda_rpn_loss(Device *dev, const RpnLoss *p, const Anchors *anchors, const RpnTargets *targets,
                              const Tensor *logits, const Tensor *deltas, const Tensor *loss) {
  if (dev->measuring) return;
  RpnArgs a = rpn_args(p, anchors, targets, logits, deltas);
  WITH_TYPE(logits[0].dtype, T, {
    rpn_loss_kernel<T><<<1, REDUCE_THREADS, 0, stream_of(dev)>>>(a, (float *)loss->data);
    LAUNCH_CHECK();
  })
}

extern "C" void cuda_rpn_loss_backward(Device *dev, const RpnLoss *p, const Anchors *anchors, const RpnTargets *targets,
                                       const Tensor *logits, const Tensor *deltas, LossScale scale,
                                       const Tensor *dlogits, const Tensor *ddeltas) {
  if (dev->measuring) return;
  RpnArgs a = rpn_args(p, anchors, targets, logits, deltas);
  size_t largest = 0;
  for (int l = 0; l < rpn_maps(p, anchors); l++) {
    check_like(&logits[l], &dlogits[l]);
    check_like(&deltas[l], &ddeltas[l]);
    a.dlogits[l] = dlogits[l];
    a.ddeltas[l] = ddeltas[l];
    largest = MAX(largest, tensor_bytes(&ddeltas[l]) / sizeof(uint4));
    a.joined = tensor_has_channels(&ddeltas[l], &dlogits[l]);
  }
  WITH_TYPE(logits[0].dtype, T, {
    dim3 grid(MIN(MAX(blocks_for(largest, THREADS), 1), FILL_BLOCKS), rpn_maps(p, anchors));
    rpn_zero_kernel<T><<<grid, THREADS, 0, stream_of(dev)>>>(a);
    LAUNCH_CHECK();
    int rows = targets->images * targets->batch;
    rpn_loss_backward_kernel<T><<<blocks_for(rows, THREADS), THREADS, 0, stream_of(dev)>>>(a, (const float *)scale);
    LAUNCH_CHECK();
  })
}

extern "C" void cuda_box_loss(Device *dev, float beta, const RoiTargets *targets, const Tensor *logits,
                              const Tensor *deltas, const Tensor *loss) {
  int capacity = targets->rois.capacity;
  double *parts = (double *)device_workspace(dev, (size_t)capacity * 2 * sizeof *parts);
  if (!parts) return;
  CHECK(deltas->dtype == logits->dtype && logits->n == capacity && deltas->n == capacity);
  WITH_TYPE(logits->dtype, T, {
    box_loss_kernel<T>
        <<<blocks_for(capacity, WARPS), THREADS, 0, stream_of(dev)>>>(beta, *targets, *logits, *deltas, parts);
    LAUNCH_CHECK();
  })
  loss_mean_kernel<<<2, REDUCE_THREADS, 0, stream_of(dev)>>>(parts, capacity, targets->rois.count, 1,
                                                             (float *)loss->data);
  LAUNCH_CHECK();
}

extern "C" void cuda_box_loss_backward(Device *dev, float beta, const RoiTargets *targets, const Tensor *logits,
                                       const Tensor *deltas, LossScale scale, const Tensor *dlogits,
                                       const Tensor *ddeltas) {
  if (dev->measuring) return;
  check_like(logits, dlogits);
  check_like(deltas, ddeltas);
  WITH_TYPE(logits->dtype, T, {
    box_loss_backward_kernel<T><<<blocks_for(targets->rois.capacity, WARPS), THREADS, 0, stream_of(dev)>>>(
        beta, *targets, *logits, *deltas, (const float *)scale, *dlogits, *ddeltas);
    LAUNCH_CHECK();
  })
}

extern "C" void cuda_mask_loss(Device *dev, const RoiTargets *targets, const Tensor *logits, const Tensor *target,
                               const Tensor *loss) {
  int capacity = targets->objects.capacity;
  double *parts = (double *)device_workspace(dev, (size_t)capacity * sizeof *parts);
  if (!parts) return;
  CHECK(logits->n == capacity && target->h == logits->h && target->w == logits->w);
  WITH_TYPE(logits->dtype, T, {
    mask_loss_kernel<T><<<capacity, THREADS, 0, stream_of(dev)>>>(*targets, *logits, *target, parts);
    LAUNCH_CHECK();
  })
  mask_loss_mean_kernel<<<1, REDUCE_THREADS, 0, stream_of(dev)>>>(parts, targets->objects.count, *target,
                                                                  (double)logits->h * logits->w, (float *)loss->data);
  LAUNCH_CHECK();
}

extern "C" void cuda_mask_loss_backward(Device *dev, const RoiTargets *targets, const Tensor *logits,
                                        const Tensor *target, LossScale scale, const Tensor *dlogits) {
  if (dev->measuring || !dlogits->n) return;
  if (logits->c == 1 && logits->ldc == 1) {
    CHECK(dlogits->dtype == logits->dtype && dlogits->n == logits->n && dlogits->ldc == 1 && target->ldc == 1);
    const dim3 parts(dlogits->n, blocks_for(dlogits->h * dlogits->w, THREADS));
    WITH_TYPE(logits->dtype, T, {
      mask_loss_own_backward_kernel<T>
          <<<parts, THREADS, 0, stream_of(dev)>>>(*targets, *logits, *target, (const float *)scale, *dlogits);
      LAUNCH_CHECK();
    })
    return;
  }
  check_like(logits, dlogits);
  const int vectors = dlogits->h * dlogits->w * (dlogits->ldc / 8);
  const dim3 grid(dlogits->n, MIN(blocks_for(vectors, THREADS * VECTORS_OF_A_THREAD), 65535));
  WITH_TYPE(logits->dtype, T, {
    mask_loss_backward_kernel<T>
        <<<grid, THREADS, 0, stream_of(dev)>>>(*targets, *logits, *target, (const float *)scale, *dlogits);
    LAUNCH_CHECK();
  })
}
