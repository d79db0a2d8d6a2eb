// Logits of each object's own class, and their gradients. The mask loss reads one class an object: a convolution that
// computes all of them, as three of its gradients do, multiplies mostly by zeros that it has written before. Here x is
// read once forward and once backward, dx is written, and nothing else is as large. Limit: memory.
//
// A warp has a pixel, a lane eight of its channels at a time. Sums of a filter's gradient are of an object's pixels in
// parts first, then of a class's objects, in an order that shapes decide.
#include "cuda/own_logits.cuh"

enum {
  THREADS = 256,
  WARPS = THREADS / 32,
  AT_ONCE = 4,                          // pixels of a warp, whose loads are under way together
  LANES_CHANNELS = 32 * 8,              // of a warp's load
  BLOCKS = 4096,                        // about as many as work is cut into
  SUM_CHANNELS = 32,                    // of a block of the second pass, …
  SUM_ROWS = 32,                        // … each of which so many threads sum objects of
  SUM_LABELS = SUM_CHANNELS * SUM_ROWS, // that it looks at together
};

struct OwnLogits {
  const int *label, *count;
  Tensor x, w;
};
__device__ __forceinline__ int objects_of(const OwnLogits &p) { return min(*p.count, p.x.n); }

// logits [objects, h, w, 1] real, and signs of x where they are asked for. Grid (objects, parts of their pixels).
template <class T> __global__ void own_logits_kernel(OwnLogits p, const float *bias, float *logits, uint8_t *signs) {
  const int n = blockIdx.x, lane = threadIdx.x % 32, pixels = p.x.h * p.x.w;
  if (n >= objects_of(p)) return;
  const int label = p.label[n];
  const T *x = pixel<T>(p.x, n, 0, 0), *w = pixel<T>(p.w, label, 0, 0);
  const int first = (blockIdx.y * WARPS + threadIdx.x / 32) * AT_ONCE;
  for (int i = first; i < pixels; i += gridDim.y * WARPS * AT_ONCE) {
    float sum[AT_ONCE] = {};
    for (int c = lane * 8; c < p.x.ldc; c += LANES_CHANNELS) {
      Raw8<T> raw[AT_ONCE];
#pragma unroll
      for (int k = 0; k < AT_ONCE; k++) raw[k] = read8(x + (size_t)min(i + k, pixels - 1) * p.x.ldc + c);
      const Eight filter = load8(w + c);
#pragma unroll
      for (int k = 0; k < AT_ONCE; k++) {
        const Eight v = to_eight<T>(raw[k]);
#pragma unroll
        for (int j = 0; j < 8; j++) sum[k] += v.v[j] * filter.v[j];
        if (!signs || i + k >= pixels) continue;
        int bits = 0;
#pragma unroll
        for (int j = 0; j < 8; j++) bits |= (v.v[j] > 0.f) << j;
        signs[(((size_t)n * pixels + i + k) * p.x.ldc + c) / 8] = (uint8_t)bits;
      }
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
      sum[k] = warp_sum(sum[k]);
      if (lane == k && i + k < pixels) logits[(size_t)n * pixels + i + k] = sum[k] + bias[label];
    }
  }
}

enum { PART_PAD = 4 }; // floats of a part that begin with the bias' sum

