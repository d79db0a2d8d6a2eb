// Rung 05, wgmma: forward and dgrad on Hopper, a persistent warp-specialised implicit GEMM. Idea: TMA loads, wgmma
// multiplies, and each has warps of its own.
// Removes: addresses computed by the threads that multiply, fragments that pass through registers, blocks whose
// prologue and epilogue leave the tensor cores idle.
// Adds to the rung before: two producer threads issue TMA loads, im2col included, into a pipeline of stages; two
// consumer warpgroups multiply them where they lie; two store warps send the epilogue's boxes by TMA while the next
// tile's mainloop runs; a tile scheduler keeps blocks busy for the whole launch.
// Limit: the tensor cores where K is long; memory where it is short, and a launch's first instructions.
#include "cuda/conv/ladder.h"
#include "cuda/conv/wgmma_heuristic.cuh"

// ---- producers ------------------------------------------------------------------------------------------------------

// B of a stage, the filter: channels c … under a tap. Of a cluster, each block's share goes to all.
template <class Tile>
__device__ __forceinline__ void load_filter(const WgmmaParams &p, uint32_t to, uint32_t full, int c, int tap,
                                            int column) {
  if constexpr (Tile::MN_MAJOR) {
#pragma unroll
    for (int i = 0; i < Tile::PANELS; i++)
      tma_load(to + i * Tile::PANEL_BYTES, &p.filter, full, column + i * 64, tap, c, 0);
  } else if constexpr (Tile::CLUSTER > 1) {
    int first = block_rank<Tile>() * Tile::CLUSTER_N;
    tma_load_multicast(to + first * SWIZZLE_ROW, &p.filter, full, c, tap, column + first, 0, (1 << Tile::CLUSTER) - 1);
  } else
    tma_load(to, &p.filter, full, c, tap, column, 0);
}

// What a producer thread knows of a tile.
struct ProducerTile {
  const MappedProblem *problem;
  int row, column, n, y, x; // its first row, and the pixel under that row's first tap
  int channels, first_c, taps_x, tap, tap_step, row_step, k_tiles;
  bool dense;
};
template <class Tile>
__device__ __forceinline__ ProducerTile producer_tile(const WgmmaParams &p, const TileOrder &counted, int tile) {
  ProblemTile of = problem_tile(p, counted, tile);
  TileOrigin origin = tile_origin<Tile>(p, counted, of);
  const MappedProblem &m = p.mapped[of.problem];
  const Im2colView &view = m.problem.view;
  const Im2colAxis &gy = view.im2col.y, &gx = view.im2col.x;
  // A cluster's last tiles may have no rows: these blocks load some, and their share of B.
  int row = Tile::CLUSTER > 1 ? min(origin.row, view.in.n * (int)view.area.by - 1) : origin.row;
  Position at = position_of(view, row);
  ProducerTile s = {&m, origin.row, origin.column, at.n, gy.in + gy.in_stride * at.i, gx.in + gx.in_stride * at.j};
  s.taps_x = in_register(gx.taps);
  s.channels = in_register(view.in.ldc);
  s.first_c = gy.taps * s.taps_x ? 0 : s.channels; // past: zeros
  s.tap = in_register(gy.filter * p.filter_width + gx.filter);
  s.tap_step = in_register(gx.filter_stride);
  s.row_step = in_register(gy.filter_stride * p.filter_width);
  s.k_tiles = p.k_tiles[of.problem];
  s.dense = in_register(m.reads_dense);
  return s;
}

