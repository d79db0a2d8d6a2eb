// Rung 04, mma.sync: forward and dgrad. Idea: the tensor cores' own instructions, so that it is known which lane holds
// what, and shared memory, registers and addresses can be laid out for it.
// Removes: padding and bank conflicts in shared memory, the addresses in the inner loop, waiting at barriers.
// Changed since the rung before: mma.sync on 64 × 64 a warp fed by ldmatrix from shuffled chunks; stages of 128 bytes;
// fragments fetched one instruction ahead, across the barrier; a thread's addresses are one sum to each of its rows.
// Limit: mma.sync itself, which reaches two thirds of what Hopper's wgmma does.
#include <math.h>
#include "cuda/conv/ladder.h"
#include "cuda/conv/mma.cuh"
#include "cuda/conv/walk.cuh"

enum { MAX_TAPS = 16 }; // of a filter, across and down

// ---- gathering ------------------------------------------------------------------------------------------------------

// How far a thread's terms move with every stage, split into channels and taps beforehand, so that no step of it divides
// or loops.
struct Hop {
  int c, y, x;
};
static Hop hop_over(const Gather &g, int terms) {
  int taps = terms / g.in.ldc, across = MAX(g.walk.x.taps, 1);
  return {terms % g.in.ldc, taps / across, taps % across};
}

// The same product with what depends on the depth of a stage.
struct MmaProduct : Product {
  Hop hop[MAX_PARTS];
};
static_assert(sizeof(MmaProduct) <= 4096, "a kernel's arguments");

__device__ __forceinline__ void column_hop(Column &k, const Hop &hop, const Gather &g) {
  k.c += hop.c;
  int carry = k.c >= g.in.ldc;
  k.c -= carry * g.in.ldc;
  k.x += hop.x + carry;
  carry = k.x >= g.walk.x.taps;
  k.x -= carry * g.walk.x.taps;
  k.y += hop.y + carry;
}
__device__ __forceinline__ Column column_at(const Gather &g, int term) {
  int tap = term / g.in.ldc, across = max(g.walk.x.taps, 1);
  return {term % g.in.ldc, tap / across, tap % across};
}

// Of the taps from `first` on along an axis of `size` pixels, those that lie inside: a bit for each.
__device__ __forceinline__ unsigned taps_inside(int first, int taps, int size) {
  int from = min(max(-first, 0), (int)MAX_TAPS), to = min(max(size - first, 0), taps);
  return (1u << to) - 1 & ~((1u << from) - 1);
}

// A thread's share of the pixels' tile: one chunk of terms under as many rows as there are passes.
template <class Operand> struct PixelCopier {
  const uint4 *data;
  int taps, pixel, image_row;       // taps down; chunks of a pixel and of a row of them
  int base[Operand::PASSES];        // chunk of the pixel under the first tap, which may lie outside
  unsigned inside[Operand::PASSES]; // the taps that do not, those across in the upper half

  __device__ PixelCopier(const Gather &g, int first)
      : data((const uint4 *)g.in.data), taps(g.walk.y.taps), pixel(g.in.ldc / Operand::VECTOR),
        image_row(g.in.w * pixel) {
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++) {
      int row = first + Operand::row(i);
      Position at = position_of(g, row);
      int y = g.walk.y.in + g.walk.y.in_step * at.i, x = g.walk.x.in + g.walk.x.in_step * at.j;
      base[i] = (at.n * g.in.h + y) * image_row + x * pixel;
      inside[i] = taps_inside(y, taps, g.in.h) | taps_inside(x, g.walk.x.taps, g.in.w) << MAX_TAPS;
      if (row >= gather_rows(g)) inside[i] = 0;
    }
  }
  __device__ void copy(uint32_t tile, const Column &k) const {
    int offset = k.y * image_row + k.x * pixel + k.c / Operand::VECTOR;
    bool term = k.y < taps;
    uint32_t to = Operand::own(tile);
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++) {
      bool here = term & (inside[i] >> (k.y & MAX_TAPS - 1) & inside[i] >> (MAX_TAPS + k.x));
      copy16_async(Operand::move(to, i, 0), data + (here ? (unsigned)(base[i] + offset) : 0u), here);
    }
  }
};

