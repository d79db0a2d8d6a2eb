// The rung to compare with: cuDNN's own convolutions, in the same types and layout, where its library is found at run
// time; nothing here is needed to build. For each problem the fastest of its deterministic algorithms is looked for
// once, while the scratch is measured. What a Dest asks for is a kernel of ours after theirs.
//
// Channels are handed over by their pitch, padding lanes included, and a filter bank is padded to as many rows: cuDNN's
// fast kernels want multiples of eight, and zeros change no sum.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "cuda/conv/ladder.h"
#include "cuda/conv/walk.cuh"

enum { THREADS = 256, MAX_PLANS = 512, MAX_ALGORITHMS = 16, ALIGN = 256 };
static const size_t max_workspace = (size_t)1 << 30;

// ---- the library ------------------------------------------------------------------------------------------------------

// The names and values of cuDNN 9's interface that are used here; handles and descriptors are opaque.
enum { CUDNN_FLOAT = 0, CUDNN_HALF = 2, CUDNN_BFLOAT16 = 9 };
enum { CUDNN_NHWC = 1, CUDNN_CROSS_CORRELATION = 1, CUDNN_IS_DETERMINISTIC = 1 };
enum { CUDNN_DEFAULT_MATH = 0, CUDNN_TENSOR_OP_MATH = 1, CUDNN_FMA_MATH = 3 }; // the first may use TF32

struct Algorithm { // cudnnConvolution*AlgoPerf_t
  int algo, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
};
typedef int Find(void *handle, void *a, void *b, void *conv, void *c, int requested, int *returned, Algorithm *out);
typedef int Compute(void *handle, const float *alpha, void *a_desc, const void *a, void *b_desc, const void *b,
                    void *conv, int algo, void *workspace, size_t bytes, const float *beta, void *c_desc, void *c);

// Three functions of each kind, with their operands in the same order: (x, w, y), (w, dy, dx), (x, dy, dw).
struct Library {
  void *handle;
  const char *(*error)(int);
  int (*create)(void **), (*set_stream)(void *, cudaStream_t);
  int (*create_tensor)(void **), (*create_filter)(void **), (*create_conv)(void **);
  int (*set_tensor)(void *, int format, int type, int n, int c, int h, int w);
  int (*set_filter)(void *, int type, int format, int k, int c, int h, int w);
  int (*set_conv)(void *, int pad_h, int pad_w, int u, int v, int dilation_h, int dilation_w, int mode, int type);
  int (*set_math)(void *, int);
  Find *find[CONV_OPS];
  Compute *compute[CONV_OPS];
};

static bool load(Library *l) {
  void *so = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  const struct {
    void *to;
    const char *name;
  } symbols[] = {
      {&l->error, "cudnnGetErrorString"},
      {&l->create, "cudnnCreate"},
      {&l->set_stream, "cudnnSetStream"},
      {&l->create_tensor, "cudnnCreateTensorDescriptor"},
      {&l->create_filter, "cudnnCreateFilterDescriptor"},
      {&l->create_conv, "cudnnCreateConvolutionDescriptor"},
      {&l->set_tensor, "cudnnSetTensor4dDescriptor"},
      {&l->set_filter, "cudnnSetFilter4dDescriptor"},
      {&l->set_conv, "cudnnSetConvolution2dDescriptor"},
      {&l->set_math, "cudnnSetConvolutionMathType"},
      {&l->find[CONV_FORWARD], "cudnnFindConvolutionForwardAlgorithm"},
      {&l->find[CONV_DGRAD], "cudnnFindConvolutionBackwardDataAlgorithm"},
      {&l->find[CONV_WGRAD], "cudnnFindConvolutionBackwardFilterAlgorithm"},
      {&l->compute[CONV_FORWARD], "cudnnConvolutionForward"},
      {&l->compute[CONV_DGRAD], "cudnnConvolutionBackwardData"},
      {&l->compute[CONV_WGRAD], "cudnnConvolutionBackwardFilter"},
  };
  bool ok = so != NULL;
  for (int i = 0; ok && i < COUNT(symbols); i++) {
    void *p = dlsym(so, symbols[i].name);
    memcpy(symbols[i].to, &p, sizeof p);
    ok = p != NULL;
  }
  ok = ok && !l->create(&l->handle);
  if (!ok)
    fprintf(stderr, "cuDNN is not available (%s): put libcudnn.so.9 on LD_LIBRARY_PATH; using our own kernels\n",
            so ? "the library does not work here" : dlerror());
  return ok;
}

// Opened by the first who asks; NULL where it cannot be.
static const Library *library() {
  static Library l;
  static const bool ok = load(&l);
  return ok ? &l : NULL;
}

