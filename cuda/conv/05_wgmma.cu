// Rung 05, wgmma: forward and dgrad on Hopper. Idea: copies by TMA, products by wgmma, and a warpgroup for each.
// Removes: addresses computed by the threads that multiply, fragments that pass through registers, blocks that begin and
// end with empty tensor cores.
// Changed since the rung before: two threads ask TMA for tiles, pixels under a tap included; two warpgroups multiply them
// where they lie; two more warps send results by TMA while the next tile is multiplied; blocks stay for the whole launch.
// Limit: the tensor cores where the sums are long; memory where they are short, and a launch's first instructions.
#include "cuda/conv/ladder.h"
#include "cuda/conv/wgmma_choice.cuh"

// ---- fetching ---------------------------------------------------------------------------------------------------------

// The filter's tile of a stage: channels c … under a tap.
template <class Tile>
__device__ __forceinline__ void fetch_filter(const WgmmaProduct &p, uint32_t to, uint32_t full, int c, int tap,
                                             int column) {
  if constexpr (Tile::BY_TERM) {
#pragma unroll
    for (int i = 0; i < Tile::CHUNKS; i++) tma_load(to + i * Tile::CHUNK, &p.filter, full, column + i * 64, tap, c, 0);
  } else
    tma_load(to, &p.filter, full, c, tap, column, 0);
}

// What a thread that fetches knows of a tile.
struct Source {
  const MappedPart *part;
  int row, column, n, y, x; // its first row, and where that is
  int channels, first_c, taps_x, tap, tap_step, row_step, stages;
  bool dense;
};
template <class Tile>
__device__ __forceinline__ Source find_source(const WgmmaProduct &p, const Order &counted, int tile) {
  PartTile of = part_tile(p, counted, tile);
  Work work = find_work<Tile>(p, counted, of);
  const MappedPart &m = p.of[of.part];
  const Gather &g = m.part.gather;
  const Axis &gy = g.walk.y, &gx = g.walk.x;
  Position at = position_of(g, work.row);
  Source s = {&m, work.row, work.column, at.n, gy.in + gy.in_step * at.i, gx.in + gx.in_step * at.j};
  s.taps_x = in_register(gx.taps), s.channels = in_register(g.in.ldc);
  s.first_c = gy.taps * s.taps_x ? 0 : s.channels; // past: zeros
  s.tap = in_register(gy.filter * p.filter_width + gx.filter);
  s.tap_step = in_register(gx.filter_step), s.row_step = in_register(gy.filter_step * p.filter_width);
  s.stages = p.stages[of.part], s.dense = in_register(m.reads_dense);
  return s;
}

// What a thread does that fetches pixels, or the filter: it asks for all stages of all tiles.
template <class Tile, bool SINGLE, bool PIXELS>
__device__ __forceinline__ void fetch(const WgmmaProduct &p, Schedule<Tile> &schedule, uint32_t stages, int tiles) {
  Ring<Tile::STAGES> ring(schedule.ring);
  RingReady ready{RING_READY, Tile::ready_threads(SINGLE)};
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    Source s = find_source<Tile>(p, schedule.order, tile);
    int c = s.first_c, ty = 0, tx = 0, tap_row = s.tap;
    for (int i = s.stages; i > 0; i--) {
      uint32_t to = stages + ring.stage * Tile::STAGE;
      ring.wait_empty();
      barrier_expect(ring.full, PIXELS ? Tile::A_BYTES : Tile::B_BYTES);
      if constexpr (!PIXELS)
        fetch_filter<Tile>(p, to + Tile::A_BYTES, ring.full, c, s.tap, s.column);
      else if (s.dense)
        tma_load(to, &s.part->pixels, ring.full, c, 0, s.row, 0, p.policy);
      else
        tma_load_pixels(to, &s.part->pixels, ring.full, c, s.x, s.y, s.n, tx, ty, p.policy);
      ready.tell();
      if ((c += Tile::DEPTH) >= s.channels) {
        c = s.first_c, s.tap += s.tap_step;
        if (++tx == s.taps_x) tx = 0, ty++, s.tap = tap_row += s.row_step;
      }
      ring.advance();
    }
    if (SINGLE) break;
  }
  ready.tell();
}