// A producer thread, of the activations (ACTIVATIONS) or the filter: issues the loads of all stages of all tiles of its
// block, as far ahead as there are empty stages.
template <class Tile, bool SINGLE, bool ACTIVATIONS>
__device__ __forceinline__ void produce(const WgmmaParams &p, WgmmaShared<Tile> &shared, uint32_t stages, int tiles) {
  PipelineState<Tile::STAGES> pipe(shared.pipe);
  ProducerSignal started{PIPELINE_STARTED, Tile::started_threads(SINGLE)};
  for (int tile = block_first_tile<Tile>(); tile < tiles; tile += block_tile_stride<Tile>()) {
    ProducerTile s = producer_tile<Tile>(p, shared.order, tile);
    int c = s.first_c, ty = 0, tx = 0, tap_row = s.tap;
    for (int i = s.k_tiles; i > 0; i--) {
      uint32_t to = stages + pipe.stage * Tile::STAGE_BYTES;
      pipe.wait_empty();
      barrier_expect(pipe.full, ACTIVATIONS ? Tile::A_BYTES : Tile::B_BYTES);
      if constexpr (!ACTIVATIONS)
        load_filter<Tile>(p, to + Tile::A_BYTES, pipe.full, c, s.tap, s.column);
      else if (s.dense)
        tma_load(to, &s.problem->pixels, pipe.full, c, 0, s.row, 0, p.policy);
      else
        tma_load_im2col(to, &s.problem->pixels, pipe.full, c, s.x, s.y, s.n, tx, ty, p.policy);
      started.send();
      if ((c += Tile::TILE_K) >= s.channels) {
        c = s.first_c;
        s.tap += s.tap_step;
        if (++tx == s.taps_x) {
          tx = 0;
          ty++;
          tap_row += s.row_step;
          s.tap = tap_row;
        }
      }
      pipe.advance();
    }
    if (SINGLE) break;
  }
  started.send();
  // The other blocks' consumers arrive at this block's barriers: it must not end before.
  if (Tile::CLUSTER > 1)
    for (int i = 0; i < Tile::STAGES; i++, pipe.advance()) pipe.wait_empty();
}

// ---- mainloop -------------------------------------------------------------------------------------------------------

template <class Tile> struct WgmmaAccumulator { float d[Tile::WGMMAS_M][Tile::TILE_N / 2]; };

// The wgmmas of one stage: the warpgroup's rows of A begin at row 64 · WGMMAS_M · warpgroup.
template <class Tile>
__device__ __forceinline__ void mma_stage(WgmmaAccumulator<Tile> &acc, uint32_t stage, int warpgroup, bool accumulate) {
  uint64_t a = matrix_descriptor(stage + warpgroup * Tile::WGMMAS_M * WGMMA_M * SWIZZLE_ROW);
  uint64_t b = matrix_descriptor(stage + Tile::A_BYTES, Tile::MN_MAJOR ? Tile::PANEL_BYTES : 0);
  constexpr int A_STEP = Tile::MMA_K * sizeof(typename Tile::T); // bytes
  constexpr int B_STEP = Tile::MN_MAJOR ? Tile::MMA_K * SWIZZLE_ROW : A_STEP;
#pragma unroll
  for (int i = 0; i < Tile::TILE_K / Tile::MMA_K; i++)
#pragma unroll
    for (int j = 0; j < Tile::WGMMAS_M; j++)
      wgmma<typename Tile::T, Tile::TILE_N, Tile::MN_MAJOR>(
          acc.d[j], a + ((j * WGMMA_M * SWIZZLE_ROW + i * A_STEP) >> 4), b + (i * B_STEP >> 4), accumulate || i > 0);
  wgmma_commit();
}

// The mainloop: a tile's accumulators. What is done `meanwhile` costs no time: during the first wgmmas or, EARLY, while
// their operands are in flight. A stage is released when the wgmmas after its own have been issued and its own are
// complete; one thread, or one for each block of the cluster, arrives at the empty barrier, which is `to_empty` bytes
// from this block's.
template <class Tile, bool EARLY, class F>
__device__ __forceinline__ void mainloop(WgmmaAccumulator<Tile> &acc, PipelineState<Tile::STAGES> &pipe,
                                         uint32_t stages, int k_tiles, int warpgroup, bool elected, uint32_t to_empty,
                                         F meanwhile) {
  auto step = [&](int i) {
    pipe.wait_full();
    wgmma_fence();
    mma_stage<Tile>(acc, stages + pipe.stage * Tile::STAGE_BYTES, warpgroup, i > 0);
  };
  if (EARLY) meanwhile();
  step(0);
  if (!EARLY) meanwhile();
  for (int i = 1; i < k_tiles; i++) {
    uint32_t before = pipe.empty;
    pipe.advance();
    step(i);
    wgmma_wait<1>();
    if (elected) barrier_arrive_at(before + to_empty);
  }
  wgmma_wait<0>();
  if (elected) barrier_arrive_at(pipe.empty + to_empty);
  pipe.advance();
}

