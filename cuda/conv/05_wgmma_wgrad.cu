// Rung 05, wgmma: the gradient of the filter, dyᵀ · unrolled x, a sum over pixels. Both operands lie in memory with a
// pixel's channels together: pixels are the rows of both tiles in shared memory, and wgmma turns them over. A tile of the
// result is some output channels by some panels, a panel being 64 channels of x under one tap. The pixels are cut into
// slots, so that there are blocks for the whole GPU; each block adds up one tile over one slot, and a second kernel adds
// the slots in order.
//
// Neighbouring taps read the same pixels, one further on. Where the stride is 1, the panels of a tile can therefore be one
// patch of shared memory, each beginning a pixel after the one before, and x is fetched once for a row of the filter. For
// that the walk over the pixels takes as many more positions to a row as it needs zeros between the rows of x; dy is zero
// there.
#include "cuda/conv/ladder.h"
#include "cuda/conv/wgmma.cuh"

enum {
  SPREAD = 132, // blocks at once: an H200's multiprocessors, assumed on every GPU, so that the bits are the same
  DEPTH = 64,   // pixels of a stage
  PANEL = 64,   // channels: a swizzled row of 16-bit elements
  PANEL_BYTES = DEPTH * SWIZZLE_ROW,
  THREADS = CONSUMERS * WARPGROUP, // that multiply
  WARP = 32,
  MANY_SLOTS = 24, // from here on several threads share an element of the reduction
};

struct FilterPart {
  CUtensorMap dy, x;
  Gather at;   // x as the maps see it
  Tensor rows; // whose count says how many rows hold data
  int area;    // positions of such a row
};
struct FilterProduct {
  FilterPart part[CONV_MAX_PAIRS];
  int parts, slots;
  int r, s, panels; // the filter's taps; panels in all
  bool shared;      // the panels of a tile are one patch
  Tensor dw;
  const float *scale;
  float *db; // NULL: nobody asked
  bool accumulate;
  float4 *partial; // [slots, tiles, fragments of a tile, threads]; NULL: the only slot's sums go to dw
  float *sums;     // [slots, tiles across, rows of all tiles]: dy summed up by channel
};
static_assert(sizeof(FilterProduct) <= 32764, "a kernel's arguments");

// ROWS output channels by PANELS, of one block. The warpgroups share the rows, or the panels where the rows are few. A
// fragment is what a thread has of eight columns: two of one row, and two of the row eight below.
template <int ROWS_, int PANELS_> struct FilterTile {
  static constexpr int ROWS = ROWS_, PANELS = PANELS_;
  static constexpr bool WIDE = ROWS == WGMMA_ROWS; // the warpgroups share the panels
  static constexpr int DOWN = WIDE ? 1 : ROWS / (CONSUMERS * WGMMA_ROWS), ACROSS = WIDE ? PANELS / CONSUMERS : PANELS;
  static constexpr int COLUMNS = ACROSS * PANEL, GROUPS = COLUMNS / 8, FRAGMENTS = DOWN * GROUPS; // of a warpgroup
  static constexpr int A_PANELS = ROWS / PANEL, A_BYTES = A_PANELS * PANEL_BYTES;
  static constexpr int STAGE = A_BYTES + PANELS * PANEL_BYTES, ALL_STAGES = (MAX_SHARED - 2 * SWIZZLE_ATOM) / STAGE;
  static constexpr int STAGES = ALL_STAGES < 8 ? ALL_STAGES : 8, BYTES = STAGES * STAGE + SWIZZLE_ATOM;
  static constexpr int PITCH = PANELS * PANEL + 8; // of the sums in shared memory: four rows lie in different banks
  static_assert(STAGES >= 4 && DOWN >= 1 && ACROSS * (WIDE ? CONSUMERS : 1) == PANELS);
  static_assert(ROWS * PITCH * sizeof(float) <= STAGES * STAGE);
};

// ---- what is where ----------------------------------------------------------------------------------------------------

