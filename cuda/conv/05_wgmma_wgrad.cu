// Rung 05, wgmma: the gradient of the filter, dyᵀ · unrolled x, a sum over pixels. Both operands lie in memory with a
// pixel's channels together: pixels are the rows of both tiles in shared memory, and wgmma turns them over. A tile of the
// result is some output channels by some panels, a panel being 64 channels of x under one tap. The pixels are cut into
// slots, so that there are blocks for the whole GPU; each block adds up one tile over one slot. wgrad_cut.cuh chooses the
// tile and the slots, wgrad_sums.cuh adds the slots up.
//
// Neighbouring taps read the same pixels, one further on. Where the stride is 1, the panels of a tile can therefore be one
// patch of shared memory, each beginning a pixel after the one before, and x is fetched once for a row of the filter. For
// that the walk over the pixels takes as many more positions to a row as it needs zeros between the rows of x; dy is zero
// there.
#include "cuda/conv/wgrad_cut.cuh"
#include "cuda/conv/wgrad_sums.cuh"

// Tiles one below the other that neighbouring blocks have, at most: squares share most. Where slots are a cluster's, a long row
// or column of tiles was faster, whichever side is longer.
static int tiles_below(const FilterProduct &p) { return !p.cluster ? 4 : p.tiles_down >= (int)p.across.by ? 8 : 1; }

// The stages of a slot. Those of all parts stand in a row, which the slots cut into equal shares.
struct Turn {
  int part, first; // position of the part
  int positions;   // of the part that hold data
  int left;        // stages of the slot, from this one on