// ---- store warps ----------------------------------------------------------------------------------------------------

// Where the lane's row goes, of the sixteen that begin at `row` of a problem.
__device__ __forceinline__ EpilogueRow epilogue_row_at(const GemmProblem &p, int row) {
  const Im2colAxis &y = p.view.im2col.y, &x = p.view.im2col.x;
  row += epilogue_lane_row();
  Position at = position_of(p.view, row);
  return epilogue_row(p.out, row < view_rows(p.view), at.n, y.out + y.out_stride * at.i, x.out + x.out_stride * at.j);
}

// Issues the TMA store of a box: of the sixteen rows from `row` on, which is at `at`, and of columns c ….
__device__ __forceinline__ void store_tma_box(const MappedProblem &m, uint32_t box, int row, const Position &at,
                                              int c) {
  if (m.problem.dense)
    tma_store(&m.result, box, c, 0, row, 0);
  else
    tma_store_im2col(&m.result, box, c, at.j, at.i, at.n);
}

// A store warp, which overlaps the epilogue's stores with the next mainloop: waits until its consumer warpgroup has
// filled the boxes, a box each lane, those of the same rows one after the other, and says when TMA has read them.
template <class Tile>
__device__ __forceinline__ void store_epilogue(const WgmmaParams &p, WgmmaShared<Tile> &shared, uint32_t stages,
                                               int tiles, int warpgroup) {
  using Staging = typename Tile::Staging;
  constexpr int WARPS = WARPGROUP / 32;
  static_assert(Tile::WGMMAS_M == 1 && WARPS * Staging::BOXES <= 32 && 2 + CONSUMERS <= WARPS &&
                EPILOGUE_EMPTY + CONSUMERS <= 16);
  int lane = threadIdx.x % 32, group = WARPS * warpgroup + lane / Staging::BOXES, piece = lane % Staging::BOXES;
  uint32_t box = stages + Tile::STAGES * Tile::STAGE_BYTES + group * Tile::STAGING_BYTES + piece * Staging::BOX_BYTES;
  for (int tile = block_first_tile<Tile>(); tile < tiles; tile += block_tile_stride<Tile>()) {
    ProblemTile of = problem_tile(p, shared.order, tile);
    TileOrigin origin = tile_origin<Tile>(p, shared.order, of);
    const MappedProblem &m = p.mapped[of.problem];
    int row = origin.row + group * WGMMA_WARP_M, end = min(origin.column + Tile::TILE_N, m.problem.out.t.ldc);
    Position at = position_of(m.problem.view, row);
#pragma unroll 1
    for (int column = origin.column; column < end; column += Tile::PIECE) {
      named_sync(EPILOGUE_FULL + warpgroup, EPILOGUE_THREADS);
      int c = column + piece * Staging::BOX_COLUMNS;
      if (lane < WARPS * Staging::BOXES && c < end) store_tma_box(m, box, row, at, c);
      bulk_commit();
      epilogue_wait_read<0>();
      named_arrive(EPILOGUE_EMPTY + warpgroup, EPILOGUE_THREADS);
    }
  }
}

// ---- kernel ---------------------------------------------------------------------------------------------------------