struct Panel {
  int c, y, x; // first channel, tap
};
// Taps of a row are neighbours. Past the last panel there are no channels.
__device__ __forceinline__ Panel panel_of(const FilterProduct &p, int panel) {
  int row = panel / p.s;
  return {row / p.r * PANEL, row % p.r, panel - row * p.s};
}

// The stages of a slot. Those of all parts stand in a row, which the slots cut into equal shares.
struct Turn {
  int part, first; // position of the part
  int positions;   // of the part that hold data
  int left;        // stages of the slot, from this one on

  __device__ static int positions_of(const FilterPart &part) { return rows_of(part.rows) * part.area; }
  __device__ Turn(const FilterProduct &p, int slot) {
    int all = 0;
    for (int i = 0; i < p.parts; i++) all += (positions_of(p.part[i]) + DEPTH - 1) / DEPTH;
    int begin = (int)((int64_t)all * slot / p.slots);
    left = (int)((int64_t)all * (slot + 1) / p.slots) - begin;
    part = -1, first = 0, positions = 0;
    for (int skipped = 0; skipped <= begin && left; skipped += (positions + DEPTH - 1) / DEPTH) {
      first = (begin - skipped) * DEPTH;
      positions = positions_of(p.part[++part]);
    }
  }
  __device__ __forceinline__ void advance(const FilterProduct &p) {
    left--, first += DEPTH;
    while (first >= positions && left) first = 0, positions = positions_of(p.part[++part]);
  }
};

// ---- fetching ---------------------------------------------------------------------------------------------------------

template <class Tile>
__device__ void fetch(const FilterProduct &p, RingBarriers<Tile::STAGES> &barriers, uint32_t stages) {
  Ring<Tile::STAGES> ring(barriers);
  bool shared = p.shared;
  int bytes = Tile::A_BYTES + (shared ? (DEPTH + Tile::PANELS - 1) * SWIZZLE_ROW : Tile::PANELS * PANEL_BYTES);
  Panel panel[Tile::PANELS];
#pragma unroll
  for (int i = 0; i < Tile::PANELS; i++) panel[i] = panel_of(p, blockIdx.x * Tile::PANELS + i);
  for (Turn turn(p, blockIdx.z); turn.left; turn.advance(p)) {
    const FilterPart &part = p.part[turn.part];
    const Walk &walk = part.at.walk;
    Position at = position_of(part.at, turn.first);
    int y = walk.y.in + walk.y.in_step * at.i, x = walk.x.in + walk.x.in_step * at.j;
    uint32_t a = stages + ring.stage * Tile::STAGE, b = a + Tile::A_BYTES;
    ring.wait_empty();
    barrier_expect(ring.full, bytes);
#pragma unroll
    for (int i = 0; i < Tile::A_PANELS; i++)
      tma_load_pixels(a + i * PANEL_BYTES, &part.dy, ring.full, blockIdx.y * Tile::ROWS + i * PANEL, at.j, at.i, at.n,
                      0, 0);
#pragma unroll
    for (int i = 0; i < Tile::PANELS; i++)
      if (i == 0 || !shared)
        tma_load_pixels(b + i * PANEL_BYTES, &part.x, ring.full, panel[i].c, x, y, at.n, panel[i].x, panel[i].y);
    ring.advance();
  }
}

// ---- multiplying ------------------------------------------------------------------------------------------------------

