// Rung 05, wgmma: the gradient of the filter, dyᵀ · unrolled x, a sum over pixels. Both operands lie in memory with a pixel's
// channels together, so that pixels are the rows of both tiles in shared memory, which wgmma reads by terms. A tile is some
// output channels by some panels, a panel being 64 channels of x under one tap. The pixels are cut into slots, so that there
// are blocks for the whole GPU; each block adds up one tile over one slot, and a second kernel adds the slots in order.
//
// Neighbouring taps read the same pixels, one further on. Where the stride is 1, a row of the filter is therefore a tile whose
// panels are one patch of shared memory, each beginning a pixel after the one before. For that the walk over the pixels takes
// as many more positions to a row as there are zeros between two rows of x: there dy is zero.
#include "cuda/conv/ladder.h"
#include "cuda/conv/wgmma.cuh"

enum {
  SPREAD = 132, // blocks that a product should be cut into: an H200's multiprocessors, wherever it runs, for equal bits
  DEPTH = 64,   // pixels of a stage
  PANEL = 64,   // channels: a swizzled row of 16-bit elements
  PANEL_BYTES = DEPTH * SWIZZLE_ROW,
  LANES = 8, // of the reduction: slots are added in 8 interleaved sums, then these in order
  WARP = 32,
};

struct FilterPart {
  CUtensorMap dy, x;
  Gather at;   // x, as the maps see it
  Tensor rows; // whose count says how many rows hold data
  int area;    // positions of such a row
};
struct FilterProduct {
  FilterPart part[CONV_MAX_PAIRS];
  int parts, slots;
  bool shared;     // the panels of a tile are one patch
  int panels, r, s; // panels in all; the filter's taps
  float4 *partial; // [slots, tiles, fragments of a tile, threads]; NULL: the only slot's sums go to dw
  Tensor dw;
  const float *scale;
  float *sums; // [slots, tiles across, rows of all tiles]: dy summed by channel; NULL: nobody asked
  float *db;
  bool accumulate;
};
static_assert(sizeof(FilterProduct) <= 32764, "a kernel's arguments");

// ROWS output channels by PANELS, of one block: the warpgroups share the rows, or the panels where the rows are few. CLUSTER
// blocks, side by side, share dy's tile, of which each fetches a part for all.
template <int ROWS_, int PANELS_, int CLUSTER_> struct FilterTile {
  static constexpr int ROWS = ROWS_, PANELS = PANELS_, CLUSTER = CLUSTER_;
  static constexpr bool WIDE = ROWS == WGMMA_ROWS; // the warpgroups share the panels
  static constexpr int DOWN = WIDE ? 1 : ROWS / (CONSUMERS * WGMMA_ROWS), ACROSS = WIDE ? PANELS / CONSUMERS : PANELS;
  static constexpr int COLUMNS = ACROSS * PANEL, GROUPS = COLUMNS / 8; // of a wgmma
  static constexpr int FRAGMENTS = DOWN * GROUPS;                      // of a thread, four floats each
  static constexpr int A_PANELS = ROWS / PANEL, A_BYTES = A_PANELS * PANEL_BYTES;
  static constexpr int STAGE = A_BYTES + PANELS * PANEL_BYTES, ALL_STAGES = (MAX_SHARED - 2 * SWIZZLE_ATOM) / STAGE;
  static constexpr int STAGES = ALL_STAGES < 8 ? ALL_STAGES : 8, BYTES = STAGES * STAGE + SWIZZLE_ATOM;
  static_assert(STAGES >= 3 && DOWN >= 1 && ACROSS * (WIDE ? CONSUMERS : 1) == PANELS && A_PANELS % CLUSTER == 0);
};

// ---- what is where ------------------------------------------------------------------------------------------------------

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
  int left;        // stages of the slot from this one on

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