// A consumer warpgroup: mainloop and epilogue of each of its block's tiles.
template <class Tile, bool SINGLE>
__device__ __forceinline__ void consume(const WgmmaParams &p, WgmmaShared<Tile> &shared, uint32_t stages, int warpgroup,
                                        int tiles) {
  constexpr bool STORE_WARP = Tile::has_store_warp(SINGLE); // otherwise each consumer warp stores its own boxes
  PipelineState<Tile::STAGES> pipe(shared.pipe);
  int thread = threadIdx.x % WARPGROUP, warp = uniform(thread / 32);
  uint32_t staging =
      stages + Tile::STAGES * Tile::STAGE_BYTES + (warpgroup * 4 + warp) * Tile::WGMMAS_M * Tile::STAGING_BYTES;
  uint32_t to_empty = Tile::CLUSTER > 1 ? remote_address(pipe.empty, thread % Tile::CLUSTER) - pipe.empty : 0;
  float *bias = shared.bias[warpgroup][0];
  const float *loaded = NULL; // the bias of whose columns is in `bias`
  int loaded_column = -1;
  bool staged = false; // this warpgroup's boxes hold a tile
  for (int tile = block_first_tile<Tile>(); tile < tiles; tile += block_tile_stride<Tile>()) {
    ProblemTile of = problem_tile(p, shared.order, tile);
    const MappedProblem &m = p.mapped[of.problem];
    const DestArgs &out = m.problem.out;
    TileOrigin origin;
    EpilogueRow rows[Tile::WGMMAS_M];
    WgmmaAccumulator<Tile> acc;
    mainloop<Tile, SINGLE>(acc, pipe, stages, p.k_tiles[of.problem], warpgroup, thread < Tile::CLUSTER, to_empty, [&] {
      origin = tile_origin<Tile>(p, shared.order, of);
      origin.row += warpgroup * Tile::WGMMAS_M * WGMMA_M + warp * WGMMA_WARP_M;
      bool same = out.bias == loaded && origin.column == loaded_column; // a short mainloop leaves no time for the load
      if (!same) {
        bias = shared.bias[warpgroup][bias == shared.bias[warpgroup][0]];
        load_bias<Tile::TILE_N>(out, origin.column, bias);
        loaded = out.bias;
        loaded_column = origin.column;
      }
#pragma unroll
      for (int j = 0; j < Tile::WGMMAS_M; j++) {
        rows[j] = epilogue_row_at(m.problem, origin.row + j * WGMMA_M);
        epilogue_prefetch<typename Tile::T, Tile::TILE_N>(out, rows[j], origin.column);
      }
      if (!same) warpgroup_sync(warpgroup); // it is there, and the other buffer free
    });
#pragma unroll
    for (int k = 0; k < Tile::PIECES; k++, origin.column += Tile::PIECE) {
      if (k > 0 && origin.column >= out.t.ldc) break;
      if (STORE_WARP && staged) named_sync(EPILOGUE_EMPTY + warpgroup, EPILOGUE_THREADS);
      staged = true;
#pragma unroll
      for (int j = 0; j < Tile::WGMMAS_M; j++) {
        if (!STORE_WARP) epilogue_wait_read<Tile::WGMMAS_M - 1>();
        typename Tile::Staging box{staging + j * Tile::STAGING_BYTES};
        epilogue_store_rows(out, acc.d[j] + k * Tile::PIECE / 2, rows[j], origin.column, bias + k * Tile::PIECE, box);
        if (STORE_WARP || thread % 32) continue;
        int row = origin.row + j * WGMMA_M;
        Position at = position_of(m.problem.view, row);
        box.issue_stores(out.t.ldc - origin.column,
                         [&](int c, uint32_t from) { store_tma_box(m, from, row, at, origin.column + c); });
      }
      if (STORE_WARP) named_arrive(EPILOGUE_FULL + warpgroup, EPILOGUE_THREADS);
      if (!Tile::MN_MAJOR && out.moments) {
        warpgroup_sync(warpgroup); // the boxes of all its warps are filled
        const uint32_t boxes = staging - warp * Tile::WGMMAS_M * Tile::STAGING_BYTES;
        const int row = origin.row - warp * WGMMA_WARP_M;
#pragma unroll
        for (int j = 0; j < Tile::WGMMAS_M; j++)
          epilogue_store_moments<typename Tile::T, Tile::PIECE>(out, boxes + j * Tile::STAGING_BYTES,
                                                                Tile::WGMMAS_M * Tile::STAGING_BYTES, row + j * WGMMA_M,
                                                                view_rows(m.problem.view), origin.column);
        if (!STORE_WARP) warpgroup_sync(warpgroup); // read, before the next tile's are written
      }
    }
    if (SINGLE) break;
  }
  if (!STORE_WARP) bulk_wait_read();
}

