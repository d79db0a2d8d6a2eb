// The rung to compare with: cuDNN's own convolutions, in the same types and layout.
//
// Channels are handed over by their pitch, padding channels included, and a filter bank is padded to as many rows:
// cuDNN's fast kernels want multiples of eight, and zeros change no sum.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "cuda/conv/implicit_gemm.cuh"
#include "cuda/conv/ladder.h"
#include "cuda/sweep.cuh"
#include "cudnn/cudnn.h"
extern "C" {
#include "base/contained.h"
#include "base/rng.h"
}

enum { THREADS = 256, MAX_ENGINES = 128, ALIGN = 256, TIMED_RUNS = 3 };
static const size_t max_workspace = (size_t)1 << 30;
// An engine that takes this many times as long as the best so far, or whose first run, which may load its code, takes
// longer than that by far, is not timed again.
static const float hopeless = 2, loading_us = 50e3;

typedef struct CudnnChoice {
  CudnnProblem problem;
  CudnnPlan plan;
} CudnnChoice;

// Several choices may share one engine: that of a plain convolution also serves those with an epilogue kernel behind
// it.
typedef struct Cudnn {
  CudnnLibrary *library; // NULL: it cannot be opened
  CudnnChoice *choices;
  size_t count, capacity;
  bool told; // that our kernels compute what cuDNN cannot
} Cudnn;

static Cudnn *cudnn_of(Device *dev) {
  void **kept = device_kept(dev, &rung_cudnn);
  if (!*kept) {
    Cudnn *c = (Cudnn *)xcalloc(1, sizeof *c);
    c->library = cudnn_library_open();
    *kept = c;
  }
  return (Cudnn *)*kept;
}
static CudnnLibrary *library_of(Device *dev) { return cudnn_of(dev)->library; }

static void cudnn_close(Device *dev) {
  Cudnn *c = (Cudnn *)*device_kept(dev, &rung_cudnn);
  if (!c) return;
  device_sync(dev);
  for (size_t i = 0; i < c->count; i++) {
    CudnnEngine e = c->choices[i].plan.engine; // a copy: choices that share the engine compare with its pointer
    bool freed = false;
    for (size_t j = 0; j < i; j++) freed |= c->choices[j].plan.engine.plan == e.plan;
    if (!freed) cudnn_engine_free(c->library, &e);
  }
  if (c->library) cudnn_library_close(c->library);
  free(c->choices);
  free(c);
}

bool cudnn_available(Device *dev) { return library_of(dev) != NULL; }
int cudnn_version(Device *dev) { return cudnn_available(dev) ? cudnn_library_version(library_of(dev)) : 0; }

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

// ---- kernels --------------------------------------------------------------------------------------------------------

// The epilogue as a kernel of its own: what the Dest asks for, from cuDNN's plain result [n, h, w, ldc]. A thread for
// every eight channels.
template <class T> __global__ void cudnn_finish_kernel(const T *raw, DestArgs out, unsigned eights) {
  unsigned i = thread_index();
  if (i >= eights) return;
  VectorPosition p = position_of(out.t, i);
  dest_store8<T>(out, p.n, p.y, p.x, p.c, load8(raw + (size_t)i * 8));
}

// dw (+)= scale · raw; raw has the element order of dw, and rows that dw lacks at its end. A thread for every eight
// channels.
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

// Operands to time with: uniform in [-1, 1). Zeros would draw less power and run faster.
template <class T> __global__ void cudnn_noise_kernel(T *p, size_t elements) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < elements) p[i] = from_float<T>(2 * rng_uniform(RNG_TEST, i) - 1);
}

// ---- running --------------------------------------------------------------------------------------------------------

static void finish(Device *dev, const void *raw, const Dest *out) {
  unsigned eights = eights_of(&out->t);
  WITH_TYPE(out->t.dtype, T, {
    cudnn_finish_kernel<T>
        <<<blocks_for(eights, THREADS), THREADS, 0, stream_of(dev)>>>((const T *)raw, dest_args(out), eights);
  });
  LAUNCH_CHECK();
}

size_t cudnn_workspace(const CudnnPlan *plan, const Dest *out) {
  return plan->engine.workspace + (plan->finish ? aligned(tensor_bytes(&out->t)) : 0);
}

static bool run(Device *dev, const CudnnPlan *plan, ConvOp op, CudnnData data, const Dest *out, void *workspace) {
  if (!plan->finish) {
    if (out && out->addend) data.at[CUDNN_ADDEND] = out->addend->data;
    if (out && out->bias) data.at[CUDNN_BIAS] = (void *)out->bias;
    if (out && out->mask) data.at[CUDNN_MASK] = out->mask->data;
    return cudnn_execute(library_of(dev), &plan->engine, dev->stream, &data, workspace);
  }
  data.at[op == CONV_FORWARD ? CUDNN_Y : CUDNN_X] = workspace;
  if (!cudnn_execute(library_of(dev), &plan->engine, dev->stream, &data,
                     (char *)workspace + aligned(tensor_bytes(&out->t))))
    return false;
  finish(dev, workspace, out);
  return true;
}