// One fragment of a tile's sums goes to dw: two channels of row k, and of row k + 8.
template <class Tile>
__device__ __forceinline__ void store_fragment(const FilterProduct &p, int tile_row, int tile_column, int fragment,
                                               int thread, const float (&v)[4]) {
  int warpgroup = thread / WARPGROUP, group = fragment % Tile::GROUPS, lane = thread % WARP;
  int row = tile_row * Tile::ROWS + (Tile::WIDE ? 0 : warpgroup * Tile::DOWN * WGMMA_ROWS) +
            fragment / Tile::GROUPS * WGMMA_ROWS + thread % WARPGROUP / WARP * 16 + lane / 4;
  int index = tile_column * Tile::PANELS + (Tile::WIDE ? warpgroup * Tile::ACROSS : 0) + group / 8;
  Panel panel = panel_of(p, index);
  int c = panel.c + group % 8 * 8 + lane % 4 * 2;
  if (c >= p.dw.ldc) return;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int k = row + 8 * half;
    if (k >= p.dw.n) continue;
    float2 *to = (float2 *)(pixel<float>(p.dw, k, panel.y, panel.x) + c), old = p.accumulate ? *to : float2{};
    float factor = p.scale ? p.scale[k] : 1.f;
    *to = make_float2(c < p.dw.c ? old.x + factor * v[2 * half] : 0.f,
                      c + 1 < p.dw.c ? old.y + factor * v[2 * half + 1] : 0.f);
  }
}

// ---- fetching -----------------------------------------------------------------------------------------------------------

