// What every lesson begins with: forward as a GEMM on bf16. M are pixels of y, N its channels, K (tap, channel); A is
// the im2col matrix of x, a view, and B the filters, which lie in memory as [N, K]. Channels go by their pitch, so that
// eight neighbours of K are 16 aligned bytes under one tap; what is outside a matrix counts as zero.
#pragma once
#include "cuda/common.cuh"
#include "cuda/conv/lessons/lessons.h"

using bf16 = __nv_bfloat16;
struct LessonGemm {
  Tensor x, w;
  DestArgs y;
  Conv conv;
  int m, n, k;
};
static inline LessonGemm lesson_gemm(const Conv *conv, const Tensor *x, const Tensor *w, const Dest *y) {
  return {*x, *w, dest_args(y), *conv, (int)tensor_pixels(&y->t), y->t.ldc, w->h * w->w * w->ldc};
}
static bool lesson_supports(Device *, ConvOp op, const Conv *, const Tensor *x, const Tensor *w) {
  return op == CONV_FORWARD && w->dtype == BF16 && tensor_elements(x) >> 31 == 0; // offsets in x are int
}
// A row of A: where the first tap reads, which may be in the padding. A row past M has no tap inside.
struct RowOfA {
  int offset, y, x;
};
__device__ __forceinline__ RowOfA row_of_a(const LessonGemm &g, int row) {
  int j = row % g.y.t.w, i = row / g.y.t.w % g.y.t.h, n = row / g.y.t.w / g.y.t.h;
  int y = i * g.conv.stride - g.conv.pad, x = j * g.conv.stride - g.conv.pad;
  return {((n * g.x.h + y) * g.x.w + x) * g.x.ldc, row < g.m ? y : INT_MIN / 2, x};
}
// Elements (row, k) and (k, column) of A and B, and those that follow up to a multiple of eight; NULL: zeros.
__device__ __forceinline__ const bf16 *a_at(const LessonGemm &g, const RowOfA &row, int k) {
  int tap = k / g.w.ldc, r = tap / g.w.w, s = tap % g.w.w;
  bool inside = k < g.k && (unsigned)(row.y + r) < (unsigned)g.x.h && (unsigned)(row.x + s) < (unsigned)g.x.w;
  return inside ? (const bf16 *)g.x.data + row.offset + (r * g.x.w + s) * g.x.ldc + k % g.w.ldc : NULL;
}
__device__ __forceinline__ const bf16 *b_at(const LessonGemm &g, int k, int column) {
  return k < g.k && column < g.w.n ? (const bf16 *)g.w.data + column * g.k + k : NULL;
}
// The epilogue of C: a lane has PER neighbouring columns of a row, 8 / PER lanes the eight that one of them stores.
template <int PER> __device__ __forceinline__ void c_store(const LessonGemm &g, int row, int column, const float *v) {
  Eight all;
  for (int i = 0; i < 8; i++) all.v[i] = PER == 8 ? v[i] : __shfl_sync(~0u, v[i % PER], i / PER, 8 / PER);
  if (column % 8 || row >= g.m || column >= g.n) return;
  dest_store8<bf16>(g.y, row / g.y.t.w / g.y.t.h, row / g.y.t.w % g.y.t.h, row % g.y.t.w, column, all);
}