// The filter's tile forward, where a filter's terms are contiguous: rows are filters `first` …
template <class Operand> struct FilterCopier {
  const uint4 *data;
  unsigned at, per_pass; // chunk of the thread's first row; from pass to pass
  int terms, left;       // chunks of terms from the thread's on; rows from its first on

  __device__ FilterCopier(const Gather &, const Tensor &w, int first) : data((const uint4 *)w.data) {
    int all = w.h * w.w * w.ldc / Operand::VECTOR, own = Operand::lane() / Operand::VECTOR;
    at = (first + Operand::row(0)) * all + own;
    per_pass = all * Operand::ROW_STEP;
    terms = all - own;
    left = w.n - first - Operand::row(0);
  }
  __device__ void copy(uint32_t tile, const Gather &, const Hop &) {
    uint32_t to = Operand::own(tile);
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++) {
      bool inside = (terms > 0) & (i * Operand::ROW_STEP < left);
      copy16_async(Operand::move(to, i, 0), data + (inside ? at + i * per_pass : 0u), inside);
    }
    at += Operand::CHUNKS, terms -= Operand::CHUNKS;
  }
};

// Backward a filter's input channels are contiguous, from `first` on: a thread's rows are terms, output channels under one
// tap: no more than eight, a multiple of which every tap has.
template <class Operand> struct TurnedFilterCopier {
  const uint4 *data;
  int filters, left;               // chunks of input channels from the thread's first on
  int filter, origin, down, right; // chunks: to the next filter; to the walk's first tap and from there to the next
  Column own;

  __device__ TurnedFilterCopier(const Gather &g, const Tensor &w, int first)
      : data((const uint4 *)w.data), own(column_at(g, Operand::row(0))) {
    const Axis &y = g.walk.y, &x = g.walk.x;
    int tap = w.ldc / Operand::VECTOR, channel = (first + Operand::lane()) / Operand::VECTOR;
    left = tap - channel;
    filters = w.n;
    filter = w.h * w.w * tap;
    origin = (y.filter * w.w + x.filter) * tap + channel;
    down = y.filter_step * w.w * tap;
    right = x.filter_step * tap;
  }
  __device__ void copy(uint32_t tile, const Gather &g, const Hop &hop) {
    uint32_t to = Operand::own(tile);
    unsigned at = own.c * filter + origin + own.y * down + own.x * right;
    int terms = own.y < g.walk.y.taps ? filters - own.c : 0; // from the first row on
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++)
#pragma unroll
      for (int j = 0; j < Operand::ACROSS; j++) {
        bool inside = (i < terms) & (8 * j < left);
        copy16_async(Operand::move(to, i, j), data + (inside ? at + i * filter + 8 * j : 0u), inside);
      }
    column_hop(own, hop, g);
  }
};

// ---- kernel ---------------------------------------------------------------------------------------------------------

// What a tile needs of its Dest, in registers.
static __device__ __forceinline__ DestArgs dest_in_registers(const DestArgs &from) {
  DestArgs d = from;
  d.t.data = in_register(d.t.data), d.addend.data = in_register(d.addend.data);
  d.mask.data = in_register(d.mask.data), d.t.ldc = in_register(d.t.ldc), d.t.c = in_register(d.t.c);
  int flags = in_register(d.accumulate | d.relu << 1 | d.resized << 2);
  d.accumulate = flags & 1, d.relu = flags & 2, d.resized = flags & 4;
  return d;
}

// Writes the tile through the part's Dest.
template <class Tile> __device__ __forceinline__ void write_out(const TileAt &at, const MmaSum<Tile> &sum) {
  using T = typename Tile::T;
  struct Place {
    int64_t offset;
    DestReads<T> reads;
  };
  const Part &part = at.part;
  const DestArgs out = dest_in_registers(part.out);
  int column = at.column + mma_store_column<Tile>(), rows = column < out.t.ldc ? gather_rows(part.gather) : 0;
  bool dense = in_register((int)part.dense);
  Eight bias = {};
  if (out.bias) bias = dest_bias8(out, column);
  auto amend = [&](int row, float *group) {
    if (!out.resized) return false;
    row += at.row;
    if (row >= rows) return true;
    Position p = part_pixel(part, row);
    Eight v = load8(group);
    add8(v, dest_resized8<T>(part.out, p.n, p.i, p.j, column));
    store8(group, v);
    return true;
  };
  auto read = [&](int row) {
    row += at.row;
    Place place;
    if (row < rows) {
      place.offset = (dense ? row : part_pixel_index(part, row)) * out.t.ldc + column;
      place.reads = dest_read8<T>(out, place.offset);
    }
    return place;
  };
  auto write = [&](int row, Eight v, const Place &place) {
    row += at.row;
    if (row >= rows) return;
    add8(v, bias);
    dest_write8<T>(out, place.offset, column, v, place.reads);
  };
  mma_store<8 / sizeof(T)>(sum, amend, read, write);
}