template <class Tile>
__device__ void fetch(const FilterProduct &p, RingBarriers<Tile::STAGES> &barriers, uint32_t stages) {
  constexpr int SHARE = Tile::A_PANELS / Tile::CLUSTER;
  constexpr uint16_t ALL = (1 << Tile::CLUSTER) - 1;
  for (int i = 0; i < p.parts; i++) tma_prefetch_map(&p.part[i].dy), tma_prefetch_map(&p.part[i].x);
  Ring<Tile::STAGES> ring(barriers);
  int rank = Tile::CLUSTER > 1 ? cluster_rank() : 0;
  int k = blockIdx.y * Tile::ROWS + rank * SHARE * PANEL, a = rank * SHARE * PANEL_BYTES;
  bool shared = p.shared;
  int bytes = Tile::A_BYTES + (shared ? (DEPTH + Tile::PANELS - 1) * SWIZZLE_ROW : Tile::PANELS * PANEL_BYTES);
  Panel panel[Tile::PANELS];
#pragma unroll
  for (int i = 0; i < Tile::PANELS; i++) panel[i] = panel_of(p, blockIdx.x * Tile::PANELS + i);
  for (Turn turn(p, blockIdx.z); turn.left; turn.advance(p)) {
    const FilterPart &part = p.part[turn.part];
    Position at = position_of(part.at, turn.first);
    const Walk &walk = part.at.walk;
    int y = walk.y.in + walk.y.in_step * at.i, x = walk.x.in + walk.x.in_step * at.j;
    uint32_t to = stages + ring.stage * Tile::STAGE;
    ring.wait_empty();
    barrier_expect(ring.full, bytes);
#pragma unroll
    for (int i = 0; i < SHARE; i++) {
      if constexpr (Tile::CLUSTER > 1)
        tma_load_pixels_multicast(to + a + i * PANEL_BYTES, &part.dy, ring.full, k + i * PANEL, at.j, at.i, at.n, ALL);
      else
        tma_load_pixels(to + i * PANEL_BYTES, &part.dy, ring.full, k + i * PANEL, at.j, at.i, at.n, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < Tile::PANELS; i++)
      if (i == 0 || !shared)
        tma_load_pixels(to + Tile::A_BYTES + i * PANEL_BYTES, &part.x, ring.full, panel[i].c, x, y, at.n, panel[i].x,
                        panel[i].y);
    ring.advance();
  }
}

// ---- multiplying --------------------------------------------------------------------------------------------------------

// All warpgroups that multiply, through a barrier of their own.
__device__ __forceinline__ void consumers_sync() {
  asm volatile("bar.sync %0, %1;" ::"n"(1 + CONSUMERS), "n"(CONSUMERS * WARPGROUP) : "memory");
}
// Rows `first` … `end` of a panel become zero.
__device__ __forceinline__ void clear_rows(uint32_t panel, int first, int end) {
  for (int i = first * SWIZZLE_ROW / 16 + threadIdx.x; i < end * SWIZZLE_ROW / 16; i += CONSUMERS * WARPGROUP)
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(panel + i * 16), "r"(0) : "memory");
}
// A stage of which only the first `rows` pixels hold data: there is anything in the others, NaN too.
template <class Tile> __device__ __forceinline__ void clear_tail(uint32_t stage, int rows, bool shared) {
  for (int i = 0; i < Tile::A_PANELS; i++) clear_rows(stage + i * PANEL_BYTES, rows, DEPTH);
  uint32_t b = stage + Tile::A_BYTES;
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

template <class T, class Tile>
__device__ __forceinline__ void multiply(const FilterProduct &p, RingBarriers<Tile::STAGES> &barriers, uint32_t stages,
                                         int warpgroup, const Ones<T> &ones) {
  Ring<Tile::STAGES> ring(barriers);
  int thread = threadIdx.x % WARPGROUP, before = 0;
  bool shared = p.shared, any = false;
  uint32_t told = thread < Tile::CLUSTER ? remote_address(ring.empty, thread) : 0; // whom this thread tells
  int apart = shared ? SWIZZLE_ROW : PANEL_BYTES;
  uint32_t a0 = stages + (Tile::WIDE ? 0 : warpgroup * Tile::DOWN) * PANEL_BYTES;
  uint32_t b0 = stages + Tile::A_BYTES + (Tile::WIDE ? warpgroup * Tile::ACROSS * apart : 0);
  float sum[Tile::DOWN][Tile::COLUMNS / 2] = {}, dy_sum[Tile::DOWN][Ones<T>::COLUMNS / 2] = {};
  uint64_t column = small_descriptor(shared_address(ones.v));
  bool sums = p.sums;
  auto release = [&](int stage) {
    if (told) barrier_arrive_at(told + 8 * stage);
  };
  for (Turn turn(p, blockIdx.z); turn.left; turn.advance(p)) {
    int rows = turn.positions - turn.first;
    ring.wait_full();
    if (rows < DEPTH) clear_tail<Tile>(stages + ring.stage * Tile::STAGE, rows, shared);
    uint64_t a = tile_descriptor(a0 + ring.stage * Tile::STAGE), b = tile_descriptor(b0 + ring.stage * Tile::STAGE, apart);
    constexpr int STEP = WGMMA_TERMS * SWIZZLE_ROW;
    if (sums && turn.first / DEPTH % gridDim.x == blockIdx.x) { // tiles side by side take turns
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < DEPTH / WGMMA_TERMS; i++)
#pragma unroll
        for (int j = 0; j < Tile::DOWN; j++)
          wgmma<T, Ones<T>::COLUMNS, false, true>(dy_sum[j], a + ((j * PANEL_BYTES + i * STEP) >> 4), column, true);
    }
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < DEPTH / WGMMA_TERMS; i++)
#pragma unroll
      for (int j = 0; j < Tile::DOWN; j++)
        wgmma<T, Tile::COLUMNS, true, true>(sum[j], a + ((j * PANEL_BYTES + i * STEP) >> 4), b + (i * STEP >> 4), true);
    wgmma_commit();
    wgmma_wait<1>();
    if (any) release(before);
    before = ring.stage, any = true;
    ring.advance();
  }
  wgmma_wait<0>();
  if (any) release(before);
  if (sums && thread % 4 == 0 && (!Tile::WIDE || warpgroup == 0))
#pragma unroll
    for (int j = 0; j < Tile::DOWN; j++) {
      int row = (blockIdx.y * Tile::ROWS) + ((Tile::WIDE ? 0 : warpgroup * Tile::DOWN) + j) * WGMMA_ROWS + wgmma_row();
      float *to = p.sums + ((size_t)blockIdx.z * gridDim.x + blockIdx.x) * gridDim.y * Tile::ROWS + row;
      to[0] = dy_sum[j][0], to[8] = dy_sum[j][2];
    }
  size_t tile = ((size_t)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
#pragma unroll
  for (int j = 0; j < Tile::DOWN; j++)
#pragma unroll
    for (int g = 0; g < Tile::GROUPS; g++) {
      int fragment = j * Tile::GROUPS + g;
      float v[4];
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] = sum[j][4 * g + i];
      if (p.partial)
        p.partial[(tile * Tile::FRAGMENTS + fragment) * CONSUMERS * WARPGROUP + threadIdx.x] =
            make_float4(v[0], v[1], v[2], v[3]);
      else
        store_fragment<Tile>(p, blockIdx.y, blockIdx.x, fragment, threadIdx.x, v);
    }
}