  __device__ static int positions_of(const FilterPart &part) { return rows_of(part.rows) * part.area; }
  __device__ static int stages_of(uint32_t positions) { return (positions + DEPTH - 1) / DEPTH; }
  __device__ __forceinline__ Turn(const FilterProduct &p, int slot) {
    int all = 0;
#pragma unroll 1
    for (int i = 0; i < p.parts; i++) all += stages_of(positions_of(p.part[i]));
    int share = divide(all, p.slots), more = all - share * p.slots.by; // slots that have a stage more
    int begin = share * slot + min(slot, more);
    left = share + (slot < more);
    part = -1, first = 0, positions = 0;
#pragma unroll 1
    for (int skipped = 0; skipped <= begin && left; skipped += stages_of(positions)) {
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

// Pixels of x that a stage holds.
template <class Tile> __device__ __forceinline__ int patch_of(bool shared) {
  return DEPTH + (shared ? Tile::PANELS - 1 : 0);
}

// By one thread.
template <class Tile>
__device__ __forceinline__ void fetch(const FilterProduct &p, RingBarriers<Tile::STAGES> &barriers, uint32_t stages) {
  Turn turn(p, blockIdx.z);
  Ring<Tile::STAGES> ring(barriers);
  bool shared = p.shared;
  int bytes = Tile::A_BYTES + (shared ? patch_of<Tile>(true) * SWIZZLE_ROW : Tile::PANELS * PANEL_BYTES);
  TileIndex tile = tile_index(p);
  Panel panel[Tile::PANELS];
#pragma unroll
  for (int i = 0; i < Tile::PANELS; i++) panel[i] = panel_of(p, tile.across * Tile::PANELS + i);
  RingReady ready{RING_READY, THREADS + WARP};
  for (; turn.left; turn.advance(p)) {
    const FilterPart &part = p.part[turn.part];
    const Walk &walk = part.at.walk;
    Position at = position_of(part.at, turn.first);
    int y = walk.y.in + walk.y.in_step * at.i, x = walk.x.in + walk.x.in_step * at.j;
    uint32_t a = stages + ring.stage * Tile::STAGE, b = a + Tile::A_BYTES;
    ring.wait_empty();
    barrier_expect(ring.full, bytes);
#pragma unroll
    for (int i = 0; i < Tile::A_PANELS; i++)
      tma_load_pixels(a + i * Tile::A_PANEL, &part.dy, ring.full, tile.down * Tile::ROWS + i * PANEL, at.j, at.i, at.n,
                      0, 0);
#pragma unroll
    for (int i = 0; i < Tile::PANELS; i++)
      if (i == 0 || !shared)
        tma_load_pixels(b + i * PANEL_BYTES, &part.x, ring.full, panel[i].c, x, y, at.n, panel[i].x, panel[i].y);
    ready.tell();
    ring.advance();
  }
  ready.tell();
}

// ---- multiplying ------------------------------------------------------------------------------------------------------

// Rows `first` … `end` of a panel, of so many bytes each, become zero.
__device__ __forceinline__ void clear_rows(uint32_t panel, int row, int first, int end) {
#pragma unroll 1
  for (int i = first * row / 16 + threadIdx.x; i < end * row / 16; i += THREADS)
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(panel + i * 16), "r"(0) : "memory");
}
// A stage of which only the first `rows` pixels hold data: there is anything in the others, NaN too. A patch, which lies
// behind dy, has more of them.
template <class Tile> __device__ __forceinline__ void clear_tail(uint32_t stage, int rows, bool shared) {
#pragma unroll 1
  for (int i = 0; i < Tile::A_PANELS; i++) clear_rows(stage + i * Tile::A_PANEL, Tile::A_ROW, rows, DEPTH);
#pragma unroll 1
  for (int i = 0; i < (shared ? 1 : Tile::PANELS); i++)
    clear_rows(stage + Tile::A_BYTES + i * PANEL_BYTES, SWIZZLE_ROW, rows, i ? DEPTH : patch_of<Tile>(shared));
  shared_write_fence();
  consumers_sync();
}

// A column of ones beside x: what a channel of dy meets there adds up to its bias's gradient.
template <class T> struct Ones {
  static constexpr int COLUMNS = 8; // the fewest of a wgmma
  T v[COLUMNS * WGMMA_TERMS];
};

template <class T, class Tile>
__device__ __forceinline__ void multiply(FilterSum<Tile> &sum, const FilterProduct &p,
                                         RingBarriers<Tile::STAGES> &barriers, uint32_t stages, const Ones<T> &ones,
                                         Turn turn) {
  constexpr int A_STEP = WGMMA_TERMS * Tile::A_ROW, STEP = WGMMA_TERMS * SWIZZLE_ROW;
  Ring<Tile::STAGES> ring(barriers);
  int warpgroup = threadIdx.x / WARPGROUP;
  bool shared = p.shared, sums = p.sums;
  int own = tile_index(p).across;
  int apart = shared ? SWIZZLE_ROW : PANEL_BYTES, patch = patch_of<Tile>(shared);
  uint32_t a0 = Tile::WIDE ? 0 : warpgroup * Tile::DOWN * Tile::A_PANEL;
  uint32_t b0 = Tile::A_BYTES + (Tile::WIDE ? warpgroup * Tile::ACROSS * apart : 0);
  uint64_t column = small_descriptor(kept_address(ones.v));
  bool tells = threadIdx.x % WARPGROUP == 0;
  uint32_t before = 0; // the barrier at which this thread tells that the stage before is free again
  auto release = [&] {
    if (before) barrier_arrive_at(before);
  };
  for (; turn.left; turn.advance(p)) {
    uint32_t stage = stages + ring.stage * Tile::STAGE;
    int rows = turn.positions - turn.first;
    ring.wait_full();
    if (rows < patch) clear_tail<Tile>(stage, rows, shared);
    uint64_t a = tile_descriptor<Tile::A_ROW>(stage + a0), b = tile_descriptor(stage + b0, apart);
    uint32_t step = turn.first / DEPTH;
    if (sums && step - divide(step, p.across) * p.across.by == own) { // tiles side by side take turns
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < DEPTH / WGMMA_TERMS; i++)
#pragma unroll
        for (int j = 0; j < Tile::DOWN; j++)
          wgmma<T, Ones<T>::COLUMNS, false, true>(sum.bias[j], a + ((j * Tile::A_PANEL + i * A_STEP) >> 4), column,
                                                  true);
    }
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < DEPTH / WGMMA_TERMS; i++)
#pragma unroll
      for (int j = 0; j < Tile::DOWN; j++)
        wgmma<T, Tile::COLUMNS, true, true>(sum.filter[j], a + ((j * Tile::A_PANEL + i * A_STEP) >> 4),
                                            b + (i * STEP >> 4), true);
    wgmma_commit();
    wgmma_wait<1>();
    release(); // the products that read the stage before are done
    before = tells ? ring.empty : 0;
    ring.advance();
  }
  wgmma_wait<0>();
  release();
}

