// What the tests of convolutions on the GPU share: who computes, what, on operands whose sums are exact.
#pragma once
#include "base/alloc.h"
#include "base/rng.h"
#include "nn/device.h"
#include "nn/rung.h"
#include "test/harness/gpu.h"
#include "test/harness/op_fixture.h"

enum { MAX_TEST_PAIRS = 3, MAX_MODES = 64 };

typedef enum ConvPass { FORWARD, DGRAD, WGRAD, CONV_PASSES } ConvPass;
static const char *const pass_names[] = {"forward", "dgrad", "wgrad"};

typedef struct Mode { // who computes
  const Rung *rung;   // NULL: the fastest of ours
  DType dtype;
  bool tf32;
} Mode;
// RACECHECKED: ours without wgmma. The quick tier runs under compute-sanitizer, whose racecheck does not see the order
// that mbarriers give to bulk copies.
typedef enum Side { OURS, RACECHECKED, WGMMA, CUDNN } Side;

static inline bool is_cudnn(const Rung *rung) { return rung && !strcmp(rung->name, "cudnn"); }

static inline bool is_on(const Rung *rung, Side side) {
  bool cudnn = is_cudnn(rung), wgmma = !strcmp(rung->name, "wgmma");
  return side == CUDNN ? cudnn : side == WGMMA ? wgmma : side == RACECHECKED ? !cudnn && !wgmma : !cudnn;
}

// Every rung in every type in which it computes an everyday problem, and, of ours, the one that is chosen unasked.
static inline int find_modes(Device *gpu, Side side, Mode modes[MAX_MODES]) {
  static const Mode types[] = {{NULL, F32, false}, {NULL, F32, true}, {NULL, BF16, false}, {NULL, F16, false}};
  int count = 0;
  if (side == OURS || side == RACECHECKED) modes[count++] = types[0];
  for (const Rung *const *rung = gpu->conv_rungs; *rung; rung++)
    for (int i = 0; i < COUNT(types) && is_on(*rung, side); i++) {
      const Tensor in = tensor(types[i].dtype, 2, 16, 16, 64), w = tensor(types[i].dtype, 64, 3, 3, 64);
      const Conv conv = {1, 1};
      gpu->tf32 = types[i].tf32;
      bool any = false; // what it leaves out goes to another one
      for (int op = 0; op < CONV_OPS; op++) any |= (*rung)->supports(gpu, (ConvOp)op, &conv, &in, &w);
      gpu->tf32 = false;
      CHECK(count < MAX_MODES);
      if (!any) continue;
      modes[count] = types[i];
      modes[count++].rung = *rung;
    }
  return count;
}

typedef struct Problem {
  Conv conv;
  int r, s, pairs, n, c, k;
  int h[MAX_TEST_PAIRS], w[MAX_TEST_PAIRS]; // of x
  int rows[MAX_TEST_PAIRS];                 // -1: no count
} Problem;

static inline int out_size(int in, int taps, const Conv *conv) {
  return (in + 2 * conv->pad - taps) / conv->stride + 1;
}

static inline void describe(const Mode *m, ConvPass pass, const Problem *p) {
  printf("  %s, dtype %d, %s: %d pairs, n %d, %d x %d taps, stride %d, pad %d, %d -> %d channels, x", //
         m->rung ? m->rung->name : "auto", m->dtype, pass_names[pass], p->pairs, p->n, p->r, p->s, p->conv.stride,
         p->conv.pad, p->c, p->k);
  for (int i = 0; i < p->pairs; i++) printf(" %d x %d (%d rows)", p->h[i], p->w[i], p->rows[i]);
  printf("\n");
}

// Whole numbers from -2 to 2.
static inline TensorPair whole(Draw *d, DType dtype, int n, int h, int w, int c) {
  size_t elements = (size_t)n * h * w * c;
  float *values = xmalloc(elements * sizeof *values);
  for (size_t i = 0; i < elements; i++) values[i] = (float)(below(d, 5) - 2);
  TensorPair t = pair_values(dtype, n, h, w, c, values);
  free(values);
  return t;
}
static inline TensorPair whole_vector(Draw *d, int c) {
  float *values = xmalloc((size_t)c * sizeof *values);
  for (int i = 0; i < c; i++) values[i] = (float)(below(d, 5) - 2);
  TensorPair t = pair_packed(1, c, values);
  free(values);
  return t;
}
static inline void count_rows(TensorPair *t, int rows) {
  if (rows >= 0) pair_rows(t, rows);
}

// The op on the GPU as the graph runs it: first asked for its workspace, then given no more than that.
#define RUN_ON_GPU(mode, op, ...)                                                                                      \
  do {                                                                                                                 \
    Device *gpu_ = gpu_device();                                                                                       \
    size_t reserved_ = gpu_->workspace_bytes;                                                                          \
    gpu_->conv_rung = (mode)->rung;                                                                                    \
    gpu_->tf32 = (mode)->tf32;                                                                                         \
    gpu_->workspace_bytes = 0;                                                                                         \
    gpu_->measuring = true;                                                                                            \
    gpu_->ops->op(gpu_, __VA_ARGS__);                                                                                  \
    gpu_->measuring = false;                                                                                           \
    CHECK(gpu_->workspace_bytes <= reserved_);                                                                         \
    gpu_->ops->op(gpu_, __VA_ARGS__);                                                                                  \
    gpu_->workspace_bytes = reserved_;                                                                                 \
    gpu_->conv_rung = NULL;                                                                                            \
    gpu_->tf32 = false;                                                                                                \
  } while (0)