// ---- kernels ------------------------------------------------------------------------------------------------------------

template <class T, class Tile>
__global__ __launch_bounds__(WGMMA_THREADS, 1) void wgmma_wgrad_kernel(const __grid_constant__ FilterProduct p) {
  if constexpr (HOPPER) {
    __shared__ RingBarriers<Tile::STAGES> ring;
    __shared__ alignas(128) Ones<T> ones;
    uint32_t stages = (shared_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    if (threadIdx.x == 0) {
      for (int i = 0; i < Tile::STAGES; i++) {
        barrier_init(shared_address(&ring.full[i]), 1);
        barrier_init(shared_address(&ring.empty[i]), CONSUMERS * Tile::CLUSTER);
      }
      barrier_init_fence();
    }
    if (threadIdx.x < COUNT(ones.v)) ones.v[threadIdx.x] = from_float<T>(1.f);
    shared_write_fence();
    follower_start();
    __syncthreads();
    if constexpr (Tile::CLUSTER > 1) cluster_meet();
    int warpgroup = threadIdx.x / WARPGROUP;
    if (warpgroup == CONSUMERS) {
      registers_give<FETCH_REGISTERS>();
      if (threadIdx.x == CONSUMERS * WARPGROUP) fetch<Tile>(p, ring, stages);
    } else {
      registers_take<MULTIPLY_REGISTERS>();
      multiply<T, Tile>(p, ring, stages, warpgroup, ones);
    }
    if constexpr (Tile::CLUSTER > 1) cluster_meet(); // others may still arrive at this block's barriers
  }
}

// What the reduction adds up: `count` arrays of `stride` times four floats.
struct Stack {
  const float4 *data;
  size_t stride;
  int count;
};

// dw (+)= scale · Σ slots; db (+)= Σ slots. A block takes 32 fragments, or 128 channels of db.
template <class Tile>
__global__ void wgmma_wgrad_reduce_kernel(const __grid_constant__ FilterProduct p, int across, Stack filter,
                                          Stack bias) {
  __shared__ float4 part[LANES][WARP];
  size_t index = (size_t)blockIdx.x * WARP + threadIdx.x;
  bool is_bias = index >= filter.stride;
  if (is_bias) index -= filter.stride;
  const float4 *data = is_bias ? bias.data : filter.data;
  size_t stride = is_bias ? bias.stride : filter.stride;
  int count = is_bias ? bias.count : filter.count;
  float v[4] = {};
  auto add = [&](const float4 &f) { v[0] += f.x, v[1] += f.y, v[2] += f.z, v[3] += f.w; };
  follower_wait();
  if (index < stride)
#pragma unroll 4
    for (int i = threadIdx.y; i < count; i += LANES) add(data[i * stride + index]);
  part[threadIdx.y][threadIdx.x] = make_float4(v[0], v[1], v[2], v[3]);
  __syncthreads();
  if (threadIdx.y || index >= stride) return;
  for (int i = 1; i < LANES; i++) add(part[i][threadIdx.x]);
  constexpr int THREADS = CONSUMERS * WARPGROUP;
  if (!is_bias) {
    int fragment = (int)(index / THREADS), tile = fragment / Tile::FRAGMENTS;
    store_fragment<Tile>(p, tile / across, tile % across, fragment % Tile::FRAGMENTS, (int)(index % THREADS), v);
  } else
    for (int i = 0; i < 4; i++) {
      int k = 4 * (int)index + i;
      if (k < p.dw.n) p.db[k] = (p.accumulate ? p.db[k] : 0.f) + v[i];
    }
}

// ---- launchers ----------------------------------------------------------------------------------------------------------

// How a product is cut up.
struct Plan {
  int rows, panels, cluster; // of a tile
  bool shared;
  int slots;
};

template <class... Args>
static void launch_kernel(Device *dev, void (*kernel)(Args...), dim3 grid, dim3 block, int bytes,
                          cudaLaunchAttribute attribute, Args... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = bytes;
  config.stream = stream_of(dev);
  config.attrs = &attribute;
  config.numAttrs = 1;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, args...));
}