// ---- launching --------------------------------------------------------------------------------------------------------

template <class T, class Tile>
__global__ __launch_bounds__(WGMMA_THREADS, 1) void wgmma_wgrad_kernel(const __grid_constant__ FilterProduct p) {
  if constexpr (HAS_WGMMA) {
    __shared__ RingBarriers<Tile::STAGES> ring;
    __shared__ alignas(128) Ones<T> ones;
    uint32_t begin = kept_address(dynamic_shared()), stages = (begin + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    int warp = uniform(threadIdx.x / WARP);
    if (warp >= THREADS / WARP) {
      registers_give<FETCH_REGISTERS>();
      if (warp > THREADS / WARP) {
        int part = (int)threadIdx.x - THREADS - WARP;
        if (part < p.parts) tma_prefetch_map(&p.part[part].dy), tma_prefetch_map(&p.part[part].x);
        return;
      }
      if (threadIdx.x % WARP) return;
      ring_init(ring, 1, CONSUMERS);
      fetch<Tile>(p, ring, stages);
    } else {
      named_sync(RING_READY, THREADS + WARP);
      follower_start();
      if (threadIdx.x < COUNT(ones.v)) ones.v[threadIdx.x] = from_float<T>(1.f);
      shared_write_fence();
      consumers_sync();
      int row = tile_index(p).down * Tile::ROWS + threadIdx.x; // whose scale is needed at the end
      if (p.scale && threadIdx.x < Tile::ROWS && row < p.dw.n) prefetch_l2(p.scale + row);
      Turn turn(p, blockIdx.z);
      registers_take<MULTIPLY_REGISTERS>();
      FilterSum<Tile> sum = {};
      multiply<T, Tile>(sum, p, ring, stages, ones, turn);
      if (p.sums) write_sums(p, sum);
      if (p.partial)
        write_partial(p, sum);
      else
        write_filter(p, sum, stages);
    }
  }
}

template <class T, class Tile> static void launch_tiles(Device *dev, FilterProduct &p) {
  int slots = p.slots.by;
  p.across = divider(blocks_for(p.panels, Tile::PANELS)), p.share = divider(blocks_for(UNITS, p.cluster ? slots : 1));
  CHECK(!p.cluster || slots * p.share.by <= MAX_UNITS);
  p.tiles_down = blocks_for(p.dw.n, Tile::ROWS);
  int down = MIN(p.tiles_down, tiles_below(p));
  while (p.tiles_down % down) down--;
  p.down = divider(down);
  dim3 grid(p.across.by * p.tiles_down, 1, slots);
  size_t fragments = (size_t)grid.x * Tile::FRAGMENTS * THREADS, rows = (size_t)p.tiles_down * Tile::ROWS / 4;
  Stack filter = {NULL, slots > 1 && !p.cluster ? fragments : 0, slots},
        bias = {NULL, p.db ? rows : 0, (int)(slots * p.across.by)};
  size_t stacked = filter.count * filter.stride + bias.count * bias.stride;
  float4 *scratch = stacked ? (float4 *)device_scratch(dev, stacked * sizeof(float4)) : NULL;
  if (dev->measuring) return;
  if (filter.stride) filter.data = p.partial = scratch;
  if (bias.stride) bias.data = scratch + filter.count * filter.stride, p.sums = (float *)bias.data;
  auto kernel = wgmma_wgrad_kernel<T, Tile>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::BYTES));
  cudaLaunchAttribute cluster = {}, follow = follower_attribute();
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = cluster.val.clusterDim.y = 1, cluster.val.clusterDim.z = p.cluster ? slots : 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid, config.blockDim = WGMMA_THREADS, config.dynamicSmemBytes = Tile::BYTES;
  config.stream = stream_of(dev), config.attrs = &cluster, config.numAttrs = p.cluster;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, p));
  if (!stacked) return;
  int lanes = 1; // that share an element
  while (lanes < THREADS / WARP && lanes * STACK_LOADS < (filter.stride ? filter : bias).count) lanes *= 2;
  config.blockDim = dim3(THREADS / lanes, lanes);
  config.gridDim = blocks_for(filter.stride + bias.stride, THREADS / lanes);
  // Each multiprocessor has its share of the blocks: with less memory to a block, the first to be free would take more.
  int each = blocks_for(config.gridDim.x, multiprocessors(dev));
  config.dynamicSmemBytes = MAX(STACK_BYTES, (MAX_SHARED + BLOCK_SHARED) / each / 128 * 128 - BLOCK_SHARED);
  config.attrs = &follow, config.numAttrs = 1;
  auto reduce = wgmma_wgrad_reduce_kernel<Tile>;
  CUDA_CHECK(cudaFuncSetAttribute(reduce, cudaFuncAttributeMaxDynamicSharedMemorySize, MAX_SHARED));
  CUDA_CHECK(cudaLaunchKernelEx(&config, reduce, p, filter, bias));
}