// ---- multiplying ------------------------------------------------------------------------------------------------------

template <class Tile> struct WgmmaSum { float part[Tile::DOWN][Tile::COLUMNS / 2]; };

// One stage: a's 64 rows begin at row 64 · DOWN · warpgroup.
template <class Tile>
__device__ __forceinline__ void multiply(WgmmaSum<Tile> &sum, uint32_t stage, int warpgroup, bool accumulate) {
  uint64_t a = tile_descriptor(stage + warpgroup * Tile::DOWN * WGMMA_ROWS * SWIZZLE_ROW);
  uint64_t b = tile_descriptor(stage + Tile::A_BYTES, Tile::BY_TERM ? Tile::CHUNK : 0);
  constexpr int A_STEP = Tile::TERMS * sizeof(typename Tile::T); // bytes
  constexpr int B_STEP = Tile::BY_TERM ? Tile::TERMS * SWIZZLE_ROW : A_STEP;
#pragma unroll
  for (int i = 0; i < Tile::DEPTH / Tile::TERMS; i++)
#pragma unroll
    for (int j = 0; j < Tile::DOWN; j++)
      wgmma<typename Tile::T, Tile::COLUMNS, Tile::BY_TERM>(sum.part[j],
                                                            a + ((j * WGMMA_ROWS * SWIZZLE_ROW + i * A_STEP) >> 4),
                                                            b + (i * B_STEP >> 4), accumulate || i > 0);
  wgmma_commit();
}

// Adds up a tile's stages; what is done `meanwhile` costs no time: while the first products are computed or, EARLY, while
// their operands are on their way. A stage is free again when the products after its own have been issued and its own are
// done, which one thread tells.
template <class Tile, bool EARLY, class F>
__device__ __forceinline__ void accumulate(WgmmaSum<Tile> &sum, Ring<Tile::STAGES> &ring, uint32_t stages, int steps,
                                           int warpgroup, bool tells, F meanwhile) {
  auto step = [&](int i) {
    ring.wait_full();
    wgmma_fence();
    multiply<Tile>(sum, stages + ring.stage * Tile::STAGE, warpgroup, i > 0);
  };
  if (EARLY) meanwhile();
  step(0);
  if (!EARLY) meanwhile();
  for (int i = 1; i < steps; i++) {
    uint32_t before = ring.empty;
    ring.advance();
    step(i);
    wgmma_wait<1>();
    if (tells) barrier_arrive_at(before);
  }
  wgmma_wait<0>();
  if (tells) barrier_arrive_at(ring.empty);
  ring.advance();
}

// ---- where results go -------------------------------------------------------------------------------------------------

// The way of a lane's row of the sixteen that begin at `row` of a part.
__device__ __forceinline__ RowPlace find_row(const Part &p, int row) {
  const Axis &y = p.gather.walk.y, &x = p.gather.walk.x;
  row += place_row();
  Position at = position_of(p.gather, row);
  return row_place(p.out, row < gather_rows(p.gather), at.n, y.out + y.out_step * at.i, x.out + x.out_step * at.j);
}

// Orders the copy of a box: of the sixteen rows from `row` on, which is at `at`, and of columns c ….
__device__ __forceinline__ void send_box(const MappedPart &m, uint32_t box, int row, const Position &at, int c) {
  if (m.part.dense)
    tma_store(&m.result, box, c, 0, row, 0);
  else
    tma_store_pixels(&m.result, box, c, at.j, at.i, at.n);
}

