// Rung 04, mma.sync: the gradient of the filter, dyᵀ · unrolled x, as in rung 03: pixels are cut into slots, a block adds up
// one tile over one slot, and the slots are added in order afterwards; where there is one, it goes to dw itself. Both tiles
// in shared memory have a row of channels for each pixel, which ldmatrix turns over; floats are fetched four channels at a
// time instead.
#include <limits.h>
#include <math.h>
#include "cuda/conv/filter_grad.cuh"
#include "cuda/conv/mma.cuh"
#include "cuda/conv/walk.cuh"

// ---- gathering ------------------------------------------------------------------------------------------------------

// A thread's share of dy's tile: chunks of channels of as many pixels as there are passes.
template <class Operand> struct GradientCopier {
  const uint4 *data;
  unsigned at; // chunk of the thread's first pixel
  int pixel, left;

  __device__ GradientCopier(const void *dy, int channels, int first, int channel) : data((const uint4 *)dy) {
    pixel = channels / Operand::VECTOR;
    int own = (channel + Operand::lane()) / Operand::VECTOR;
    at = (first + Operand::row(0)) * pixel + own;
    left = pixel - own;
  }
  // Pixels of the walk from `row`, the thread's own, to `end`.
  __device__ void copy(uint32_t tile, int row, int end) {
    uint32_t to = Operand::own(tile);
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++)
#pragma unroll
      for (int j = 0; j < Operand::ACROSS; j++) {
        bool inside = (row + i * Operand::ROW_STEP < end) & (8 * j < left);
        unsigned from = at + i * Operand::ROW_STEP * pixel + 8 * j;
        copy16_async(Operand::move(to, i, j), data + (inside ? from : 0u), inside);
      }
    at += Operand::DEPTH * pixel;
  }
};

// The same of x; each of a thread's chunks is under a tap of its own.
template <class Operand> struct UnrolledCopier {
  const Gather &g;
  int offset[Operand::ACROSS], y[Operand::ACROSS], x[Operand::ACROSS]; // of the tap: in chunks; where it is
  int pixel;

  __device__ UnrolledCopier(const Gather &g, int column) : g(g), pixel(g.in.ldc / Operand::VECTOR) {
#pragma unroll
    for (int j = 0; j < Operand::ACROSS; j++) {
      int own = (column + Operand::lane()) / Operand::VECTOR + 8 * j, tap = own / pixel;
      y[j] = tap / g.walk.x.taps, x[j] = tap % g.walk.x.taps;
      offset[j] = (y[j] * g.in.w + x[j]) * pixel + own % pixel;
      if (y[j] >= g.walk.y.taps) y[j] = INT_MIN / 2; // never inside
    }
  }
  __device__ void copy(uint32_t tile, int row, int end) const {
    uint32_t to = Operand::own(tile);
#pragma unroll
    for (int i = 0; i < Operand::PASSES; i++) {
      int own = row + i * Operand::ROW_STEP;
      Position at = position_of(g, own);
      int top = g.walk.y.in + g.walk.y.in_step * at.i, left = g.walk.x.in + g.walk.x.in_step * at.j;
      int base = ((at.n * g.in.h + top) * g.in.w + left) * pixel;
#pragma unroll
      for (int j = 0; j < Operand::ACROSS; j++) {
        unsigned iy = top + y[j], ix = left + x[j];
        bool inside = (own < end) & (iy < (unsigned)g.in.h) & (ix < (unsigned)g.in.w);
        copy16_async(Operand::move(to, i, j), (const uint4 *)g.in.data + (inside ? (unsigned)(base + offset[j]) : 0u),
                     inside);
      }
    }
  }
};

// ---- kernel ---------------------------------------------------------------------------------------------------------

template <class T, class Shape>
__global__ __launch_bounds__(Shape::THREADS,
                             Shape::BLOCKS) void mma_wgrad_kernel(const __grid_constant__ FilterProduct p) {
  if constexpr (AMPERE) {
    using Tile = MmaTile<T, Shape, true, true>;
    int slot = blockIdx.y, row = blockIdx.x / p.across * Shape::ROWS, column = blockIdx.x % p.across * Shape::COLUMNS;
    const FilterPart &part = filter_part(p, slot);
    int first = (slot - part.first_slot) * p.pixels, end = min(first + p.pixels, gather_rows(part.x));
    GradientCopier<typename Tile::A> gradient(part.dy, p.m, first, row);
    UnrolledCopier<typename Tile::B> pixels(part.x, column);
    MmaSum<Tile> sum;
    int steps = max(end - first + Tile::DEPTH - 1, 0) / Tile::DEPTH; // none past the count: the slot is zeros
    auto load_gradient = [&](uint32_t stage) { gradient.copy(stage, first + Tile::A::row(0), end); };
    auto load_pixels = [&](uint32_t stage) {
      pixels.copy(stage + Tile::A::BYTES, first + Tile::B::row(0), end);
      first += Tile::DEPTH;
    };
    mma_accumulate(sum, steps, load_gradient, load_pixels);
    // The sums of a slot go to its place as they are, those of the only one to dw itself.
    column += mma_store_column<Tile>();
    float *to = p.slots.data + slot * p.slots.stride + (size_t)row * p.slots.pitch + column;
    const Tensor &dw = p.out.dw;
    int c = column % dw.ldc, rows = !p.whole ? INT_MAX : column < p.slots.pitch ? dw.n : 0;
    auto nothing = [](int, float *) { return 0; };
    auto old = [&](int down) {
      bool any = p.whole && p.out.accumulate && row + down < rows;
      return any ? load8(to + (size_t)down * p.slots.pitch) : Eight{};
    };
    mma_store<2>(sum, nothing, old, [&](int down, Eight v, const Eight &before) {
      if (row + down >= rows) return;
      float factor = p.whole && p.out.scale ? ((const float *)p.out.scale)[row + down] : 1.f;
#pragma unroll
      for (int i = 0; i < 8; i++) v.v[i] = c + i < dw.c ? before.v[i] + factor * v.v[i] : 0.f;
      store8(to + (size_t)down * p.slots.pitch, v);
    });
  }
}