#define CUDNN_CHECK(call)                                                                                              \
  do {                                                                                                                 \
    int status_ = (call);                                                                                              \
    if (status_) die(EXIT_RUN, "cuDNN: %s in %s at %s:%d", library()->error(status_), #call, __FILE__, __LINE__);      \
  } while (0)

// ---- plans ------------------------------------------------------------------------------------------------------------

struct Shape { // what a plan is made for; ints alone, so that equal shapes are equal bytes
  int op, dtype, tf32, stride, pad;
  int n, h, w, c, k, r, s, p, q; // c and k: pitches
};
struct Plan {
  Shape shape;
  void *x, *filter, *y, *conv;
  int algo;
  size_t workspace;
};

static Shape shape_of(const Device *dev, ConvOp op, const Conv *conv, const Tensor *x, const Tensor *w,
                      const Tensor *y) {
  return {op,   (int)x->dtype, dev->tf32, conv->stride, conv->pad, x->n, x->h,
          x->w, x->ldc,        y->ldc,    w->h,         w->w,      y->h, y->w};
}

// a, b, c of the op's functions.
static void operands(const Plan *p, void *out[3]) {
  void *x = p->x, *w = p->filter, *y = p->y;
  void *const order[CONV_OPS][3] = {{x, w, y}, {w, y, x}, {x, y, w}};
  memcpy(out, order[p->shape.op], sizeof order[0]);
}

static void find_algorithm(const Library *l, Plan *p) {
  const Shape *s = &p->shape;
  void *d[3];
  operands(p, d);
  Algorithm found[MAX_ALGORITHMS];
  int count = 0;
  CUDNN_CHECK(l->find[s->op](l->handle, d[0], d[1], p->conv, d[2], MAX_ALGORITHMS, &count, found));
  for (int i = 0; i < count; i++) { // fastest first
    const Algorithm *a = &found[i];
    bool precise = s->dtype != F32 || s->tf32 || a->math == CUDNN_FMA_MATH;
    if (a->status || a->determinism != CUDNN_IS_DETERMINISTIC || a->memory > max_workspace || !precise) continue;
    CUDNN_CHECK(l->set_math(p->conv, a->math));
    p->algo = a->algo;
    p->workspace = a->memory;
    return;
  }
  die(EXIT_RUN, "cuDNN has no deterministic algorithm for op %d, n %d, %d x %d, %d -> %d channels, %d x %d taps", s->op,
      s->n, s->h, s->w, s->c, s->k, s->r, s->s);
}

static const Plan *plan_for(const Library *l, const Shape &s) {
  static Plan plans[MAX_PLANS];
  static int count;
  for (int i = 0; i < count; i++)
    if (!memcmp(&plans[i].shape, &s, sizeof s)) return &plans[i];
  CHECK(count < MAX_PLANS);
  Plan *p = &plans[count++];
  p->shape = s;
  int type = s.dtype == F32 ? CUDNN_FLOAT : s.dtype == BF16 ? CUDNN_BFLOAT16 : CUDNN_HALF;
  int math = s.dtype != F32 ? CUDNN_TENSOR_OP_MATH : s.tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
  CUDNN_CHECK(l->create_tensor(&p->x));
  CUDNN_CHECK(l->create_tensor(&p->y));
  CUDNN_CHECK(l->create_filter(&p->filter));
  CUDNN_CHECK(l->create_conv(&p->conv));
  CUDNN_CHECK(l->set_tensor(p->x, CUDNN_NHWC, type, s.n, s.c, s.h, s.w));
  CUDNN_CHECK(l->set_tensor(p->y, CUDNN_NHWC, type, s.n, s.k, s.p, s.q));
  CUDNN_CHECK(l->set_filter(p->filter, type, CUDNN_NHWC, s.k, s.c, s.r, s.s));
  CUDNN_CHECK(l->set_conv(p->conv, s.pad, s.pad, s.stride, s.stride, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_FLOAT));
  CUDNN_CHECK(l->set_math(p->conv, math));
  find_algorithm(l, p);
  return p;
}

static void run(const Library *l, Device *dev, const Plan *p, const void *a, const void *b, void *c, void *workspace,
                bool add) {
  const float one = 1, beta = add;
  void *d[3];
  operands(p, d);
  CUDNN_CHECK(l->set_stream(l->handle, stream_of(dev)));
  CUDNN_CHECK(l->compute[p->shape.op](l->handle, &one, d[0], a, d[1], b, p->conv, p->algo, workspace, p->workspace,
                                      &beta, d[2], c));
}

// ---- kernels ------------------------------------------------------------------------------------------------------------

// What the Dest asks for, from cuDNN's plain result.
template <class T> __global__ void cudnn_finish_kernel(const T *raw, DestArgs out, unsigned eights) {
  unsigned i = thread_index();
  if (i >= eights) return;
  Place p = place_of(out.t, i);
  dest_store8<T>(out, p.n, p.y, p.x, p.c, load8(raw + (size_t)i * 8));
}

// dw (+)= scale · raw; raw has the element order of dw, and rows that dw lacks at its end.
template <class T>
__global__ void cudnn_filter_kernel(const T *raw, Tensor dw, const float *scale, bool accumulate, unsigned eights) {
  unsigned i = thread_index();
  if (i >= eights) return;
  float *to = (float *)dw.data + (size_t)i * 8, factor = scale ? scale[i / (dw.h * dw.w * (dw.ldc / 8))] : 1.f;
  Eight v = load8(raw + (size_t)i * 8), old = accumulate ? load8(to) : Eight{};
#pragma unroll
  for (int k = 0; k < 8; k++) v.v[k] = (int)(i % (dw.ldc / 8)) * 8 + k < dw.c ? old.v[k] + factor * v.v[k] : 0.f;
  store8(to, v);
}

// ---- launchers ------------------------------------------------------------------------------------------------------

// Rows past a count hold anything at all, and cuDNN knows no counts: harmless in a row's own result, not in a sum.
static bool supports(const Device *, ConvOp op, const Conv *, const Tensor *in, const Tensor *) {
  return !(op == CONV_WGRAD && in->count) && library() != NULL;
}

static bool is_plain(const Dest *d) { return !d->accumulate && !d->relu && !d->bias && !d->addend && !d->mask; }
static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

// Scratch: the filter with padded rows, the plain result, cuDNN's workspace; the first two where they are needed.
static void compute(Device *dev, ConvOp op, const Conv *conv, int pairs, const Tensor *in, const Tensor *w,
                    const Dest *out) {
  const Library *l = library();
  const Plan *plans[CONV_MAX_PAIRS];
  size_t row = (size_t)w->h * w->w * w->ldc * dtype_size(w->dtype), padded = channel_pitch(w->n) * row;
  size_t filter = w->n % 8 ? aligned(padded) : 0, raw = 0, workspace = 0;
  for (int i = 0; i < pairs; i++) {
    const Tensor *t = &out[i].t, *x = op == CONV_FORWARD ? &in[i] : t, *y = op == CONV_FORWARD ? t : &in[i];
    plans[i] = plan_for(l, shape_of(dev, op, conv, x, w, y));
    workspace = MAX(workspace, plans[i]->workspace);
    if (!is_plain(&out[i])) raw = MAX(raw, aligned(tensor_bytes(t)));
  }
  char *scratch = (char *)device_scratch(dev, filter + raw + workspace);
  if (dev->measuring) return;
  const void *bank = w->data;
  if (filter) {
    CUDA_CHECK(cudaMemcpyAsync(scratch, w->data, w->n * row, cudaMemcpyDeviceToDevice, stream_of(dev)));
    CUDA_CHECK(cudaMemsetAsync(scratch + w->n * row, 0, padded - w->n * row, stream_of(dev)));
    bank = scratch;
  }
  for (int i = 0; i < pairs; i++) {
    bool plain = is_plain(&out[i]);
    void *to = plain ? out[i].t.data : scratch + filter, *space = scratch + filter + raw;
    if (op == CONV_FORWARD)
      run(l, dev, plans[i], in[i].data, bank, to, space, false);
    else
      run(l, dev, plans[i], bank, in[i].data, to, space, false);
    if (plain) continue;
    unsigned eights = eights_of(&out[i].t);
    WITH_TYPE(w->dtype, T, {
      cudnn_finish_kernel<T>
          <<<blocks_for(eights, THREADS), THREADS, 0, stream_of(dev)>>>((const T *)to, dest_args(&out[i]), eights);
    });
    LAUNCH_CHECK();
  }
}

static void forward(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y) {
  compute(dev, CONV_FORWARD, conv, pairs, x, w, y);
}
static void dgrad(Device *dev, const Conv *conv, int pairs, const Tensor *dy, const Tensor *w, const Dest *dx) {
  compute(dev, CONV_DGRAD, conv, pairs, dy, w, dx);
}

// cuDNN's gradient is of the operands' type, and so is the sum over pairs.
static void wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  const Library *l = library();
  const Tensor *dw = &out->dw;
  const Plan *plans[CONV_MAX_PAIRS];
  size_t workspace = 0;
  size_t raw = aligned((size_t)dy->ldc * dw->h * dw->w * dw->ldc * dtype_size(x->dtype));
  for (int i = 0; i < pairs; i++) {
    plans[i] = plan_for(l, shape_of(dev, CONV_WGRAD, conv, &x[i], dw, &dy[i]));
    workspace = MAX(workspace, plans[i]->workspace);
  }
  char *scratch = (char *)device_scratch(dev, raw + workspace);
  if (!scratch) return;
  for (int i = 0; i < pairs; i++) run(l, dev, plans[i], x[i].data, dy[i].data, scratch, scratch + raw, i > 0);
  unsigned eights = eights_of(dw);
  WITH_TYPE(x->dtype, T, {
    cudnn_filter_kernel<T><<<blocks_for(eights, THREADS), THREADS, 0, stream_of(dev)>>>(
        (const T *)scratch, *dw, (const float *)out->scale, out->accumulate, eights);
  });
  LAUNCH_CHECK();
}

extern "C" const Rung rung_cudnn = {"cudnn", supports, forward, dgrad, wgrad};