template <class T, class Shape, bool BACKWARD>
__global__ __launch_bounds__(Shape::THREADS, Shape::BLOCKS) void mma_kernel(const __grid_constant__ MmaProduct p) {
  if constexpr (AMPERE) {
    using Tile = MmaTile<T, Shape, false, BACKWARD>;
    using Filter = std::conditional_t<BACKWARD, TurnedFilterCopier<typename Tile::B>, FilterCopier<typename Tile::B>>;
    TileAt at = product_tile(p, Shape::ROWS, Shape::COLUMNS);
    const Gather &g = at.part.gather;
    const Hop &hop = p.hop[&at.part - p.part];
    int steps = (g.walk.y.taps * g.walk.x.taps * g.in.ldc + Tile::DEPTH - 1) / Tile::DEPTH;
    if (at.row >= gather_rows(g)) return;
    PixelCopier<typename Tile::A> pixels(g, at.row);
    Filter filter(g, p.w, at.column);
    Column k = column_at(g, Tile::A::lane());
    MmaSum<Tile> sum;
    auto load_pixels = [&](uint32_t stage) {
      pixels.copy(stage, k);
      column_hop(k, hop, g);
    };
    auto load_filter = [&](uint32_t stage) { filter.copy(stage + Tile::A::BYTES, g, hop); };
    mma_accumulate(sum, steps, load_pixels, load_filter);
    write_out(at, sum);
  }
}

// ---- the choice of a tile -------------------------------------------------------------------------------------------

// rows, columns, warps down and across, blocks for which a multiprocessor has registers
using Large = MmaShape<128, 256, 2, 4, 1>;
using Square = MmaShape<128, 128, 2, 2, 2>;
using Thin = MmaShape<128, 32, 4, 1, 3>;
using Small = MmaShape<64, 64, 2, 2, 3>;

// Time that the busiest multiprocessor takes, in units of a product on the tensor cores. `speed`: the share of Large's
// rate that a shape reaches where there is work enough.
template <class Tile> static double estimate(const Device *dev, const Product &p, double speed) {
  int multiprocessors;
  CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, dev->index));
  int blocks = product_tiles(p, Tile::ROWS) * blocks_for(p.part[0].out.t.ldc, Tile::COLUMNS);
  double time = blocks_for(blocks, multiprocessors) * (double)(Tile::ROWS * Tile::COLUMNS) / speed;
  return mma_fits<Tile>(dev) ? time : INFINITY;
}

// ---- launchers ------------------------------------------------------------------------------------------------------

template <class T, class Shape, bool BACKWARD> static void launch_tiles(Device *dev, const Product &product) {
  using Tile = MmaTile<T, Shape, false, BACKWARD>;
  MmaProduct p = {product};
  product_cut(&p, Shape::ROWS, Shape::COLUMNS);
  for (int i = 0; i < p.parts; i++) p.hop[i] = hop_over(p.part[i].gather, Tile::DEPTH);
  auto kernel = mma_kernel<T, Shape, BACKWARD>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::BYTES));
  kernel<<<p.tiles * p.across, Shape::THREADS, Tile::BYTES, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}

struct Choice {
  double time;
  void (*launch)(Device *, const Product &);
};
template <class T, class Shape, bool BACKWARD> static Choice choice(const Device *dev, const Product &p, double speed) {
  return {estimate<MmaTile<T, Shape, false, BACKWARD>>(dev, p, speed), launch_tiles<T, Shape, BACKWARD>};
}

template <class T, bool BACKWARD> static void launch(Device *dev, const Product &p) {
  const Choice choices[] = {choice<T, Large, BACKWARD>(dev, p, 1), choice<T, Square, BACKWARD>(dev, p, 0.97),
                            choice<T, Thin, BACKWARD>(dev, p, 0.5), choice<T, Small, BACKWARD>(dev, p, 0.6)};
  const Choice *best = choices;
  for (const Choice &c : choices)
    if (c.time < best->time) best = &c;
  best->launch(dev, p);
}

template <bool BACKWARD>
static void compute(Device *dev, const Conv *conv, int pairs, const Tensor *in, const Tensor *w, const Dest *out) {
  if (dev->measuring) return;
  for_each_product(conv, pairs, in, w, out, BACKWARD,
                   [&](Product &p) { WITH_TYPE(w->dtype, T, { launch<T, BACKWARD>(dev, p); }); });
}

// TF32 is a loss of precision that has to be asked for. A filter's taps have to fit a row's mask.
static bool supports(const Device *dev, ConvOp op, const Conv *, const Tensor *in, const Tensor *w) {
  int major;
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, dev->index));
  bool few = op == CONV_WGRAD || (w->h <= MAX_TAPS && w->w <= MAX_TAPS);
  return major >= 8 && few && (in->dtype != F32 || dev->tf32);
}

extern "C" const Rung rung_mma = {"mma", supports, compute<false>, compute<true>, mma_wgrad};