// All threads that multiply, through a barrier of their own.
__device__ __forceinline__ void consumers_sync() {
  asm volatile("bar.sync %0, %1;" ::"n"(1 + CONSUMERS), "n"((int)THREADS) : "memory");
}
// Rows `first` … `end` of a panel become zero.
__device__ __forceinline__ void clear_rows(uint32_t panel, int first, int end) {
  for (int i = first * SWIZZLE_ROW / 16 + threadIdx.x; i < end * SWIZZLE_ROW / 16; i += THREADS)
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(panel + i * 16), "r"(0) : "memory");
}
// A stage of which only the first `rows` pixels hold data: there is anything in the others, NaN too.
template <class Tile> __device__ __forceinline__ void clear_tail(uint32_t stage, int rows, bool shared) {
  uint32_t b = stage + Tile::A_BYTES;
  for (int i = 0; i < Tile::A_PANELS; i++) clear_rows(stage + i * PANEL_BYTES, rows, DEPTH);
  if (shared)
    clear_rows(b, rows, DEPTH + Tile::PANELS - 1);
  else
    for (int i = 0; i < Tile::PANELS; i++) clear_rows(b + i * PANEL_BYTES, rows, DEPTH);
  shared_write_fence();
  consumers_sync();
}

// A column of ones beside x: what a channel of dy meets there adds up to its bias's gradient.
template <class T> struct Ones {
  static constexpr int COLUMNS = 8; // the fewest of a wgmma
  T v[COLUMNS * WGMMA_TERMS];
};

template <class Tile> struct FilterSum { float filter[Tile::DOWN][Tile::COLUMNS / 2], bias[Tile::DOWN][4]; };

template <class T, class Tile>
__device__ __forceinline__ void multiply(FilterSum<Tile> &sum, const FilterProduct &p,
                                         RingBarriers<Tile::STAGES> &barriers, uint32_t stages, const Ones<T> &ones) {
  constexpr int STEP = WGMMA_TERMS * SWIZZLE_ROW;
  Ring<Tile::STAGES> ring(barriers);
  int warpgroup = threadIdx.x / WARPGROUP;
  bool shared = p.shared, sums = p.sums;
  int apart = shared ? SWIZZLE_ROW : PANEL_BYTES;
  uint32_t a0 = Tile::WIDE ? 0 : warpgroup * Tile::DOWN * PANEL_BYTES;
  uint32_t b0 = Tile::A_BYTES + (Tile::WIDE ? warpgroup * Tile::ACROSS * apart : 0);
  uint64_t column = small_descriptor(kept_address(ones.v));
  bool tells = threadIdx.x % WARPGROUP == 0;
  uint32_t before = 0; // the barrier at which this thread tells that the stage before is free again
  auto release = [&] {
    if (before) barrier_arrive_at(before);
  };
  for (Turn turn(p, blockIdx.z); turn.left; turn.advance(p)) {
    uint32_t stage = stages + ring.stage * Tile::STAGE;
    int rows = turn.positions - turn.first;
    ring.wait_full();
    if (rows < DEPTH) clear_tail<Tile>(stage, rows, shared);
    uint64_t a = tile_descriptor(stage + a0), b = tile_descriptor(stage + b0, apart);
    if (sums && turn.first / DEPTH % gridDim.x == blockIdx.x) { // tiles side by side take turns
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < DEPTH / WGMMA_TERMS; i++)
#pragma unroll
        for (int j = 0; j < Tile::DOWN; j++)
          wgmma<T, Ones<T>::COLUMNS, false, true>(sum.bias[j], a + ((j * PANEL_BYTES + i * STEP) >> 4), column, true);
    }
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < DEPTH / WGMMA_TERMS; i++)
#pragma unroll
      for (int j = 0; j < Tile::DOWN; j++)
        wgmma<T, Tile::COLUMNS, true, true>(sum.filter[j], a + ((j * PANEL_BYTES + i * STEP) >> 4), b + (i * STEP >> 4),
                                            true);
    wgmma_commit();
    wgmma_wait<1>();
    release(); // the products that read the stage before are done
    before = tells ? ring.empty : 0;
    ring.advance();
  }
  wgmma_wait<0>();
  release();
}

// ---- writing ----------------------------------------------------------------------------------------------------------

template <int N> struct alignas(4 * N) Floats { float v[N]; };