// All problems of a grouped GEMM, y [n, p, q, k] or dx [n, h, w, c]: M are pixels, N channels, K taps · channels of the
// operand that the view reads. Persistent: a threadblock for each SM that is granted, which takes every gridDim.x-th
// tile in the scheduler's order. Of its twelve warps, eight are two consumer warpgroups, which share a tile's rows, two
// are producers (pixels, filter), and two store where Tile::has_store_warp. SINGLE: no block has more than one tile,
// and where its results go is computed while the first stage is in flight.
template <class Tile, bool SINGLE>
__global__ __launch_bounds__(WGMMA_THREADS, 1) void wgmma_kernel(const __grid_constant__ WgmmaParams p) {
  if constexpr (HAS_WGMMA) {
    __shared__ WgmmaShared<Tile> s;
    uint32_t stages = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    int warp = uniform(threadIdx.x / 32), warpgroup = warp / 4;
    // Nothing is read or written before the grid before has ended, unless that has the same operands (first_row):
    // loads come after the producers' wait, all else after loads.
    if constexpr (Tile::CLUSTER > 1) {
      if (threadIdx.x == 4 * CONSUMERS * 32) pipeline_init(s.pipe, 2, Tile::CLUSTER * CONSUMERS);
      cluster_sync_relaxed(); // the other blocks' barriers are there, too
    }
    if (p.counted) {
      if (warp == 0) {
        if (!p.first_row) grid_wait_prerequisite();
        count_tiles<Tile>(p, s.order);
      }
      __syncthreads();
    }
    int tiles = first_tile_of(p, s.order, p.problems);
    // What is needed first is done by warps with nothing else to do: all of it is read for the first time, instructions
    // too.
    if (warpgroup == CONSUMERS) {
      registers_dealloc<PRODUCER_REGISTERS>();
      if (warp == 4 * CONSUMERS) {
        if (threadIdx.x % 32) return;
        // full: activations and filter have arrived
        if constexpr (Tile::CLUSTER == 1) pipeline_init(s.pipe, 2, CONSUMERS);
        named_arrive_for_warp(PIPELINE_INIT, PRODUCER_THREADS);
        if (!p.first_row) grid_wait_prerequisite();
        grid_launch_dependents();
        produce<Tile, SINGLE, true>(p, s, stages, tiles);
      } else if (warp == 4 * CONSUMERS + 1) {
        named_sync(PIPELINE_INIT, PRODUCER_THREADS);
        if (threadIdx.x % 32) return;
        if (!p.first_row) grid_wait_prerequisite();
        produce<Tile, SINGLE, false>(p, s, stages, tiles);
      } else if constexpr (Tile::has_store_warp(SINGLE)) {
        named_sync(PIPELINE_STARTED, Tile::started_threads(SINGLE));
        store_epilogue<Tile>(p, s, stages, tiles, warp - 4 * CONSUMERS - 2);
      }
    } else {
      if (threadIdx.x == 32)
        tma_prefetch_map(&p.mapped[0].pixels);
      else if (threadIdx.x == 64)
        tma_prefetch_map(&p.filter);
      else if (threadIdx.x == 96)
        tma_prefetch_map(&p.mapped[0].result);
      named_sync(PIPELINE_STARTED, Tile::started_threads(SINGLE));
      registers_alloc<CONSUMER_REGISTERS>();
      consume<Tile, SINGLE>(p, s, stages, warpgroup, tiles);
      if (p.first_row && threadIdx.x == 0) grid_wait_prerequisite(); // this launch does not end before its prerequisite
    }
  }
}

// ---- launchers ------------------------------------------------------------------------------------------------------

