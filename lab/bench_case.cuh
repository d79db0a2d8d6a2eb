// One convolution to benchmark: its tensors, how it is verified, and the error tolerance.
#pragma once
#include <math.h>
#include "cuda/common.cuh"
#include "cuda/conv/ladder.h"
#include "lab/conv_layers.h"
extern "C" {
#include "base/rng.h"
}

enum { FILL_THREADS = 256, MASKS_OF = 4 }; // sampled proposals per positive one

typedef enum Precision { BENCH_BF16, BENCH_FP16, BENCH_TF32, BENCH_FP32 } Precision;
static const char *const precision_names[] = {"bf16", "fp16", "tf32", "fp32", NULL};
static const DType precision_dtypes[] = {BF16, F16, F32, F32};
static const char *const op_names[] = {"fwd", "dgrad", "wgrad"};

typedef enum Fused { PLAIN, BIAS_RELU, BIAS_ADD_RELU } Fused;

// An op writes to one of its tensors.
typedef struct BenchCase {
  const ConvCase *layer;
  Conv conv;
  Fused fused;
  bool rectified; // x is a ReLU's output: half zeros
  Tensor x, w, y, dw, addend, bias;
  Tensor dw_peer; // in the operands' type, as cuDNN writes it
} BenchCase;

// Fills with normal numbers, their magnitudes, or their positive parts; padding lanes are zero.
enum Filling { NORMAL, MAGNITUDE, RECTIFIED };
template <class T> __global__ void fill_kernel(Tensor t, uint64_t key, Filling filling, size_t elements) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= elements) return;
  float radius = sqrtf(-2 * logf(1 - rng_uniform(key, 2 * i))), v = radius * cospif(2 * rng_uniform(key, 2 * i + 1));
  if (filling == MAGNITUDE) v = fabsf(v);
  if (filling == RECTIFIED) v = fmaxf(v, 0.f);
  ((T *)t.data)[i] = from_float<T>((int)(i % t.ldc) >= t.c ? 0.f : v);
}

// Counts elements of got whose difference from want exceeds what the operands' type explains; NaN counts.
template <class T, class U>
__global__ void compare_kernel(const T *got, const U *want, const U *bound, float eps, float share, float more,
                               size_t elements, unsigned long long *wrong) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= elements) return;
  float error = fabsf(to_float(got[i]) - to_float(want[i]));
  if (!(error <= eps * fabsf(to_float(want[i])) + share * to_float(bound[i]) + more)) atomicAdd(wrong, 1);
}

static void fill(Device *dev, const Tensor *t, uint64_t key, Filling filling) {
  size_t n = tensor_elements(t);
  WITH_TYPE(t->dtype, T, {
    fill_kernel<T>
        <<<blocks_for(n, FILL_THREADS), FILL_THREADS, 0, stream_of(dev)>>>(*t, rng_key(RNG_TEST, key), filling, n);
  });
  LAUNCH_CHECK();
}

static void *allocate(Device *dev, size_t bytes) {
  void *p = device_alloc(dev, bytes);
  if (!p) die(EXIT_RUN, "out of memory on the GPU: use a smaller --batch");
  return p;
}
static Tensor allocated(Device *dev, Tensor t) {
  t.data = allocate(dev, tensor_bytes(&t));
  return t;
}

// Zero rows after those of w, up to y's pitch, for cuDNN's padded channels.
static Tensor allocated_filter(Device *dev, DType t, const ConvCase *l) {
  Tensor padded = allocated(dev, tensor(t, channel_pitch(l->cout), l->k, l->k, l->cin)), w = padded;
  w.n = l->cout;
  return w;
}