// dw (+)= scale · v in row k for channels c … of a panel.
template <int N>
__device__ __forceinline__ void store(const FilterProduct &p, int k, const Panel &panel, int c, Floats<N> v) {
  c += panel.c;
  if (k >= p.dw.n || c >= p.dw.ldc) return;
  Floats<N> *to = (Floats<N> *)(pixel<float>(p.dw, k, panel.y, panel.x) + c), old = {};
  if (p.accumulate) old = *to;
  float factor = p.scale ? p.scale[k] : 1.f;
#pragma unroll
  for (int i = 0; i < N; i++) v.v[i] = c + i < p.dw.c ? old.v[i] + factor * v.v[i] : 0.f;
  *to = v;
}

// The first element of a thread's fragment in its tile.
struct TilePlace {
  int row, column;
};
template <class Tile> __device__ __forceinline__ TilePlace place_of(int fragment, int thread) {
  int warpgroup = thread / WARPGROUP, group = fragment % Tile::GROUPS, lane = thread % WARP;
  int wgmma = (Tile::WIDE ? 0 : warpgroup * Tile::DOWN) + fragment / Tile::GROUPS;
  return {wgmma * WGMMA_ROWS + thread % WARPGROUP / WARP * 16 + lane / 4,
          (Tile::WIDE ? warpgroup * Tile::COLUMNS : 0) + group * 8 + lane % 4 * 2};
}

template <class Tile> __device__ __forceinline__ float4 fragment_of(const FilterSum<Tile> &sum, int fragment) {
  const float *v = sum.filter[fragment / Tile::GROUPS] + fragment % Tile::GROUPS * 4;
  return make_float4(v[0], v[1], v[2], v[3]);
}