// What a warp does that sends what a warpgroup has multiplied: a box each lane, those of the same rows one after the other.
template <class Tile>
__device__ __forceinline__ void send(const WgmmaProduct &p, Schedule<Tile> &schedule, uint32_t stages, int tiles,
                                     int warpgroup) {
  using Boxes = typename Tile::Boxes;
  constexpr int WARPS = WARPGROUP / 32;
  static_assert(Tile::DOWN == 1 && WARPS * Boxes::PIECES <= 32 && 2 + CONSUMERS <= WARPS &&
                BOXES_FREE + CONSUMERS <= 16);
  int lane = threadIdx.x % 32, group = WARPS * warpgroup + lane / Boxes::PIECES, piece = lane % Boxes::PIECES;
  uint32_t box = stages + Tile::STAGES * Tile::STAGE + group * Tile::BOX + piece * Boxes::PIECE;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    PartTile of = part_tile(p, schedule.order, tile);
    Work work = find_work<Tile>(p, schedule.order, of);
    const MappedPart &m = p.of[of.part];
    int row = work.row + group * WARP_ROWS, end = min(work.column + Tile::COLUMNS, m.part.out.t.ldc);
    Position at = position_of(m.part.gather, row);
#pragma unroll 1
    for (int column = work.column; column < end; column += Tile::PIECE) {
      named_sync(BOXES_FULL + warpgroup, BOXES_THREADS);
      int c = column + piece * Boxes::ACROSS;
      if (lane < WARPS * Boxes::PIECES && c < end) send_box(m, box, row, at, c);
      bulk_commit();
      boxes_wait<0>();
      named_arrive(BOXES_FREE + warpgroup, BOXES_THREADS);
    }
  }
}

// ---- kernel -----------------------------------------------------------------------------------------------------------

// What a warpgroup that multiplies does with its tiles.
template <class Tile, bool SINGLE>
__device__ __forceinline__ void consume(const WgmmaProduct &p, Schedule<Tile> &schedule, uint32_t stages, int warpgroup,
                                        int tiles) {
  constexpr bool SENDER = Tile::sender(SINGLE); // otherwise each warp sends its own rows
  Ring<Tile::STAGES> ring(schedule.ring);
  int thread = threadIdx.x % WARPGROUP, warp = uniform(thread / 32);
  uint32_t boxes = stages + Tile::STAGES * Tile::STAGE + (warpgroup * 4 + warp) * Tile::DOWN * Tile::BOX;
  float *bias = schedule.bias[warpgroup][0];
  const float *loaded = NULL; // the bias of whose columns is in `bias`
  int loaded_column = -1;
  bool full = false; // the boxes
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    PartTile of = part_tile(p, schedule.order, tile);
    const MappedPart &m = p.of[of.part];
    const DestArgs &out = m.part.out;
    Work work;
    RowPlace place[Tile::DOWN];
    WgmmaSum<Tile> sum;
    accumulate<Tile, SINGLE>(sum, ring, stages, p.stages[of.part], warpgroup, thread == 0, [&] {
      work = find_work<Tile>(p, schedule.order, of);
      work.row += warpgroup * Tile::DOWN * WGMMA_ROWS + warp * WARP_ROWS;
      bool same = out.bias == loaded && work.column == loaded_column; // short sums leave no time for the load
      if (!same) {
        bias = schedule.bias[warpgroup][bias == schedule.bias[warpgroup][0]];
        load_bias<Tile::COLUMNS>(out, work.column, bias);
        loaded = out.bias, loaded_column = work.column;
      }
#pragma unroll
      for (int j = 0; j < Tile::DOWN; j++) {
        place[j] = find_row(m.part, work.row + j * WGMMA_ROWS);
        prefetch_row<typename Tile::T, Tile::COLUMNS>(out, place[j], work.column);
      }
      if (!same) warpgroup_sync(warpgroup); // it is there, and the other buffer free
    });
#pragma unroll
    for (int k = 0; k < Tile::PIECES; k++, work.column += Tile::PIECE) {
      if (k > 0 && work.column >= out.t.ldc) break;
      if (SENDER && full) named_sync(BOXES_FREE + warpgroup, BOXES_THREADS);
      full = true;
#pragma unroll
      for (int j = 0; j < Tile::DOWN; j++) {
        if (!SENDER) boxes_wait<Tile::DOWN - 1>();
        typename Tile::Boxes box{boxes + j * Tile::BOX};
        store_rows(out, sum.part[j] + k * Tile::PIECE / 2, place[j], work.column, bias + k * Tile::PIECE, box);
        if (SENDER || thread % 32) continue;
        int row = work.row + j * WGMMA_ROWS;
        Position at = position_of(m.part.gather, row);
        box.leave(out.t.ldc - work.column, [&](int c, uint32_t from) { send_box(m, from, row, at, work.column + c); });
      }
      if (SENDER) named_arrive(BOXES_FULL + warpgroup, BOXES_THREADS);
    }
    if (SINGLE) break;
  }
  if (!SENDER) bulk_wait_read();
}