void cudnn_run(Device *dev, const CudnnPlan *plan, ConvOp op, const void *x, const void *w, const void *y,
               const Dest *out, void *workspace) {
  if (!run(dev, plan, op, {{(void *)x, (void *)w, (void *)y}}, out, workspace))
    die_unforeseen("cuDNN: engine %d now rejects a convolution that it accepted before", plan->engine.index);
}

// ---- the search -----------------------------------------------------------------------------------------------------

// Operands of a problem's own, and a Dest that asks for what the problem does.
struct CudnnTrial {
  CudnnData data;
  Tensor addend, mask;
  Dest out;
  void *workspace, *sweep;
  uint64_t sweeps; // so far
  cudaEvent_t begin, end;
};

static void *allocate(Device *dev, size_t bytes) {
  void *p = device_alloc(dev, bytes);
  if (!p) die_unforeseen("out of memory while searching for cuDNN's fastest engine: use a smaller --batch");
  return p;
}
static void *noise(Device *dev, const Tensor *t) {
  size_t n = tensor_elements(t);
  void *p = allocate(dev, tensor_bytes(t));
  WITH_TYPE(t->dtype, T, { cudnn_noise_kernel<<<blocks_for(n, THREADS), THREADS, 0, stream_of(dev)>>>((T *)p, n); });
  LAUNCH_CHECK();
  return p;
}

static CudnnTrial trial_new(Device *dev, const CudnnProblem *p, size_t workspace) {
  DType type = (DType)p->dtype;
  Tensor x = tensor(type, p->n, p->h, p->w, p->c), w = tensor(type, p->k, p->r, p->s, p->c);
  Tensor y = tensor(type, p->n, p->p, p->q, p->k), t = p->op == CONV_DGRAD ? x : y, bias = tensor_packed(F32, 1, t.c);
  CudnnTrial s = {.data = {{noise(dev, &x), noise(dev, &w), noise(dev, &y)}}, .addend = t, .mask = t, .out = {.t = t}};
  if (p->op != CONV_WGRAD) s.out.t.data = s.data.at[p->op == CONV_FORWARD ? CUDNN_Y : CUDNN_X];
  if (p->bias) s.out.bias = noise(dev, &bias);
  s.addend.data = p->addend ? noise(dev, &t) : NULL;
  s.mask.data = p->mask ? noise(dev, &t) : NULL;
  s.out.relu = p->relu;
  s.workspace = allocate(dev, workspace);
  s.sweep = allocate(dev, sweep_bytes);
  CUDA_CHECK(cudaEventCreate(&s.begin));
  CUDA_CHECK(cudaEventCreate(&s.end));
  return s;
}

static void trial_free(Device *dev, CudnnTrial *s) {
  void *all[] = {s->data.at[CUDNN_X], s->data.at[CUDNN_W], s->data.at[CUDNN_Y], (void *)s->out.bias,
                 s->addend.data,      s->mask.data,        s->workspace,        s->sweep};
  for (void *p : all) device_free(dev, p);
  CUDA_CHECK(cudaEventDestroy(s->begin));
  CUDA_CHECK(cudaEventDestroy(s->end));
}

static float time_once(Device *dev, CudnnTrial *s, const CudnnPlan *plan, ConvOp op) {
  Dest out = s->out;
  out.addend = s->addend.data ? &s->addend : NULL;
  out.mask = s->mask.data ? &s->mask : NULL;
  sweep_l2(stream_of(dev), s->sweep, s->sweeps++);
  CUDA_CHECK(cudaEventRecord(s->begin, stream_of(dev)));
  if (!run(dev, plan, op, s->data, &out, s->workspace)) return INFINITY;
  CUDA_CHECK(cudaEventRecord(s->end, stream_of(dev)));
  CUDA_CHECK(cudaEventSynchronize(s->end));
  float ms;
  CUDA_CHECK(cudaEventElapsedTime(&ms, s->begin, s->end));
  return 1e3f * ms;
}

// The best of a few runs after one that may load and compile. INFINITY when it does not work.
static float time_plan(Device *dev, CudnnTrial *s, const CudnnPlan *plan, ConvOp op, float best_so_far) {
  float best = time_once(dev, s, plan, op);
  if (best > hopeless * best_so_far + loading_us) return INFINITY;
  for (int i = 0; i < TIMED_RUNS && best < INFINITY; i++) {
    float us = time_once(dev, s, plan, op);
    best = i ? MIN(best, us) : us;
    if (us > hopeless * best_so_far) break;
  }
  return best;
}

