// A convolution as matrix products, for the kernels: the walk of exact/im2col.h, whose rows are pixels of the result and
// whose columns are (tap, channel) of what is read, together with the tensors that it joins. Unlike on the CPU, padding
// lanes are columns too: they are zero on one side at least, and vectors of eight then never straddle a tap.
#pragma once
#include <limits.h>
#include "cuda/common.cuh"
extern "C" {
#include "exact/im2col.h"
}

enum { CONV_MAX_PAIRS = 8 };

// Quotients by a number that is known at launch, as a product and a shift (Granlund, Montgomery, "Division by invariant
// integers using multiplication", 1994). Exact for numerators below 2^31.
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

// What is read: the pixels of one tensor along one walk.
struct Gather {
  Tensor in;
  Walk walk;
  Divider area, width; // positions of an image; of a row of them
};
static inline Gather gather(const Tensor *in, const Walk *walk) {
  size_t rows = (size_t)in->n * walk_area(walk);
  CHECK(rows < ((size_t)1 << 31) - 1024 && tensor_elements(in) / (in->n ? in->n : 1) < (size_t)1 << 31);
  return {*in, *walk, divider(walk_area(walk)), divider(walk->x.size)};
}
// Whether a walk's positions under its only tap are the pixels of x, in order.
static inline bool walk_is_dense(const Walk *w, const Tensor *x) {
  auto whole = [](const Axis &a, int size) { return a.taps == 1 && !a.in && a.in_step == 1 && a.size == size; };
  return whole(w->y, x->h) && whole(w->x, x->w);
}
static inline int gather_columns(const Gather &g) { return walk_taps(&g.walk) * g.in.ldc; }
static inline int gather_capacity(const Gather &g) { return g.in.n * walk_area(&g.walk); }

// Rows that hold data.
__device__ __forceinline__ int gather_rows(const Gather &g) { return rows_of(g.in) * g.area.by; }
__device__ __forceinline__ Position position_of(const Gather &g, uint32_t row) {
  uint32_t n = divide(row, g.area), rest = row - n * g.area.by, i = divide(rest, g.width);
  return {(int)n, (int)i, (int)(rest - i * g.width.by)};
}

// A column of the unrolled operand; y ≥ walk.y.taps: past the end.
struct Column {
  int c, y, x; // channel; tap of the walk
};
__device__ __forceinline__ void column_advance(Column &k, int by, const Gather &g) {
  for (k.c += by; k.c >= g.in.ldc; k.c -= g.in.ldc)
    if (++k.x == g.walk.x.taps) k.x = 0, k.y++;
}
// Which of the filter's r × s taps it meets.
__device__ __forceinline__ int filter_tap(const Column &k, const Gather &g, int s) {
  const Axis &y = g.walk.y, &x = g.walk.x;
  return (y.filter + k.y * y.filter_step) * s + x.filter + k.x * x.filter_step;
}

// One product of forward or dgrad: all positions of one walk of one pair.
struct Part {
  Gather gather;
  DestArgs out;
  bool dense;     // its rows are all pixels of the result, in the order of memory
  int first_tile; // of this part, where one launch computes several
};

// The pixel of the result at a row.
__device__ __forceinline__ Position part_pixel(const Part &p, int row) {
  Position at = position_of(p.gather, row);
  const Axis &y = p.gather.walk.y, &x = p.gather.walk.x;
  return {at.n, y.out + y.out_step * at.i, x.out + x.out_step * at.j};
}
__device__ __forceinline__ int64_t part_pixel_index(const Part &p, int row) {
  Position at = part_pixel(p, row);
  return ((int64_t)at.n * p.out.t.h + at.i) * p.out.t.w + at.j;
}
// The eight channels from `column` there.
template <class T> __device__ __forceinline__ void part_store8(const Part &p, int row, int column, const Eight &v) {
  Position at = part_pixel(p, row);
  dest_store8<T>(p.out, at.n, at.i, at.j, column, v);
}

// Calls f(Part) for each: a pair is one part forward, and one for each of the stride² phases backward.
template <class F>
void for_each_part(const Conv *conv, int pairs, const Tensor *in, const Tensor *w, const Dest *out, bool backward,
                   F f) {
  int stride = backward ? conv->stride : 1;
  for (int i = 0; i < pairs; i++)
    for (int phase = 0; phase < stride * stride; phase++) {
      const Tensor *t = &out[i].t;
      Walk walk = backward ? Walk{axis_backward(conv, w->h, t->h, phase / stride),
                                  axis_backward(conv, w->w, t->w, phase % stride)}
                           : Walk{axis_forward(conv, w->h, t->h), axis_forward(conv, w->w, t->w)};
      bool dense = stride == 1 && walk.y.size == t->h && walk.x.size == t->w;
      if (in[i].n && walk_area(&walk)) f(Part{gather(&in[i], &walk), dest_args(&out[i]), dense, 0});
    }
}

// What one launch computes: tiles of so many rows and columns of its parts' results.
enum { MAX_PARTS = 8 };
struct Product {
  Part part[MAX_PARTS];
  Tensor w;
  int parts, tiles, across; // tiles: down, of all parts; across: of each
};
static_assert(sizeof(Product) <= 4096, "a kernel's arguments");

static inline int product_tiles(const Product &p, int rows) {
  int tiles = 0;
  for (int i = 0; i < p.parts; i++) tiles += blocks_for(gather_capacity(p.part[i].gather), rows);
  return tiles;
}
static inline void product_cut(Product *p, int rows, int columns) {
  p->tiles = 0;
  p->across = blocks_for(p->part[0].out.t.ldc, columns);
  for (int i = 0; i < MAX_PARTS; i++) {
    p->part[i].first_tile = i < p->parts ? p->tiles : INT_MAX;
    if (i < p->parts) p->tiles += blocks_for(gather_capacity(p->part[i].gather), rows);
  }
}

// The tile of this block. Those that share rows of pixels are neighbours in the order of blocks, and find them in L2.
struct TileAt {
  const Part &part;
  int row, column;
};
__device__ __forceinline__ TileAt product_tile(const Product &p, int rows, int columns) {
  int down = blockIdx.x / p.across, i = 0;
#pragma unroll
  for (int j = 1; j < MAX_PARTS; j++) i += down >= p.part[j].first_tile; // no loop: the compiler keeps i uniform
  return {p.part[i], (down - p.part[i].first_tile) * rows, (int)(blockIdx.x % p.across) * columns};
}

// Calls f(Product &) for as many launches as it takes.
template <class F>
void for_each_product(const Conv *conv, int pairs, const Tensor *in, const Tensor *w, const Dest *out, bool backward,
                      F f) {
  Product p = {};
  p.w = *w;
  auto flush = [&] {
    if (p.parts) f(p);
    p.parts = 0;
  };
  for_each_part(conv, pairs, in, w, out, backward, [&](const Part &part) {
    if (p.parts == MAX_PARTS) flush();
    p.part[p.parts++] = part;
  });
  flush();
}

// The unrolled x of wgrad.
static inline Gather gather_forward(const Conv *conv, const Tensor *x, const Tensor *w, const Tensor *y) {
  Walk walk = {axis_forward(conv, w->h, y->h), axis_forward(conv, w->w, y->w)};
  return gather(x, &walk);
}