// SINGLE: no block has more than one tile, and where its results go is found out while nothing is there to be multiplied.
template <class Tile, bool SINGLE>
__global__ __launch_bounds__(WGMMA_THREADS, 1) void wgmma_kernel(const __grid_constant__ WgmmaProduct p) {
  if constexpr (HAS_WGMMA) {
    __shared__ Schedule<Tile> s;
    follower_start();
    uint32_t stages = (kept_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    int warp = uniform(threadIdx.x / 32), warpgroup = warp / 4;
    if (p.counted) {
      if (warp == 0) count_tiles<Tile>(p, s.order);
      __syncthreads();
    }
    int tiles = first_tile(p, s.order, p.parts);
    // What is needed first is done by warps with nothing else to do: all of it is read for the first time, instructions too.
    if (warpgroup == CONSUMERS) {
      registers_give<FETCH_REGISTERS>();
      if (warp == 4 * CONSUMERS) {
        if (threadIdx.x % 32) return;
        ring_init(s.ring, 2, CONSUMERS); // filled with pixels, and with the filter
        named_arrive_for_warp(RING_THERE, FETCH_THREADS);
        fetch<Tile, SINGLE, true>(p, s, stages, tiles);
      } else if (warp == 4 * CONSUMERS + 1) {
        named_sync(RING_THERE, FETCH_THREADS);
        if (threadIdx.x % 32) return;
        fetch<Tile, SINGLE, false>(p, s, stages, tiles);
      } else if constexpr (Tile::sender(SINGLE)) {
        named_sync(RING_READY, Tile::ready_threads(SINGLE));
        send<Tile>(p, s, stages, tiles, warp - 4 * CONSUMERS - 2);
      }
    } else {
      if (threadIdx.x == 32)
        tma_prefetch_map(&p.of[0].pixels);
      else if (threadIdx.x == 64)
        tma_prefetch_map(&p.filter);
      else if (threadIdx.x == 96)
        tma_prefetch_map(&p.of[0].result);
      named_sync(RING_READY, Tile::ready_threads(SINGLE));
      registers_take<MULTIPLY_REGISTERS>();
      consume<Tile, SINGLE>(p, s, stages, warpgroup, tiles);
      if (p.first_row && threadIdx.x == 0) follower_wait(); // this launch has not ended before the other has
    }
  }
}

// ---- launchers --------------------------------------------------------------------------------------------------------

// How a launch's pixels pass through L2. Where they are read once, and the results find room there, they had better stay
// than the pixels: nothing has to be written to memory before the launch ends (up to 7 %). Where memory is read and written
// at the same time, it gives more when it is read in longer pieces (up to 6 %); where it is mostly read, less.
struct CacheHints {
  uint64_t policy;
  MapUse use;
};
static CacheHints cache_hints(const Device *dev, const WgmmaProduct &p) {
  int l2;
  CUDA_CHECK(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, dev->index));
  double read = 0, written = 0;
  bool once = p.across == 1;
  const void *before = NULL;
  for (int i = 0; i < p.parts; i++) {
    const Part &part = p.of[i].part;
    const Tensor *in = &part.gather.in;
    int taps = walk_taps(&part.gather.walk);
    bool again = in->data == before; // a phase
    double met = (double)gather_capacity(part.gather) * taps * in->ldc * dtype_size(in->dtype);
    if (!again) read += MIN(tensor_bytes(in), met), written += tensor_bytes(&part.out.t);
    once &= !again && taps == 1;
    before = in->data;
  }
  bool passing = once && written <= 0.8 * l2;
  return {passing ? EVICT_FIRST : EVICT_NORMAL, !passing && written >= read / 3 ? MAP_OPERAND_PROMOTED : MAP_OPERAND};
}