// One slot of several: as registers hold it, so that a warp writes whole lines.
template <class Tile>
__device__ __forceinline__ void write_partial(const FilterProduct &p, const FilterSum<Tile> &sum) {
  size_t tile = ((size_t)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  float4 *to = p.partial + tile * Tile::FRAGMENTS * THREADS + threadIdx.x;
#pragma unroll
  for (int i = 0; i < Tile::FRAGMENTS; i++) to[i * THREADS] = fragment_of(sum, i);
}
// The only slot: to dw, by rows, which shared memory puts together.
template <class Tile>
__device__ __forceinline__ void write_filter(const FilterProduct &p, const FilterSum<Tile> &sum, float *tile) {
  constexpr int LANES = PANEL / 4; // of a row of a panel
  consumers_sync();                // nobody reads the stages any more
#pragma unroll
  for (int i = 0; i < Tile::FRAGMENTS; i++) {
    float4 v = fragment_of(sum, i);
    TilePlace at = place_of<Tile>(i, threadIdx.x);
    float *to = tile + at.row * Tile::PITCH + at.column;
    *(float2 *)to = make_float2(v.x, v.y);
    *(float2 *)(to + 8 * Tile::PITCH) = make_float2(v.z, v.w);
  }
  consumers_sync();
  for (int i = 0; i < Tile::PANELS; i++) {
    Panel panel = panel_of(p, blockIdx.x * Tile::PANELS + i);
    int c = threadIdx.x % LANES * 4;
    for (int row = threadIdx.x / LANES; row < Tile::ROWS; row += THREADS / LANES)
      store(p, blockIdx.y * Tile::ROWS + row, panel, c, *(const Floats<4> *)(tile + row * Tile::PITCH + i * PANEL + c));
  }
}
template <class Tile> __device__ __forceinline__ void write_sums(const FilterProduct &p, const FilterSum<Tile> &sum) {
  int warpgroup = threadIdx.x / WARPGROUP;
  if (threadIdx.x % 4 || (Tile::WIDE && warpgroup)) return; // others hold the same
  float *to = p.sums + ((size_t)(blockIdx.z * gridDim.x + blockIdx.x) * gridDim.y + blockIdx.y) * Tile::ROWS;
#pragma unroll
  for (int i = 0; i < Tile::DOWN; i++) {
    int row = place_of<Tile>(i * Tile::GROUPS, threadIdx.x).row;
    to[row] = sum.bias[i][0], to[row + 8] = sum.bias[i][2];
  }
}

// ---- kernels ----------------------------------------------------------------------------------------------------------

template <class T, class Tile>
__global__ __launch_bounds__(WGMMA_THREADS, 1) void wgmma_wgrad_kernel(const __grid_constant__ FilterProduct p) {
  if constexpr (HAS_WGMMA) {
    __shared__ RingBarriers<Tile::STAGES> ring;
    __shared__ alignas(128) Ones<T> ones;
    uint32_t begin = kept_address(dynamic_shared()), stages = (begin + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    follower_start();
    if (threadIdx.x == THREADS)
      for (int i = 0; i < p.parts; i++) tma_prefetch_map(&p.part[i].dy), tma_prefetch_map(&p.part[i].x);
    if (threadIdx.x == 0) {
      for (int i = 0; i < Tile::STAGES; i++) {
        barrier_init(kept_address(&ring.full[i]), 1);
        barrier_init(kept_address(&ring.empty[i]), CONSUMERS);
      }
      barrier_init_fence();
    }
    if (threadIdx.x < COUNT(ones.v)) ones.v[threadIdx.x] = from_float<T>(1.f);
    shared_write_fence();
    __syncthreads();
    if (threadIdx.x >= THREADS) {
      registers_give<FETCH_REGISTERS>();
      if (threadIdx.x == THREADS) fetch<Tile>(p, ring, stages);
    } else {
      registers_take<MULTIPLY_REGISTERS>();
      FilterSum<Tile> sum = {};
      multiply<T, Tile>(sum, p, ring, stages, ones);
      if (p.sums) write_sums(p, sum);
      if (p.partial)
        write_partial(p, sum);
      else
        write_filter(p, sum, (float *)(dynamic_shared() + (stages - begin)));
    }
  }
}

// What the reduction adds up: `count` arrays of `stride` times four floats.
struct Stack {
  const float4 *data;
  size_t stride;
  int count;
};

// dw (+)= scale · Σ slots, and behind it db (+)= Σ slots. Threads (x, 0 … y) share an element, and their interleaved sums
// are added in order.
template <class Tile>
__global__ void wgmma_wgrad_reduce_kernel(const __grid_constant__ FilterProduct p, int across, Stack filter,
                                          Stack bias) {
  __shared__ float4 part[THREADS];
  size_t index = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  bool is_bias = index >= filter.stride;
  if (is_bias) index -= filter.stride;
  const float4 *data = is_bias ? bias.data : filter.data;
  size_t stride = is_bias ? bias.stride : filter.stride;
  int count = is_bias ? bias.count : filter.count;
  float4 sum = {};
  auto add = [&](const float4 &f) { sum.x += f.x, sum.y += f.y, sum.z += f.z, sum.w += f.w; };
  if constexpr (HAS_WGMMA) follower_wait();
  if (index < stride)
#pragma unroll 8
    for (int i = threadIdx.y; i < count; i += blockDim.y) add(data[i * stride + index]);
  if (blockDim.y > 1) {
    part[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y) return;
    for (int i = 1; i < blockDim.y; i++) add(part[i * blockDim.x + threadIdx.x]);
  }
  if (index >= stride) return;
  if (!is_bias) {
    int fragment = (int)(index / THREADS), tile = fragment / Tile::FRAGMENTS;
    TilePlace at = place_of<Tile>(fragment % Tile::FRAGMENTS, (int)(index % THREADS));
    int k = tile / across * Tile::ROWS + at.row;
    Panel panel = panel_of(p, tile % across * Tile::PANELS + at.column / PANEL);
    store<2>(p, k, panel, at.column % PANEL, {sum.x, sum.y});
    store<2>(p, k + 8, panel, at.column % PANEL, {sum.z, sum.w});
  } else {
    float v[] = {sum.x, sum.y, sum.z, sum.w};
    for (int i = 0, k = 4 * (int)index; i < 4 && k < p.dw.n; i++, k++) p.db[k] = (p.accumulate ? p.db[k] : 0.f) + v[i];
  }
}

// ---- launchers --------------------------------------------------------------------------------------------------------

template <class T, class Tile> static void launch_tiles(Device *dev, FilterProduct &p) {
  dim3 grid(blocks_for(p.panels, Tile::PANELS), blocks_for(p.dw.n, Tile::ROWS), p.slots);
  size_t tiles = (size_t)grid.x * grid.y * Tile::FRAGMENTS * THREADS, rows = (size_t)grid.y * Tile::ROWS / 4;
  Stack filter = {NULL, p.slots > 1 ? tiles : 0, p.slots}, bias = {NULL, p.db ? rows : 0, (int)(p.slots * grid.x)};
  size_t stacked = filter.count * filter.stride + bias.count * bias.stride;
  float4 *scratch = stacked ? (float4 *)device_scratch(dev, stacked * sizeof(float4)) : NULL;
  if (dev->measuring) return;
  if (filter.stride) filter.data = p.partial = scratch;
  if (bias.stride) bias.data = scratch + filter.count * filter.stride, p.sums = (float *)bias.data;
  auto kernel = wgmma_wgrad_kernel<T, Tile>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::BYTES));
  kernel<<<grid, WGMMA_THREADS, Tile::BYTES, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
  if (!stacked) return;
  dim3 block(THREADS);
  if (p.slots >= MANY_SLOTS || !filter.stride) block = dim3(WARP, THREADS / WARP);
  cudaLaunchAttribute follow = {};
  follow.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  follow.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks_for(filter.stride + bias.stride, block.x);
  config.blockDim = block;
  config.stream = stream_of(dev);
  config.attrs = &follow;
  config.numAttrs = 1;
  CUDA_CHECK(cudaLaunchKernelEx(&config, wgmma_wgrad_reduce_kernel<Tile>, p, (int)grid.x, filter, bias));
}

