// Implicit GEMM: the convolutions as the kernels see them. M are output pixels, N output channels, K (tap, channel) of
// the operand that is read through the im2col view of exact/im2col.h; wgrad takes the same view with its pixels as K. A
// launch is a grouped GEMM over the pairs, and the phases of a strided dgrad, which share one filter. Unlike on the
// CPU, padding channels are columns of K, too: they are zero on one side at least, and vectors of eight channels then
// never straddle a tap.
#pragma once
#include <limits.h>
#include "cuda/common.cuh"
extern "C" {
#include "exact/im2col.h"
}

enum { CONV_MAX_PAIRS = 8 };
// A dense layer's GEMM of no more rows, in TF32, is bound by reading the filter: rung 04 splits K and computes as fast
// as it is read.
enum { FEW_ROWS = 128 };

// Division by a number that is known at launch, as a multiplication and a shift (Granlund, Montgomery, "Division by
// invariant integers using multiplication", 1994). Exact for numerators below 2^31.
struct Divider {
  uint32_t by, magic, shift;
};
static inline Divider divider(uint32_t by) {
  uint32_t shift = 0;
  while ((uint64_t)1 << shift < by) shift++;
  uint64_t magic = (((uint64_t)1 << shift) - by << 32) / by + 1;
  return {by, (uint32_t)magic, shift};
}
__device__ __forceinline__ uint32_t divide(uint32_t n, const Divider &d) {
  return (__umulhi(n, d.magic) + n) >> d.shift;
}

// The im2col matrix of a tensor, as a view: [output pixels, taps · ldc].
struct Im2colView {
  Tensor in;
  Im2col im2col;
  Divider area, width; // output pixels of an image; of a row of them
};
static inline Im2colView im2col_view(const Tensor *in, const Im2col *im2col) {
  size_t rows = (size_t)in->n * im2col_area(im2col);
  CHECK(rows < ((size_t)1 << 31) - 1024 && tensor_elements(in) / (in->n ? in->n : 1) < (size_t)1 << 31);
  return {*in, *im2col, divider(im2col_area(im2col)), divider(im2col->x.size)};
}
static inline int view_columns(const Im2colView &view) { return im2col_taps(&view.im2col) * view.in.ldc; }
static inline int view_capacity(const Im2colView &view) { return view.in.n * im2col_area(&view.im2col); }

// Rows that hold data: those past the tensor's device-side count do not.
__device__ __forceinline__ int view_rows(const Im2colView &view) { return rows_of(view.in) * view.area.by; }
__device__ __forceinline__ Position position_of(const Im2colView &view, uint32_t row) {
  uint32_t n = divide(row, view.area), rest = row - n * view.area.by, i = divide(rest, view.width);
  return {(int)n, (int)i, (int)(rest - i * view.width.by)};
}

// A column of the im2col matrix, the GEMM's k: y ≥ im2col.y.taps is past the end of K.
struct KCoord {
  int c, y, x; // channel; tap
};
__device__ __forceinline__ void k_advance(KCoord &k, int by, const Im2colView &view) {
  for (k.c += by; k.c >= view.in.ldc; k.c -= view.in.ldc)
    if (++k.x == view.im2col.x.taps) {
      k.x = 0;
      k.y++;
    }
}
// Which of the filter's r × s taps it is.
__device__ __forceinline__ int filter_tap(const KCoord &k, const Im2colView &view, int s) {
  const Im2colAxis &y = view.im2col.y, &x = view.im2col.x;
  return (y.filter + k.y * y.filter_stride) * s + x.filter + k.x * x.filter_stride;
}

// One GEMM of forward or dgrad: all rows of one view, and the epilogue's destination.
struct GemmProblem {
  Im2colView view;
  DestArgs out;
  bool dense;     // row m is pixel m of the result, in the order of memory
  int first_tile; // of this GEMM among the M tiles of the group
};