// The fastest of the problem's engines, and of `rival` where it is given.
static CudnnPlan find_fastest(Device *dev, const CudnnProblem *p, const CudnnPlan *rival) {
  CudnnLibrary *library = library_of(dev);
  CudnnEngine engines[MAX_ENGINES];
  int count = cudnn_engines(library, p, engines, MAX_ENGINES);
  size_t result = (size_t)p->n * MAX(p->h * p->w * p->c, p->p * p->q * p->k) * dtype_size((DType)p->dtype);
  size_t workspace = rival ? rival->engine.workspace + aligned(result) : 0;
  for (int i = 0; i < count; i++)
    if (engines[i].workspace <= max_workspace) workspace = MAX(workspace, engines[i].workspace);
  CudnnTrial s = trial_new(dev, p, workspace);
  CudnnPlan best = rival ? *rival : CudnnPlan{};
  float best_us = rival && rival->engine.plan ? time_plan(dev, &s, rival, (ConvOp)p->op, INFINITY) : INFINITY;
  for (int i = 0; i < count; i++) {
    CudnnPlan plan = {engines[i]};
    bool fits = engines[i].workspace <= max_workspace;
    float us = fits ? time_plan(dev, &s, &plan, (ConvOp)p->op, best_us) : INFINITY;
    if (us < best_us) {
      best = plan;
      best_us = us;
    }
  }
  for (int i = 0; i < count; i++)
    if (engines[i].plan != best.engine.plan) cudnn_engine_free(library, &engines[i]);
  best.tried = count;
  trial_free(dev, &s);
  return best;
}

// ---- plans ----------------------------------------------------------------------------------------------------------

static CudnnPlan plan_for(Device *dev, const CudnnProblem &p) {
  Cudnn *c = cudnn_of(dev);
  for (size_t i = 0; i < c->count; i++)
    if (!memcmp(&c->choices[i].problem, &p, sizeof p)) return c->choices[i].plan;
  CudnnPlan plan = {};
  if (p.addend || p.bias || p.relu || p.mask) {
    CudnnProblem plain = p;
    plain.addend = plain.bias = plain.relu = plain.mask = 0;
    CudnnPlan rival = plan_for(dev, plain);
    rival.finish = true;
    plan = find_fastest(dev, &p, &rival);
    plan.fused_tried = plan.tried;
  } else
    plan = find_fastest(dev, &p, NULL);
  array_reserve((void **)&c->choices, &c->capacity, c->count + 1, sizeof *c->choices);
  c->choices[c->count++] = {p, plan};
  return plan;
}

// cuDNN's graphs know no resized addends, and no bias that ends before the pitch; reading and writing t at once is not
// promised to work.
static bool can_fuse(const Dest *d) {
  const Tensor *a = d->addend;
  return !d->accumulate && !(a && (a->h != d->t.h || a->w != d->t.w || a->data == d->t.data)) &&
         !(d->bias && d->t.c != d->t.ldc);
}

CudnnPlan cudnn_plan(Device *dev, ConvOp op, const Conv *conv, const Tensor *x, const Tensor *w, const Tensor *y,
                     const Dest *out, CudnnSearch search) {
  if (!cudnn_available(dev)) return {};
  bool tf32 = x->dtype == F32 && dev->tf32, fused = out && can_fuse(out);
  CudnnProblem p = {op,   x->dtype, tf32,   search, conv->stride, conv->pad, x->n, x->h,
                    x->w, x->ldc,   y->ldc, w->h,   w->w,         y->h,      y->w};
  if (fused) {
    p.addend = out->addend != NULL;
    p.bias = out->bias != NULL;
    p.relu = out->relu;
    p.mask = out->mask != NULL;
  }
  CudnnPlan plan = plan_for(dev, p);
  if (out && !fused) plan.finish = true;
  return plan;
}

// ---- the rung -------------------------------------------------------------------------------------------------------

static bool supports(Device *dev, ConvOp, const Conv *, const Tensor *, const Tensor *) { return cudnn_available(dev); }

// Statistic once; silence would pass our figures off as cuDNN's.
static const Rung *instead(Device *dev, ConvOp op, const Conv *conv, const Tensor *in, const Tensor *w) {
  static const char *const names[CONV_OPS] = {"forward", "dgrad", "wgrad"};
  if (!cudnn_of(dev)->told)
    warn("cuDNN has no deterministic engine for %s of %d -> %d channels, %d x %d taps: using our own kernels",
         names[op], w->c, w->n, w->h, w->w);
  cudnn_of(dev)->told = true;
  return conv_fastest_rung(dev, op, conv, in, w);
}