template <class T, class Tile> static void launch_tiles(Device *dev, FilterProduct &p, const Plan &plan) {
  dim3 grid(plan.cluster * blocks_for(p.panels, plan.panels * plan.cluster), blocks_for(p.dw.n, plan.rows), plan.slots);
  size_t tiles = (size_t)grid.x * grid.y * Tile::FRAGMENTS * CONSUMERS * WARPGROUP, rows = (size_t)grid.y * plan.rows;
  Stack filter = {NULL, plan.slots > 1 ? tiles : 0, plan.slots};
  Stack bias = {NULL, p.db ? rows / 4 : 0, (int)(plan.slots * grid.x)};
  size_t stacked = filter.count * filter.stride + bias.count * bias.stride;
  float4 *scratch = stacked ? (float4 *)device_scratch(dev, stacked * sizeof(float4)) : NULL;
  if (dev->measuring) return;
  if (filter.stride) filter.data = p.partial = scratch;
  if (bias.stride) bias.data = scratch + filter.count * filter.stride, p.sums = (float *)bias.data;
  auto kernel = wgmma_wgrad_kernel<T, Tile>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::BYTES));
  cudaLaunchAttribute cluster = {}, follow = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {Tile::CLUSTER, 1, 1};
  launch_kernel(dev, kernel, grid, WGMMA_THREADS, Tile::BYTES, cluster, p);
  if (!stacked) return;
  follow.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  follow.val.programmaticStreamSerializationAllowed = 1;
  launch_kernel(dev, wgmma_wgrad_reduce_kernel<Tile>, blocks_for(filter.stride + bias.stride, WARP),
                dim3(WARP, LANES), 0, follow, p, (int)grid.x, filter, bias);
}

typedef void Launch(Device *, FilterProduct &, const Plan &);
struct Choice {
  int rows, panels, cluster;
  Launch *launch;
};
template <class T> static void launch(Device *dev, FilterProduct &p, const Plan &plan) {
#define CHOICE(rows, panels, cluster)                                                                                  \
  { rows, panels, cluster, launch_tiles<T, FilterTile<rows, panels, cluster>> }
  static const Choice choices[] = {CHOICE(256, 3, 2), CHOICE(256, 3, 1), CHOICE(256, 2, 2), CHOICE(256, 2, 1),
                                   CHOICE(128, 4, 1), CHOICE(128, 4, 2), CHOICE(128, 3, 2), CHOICE(128, 3, 1),
                                   CHOICE(128, 2, 2), CHOICE(128, 2, 1), CHOICE(64, 4, 1), CHOICE(64, 2, 1)};
#undef CHOICE
  for (const Choice &c : choices)
    if (c.rows == plan.rows && c.panels == plan.panels && c.cluster == plan.cluster) return c.launch(dev, p, plan);
  die(EXIT_RUN, "no such tile: %d %d %d", plan.rows, plan.panels, plan.cluster);
}