// n, h, w: of x.
static BenchCase case_new(Device *dev, DType t, Fused fused, const ConvCase *l, int n, int h, int w) {
  int p = (h + 2 * l->pad - l->k) / l->stride + 1, q = (w + 2 * l->pad - l->k) / l->stride + 1;
  BenchCase c = {l, {l->stride, l->pad}, fused};
  c.x = allocated(dev, tensor(t, n, h, w, l->cin));
  c.w = allocated_filter(dev, t, l);
  c.y = allocated(dev, tensor(t, n, p, q, l->cout));
  c.dw = allocated(dev, tensor(F32, l->cout, l->k, l->k, l->cin));
  c.dw_peer = allocated_filter(dev, t, l);
  if (fused) c.bias = allocated(dev, tensor_packed(F32, 1, l->cout));
  if (fused == BIAS_ADD_RELU) c.addend = allocated(dev, c.y);
  return c;
}
static void case_free(Device *dev, BenchCase *c) {
  void *all[] = {c->x.data, c->w.data, c->y.data, c->dw.data, c->dw_peer.data, c->bias.data, c->addend.data};
  for (void *p : all) device_free(dev, p);
}

static Tensor *result_of(BenchCase *c, ConvOp op, bool peer) {
  return op == CONV_FORWARD ? &c->y : op == CONV_DGRAD ? &c->x : peer ? &c->dw_peer : &c->dw;
}
static const Tensor *operand_of(const BenchCase *c, ConvOp op) { return op == CONV_DGRAD ? &c->y : &c->x; }

static void fill_operands(Device *dev, BenchCase *c, ConvOp op, bool magnitude) {
  Tensor *all[] = {&c->x, &c->w, &c->y, &c->addend, &c->bias};
  for (int i = 0; i < COUNT(all); i++)
    if (all[i]->data && all[i] != result_of(c, op, false))
      fill(dev, all[i], i, c->rectified && all[i] == &c->x ? RECTIFIED : magnitude ? MAGNITUDE : NORMAL);
}

static Dest dest_of(const BenchCase *c, ConvOp op) {
  if (op == CONV_DGRAD) return {.t = c->x};
  return {.t = c->y,
          .relu = c->fused != PLAIN,
          .bias = c->bias.data,
          .addend = c->fused == BIAS_ADD_RELU ? &c->addend : NULL};
}

// The maximum number of terms in one element of the result.
static double terms_of(const BenchCase *c, ConvOp op) {
  const ConvCase *l = c->layer;
  double taps = (double)l->k * l->k;
  return op == CONV_FORWARD ? taps * l->cin : op == CONV_DGRAD ? taps * l->cout : (double)tensor_pixels(&c->y);
}

// The error of K roundings that go up as often as down grows with √K: 8·√K·u·Σ|term| is exceeded with probability e^-32
// (Higham, Mary, "A new approach to probabilistic rounding error analysis", 2019, theorem 2.4). u = 2^-23 is for tensor
// cores, which truncate. TF32 rounds each term by 2^-10 of itself, and these errors, too, are independent. `twice`:
// sums are rounded to the operands' type before bias and addend are added, which may cancel them: a further error of u
// · |sum| <= u · (|result| + |bias| + |addend|). Normal numbers from 24 bits are at most sqrt(2 · 24 · ln 2) < 5.8.
static unsigned long long count_wrong(Device *dev, BenchCase *c, ConvOp op, bool peer, bool twice, const void *want,
                                      const void *bound) {
  const Tensor *got = result_of(c, op, peer), *ours = result_of(c, op, false);
  DType operands = c->x.dtype;
  double eps = operands == F32 ? 0x1p-23 : operands == BF16 ? 0x1p-7 : 0x1p-10; // both round their result
  double root = sqrt(terms_of(c, op)), share = 8 * (root * 0x1p-23 + (dev->tf32 ? 0x1p-10 / root : 0));
  double more = twice ? eps / 2 * 5.8 * (c->fused == BIAS_ADD_RELU ? 2 : 1) : 0;
  if (twice) eps *= 1.5;
  unsigned long long *wrong = (unsigned long long *)allocate(dev, sizeof *wrong), host;
  size_t n = tensor_elements(ours);
  WITH_TYPE(got->dtype, T, {
    WITH_TYPE(ours->dtype, U, {
      compare_kernel<<<blocks_for(n, FILL_THREADS), FILL_THREADS, 0, stream_of(dev)>>>(
          (const T *)got->data, (const U *)want, (const U *)bound, (float)eps, (float)share, (float)more, n, wrong);
    });
  });
  LAUNCH_CHECK();
  device_download(dev, &host, wrong, sizeof host);
  device_free(dev, wrong);
  return host;
}