// The launcher of a cut's tile.
template <class T> static auto launcher(const FilterCut &cut, bool few) -> void (*)(Device *, FilterProduct &) {
  if (few && cut.panels == 4) return launch_tiles<T, FilterTile<64, 4, true>>;
  if (few) return launch_tiles<T, FilterTile<64, 2, true>>;
#define TILE(r, p)                                                                                                     \
  if (cut.rows == r && cut.panels == p) return launch_tiles<T, FilterTile<r, p>>
  TILE(256, 3);
  TILE(256, 2);
  TILE(256, 1);
  TILE(128, 4);
  TILE(128, 3);
  TILE(128, 2);
  TILE(64, 4);
  TILE(64, 2);
#undef TILE
  die(EXIT_RUN, "wgrad has no tile of %d rows and %d panels", cut.rows, cut.panels);
}

// Zeros that the walk needs between two rows, so that a tap that leaves a row on the right meets zeros.
static int gap_of(const Conv *conv, const Tensor *dw) { return MAX(dw->w - 1 - conv->pad, 0); }

// The positions that a pair walks over. Where all pixels are read in order, they are one row.
static Walk walk_pair(const Conv *conv, Tensor *x, Tensor *dy, const Tensor *dw, bool shared) {
  Walk walk = {axis_forward(conv, dw->h, dy->h), axis_forward(conv, dw->w, dy->w)};
  if (shared) walk.x.size += gap_of(conv, dw);
  if (!walk_is_dense(&walk, x) || tensor_elements(x) >> 31 || tensor_elements(dy) >> 31) return walk; // counted in int
  for (Tensor *t : {x, dy}) t->w *= t->n * t->h, t->n = t->h = 1;
  walk.y.size = 1, walk.x.size = x->w;
  return walk;
}

static FilterPart map_pair(const Conv *conv, Tensor x, Tensor dy, const FilterProduct &p, int panels, bool few) {
  FilterPart part = {};
  part.rows = dy;
  Walk walk = walk_pair(conv, &x, &dy, &p.dw, p.shared), steps = walk;
  part.at = gather(&x, &walk);
  part.area = gather_capacity(part.at) / part.rows.n;
  part.x = map_pixels(part.at, DEPTH + (p.shared ? panels - 1 : 0));
  steps.y.in = steps.x.in = 0, steps.y.in_step = steps.x.in_step = 1;
  part.dy = map_pixels(gather(&dy, &steps), DEPTH, MAP_OPERAND, few ? FEW_ROW : SWIZZLE_ROW);
  return part;
}

static FilterWork work_of(const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const Tensor *dw) {
  FilterWork work = {dw->n, dw->h * dw->w * blocks_for(x->ldc, PANEL), dw->w};
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
  p.r = divider(p.dw.h), p.s = divider(p.dw.w), p.taps = divider(p.dw.h * p.dw.w);
  CHECK((size_t)p.dw.h * p.dw.w * p.dw.ldc < (size_t)1 << 31);
  p.row = p.dw.h * p.dw.w * p.dw.ldc;
  FilterWork work = work_of(conv, pairs, x, dy, &p.dw);
  FilterCut cut = filter_cut(work);
  bool few = cut.rows == PANEL && p.dw.n <= FEW_CHANNELS;
  p.panels = work.panels, p.shared = cut.shared, p.slots = divider(cut.slots), p.cluster = cut.cluster;
  for (int i = 0; i < pairs; i++)
    if (tensor_pixels(&dy[i]) && !dev->measuring) p.part[p.parts++] = map_pair(conv, x[i], dy[i], p, cut.panels, few);
  auto launch = x->dtype == BF16 ? launcher<__nv_bfloat16>(cut, few) : launcher<__half>(cut, few);
  launch(dev, p);
}
