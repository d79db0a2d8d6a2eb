// Rung 01, naive. Idea: a thread for every eight channels of the result, which adds up their terms one after the other.
// Removes nothing: it is the definition, and what the other rungs are checked against.
// Changed since the rung before: there is none.
// Limit: each operand is fetched anew for every eight results, one element at a time.
#include "cuda/conv/ladder.h"
#include "cuda/conv/walk.cuh"

enum { THREADS = 256, WARP = 32 };

static bool naive_supports(const Device *, ConvOp, const Conv *, const Tensor *, const Tensor *) { return true; }

// The pixel under a tap at a position, or NULL outside the image.
template <class T> __device__ const T *tap_pixel(const Gather &g, Position at, int ty, int tx) {
  int y = g.walk.y.in + g.walk.y.in_step * at.i + ty, x = g.walk.x.in + g.walk.x.in_step * at.j + tx;
  if (y < 0 || y >= g.in.h || x < 0 || x >= g.in.w) return NULL;
  return pixel<T>(g.in, at.n, y, x);
}

// ---- kernels --------------------------------------------------------------------------------------------------------

// Rows run fastest over the threads, so that a warp reads each element of the filter once.
template <class T, bool BACKWARD>
__global__ void naive_kernel(const __grid_constant__ Part p, const Tensor w, int rows) {
  const Gather &g = p.gather;
  size_t thread = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  int row = (int)(thread % rows), column = (int)(thread / rows) * 8;
  if (column >= p.out.t.ldc || row >= gather_rows(g)) return;
  int lanes = BACKWARD ? 8 : min(8, w.n - column);
  Position at = position_of(g, row);
  Eight sum = {};
  for (int ty = 0; ty < g.walk.y.taps; ty++)
    for (int tx = 0; tx < g.walk.x.taps; tx++) {
      const T *from = tap_pixel<T>(g, at, ty, tx);
      if (!from) continue;
      int tap = filter_tap({0, ty, tx}, g, w.w);
      for (int c = 0; c < g.in.c; c++) {
        float v = to_float(from[c]);
        for (int k = 0; k < lanes; k++) {
          int rank = BACKWARD ? c : column + k, lane = BACKWARD ? column + k : c;
          sum.v[k] += v * to_float(((const T *)w.data)[((size_t)rank * w.h * w.w + tap) * w.ldc + lane]);
        }
      }
    }
  part_store8<T>(p, row, column, sum);
}

// A warp for every eight channels under a tap of one filter: its lanes take the pixels in turns.
template <class T>
__global__ void naive_wgrad_kernel(const __grid_constant__ Gather g, const Tensor dy, const Tensor dw,
                                   const float *scale, bool accumulate) {
  size_t warp = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
  int lane = threadIdx.x % WARP, groups = dw.ldc / 8, c = (int)(warp % groups) * 8;
  int tap = (int)(warp / groups % (dw.h * dw.w)), k = (int)(warp / groups / (dw.h * dw.w));
  if (k >= dw.n) return;
  Eight sum = {};
  for (int row = lane; row < gather_rows(g); row += WARP) {
    const T *from = tap_pixel<T>(g, position_of(g, row), tap / dw.w, tap % dw.w);
    if (!from) continue;
    float d = to_float(((const T *)dy.data)[(size_t)row * dy.ldc + k]);
    Eight x = load8(from + c);
    for (int i = 0; i < 8; i++) sum.v[i] += d * x.v[i];
  }
  float *to = (float *)dw.data + warp * 8;
  for (int i = 0; i < 8; i++) {
    float v = warp_sum(sum.v[i]) * (scale ? scale[k] : 1.f);
    if (lane == 0) to[i] = c + i < dw.c ? (accumulate ? to[i] : 0.f) + v : 0.f;
  }
}

// ---- launchers ------------------------------------------------------------------------------------------------------

template <bool BACKWARD>
static void launch(Device *dev, const Conv *conv, int pairs, const Tensor *in, const Tensor *w, const Dest *out) {
  if (dev->measuring) return;
  for_each_part(conv, pairs, in, w, out, BACKWARD, [&](const Part &p) {
    int rows = gather_capacity(p.gather);
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
    Gather g = gather_forward(conv, &x[i], dw, &dy[i]);
    bool accumulate = out->accumulate || i;
    WITH_TYPE(x->dtype, T, {
      naive_wgrad_kernel<T>
          <<<blocks, THREADS, 0, stream_of(dev)>>>(g, dy[i], *dw, (const float *)out->scale, accumulate);
    });
    LAUNCH_CHECK();
  }
}

extern "C" const Rung rung_naive = {"naive", naive_supports, launch<false>, launch<true>, naive_wgrad};