// How a product is cut up.
struct Choice {
  int rows, panels; // of a tile
  void (*launch)(Device *dev, FilterProduct &p);
};
struct FilterWork {
  double stages[2]; // of all slots; if panels share a patch
  double megabytes; // of both operands
  bool shareable;
};

// What a product takes, in microseconds, with figures that fit the measurements of all layers on an H200 to a tenth. A
// stage is bound by the tensor cores or by what a multiprocessor gets from L2 (100 KB), all stages together by that or by
// memory (4 MB); what is not the bound costs a share nevertheless. Blocks write their sums at 3.5 MB, and they are read
// again at 10. A wave of blocks takes 2 to start, the reduction 3.
static double cost_of(const FilterProduct &p, const FilterWork &work, const Choice &c, bool shared, int slots) {
  auto bound = [](double a, double b) { return MAX(a, b) + 0.15 * MIN(a, b); };
  double blocks = (double)blocks_for(p.panels, c.panels) * blocks_for(p.dw.n, c.rows) * slots;
  double waves = ceil(blocks / SPREAD), sums = c.rows * c.panels * PANEL * 4e-6; // megabytes of a block
  double multiply = c.rows * c.panels * 1.1e-3, load = (c.rows + (shared ? 1 : c.panels) * PANEL) * SWIZZLE_ROW / 100e3;
  double loop = waves * ceil(work.stages[shared] / slots) * bound(multiply, load);
  double write = MIN(blocks, SPREAD) * sums / 3.5 + (slots > 1 ? 0 : 2),
         reduce = slots > 1 ? 3 + blocks * sums / 10 : 0;
  return waves * (2 + write) + bound(loop, work.megabytes / 4) + reduce;
}