// L2 hints of a launch's loads. Where activations are read once, and the results find room in L2, these had better stay
// than the activations: nothing has to be written to memory before the launch ends (up to 7 %). Where memory is read
// and written at the same time, it gives more when it is read in longer pieces (up to 6 %); where it is mostly read,
// less.
struct CacheHints {
  uint64_t policy;
  MapUse use;
};
static CacheHints cache_hints(const Device *dev, const WgmmaParams &p) {
  int l2;
  CUDA_CHECK(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, dev->index));
  double read = 0, written = 0;
  bool once = p.tiles_n == 1;
  const void *before = NULL;
  for (int i = 0; i < p.problems; i++) {
    const GemmProblem &problem = p.mapped[i].problem;
    const Tensor *in = &problem.view.in;
    int taps = im2col_taps(&problem.view.im2col);
    bool again = in->data == before; // a phase
    double met = (double)view_capacity(problem.view) * taps * in->ldc * dtype_size(in->dtype);
    if (!again) {
      read += MIN(tensor_bytes(in), met);
      written += tensor_bytes(&problem.out.t);
    }
    once &= !again && taps == 1;
    before = in->data;
  }
  bool passing = once && written <= 0.8 * l2;
  return {passing ? EVICT_FIRST : EVICT_NORMAL, !passing && written >= read / 3 ? MAP_OPERAND_PROMOTED : MAP_OPERAND};
}

static cudaLaunchConfig_t launch_config(const Device *dev, int blocks, int shared) {
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = WGMMA_THREADS;
  config.dynamicSmemBytes = shared;
  config.stream = stream_of(dev);
  return config;
}

// Clusters, or blocks without them, that run at once: a part of the GPU may have no room for a whole one.
template <class Tile> static int clusters_at_once(const Device *dev) {
  if (Tile::CLUSTER == 1) return granted_to_products(dev);
  int count;
  cudaLaunchAttribute attribute = cluster_attribute(Tile::CLUSTER);
  cudaLaunchConfig_t config = launch_config(dev, Tile::CLUSTER, Tile::BYTES);
  config.attrs = &attribute;
  config.numAttrs = 1;
  allow_shared(wgmma_kernel<Tile, false>, Tile::BYTES);
  CUDA_CHECK(cudaOccupancyMaxActiveClusters(&count, wgmma_kernel<Tile, false>, &config));
  return MAX(MIN(granted_to_products(dev) / Tile::CLUSTER, count), 1);
}

// Launches the rows from `begin` on and before `end`.
template <class Tile> static void launch_tiles(Device *dev, WgmmaParams &p, const Tensor *w, int begin, int end) {
  int clusters = clusters_at_once<Tile>(dev);
  p.first_row = begin;
  schedule_tiles<Tile>(p, clusters, end);
  int tiles = p.order.first[p.problems];
  CacheHints hints = cache_hints(dev, p);
  p.policy = hints.policy;
  p.filter_width = w->w;
  p.filter = map_filters(w, Tile::TILE_K, Tile::MN_MAJOR ? Tile::TILE_K : Tile::CLUSTER_N);
  int box_columns = Tile::Staging::BOX_COLUMNS;
  for (int i = 0; i < p.problems; i++) {
    MappedProblem &m = p.mapped[i];
    const Tensor *in = &m.problem.view.in, *t = &m.problem.out.t;
    CHECK(tensor_pixels(t) >> 31 == 0 &&
          (!m.problem.out.addend.data || tensor_pixels(&m.problem.out.addend) >> 31 == 0));
    m.pixels = map_im2col_rows(in, &m.problem.view.im2col, Tile::TILE_M, hints.use);
    m.result = m.problem.dense ? map_pixels(t, box_columns, WGMMA_WARP_M, MAP_RESULT)
                               : map_result(t, &m.problem.view.im2col, box_columns, WGMMA_WARP_M);
  }
  auto kernel = tiles <= clusters ? wgmma_kernel<Tile, true> : wgmma_kernel<Tile, false>;
  allow_shared(kernel, Tile::BYTES);
  cudaLaunchConfig_t config = launch_config(dev, MIN(tiles, clusters) * Tile::CLUSTER, Tile::BYTES);
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  // Sets itself up while the launch before it ends; but not while collectives run, or ops beside it, whose
  // multiprocessors it would occupy early.
  if (begin > 0 || (granted_to_products(dev) == dev->multiprocessors && !dev->contended))
    attributes[config.numAttrs++] = dependent_launch_attribute();
  if (Tile::CLUSTER > 1) attributes[config.numAttrs++] = cluster_attribute(Tile::CLUSTER);
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, p));
}