// ---- the choice of a tile -------------------------------------------------------------------------------------------

// rows, columns, warps down and across, blocks for which a multiprocessor has registers
using Large = MmaShape<128, 256, 2, 4, 1>;
using Square = MmaShape<128, 128, 2, 2, 2>;
using Low = MmaShape<64, 128, 1, 4, 2>;
using Thin = MmaShape<32, 128, 1, 4, 3>;

// The chip that tiles and slots are chosen for. It is not asked for: the order of a sum must not depend on it.
enum {
  MULTIPROCESSORS = 132,
  STAGE_PRODUCTS = 13,  // rows × columns of a stage that one of them computes in a cycle, at best
  STAGE_OVERHEAD = 5,   // stages' worth of filling the pipeline and writing the tile
  BYTES_A_CYCLE = 2000, // of the memory
  MOST_SLOTS = 256,
};

struct Plan {
  double cycles; // about
  int slots;
};
// `speed`: the share of Large's rate that a shape reaches where there is work enough.
template <class Shape> static Plan plan(const Device *dev, const Tensor *dw, int m, double stages, double speed) {
  int n = dw->h * dw->w * dw->ldc, tiles = blocks_for(m, Shape::ROWS) * blocks_for(n, Shape::COLUMNS);
  double stage = Shape::ROWS * Shape::COLUMNS / (STAGE_PRODUCTS * speed),
         slot = 2. * sizeof(float) * m * n / BYTES_A_CYCLE;
  Plan best = {INFINITY, 1};
  if (!mma_fits<MmaTile<float, Shape, true, true>>(dev)) return best; // as large in any type
  for (int slots = 1; slots <= MIN(MOST_SLOTS, MAX(1, (int)stages)); slots++) {
    double cycles = blocks_for((size_t)tiles * slots, MULTIPROCESSORS) * (stages / slots + STAGE_OVERHEAD) * stage;
    cycles += slots > 1 ? slots * slot : slot / 2; // written and read again; written
    if (cycles < best.cycles) best = {cycles, slots};
  }
  return best;
}

// ---- launchers ------------------------------------------------------------------------------------------------------

template <class T, class Shape> static void launch(Device *dev, const FilterProduct &p) {
  using Tile = MmaTile<T, Shape, true, true>;
  auto kernel = mma_wgrad_kernel<T, Shape>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::BYTES));
  kernel<<<dim3(p.down * p.across, p.slots.count), Shape::THREADS, Tile::BYTES, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}

template <class Shape>
static void compute(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out,
                    int slots) {
  FilterProduct p = filter_product(conv, pairs, x, dy, out, Shape::ROWS, Shape::COLUMNS, slots);
  p.out = *out, p.whole = p.slots.count == 1;
  if (p.whole)
    p.slots = {(float *)out->dw.data, 1, p.out.dw.h * p.out.dw.w * p.out.dw.ldc, 0};
  else
    p.slots.data = (float *)device_scratch(dev, slots_bytes(p.slots));
  if (dev->measuring) return;
  WITH_TYPE(x->dtype, T, { launch<T, Shape>(dev, p); });
  if (!p.whole) filter_grad_reduce(dev, p.slots, out);
}

void mma_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  const Tensor *dw = &out->dw;
  int m = dy->ldc;
  double stages = (double)filter_pixels(pairs, dy) * dtype_size(x->dtype) / 128;
  struct {
    Plan plan;
    decltype(compute<Large>) *run;
  } choices[] = {{plan<Large>(dev, dw, m, stages, 1.0), compute<Large>},
                 {plan<Square>(dev, dw, m, stages, 0.92), compute<Square>},
                 {plan<Low>(dev, dw, m, stages, 0.6), compute<Low>},
                 {plan<Thin>(dev, dw, m, stages, 0.4), compute<Thin>}},
    *best = choices;
  for (auto &c : choices)
    if (c.plan.cycles < best->plan.cycles) best = &c;
  best->run(dev, conv, pairs, x, dy, out, best->plan.slots);
}