// Chooses, and leaves the rest of the choice in p.
template <class T> static const Choice *choose(FilterProduct &p, const FilterWork &work) {
#define CHOICE(rows, panels)                                                                                           \
  { rows, panels, launch_tiles<T, FilterTile<rows, panels>> }
  static const Choice choices[] = {CHOICE(256, 3), CHOICE(256, 2), CHOICE(128, 3),
                                   CHOICE(128, 2), CHOICE(64, 4),  CHOICE(64, 2)};
#undef CHOICE
  const Choice *best = NULL;
  double least = INFINITY;
  for (const Choice &c : choices)
    for (int shared = 0; shared <= (work.shareable && p.s == c.panels); shared++)
      for (int slots = 1; slots <= MAX(1, MIN(work.stages[shared], 2 * SPREAD)); slots++) {
        double cost = cost_of(p, work, c, shared, slots);
        if (cost < least) least = cost, best = &c, p.shared = shared, p.slots = slots;
      }
  return best;
}

static bool is_dense(const Walk &w, const Tensor *x) {
  auto whole = [](const Axis &a, int size) { return a.taps == 1 && !a.in && a.in_step == 1 && a.size == size; };
  return whole(w.y, x->h) && whole(w.x, x->w);
}
// Zeros that the walk needs between two rows, so that a tap that leaves a row on the right meets zeros.
static int gap_of(const Conv *conv, const Tensor *dw) { return MAX(dw->w - 1 - conv->pad, 0); }

// The positions that a pair walks over. Where all pixels are read in order, they are one row.
static Walk walk_pair(const Conv *conv, Tensor *x, Tensor *dy, const Tensor *dw, bool shared) {
  Walk walk = {axis_forward(conv, dw->h, dy->h), axis_forward(conv, dw->w, dy->w)};
  if (shared) walk.x.size += gap_of(conv, dw);
  if (!is_dense(walk, x)) return walk;
  for (Tensor *t : {x, dy}) t->w *= t->n * t->h, t->n = t->h = 1;
  walk.y.size = 1, walk.x.size = x->w;
  return walk;
}

static FilterPart map_pair(const Conv *conv, Tensor x, Tensor dy, const FilterProduct &p, int panels) {
  FilterPart part = {};
  part.rows = dy;
  Walk walk = walk_pair(conv, &x, &dy, &p.dw, p.shared), steps = walk;
  part.at = gather(&x, &walk);
  part.area = gather_capacity(part.at) / part.rows.n;
  part.x = map_pixels(part.at, DEPTH + (p.shared ? panels - 1 : 0));
  steps.y.in = steps.x.in = 0, steps.y.in_step = steps.x.in_step = 1;
  part.dy = map_pixels(gather(&dy, &steps), DEPTH);
  return part;
}

static FilterWork work_of(const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const Tensor *dw) {
  FilterWork work = {};
  work.shareable = conv->stride == 1 && dw->w > 1;
  for (int i = 0; i < pairs; i++) {
    double rows = (double)dy[i].n * dy[i].h, read = (double)dw->h * dw->w * tensor_pixels(&dy[i]) * x[i].ldc;
    for (int shared = 0; shared < 2; shared++)
      work.stages[shared] += ceil(rows * (dy[i].w + (shared ? gap_of(conv, dw) : 0)) / DEPTH);
    work.megabytes += (tensor_elements(&dy[i]) + MIN(tensor_elements(&x[i]), read)) * dtype_size(x->dtype) / 1e6;
  }
  return work;
}

void wgmma_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  FilterProduct p = {};
  p.dw = out->dw, p.scale = (const float *)out->scale;
  p.db = (float *)out->db, p.accumulate = out->accumulate;
  p.r = p.dw.h, p.s = p.dw.w;
  p.panels = p.r * p.s * blocks_for(x->ldc, PANEL);
  FilterWork work = work_of(conv, pairs, x, dy, &p.dw);
  const Choice *choice = x->dtype == BF16 ? choose<__nv_bfloat16>(p, work) : choose<__half>(p, work);
  for (int i = 0; i < pairs; i++)
    if (tensor_pixels(&dy[i]) && !dev->measuring) p.part[p.parts++] = map_pair(conv, x[i], dy[i], p, choice->panels);
  choice->launch(dev, p);
}