// Tiles by name (Rung.tiles): rows, columns, blocks of a cluster.
#define NAMED_TILES(X)                                                                                                 \
  X("128x256", 128, 256, 1)                                                                                            \
  X("128x192", 128, 192, 1)                                                                                            \
  X("128x128", 128, 128, 1)                                                                                            \
  X("256x128", 256, 128, 1)                                                                                            \
  X("2*128x256", 128, 256, 2)                                                                                          \
  X("4*128x256", 128, 256, 4)                                                                                          \
  X("2*256x128", 256, 128, 2)
#define NAME(name, rows, columns, cluster) name,
static const char *const tile_names[] = {NAMED_TILES(NAME) NULL};
#undef NAME

// False: no tile has that name.
template <class T> static bool launch_named(Device *dev, WgmmaParams &p, const Tensor *w) {
#define CASE(name, rows, columns, cluster)                                                                             \
  if (!strcmp(dev->conv_tile, name))                                                                                   \
    return launch_tiles<WgmmaTile<T, rows, columns, false, cluster>>(dev, p, w, 0, INT_MAX), true;
  NAMED_TILES(CASE)
#undef CASE
  return false;
}

template <class T, bool MN_MAJOR> static void launch(Device *dev, WgmmaParams &p, const Tensor *w) {
  if constexpr (!MN_MAJOR && sizeof(T) == 2)
    if (dev->conv_tile && launch_named<T>(dev, p, w)) return;
  constexpr int NARROW = MN_MAJOR ? 64 : 8 * sizeof(T); // forward: the outputs of the RPN; 64: one of the shapes twice
#define CHOICE(rows, columns)                                                                                          \
  { rows, columns, launch_tiles<WgmmaTile<T, rows, columns, MN_MAJOR>> }
  static const TileConfig configs[] = {
      CHOICE(128, 256), CHOICE(128, 192), CHOICE(128, 128), CHOICE(128, 64), CHOICE(256, NARROW), CHOICE(128, NARROW),
  };
#undef CHOICE
  LaunchPlan plan = plan_launches(p, granted_to_products(dev), configs, COUNT(configs));
  for (int i = 0; i < plan.count; i++) {
    const LaunchRange &l = plan.of[i];
    l.tiles->launch(dev, p, w, l.begin, l.end);
  }
}

// ---- the op ---------------------------------------------------------------------------------------------------------

template <bool BACKWARD>
static void compute(Device *dev, const Conv *conv, int pairs, const Tensor *in, const Tensor *w, const Dest *out) {
  Tensor bank = *w; // the filters as the kernel reads them
  if (BACKWARD && w->dtype == F32) bank = filters_transpose(dev, w);
  if (dev->measuring) return;
  if (!BACKWARD && out->pool) return stem_pool_forward(dev, conv, in, w, out);
  if (!BACKWARD && stem_fits(conv, in, w)) {
    for (int i = 0; i < pairs; i++) stem_forward(dev, conv, &in[i], w, &out[i]);
    return;
  }
  if (pairs == 1 && !dev->conv_tile && conv64_fits(conv, in, w, out)) return conv64(dev, BACKWARD, in, w, out);
  WgmmaParams p = {};
  auto flush = [&] {
    if (!p.problems) return;
    if (w->dtype == F32)
      launch<float, false>(dev, p, &bank);
    else if (w->dtype == BF16)
      launch<__nv_bfloat16, BACKWARD>(dev, p, &bank);
    else
      launch<__half, BACKWARD>(dev, p, &bank);
    p.problems = 0;
  };
  for_each_problem(conv, pairs, in, w, out, BACKWARD, [&](const GemmProblem &problem) {
    if (p.problems == MAX_MAPPED) flush();
    int i = p.problems++; // the longest K first, so that the last tiles are short ones
    for (; i > 0 && im2col_taps(&p.mapped[i - 1].problem.view.im2col) < im2col_taps(&problem.view.im2col); i--)
      p.mapped[i] = p.mapped[i - 1];
    p.mapped[i] = {{}, {}, problem, im2col_is_identity(&problem.view.im2col, &problem.view.in)};
  });
  flush();
}