// The rows from `begin` on and before `end`.
template <class Tile> static void launch_tiles(Device *dev, WgmmaProduct &p, const Tensor *w, int begin, int end) {
  int blocks = multiprocessors(dev);
  p.first_row = begin;
  order_tiles<Tile>(p, blocks, end);
  int tiles = p.order.first[p.parts];
  CacheHints hints = cache_hints(dev, p);
  p.policy = hints.policy;
  p.filter_width = w->w;
  p.filter = map_boxes(w->data, w->dtype, {(size_t)w->ldc, (size_t)w->h * w->w, (size_t)w->n, 1},
                       {Tile::DEPTH, 1, Tile::BY_TERM ? Tile::DEPTH : Tile::COLUMNS, 1});
  int across = Tile::Boxes::ACROSS;
  for (int i = 0; i < p.parts; i++) {
    MappedPart &m = p.of[i];
    const Tensor *in = &m.part.gather.in, *t = &m.part.out.t;
    CHECK(tensor_pixels(t) >> 31 == 0 && (!m.part.out.addend.data || tensor_pixels(&m.part.out.addend) >> 31 == 0));
    m.pixels = m.reads_dense ? map_boxes(in->data, in->dtype, {(size_t)in->ldc, 1, tensor_pixels(in), 1},
                                         {Tile::DEPTH, 1, Tile::ROWS, 1}, hints.use)
                             : map_pixels(m.part.gather, Tile::ROWS, hints.use);
    m.result = m.part.dense ? map_boxes(t->data, t->dtype, {(size_t)t->ldc, 1, tensor_pixels(t), 1},
                                        {across, 1, WARP_ROWS, 1}, MAP_RESULT)
                            : map_result(t, &m.part.gather.walk, across, WARP_ROWS);
  }
  auto kernel = tiles <= blocks ? wgmma_kernel<Tile, true> : wgmma_kernel<Tile, false>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::BYTES));
  cudaLaunchAttribute follow = follower_attribute();
  cudaLaunchConfig_t config = {};
  config.gridDim = MIN(tiles, blocks), config.blockDim = WGMMA_THREADS, config.dynamicSmemBytes = Tile::BYTES;
  config.stream = stream_of(dev), config.attrs = &follow, config.numAttrs = begin > 0;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, p));
}

template <class T, bool BY_TERM> static void launch(Device *dev, WgmmaProduct &p, const Tensor *w) {
  constexpr int NARROW = BY_TERM ? 64 : 8 * sizeof(T); // forward: the outputs of the RPN; 64: one of the shapes twice
#define CHOICE(rows, columns)                                                                                          \
  { rows, columns, launch_tiles<WgmmaTile<T, rows, columns, BY_TERM>> }
  static const TileChoice choices[] = {
      CHOICE(128, 256), CHOICE(128, 192), CHOICE(128, 128), CHOICE(128, 64), CHOICE(256, NARROW), CHOICE(128, NARROW),
  };
#undef CHOICE
  LaunchPlan plan = plan_launches(p, multiprocessors(dev), choices, COUNT(choices));
  for (int i = 0; i < plan.count; i++) {
    const RowsLaunch &l = plan.of[i];
    l.tiles->launch(dev, p, w, l.begin, l.end);
  }
}

// ---- filters for TF32 ---------------------------------------------------------------------------------------------------

enum { TRANSPOSE = 32, TRANSPOSE_ROWS = 8 }; // a block of threads transposes TRANSPOSE × TRANSPOSE elements