// dx [objects, h, w, c] = dlogits · w of the object's class; of what dw is, parts [objects, gridDim.y, row]: Σ dlogits
// · x, and behind these Σ dlogits. SUMS: instead of dx, Σ dx where x > 0, behind the others. Grid (objects, parts of
// their pixels, of their channels).
template <class T, bool SUMS>
__global__ void own_logits_backward_kernel(OwnLogits p, const float *dlogits, DestArgs dx, bool masked_by_x,
                                           float *parts, int row) {
  __shared__ float sums[WARPS][LANES_CHANNELS + 1];
  const int n = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, pixels = p.x.h * p.x.w;
  if (n >= objects_of(p)) return;
  const int first_c = blockIdx.z * LANES_CHANNELS, c = first_c + lane * 8;
  const bool inside = c < p.x.ldc;
  const size_t from = (size_t)n * pixels * p.x.ldc + (inside ? c : 0);
  const Eight filter = load8(pixel<T>(p.w, p.label[n], 0, 0) + (inside ? c : 0));
  DestArgs other = dx; // what dx is read for besides x
  if (masked_by_x) other.mask.data = NULL;
  Eight dw = {}, dx_sum = {};
  float db = 0;
  const int first = (blockIdx.y * WARPS + warp) * AT_ONCE;
  for (int i = first; i < pixels; i += gridDim.y * WARPS * AT_ONCE) {
    DestReads<T> reads[AT_ONCE];
    Raw8<T> raw[AT_ONCE];
    float own[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
      const int at = min(i + k, pixels - 1);
      own[k] = i + k < pixels ? dlogits[(size_t)n * pixels + at] : 0.f;
      raw[k] = read8((const T *)p.x.data + from + (size_t)at * p.x.ldc);
      if (SUMS) continue;
      reads[k] = dest_read8<T>(other, from + (size_t)at * p.x.ldc, {});
      if (masked_by_x) reads[k].mask = raw[k];
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
      const Eight x = to_eight<T>(raw[k]);
      Eight v;
#pragma unroll
      for (int j = 0; j < 8; j++) {
        dw.v[j] += own[k] * x.v[j];
        v.v[j] = own[k] * filter.v[j];
        if (SUMS) dx_sum.v[j] += x.v[j] > 0.f ? to_float(from_float<T>(v.v[j])) : 0.f;
      }
      db += own[k];
      if (!SUMS && inside && i + k < pixels) dest_write8<T>(dx, from + (size_t)(i + k) * p.x.ldc, c, v, reads[k]);
    }
  }
#pragma unroll
  for (int j = 0; j < 8; j++) sums[warp][lane * 8 + j] = dw.v[j];
  if (lane == 0) sums[warp][LANES_CHANNELS] = db;
  __syncthreads();
  float *part = parts + ((size_t)n * gridDim.y + blockIdx.y) * row;
  for (int k = threadIdx.x; k <= LANES_CHANNELS; k += THREADS) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < WARPS; j++) sum += sums[j][k];
    if (k < LANES_CHANNELS && first_c + k < p.x.ldc) part[first_c + k] = sum;
    if (k == LANES_CHANNELS && blockIdx.z == 0) part[p.x.ldc] = sum;
  }
  if (!SUMS) return;
  __syncthreads();
#pragma unroll
  for (int j = 0; j < 8; j++) sums[warp][lane * 8 + j] = dx_sum.v[j];
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int j = 0; j < WARPS; j++) sum += sums[j][threadIdx.x];
  if (first_c + threadIdx.x < p.x.ldc) part[p.x.ldc + PART_PAD + first_c + threadIdx.x] = sum;
}
static_assert(LANES_CHANNELS == THREADS, "a thread for each sum");