// A dense layer of few images: one row an image. Reading or writing the filter takes longer than the products; rung
// 04 splits K so that all SMs read, its dgrad does not copy the filter of floats, and its wgrad writes all the time.
// Not of RoIs: how many there are depends on the images beside one in a batch, and its bits may not.
static bool few_dense_rows(ConvOp op, const Conv *conv, const Tensor *in, const Tensor *w) {
  bool covered = op == CONV_DGRAD ? in->h == 1 && in->w == 1 : in->h == w->h && in->w == w->w;
  return covered && conv->stride == 1 && !conv->pad && in->n <= FEW_ROWS && !in->count;
}

// In 16 bits, forward of a K that is long enough to be split, and wgrad; dgrad has as many columns as forward has K,
// and so tiles enough.
static bool left_to_mma(ConvOp op, const Conv *conv, const Tensor *in, const Tensor *w) {
  enum { LONG = 1024 };
  bool long_k = op == CONV_FORWARD && w->h * w->w * w->ldc >= LONG;
  return (long_k || op == CONV_WGRAD) && few_dense_rows(op, conv, in, w);
}

// Floats only as TF32, which has to be asked for. A tap's channels would leave a part of a stage of floats, or of a
// panel of wgrad, empty where they are few; but images have kernels of their own.
static bool supports(Device *dev, ConvOp op, const Conv *conv, const Tensor *in, const Tensor *w) {
  bool small = map_im2col_fits(conv, w), wgrad = op == CONV_WGRAD;
  bool floats = in->dtype == F32, thin = (wgrad ? w->ldc : in->ldc) < 32 && w->h * w->w > 1 && (wgrad || floats);
  if (op == CONV_FORWARD && stem_fits(conv, in, w)) thin = false;
  if (wgrad && (floats ? stem_wgrad_tf32_fits(conv, in, w) : stem_wgrad_fits(conv, in, w))) thin = false;
  if (!dev->wgmma || !small || thin) return false;
  if (!floats) return (in->dtype == BF16 || in->dtype == F16) && !left_to_mma(op, conv, in, w);
  return dev->tf32 && !few_dense_rows(op, conv, in, w) && (!wgrad || tf32_wgrad_fits(conv, in, w));
}

// A part is what a warpgroup has of a tile.
static_assert((int)WGMMA_M == (int)CONV_MOMENTS_PIXELS);
static int moments(Device *, const Conv *conv, const Tensor *x, const Tensor *w, const Tensor *y) {
  return stem_fits(conv, x, w) ? 0 : blocks_for(tensor_pixels(y), WGMMA_M);
}

// In 16 bits memory bounds dgrad and wgrad of a 1 × 1, both of which read dy; side by side, what one has read the other
// finds in L2.
static int wgrad_share(Device *dev, const Conv *conv, const Tensor *x, const Tensor *dw) {
  const bool pointwise = dw->h * dw->w == 1 && conv->stride == 1 && x->h * x->w > 1;
  return pointwise && x->dtype != F32 ? dev->granted * 4 / 11 : 0;
}

static bool pools(Device *, const Conv *conv, const Pool *pool, const Tensor *x, const Tensor *w) {
  return w->dtype != F32 && stem_pools(conv, pool, x, w);
}

extern "C" const Rung rung_wgmma = {"wgmma",    supports,   compute<false>, compute<true>,   wgmma_wgrad,        true,
                                    NULL,       moments,    pools,          bottleneck_fits, bottleneck_forward, false,
                                    tile_names, wgrad_share};