static Plan plan_of(const FilterProduct &p, const Tensor *x, bool can_share, double stages) {
  static const int shapes[][3] = {{256, 3, 2}, {256, 3, 1}, {256, 2, 2}, {256, 2, 1}, {128, 4, 1}, {128, 4, 2},
                                  {128, 3, 2}, {128, 3, 1}, {128, 2, 2}, {128, 2, 1}, {64, 4, 1},  {64, 2, 1}};
  Plan best = {};
  double least = INFINITY;
  int f[5] = {};
  if (getenv("WGRAD")) sscanf(getenv("WGRAD"), "%d,%d,%d,%d,%d", f, f + 1, f + 2, f + 3, f + 4);
  for (auto &s : shapes)
    for (int shared = 0; shared <= (can_share && p.s == s[1]); shared++) {
      if ((f[0] && f[0] != s[0]) || (f[1] && f[1] != s[1]) || (f[2] && f[2] != s[2]) || (f[3] && (f[3] == 2 && can_share && p.s == s[1]) != shared)) continue;
      double tiles = (double)s[2] * blocks_for(p.panels, s[1] * s[2]) * blocks_for(p.dw.n, s[0]);
      double multiply = s[0] * s[1] * PANEL * DEPTH / 2048.0 * 1.1;
      double load = ((s[0] / s[2]) + (shared ? 66 : s[1] * PANEL)) * SWIZZLE_ROW / 26.0;
      double stage = MAX(multiply, load) * (shared ? 1.02 : 1);
      for (int slots = 1; slots <= 2 * SPREAD && slots <= MAX(stages, 1); slots++) {
        if (f[4] && slots != (int)MIN(f[4], MAX(stages, 1))) continue;
        double waves = ceil(tiles * slots / SPREAD);
        double cost = waves * (ceil(stages / slots) * stage + 4000);
        if (slots > 1) cost += slots * (double)tensor_elements(&p.dw) * 8 / 2000 + 4000;
        if (cost < least) least = cost, best = {s[0], s[1], s[2], (bool)shared, slots};
      }
    }
  (void)x;
  if (least == INFINITY) die(EXIT_RUN, "WGRAD");
  return best;
}

static bool is_dense(const Walk *w, const Tensor *x) {
  const Axis *axes[] = {&w->y, &w->x};
  const int sizes[] = {x->h, x->w};
  for (int i = 0; i < 2; i++)
    if (axes[i]->taps != 1 || axes[i]->in || axes[i]->in_step != 1 || axes[i]->size != sizes[i]) return false;
  return true;
}

// A tensor whose pixels are one row.
static Tensor in_a_row(const Tensor *t) {
  Tensor row = *t;
  row.n = row.h = 1;
  row.w = (int)tensor_pixels(t);
  return row;
}

static FilterPart part_of(const Conv *conv, const Tensor *x, const Tensor *dy, const Tensor *dw, const Plan &plan) {
  Walk walk = {axis_forward(conv, dw->h, dy->h), axis_forward(conv, dw->w, dy->w)};
  Tensor from = *x, to = *dy;
  FilterPart part = {};
  part.rows = *dy;
  if (is_dense(&walk, x)) {
    from = in_a_row(x), to = in_a_row(dy);
    walk.y.size = 1, walk.x.size = from.w;
  }
  if (plan.shared) walk.x.size += MAX(dw->w - 1 - conv->pad, 0);
  part.area = (int)((size_t)walk_area(&walk) * to.n / dy->n);
  part.at = gather(&from, &walk);
  part.x = map_pixels(part.at, plan.shared ? DEPTH + plan.panels - 1 : DEPTH);
  walk.y.in = walk.x.in = 0, walk.y.in_step = walk.x.in_step = 1;
  part.dy = map_pixels(gather(&to, &walk), DEPTH);
  return part;
}

void wgmma_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  const Tensor *dw = &out->dw;
  FilterProduct p = {};
  p.dw = *dw, p.scale = (const float *)out->scale, p.db = (float *)out->db, p.accumulate = out->accumulate;
  p.r = dw->h, p.s = dw->w;
  p.panels = p.r * p.s * blocks_for(x->ldc, PANEL);
  double stages = 0;
  for (int i = 0; i < pairs; i++) stages += blocks_for(tensor_pixels(&dy[i]), DEPTH);
  Plan plan = plan_of(p, x, conv->stride == 1 && p.s > 1, stages);
  p.shared = plan.shared, p.slots = plan.slots;
  for (int i = 0; i < pairs; i++)
    if (tensor_pixels(&dy[i]) && !dev->measuring) p.part[p.parts++] = part_of(conv, &x[i], &dy[i], dw, plan);
  if (x->dtype == BF16)
    launch<__nv_bfloat16>(dev, p, plan);
  else
    launch<__half>(dev, p, plan);
}