// [filters, taps, channels] -> [channels, taps, filters], zeros in filters' padding lanes: wgmma reads floats only with
// their terms side by side.
__global__ void transpose_filters_kernel(const Tensor w, const Tensor to) {
  __shared__ float tile[TRANSPOSE][TRANSPOSE + 1];
  int filter0 = blockIdx.x * TRANSPOSE, channel0 = blockIdx.y * TRANSPOSE, taps = w.h * w.w;
  const float *from = (const float *)w.data;
  for (int i = threadIdx.y; i < TRANSPOSE; i += TRANSPOSE_ROWS) {
    int filter = filter0 + i, channel = channel0 + threadIdx.x;
    bool inside = filter < w.n && channel < w.ldc;
    tile[i][threadIdx.x] = inside ? from[((size_t)filter * taps + blockIdx.z) * w.ldc + channel] : 0.f;
  }
  __syncthreads();
  for (int i = threadIdx.y; i < TRANSPOSE; i += TRANSPOSE_ROWS) {
    int channel = channel0 + i, filter = filter0 + threadIdx.x;
    if (channel < to.n && filter < to.ldc)
      ((float *)to.data)[((size_t)channel * taps + blockIdx.z) * to.ldc + filter] = tile[threadIdx.x][i];
  }
}

// Filters whose outputs are the inputs of `w`, in scratch; no data while scratch is measured.
static Tensor transpose_filters(Device *dev, const Tensor *w) {
  Tensor t = *w;
  t.n = w->ldc, t.c = w->n, t.ldc = channel_pitch(w->n);
  t.data = device_scratch(dev, tensor_bytes(&t));
  if (!t.data) return t;
  dim3 blocks(blocks_for(t.ldc, TRANSPOSE), blocks_for(t.n, TRANSPOSE), w->h * w->w),
      threads(TRANSPOSE, TRANSPOSE_ROWS);
  transpose_filters_kernel<<<blocks, threads, 0, stream_of(dev)>>>(*w, t);
  LAUNCH_CHECK();
  return t;
}

// ---- the op -------------------------------------------------------------------------------------------------------------

template <bool BACKWARD>
static void compute(Device *dev, const Conv *conv, int pairs, const Tensor *in, const Tensor *w, const Dest *out) {
  Tensor bank = *w; // the filters as the kernel reads them
  if (BACKWARD && w->dtype == F32) bank = transpose_filters(dev, w);
  if (dev->measuring) return;
  if (!BACKWARD && w->dtype != F32 && stem_fits(conv, pairs, in, w)) return stem_forward(dev, conv, in, w, out);
  WgmmaProduct p = {};
  auto flush = [&] {
    if (!p.parts) return;
    if (w->dtype == F32)
      launch<float, false>(dev, p, &bank);
    else if (w->dtype == BF16)
      launch<__nv_bfloat16, BACKWARD>(dev, p, &bank);
    else
      launch<__half, BACKWARD>(dev, p, &bank);
    p.parts = 0;
  };
  for_each_part(conv, pairs, in, w, out, BACKWARD, [&](const Part &part) {
    if (p.parts == MAX_MAPPED) flush();
    int i = p.parts++; // the longest sums first, so that the last tiles are short ones
    for (; i > 0 && walk_taps(&p.of[i - 1].part.gather.walk) < walk_taps(&part.gather.walk); i--) p.of[i] = p.of[i - 1];
    p.of[i] = {{}, {}, part, walk_is_dense(&part.gather.walk, &part.gather.in)};
  });
  flush();
}

// Corners of walks lie within 128 pixels, strides up to 8: what TMA's maps can say. Both follow from the filter's size.
// Floats only as TF32, which has to be asked for. A tap's channels would leave a part of a stage of floats, or of a panel of
// the gradient, empty where they are few.
static bool supports(const Device *dev, ConvOp op, const Conv *conv, const Tensor *in, const Tensor *w) {
  bool small = MAX(w->h, w->w) + 2 * conv->pad + conv->stride <= 100 && conv->stride <= 8, wgrad = op == CONV_WGRAD;
  bool floats = in->dtype == F32, thin = (wgrad ? w->ldc : in->ldc) < 32 && w->h * w->w > 1 && (wgrad || floats);
  return dev->wgmma && small && !thin && (floats ? dev->tf32 && !wgrad : in->dtype == BF16 || in->dtype == F16);
}

extern "C" const Rung rung_wgmma = {"wgmma", supports, compute<false>, compute<true>, wgmma_wgrad, true};