// dw [classes, c] and db [classes]: the parts of a class's objects; db_x [c], as of one more class: of all objects.
// Grid (classes, channels with the bias behind them), block (SUM_CHANNELS, SUM_ROWS).
__global__ void own_logits_sum_kernel(OwnLogits p, const float *parts, int parts_each, int row, Tensor dw, float *db,
                                      bool accumulate, float *db_x, bool accumulate_x) {
  __shared__ float sums[SUM_ROWS][SUM_CHANNELS + 1];
  __shared__ int labels[SUM_LABELS];
  const int label = blockIdx.x, c = blockIdx.y * SUM_CHANNELS + threadIdx.x, objects = objects_of(p);
  const bool of_x = label == p.w.n;
  const float *from = parts + (of_x ? p.x.ldc + PART_PAD : 0);
  float sum = 0;
  if (of_x) {
    const int all = c < p.x.ldc ? objects * parts_each : 0;
#pragma unroll 16
    for (int i = threadIdx.y; i < all; i += SUM_ROWS) sum += from[(size_t)i * row + c];
  }
  for (int first = 0; first < objects && !of_x; first += SUM_LABELS) {
    const int thread = threadIdx.y * SUM_CHANNELS + threadIdx.x, end = min(objects - first, (int)SUM_LABELS);
    __syncthreads();
    if (thread < end) labels[thread] = p.label[first + thread];
    __syncthreads();
    for (int n = threadIdx.y; n < end; n += SUM_ROWS) {
      if (labels[n] != label || c > p.x.ldc) continue;
#pragma unroll 8
      for (int i = 0; i < parts_each; i++) sum += from[((size_t)(first + n) * parts_each + i) * row + c];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y || c > p.x.ldc) return;
  for (int i = 1; i < SUM_ROWS; i++) sum += sums[i][threadIdx.x];
  float *to = c < p.x.ldc ? pixel<float>(dw, label, 0, 0) + c : db ? db + label : NULL;
  if (of_x) to = c < p.x.c ? db_x + c : NULL;
  if (to) *to = (of_x ? accumulate_x : accumulate) ? *to + sum : sum;
}

// ---- launchers ------------------------------------------------------------------------------------------------------

static OwnLogits own_logits_args(const RoiTargets *targets, const Tensor *x, const Tensor *w, const Tensor *logits) {
  CHECK(w->h * w->w == 1 && w->c == x->c && w->ldc == x->ldc && w->dtype == x->dtype && x->ldc % 8 == 0);
  CHECK(logits->n == x->n && logits->h == x->h && logits->w == x->w && logits->ldc == 1 && logits->dtype == F32);
  return {targets->object_label, targets->objects.count, *x, *w};
}
// Of an object's pixels.
static int parts_of(const Tensor *x) {
  return MAX(MIN(BLOCKS / MAX(x->n, 1), blocks_for(x->h * x->w, WARPS * AT_ONCE)), 1);
}

extern "C" void cuda_own_logits(Device *dev, const RoiTargets *targets, const Tensor *x, const Tensor *w,
                                const void *bias, const Tensor *logits, void *signs) {
  if (dev->measuring || !x->n) return;
  const OwnLogits p = own_logits_args(targets, x, w, logits);
  WITH_TYPE(x->dtype, T, {
    own_logits_kernel<T><<<dim3(x->n, parts_of(x)), THREADS, 0, stream_of(dev)>>>(
        p, (const float *)bias, (float *)logits->data, (uint8_t *)signs);
    LAUNCH_CHECK();
  })
}

// dx NULL: sums of what it would be instead.
static void backward(Device *dev, const RoiTargets *targets, const Tensor *x, const Tensor *w, const Tensor *dlogits,
                     const Dest *dx, const FilterGrad *out, float *db_x, bool accumulate_x) {
  const int parts = parts_of(x), row = x->ldc + PART_PAD + (dx ? 0 : x->ldc);
  float *sums = (float *)device_workspace(dev, (size_t)x->n * parts * row * sizeof *sums);
  if (!sums) return;
  const OwnLogits p = own_logits_args(targets, x, w, dlogits);
  const DestArgs d = dx ? dest_args(dx) : DestArgs{};
  CHECK(!d.bias && !d.resized && !out->scale && out->dw.n == w->n && out->dw.ldc == x->ldc && out->dw.dtype == F32);
  const bool masked_by_x = d.mask.data == x->data;
  const dim3 blocks(x->n, parts, blocks_for(x->ldc, LANES_CHANNELS));
  WITH_TYPE(x->dtype, T, {
    if (x->n)
      (dx ? own_logits_backward_kernel<T, false>
          : own_logits_backward_kernel<T, true>)<<<blocks, THREADS, 0, stream_of(dev)>>>(
          p, (const float *)dlogits->data, d, masked_by_x, sums, row);
    LAUNCH_CHECK();
  })
  const dim3 grid(w->n + (dx ? 0 : 1), blocks_for(x->ldc + 1, SUM_CHANNELS));
  own_logits_sum_kernel<<<grid, dim3(SUM_CHANNELS, SUM_ROWS), 0, stream_of(dev)>>>(
      p, sums, parts, row, out->dw, (float *)out->db, out->accumulate, db_x, accumulate_x);
  LAUNCH_CHECK();
}

extern "C" void cuda_own_logits_backward(Device *dev, const RoiTargets *targets, const Tensor *x, const Tensor *w,
                                         const Tensor *dlogits, const Dest *dx, const FilterGrad *out) {
  backward(dev, targets, x, w, dlogits, dx, out, NULL, false);
}

void own_logits_sums(Device *dev, const RoiTargets *targets, const Tensor *x, const Tensor *w, const Tensor *dlogits,
                     const FilterGrad *out, float *db_x, bool accumulate_x) {
  backward(dev, targets, x, w, dlogits, NULL, out, db_x, accumulate_x);
}
