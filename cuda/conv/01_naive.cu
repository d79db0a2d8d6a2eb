// Rung 01, naive: direct convolution. Idea: a thread for every eight channels of the result, which adds up their
// products one after the other.
// Removes nothing: it is the definition, and what the other rungs are checked against.
// Adds to the rung before: there is none.
// Limit: each operand is loaded anew for every eight results, one element at a time.
#include "cuda/conv/implicit_gemm.cuh"
#include "cuda/conv/ladder.h"

enum { THREADS = 256, WARP = 32 };

static bool naive_supports(Device *, ConvOp, const Conv *, const Tensor *, const Tensor *) { return true; }

// The pixel under a tap of an output pixel, or NULL in the padding.
template <class T> __device__ const T *tap_pixel(const Im2colView &view, Position at, int ty, int tx) {
  int y = view.im2col.y.in + view.im2col.y.in_stride * at.i + ty,
      x = view.im2col.x.in + view.im2col.x.in_stride * at.j + tx;
  if (y < 0 || y >= view.in.h || x < 0 || x >= view.in.w) return NULL;
  return pixel<T>(view.in, at.n, y, x);
}

// ---- kernels --------------------------------------------------------------------------------------------------------

// y, or dx, of one GEMM: [rows, ldc] through the epilogue. A thread for every eight channels of one row; rows run
// fastest over the threads, so that a warp reads each element of the filter once.
template <class T, bool BACKWARD>
__global__ void naive_kernel(const __grid_constant__ GemmProblem p, const Tensor w, int rows) {
  const Im2colView &view = p.view;
  size_t thread = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  int row = (int)(thread % rows), column = (int)(thread / rows) * 8;
  if (column >= p.out.t.ldc || row >= view_rows(view)) return;
  int channels = BACKWARD ? 8 : min(8, w.n - column);
  Position at = position_of(view, row);
  Eight acc = {};
  for (int ty = 0; ty < view.im2col.y.taps; ty++)
    for (int tx = 0; tx < view.im2col.x.taps; tx++) {
      const T *from = tap_pixel<T>(view, at, ty, tx);
      if (!from) continue;
      int tap = filter_tap({0, ty, tx}, view, w.w);
      for (int c = 0; c < view.in.c; c++) {
        float v = to_float(from[c]);
        for (int k = 0; k < channels; k++) {
          int filter = BACKWARD ? c : column + k, channel = BACKWARD ? column + k : c;
          acc.v[k] += v * to_float(((const T *)w.data)[((size_t)filter * w.h * w.w + tap) * w.ldc + channel]);
        }
      }
    }
  problem_store8<T>(p, row, column, acc);
}

// dw [k, r, s, c] (+)= scale · dyᵀ · im2col(x) of one pair. A warp for every eight channels under one tap of one
// filter: split-K over its lanes, each of which takes every 32nd pixel; the lanes' accumulators are added in a fixed
// order by shuffles.
template <class T>
__global__ void naive_wgrad_kernel(const __grid_constant__ Im2colView view, const Tensor dy, const Tensor dw,
                                   const float *scale, bool accumulate) {
  size_t warp = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
  int lane = threadIdx.x % WARP, groups = dw.ldc / 8, c = (int)(warp % groups) * 8;
  int tap = (int)(warp / groups % (dw.h * dw.w)), k = (int)(warp / groups / (dw.h * dw.w));
  if (k >= dw.n) return;
  Eight acc = {};
  for (int row = lane; row < view_rows(view); row += WARP) {
    const T *from = tap_pixel<T>(view, position_of(view, row), tap / dw.w, tap % dw.w);
    if (!from) continue;
    float d = to_float(((const T *)dy.data)[(size_t)row * dy.ldc + k]);
    Eight x = load8(from + c);
    for (int i = 0; i < 8; i++) acc.v[i] += d * x.v[i];
  }
  float *to = (float *)dw.data + warp * 8;
  for (int i = 0; i < 8; i++) {
    float v = warp_sum(acc.v[i]) * (scale ? scale[k] : 1.f);
    if (lane == 0) to[i] = c + i < dw.c ? (accumulate ? to[i] : 0.f) + v : 0.f;
  }
}

// ---- launchers ------------------------------------------------------------------------------------------------------

template <bool BACKWARD>
static void launch(Device *dev, const Conv *conv, int pairs, const Tensor *in, const Tensor *w, const Dest *out) {
  if (dev->measuring) return;
  for_each_problem(conv, pairs, in, w, out, BACKWARD, [&](const GemmProblem &p) {
    int rows = view_capacity(p.view);
    int blocks = blocks_for((size_t)rows * (p.out.t.ldc / 8), THREADS);
    WITH_TYPE(w->dtype, T, { naive_kernel<T, BACKWARD><<<blocks, THREADS, 0, stream_of(dev)>>>(p, *w, rows); });
    LAUNCH_CHECK();
  });
}

static void naive_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy,
                        const FilterGrad *out) {
  if (dev->measuring) return;
  const Tensor *dw = &out->dw;
  int blocks = blocks_for(tensor_elements(dw) / 8, THREADS / WARP);
  for (int i = 0; i < pairs; i++) {
    Im2colView view = wgrad_view(conv, &x[i], dw, &dy[i]);
    bool accumulate = out->accumulate || i;
    WITH_TYPE(x->dtype, T, {
      naive_wgrad_kernel<T>
          <<<blocks, THREADS, 0, stream_of(dev)>>>(view, dy[i], *dw, (const float *)out->scale, accumulate);
    });
    LAUNCH_CHECK();
  }
}

extern "C" const Rung rung_naive = {"naive", naive_supports, launch<false>, launch<true>, naive_wgrad};