// The pixel of the result that row m is.
__device__ __forceinline__ Position problem_pixel(const GemmProblem &p, int row) {
  Position at = position_of(p.view, row);
  const Im2colAxis &y = p.view.im2col.y, &x = p.view.im2col.x;
  return {at.n, y.out + y.out_stride * at.i, x.out + x.out_stride * at.j};
}
__device__ __forceinline__ int64_t problem_pixel_index(const GemmProblem &p, int row) {
  Position at = problem_pixel(p, row);
  return ((int64_t)at.n * p.out.t.h + at.i) * p.out.t.w + at.j;
}
// Epilogue for the eight channels from `column` on of one row.
template <class T>
__device__ __forceinline__ void problem_store8(const GemmProblem &p, int row, int column, const Eight &v) {
  Position at = problem_pixel(p, row);
  dest_store8<T>(p.out, at.n, at.i, at.j, column, v);
}

// Calls f(GemmProblem) for each: a pair is one GEMM forward, and stride² backward, one for each phase.
template <class F>
void for_each_problem(const Conv *conv, int pairs, const Tensor *in, const Tensor *w, const Dest *out, bool backward,
                      F f) {
  int stride = backward ? conv->stride : 1;
  for (int i = 0; i < pairs; i++)
    for (int phase = 0; phase < stride * stride; phase++) {
      const Tensor *t = &out[i].t;
      Im2col im2col = backward ? Im2col{im2col_axis_dgrad(conv, w->h, t->h, phase / stride),
                                        im2col_axis_dgrad(conv, w->w, t->w, phase % stride)}
                               : im2col_forward(conv, w, t);
      bool dense = stride == 1 && im2col.y.size == t->h && im2col.x.size == t->w;
      if (in[i].n && im2col_area(&im2col)) f(GemmProblem{im2col_view(&in[i], &im2col), dest_args(&out[i]), dense, 0});
    }
}

// What one launch computes: a grouped GEMM whose problems share the filter and N. Threadblock tiles are counted for the
// tile shape that is launched.
enum { MAX_PROBLEMS = 8 };
struct GroupedGemm {
  GemmProblem problem[MAX_PROBLEMS];
  Tensor w;
  int problems, tiles_m, tiles_n; // tiles_m: of all problems; tiles_n: of each
};
static_assert(sizeof(GroupedGemm) <= 4096, "a kernel's arguments");

static inline int grouped_tiles(const GroupedGemm &p, int rows) {
  int tiles_m = 0;
  for (int i = 0; i < p.problems; i++) tiles_m += blocks_for(view_capacity(p.problem[i].view), rows);
  return tiles_m;
}
static inline void grouped_schedule(GroupedGemm *p, int rows, int columns) {
  p->tiles_m = 0;
  p->tiles_n = blocks_for(p->problem[0].out.t.ldc, columns);
  for (int i = 0; i < MAX_PROBLEMS; i++) {
    p->problem[i].first_tile = i < p->problems ? p->tiles_m : INT_MAX;
    if (i < p->problems) p->tiles_m += blocks_for(view_capacity(p->problem[i].view), rows);
  }
}

// The threadblock tile of this block. Tiles along N are neighbours in launch order: they read the same activations, and
// find them in L2.
struct BlockTile {
  const GemmProblem &problem;
  int row, column;
};
__device__ __forceinline__ BlockTile block_tile(const GroupedGemm &p, int rows, int columns) {
  int tile_m = blockIdx.x / p.tiles_n, i = 0;
#pragma unroll
  for (int j = 1; j < MAX_PROBLEMS; j++)
    i += tile_m >= p.problem[j].first_tile; // no loop: the compiler keeps i in a uniform register
  return {p.problem[i], (tile_m - p.problem[i].first_tile) * rows, (int)(blockIdx.x % p.tiles_n) * columns};
}

// Calls f(GroupedGemm &) for as many launches as it takes.
template <class F>
void for_each_group(const Conv *conv, int pairs, const Tensor *in, const Tensor *w, const Dest *out, bool backward,
                    F f) {
  GroupedGemm p = {};
  p.w = *w;
  auto flush = [&] {
    if (p.problems) f(p);
    p.problems = 0;
  };
  for_each_problem(conv, pairs, in, w, out, backward, [&](const GemmProblem &problem) {
    if (p.problems == MAX_PROBLEMS) flush();
    p.problem[p.problems++] = problem;
  });
  flush();
}

// The view of x in wgrad, whose rows are the GEMM's K.
static inline Im2colView wgrad_view(const Conv *conv, const Tensor *x, const Tensor *w, const Tensor *y) {
  Im2col im2col = im2col_forward(conv, w, y);
  return im2col_view(x, &im2col);
}
