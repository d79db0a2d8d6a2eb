// Rung 00, mine: a template for a rung of your own; cuda/conv/README.md walks through it.
// Idea: a thread for eight channels of a pixel, like rung 01, but every load is of eight channels.
// Removes: the loads of single elements.
// Adds to the rung before: vectors of 16 bytes.
// Limit: each operand is still fetched anew for every eight results.
#include "cuda/conv/implicit_gemm.cuh"
#include "cuda/conv/ladder.h"

enum { THREADS = 256 };

// Any type and shape, forward and dgrad. Whatever is refused here goes to the highest rung that takes it.
static bool supports(Device *, ConvOp op, const Conv *, const Tensor *, const Tensor *) { return op != CONV_WGRAD; }

// Eight results += the products of k … k + 7 of a row of A: under a tap, eight channels of x with as many of each
// filter, or, backward, of dy with as many filters.
template <class T, bool BACKWARD>
__device__ __forceinline__ void multiply8(Eight &sum, const Eight &a, const Tensor &w, int tap, int k, int column) {
  int filter = BACKWARD ? k : column, channel = BACKWARD ? column : k;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    if (filter + i >= w.n) break;
    Eight b = load8((const T *)w.data + ((size_t)(filter + i) * w.h * w.w + tap) * w.ldc + channel);
#pragma unroll
    for (int j = 0; j < 8; j++) sum.v[BACKWARD ? j : i] += a.v[BACKWARD ? i : j] * b.v[j];
  }
}

// y, or dx, of one GEMM: [rows, ldc] through the epilogue. Rows run fastest over the threads, so that a warp reads the
// same filters.
template <class T, bool BACKWARD>
__global__ void mine_kernel(const __grid_constant__ GemmProblem p, const Tensor w, int rows) {
  const Im2colView &view = p.view;
  size_t thread = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  int row = (int)(thread % rows), column = (int)(thread / rows) * 8;
  if (column >= p.out.t.ldc || row >= view_rows(view)) return;
  const Im2colAxis &ys = view.im2col.y, &xs = view.im2col.x;
  Position at = position_of(view, row);
  Eight sum = {};
  for (int ty = 0; ty < ys.taps; ty++)
    for (int tx = 0; tx < xs.taps; tx++) {
      int y = ys.in + ys.in_stride * at.i + ty, x = xs.in + xs.in_stride * at.j + tx;
      if (y < 0 || y >= view.in.h || x < 0 || x >= view.in.w) continue; // in the padding
      const T *from = pixel<T>(view.in, at.n, y, x);
      int tap = filter_tap({0, ty, tx}, view, w.w);
      for (int c = 0; c < view.in.ldc; c += 8) multiply8<T, BACKWARD>(sum, load8(from + c), w, tap, c, column);
    }
  problem_store8<T>(p, row, column, sum);
}

template <bool BACKWARD>
static void launch(Device *dev, const Conv *conv, int pairs, const Tensor *in, const Tensor *w, const Dest *out) {
  if (dev->measuring) return; // device_workspace would be asked for before this line
  for_each_problem(conv, pairs, in, w, out, BACKWARD, [&](const GemmProblem &p) {
    int rows = view_capacity(p.view), blocks = blocks_for((size_t)rows * (p.out.t.ldc / 8), THREADS);
    WITH_TYPE(w->dtype, T, { mine_kernel<T, BACKWARD><<<blocks, THREADS, 0, stream_of(dev)>>>(p, *w, rows); });
    LAUNCH_CHECK();
  });
}

extern "C" const Rung rung_mine = {"mine", supports, launch<false>, launch<true>};