// In its workspace lie the filter with padded rows, where it needs them, and cudnn_run's own.
static void compute(Device *dev, ConvOp op, const Conv *conv, int pairs, const Tensor *in, const Tensor *w,
                    const Dest *out) {
  CudnnPlan plans[CONV_MAX_PAIRS];
  size_t row = (size_t)w->h * w->w * w->ldc * dtype_size(w->dtype), padded = channel_pitch(w->n) * row;
  size_t filter = w->n % 8 ? aligned(padded) : 0, cudnn_bytes = 0;
  for (int i = 0; i < pairs; i++) {
    const Tensor *t = &out[i].t, *x = op == CONV_FORWARD ? &in[i] : t, *y = op == CONV_FORWARD ? t : &in[i];
    plans[i] = cudnn_plan(dev, op, conv, x, w, y, &out[i], CUDNN_QUICK);
    if (!plans[i].engine.plan) {
      const Rung *own = instead(dev, op, conv, in, w);
      return (op == CONV_FORWARD ? own->forward : own->dgrad)(dev, conv, pairs, in, w, out);
    }
    cudnn_bytes = MAX(cudnn_bytes, cudnn_workspace(&plans[i], &out[i]));
  }
  char *workspace = (char *)device_workspace(dev, filter + cudnn_bytes);
  if (dev->measuring) return;
  const void *bank = w->data;
  if (filter) {
    CUDA_CHECK(cudaMemcpyAsync(workspace, w->data, w->n * row, cudaMemcpyDeviceToDevice, stream_of(dev)));
    CUDA_CHECK(cudaMemsetAsync(workspace + w->n * row, 0, padded - w->n * row, stream_of(dev)));
    bank = workspace;
  }
  for (int i = 0; i < pairs; i++) {
    const void *t = out[i].t.data, *x = op == CONV_FORWARD ? in[i].data : t, *y = op == CONV_FORWARD ? t : in[i].data;
    cudnn_run(dev, &plans[i], op, x, bank, y, &out[i], workspace + filter);
  }
}

static void forward(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y) {
  compute(dev, CONV_FORWARD, conv, pairs, x, w, y);
}
static void dgrad(Device *dev, const Conv *conv, int pairs, const Tensor *dy, const Tensor *w, const Dest *dx) {
  compute(dev, CONV_DGRAD, conv, pairs, dy, w, dx);
}

// db is left to the caller by whichever rung steps in, as the row of the table says.
static void wgrad_instead(const Rung *rung, Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy,
                          const FilterGrad *out) {
  FilterGrad without_db = *out;
  without_db.db = NULL;
  rung->wgrad(dev, conv, pairs, x, dy, &without_db);
}

// cuDNN's gradient of each pair is of the operands' type; their sum is float. cuDNN knows no counts, and rows past one
// hold anything at all: harmless in a row's own result, but not in a sum.
static void wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  const Tensor *dw = &out->dw;
  CudnnPlan plans[CONV_MAX_PAIRS];
  size_t raw = aligned((size_t)dy->ldc * dw->h * dw->w * dw->ldc * dtype_size(x->dtype)), cudnn_bytes = 0;
  for (int i = 0; i < pairs; i++) {
    if (x[i].count) return wgrad_instead(conv_fastest_rung(dev, CONV_WGRAD, conv, x, dw), dev, conv, pairs, x, dy, out);
    plans[i] = cudnn_plan(dev, CONV_WGRAD, conv, &x[i], dw, &dy[i], NULL, CUDNN_QUICK);
    if (!plans[i].engine.plan)
      return wgrad_instead(instead(dev, CONV_WGRAD, conv, x, dw), dev, conv, pairs, x, dy, out);
    cudnn_bytes = MAX(cudnn_bytes, cudnn_workspace(&plans[i], NULL));
  }
  char *workspace = (char *)device_workspace(dev, raw + cudnn_bytes);
  if (!workspace) return;
  for (int i = 0; i < pairs; i++) {
    cudnn_run(dev, &plans[i], CONV_WGRAD, x[i].data, workspace, dy[i].data, NULL, workspace + raw);
    unsigned eights = eights_of(dw);
    WITH_TYPE(x->dtype, T, {
      cudnn_filter_kernel<T><<<blocks_for(eights, THREADS), THREADS, 0, stream_of(dev)>>>(
          (const T *)workspace, *dw, (const float *)out->scale, out->accumulate || i, eights);
    });
    LAUNCH_CHECK();
  }
}

extern "C" const Rung rung_cudnn = {"cudnn", supports, forward, dgrad, wgrad, false, cudnn_close};
