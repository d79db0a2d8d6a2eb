// Rung 05, wgmma: wgrad in TF32. wgmma takes floats K-major only, and K are the pixels, while memory has a pixel's
// channels together. dy is therefore the operand in registers, for which plain loads transpose it, and the consumer
// warps transpose x from each stage to a K-major tile of its own, while the tensor cores compute the stage before.
// Split-K and its reduction are those of rung 04; db sums dy as TMA has rounded it.
#include <math.h>
#include "cuda/conv/bias_shadow.cuh"
#include "cuda/conv/ladder.h"
#include "cuda/conv/pixel_transposer.cuh"
#include "cuda/conv/split_k.cuh"
#include "cuda/conv/wgmma_wgrad.cuh"

enum { CONSUMER_WARPS = CONSUMER_THREADS / WARP };

// A threadblock tile: TILE_M output channels by PANELS panels of x under a tap. The consumer warpgroups share its rows
// or, SPLIT_N, its panels.
template <int WGMMAS_M_, int PANELS_, bool SPLIT_N_> struct Tf32Tile {
  static constexpr int WGMMAS_M = WGMMAS_M_, PANELS = PANELS_;
  static constexpr bool SPLIT_N = SPLIT_N_;
  static constexpr int TILE_M = WGMMAS_M * WGMMA_M * (SPLIT_N ? 1 : CONSUMERS), TILE_N = PANELS * CHANNELS;
  static constexpr int WGMMA_N = SPLIT_N ? TILE_N / CONSUMERS : TILE_N;
  static constexpr int A_PANELS = TILE_M / CHANNELS, A_BYTES = A_PANELS * PANEL_FLOATS;
  static constexpr int STAGE_BYTES = A_BYTES + PANELS * PANEL_FLOATS, TURNED_BYTES = PANELS * PANEL_FLOATS;
  static constexpr int ALL_STAGES = (MAX_SHARED - 2 * SWIZZLE_ATOM - TURNED * TURNED_BYTES) / STAGE_BYTES;
  static constexpr int STAGES = ALL_STAGES < 6 ? ALL_STAGES : 6;
  static constexpr int BYTES = STAGES * STAGE_BYTES + TURNED * TURNED_BYTES + SWIZZLE_ATOM;
  static_assert(STAGES >= 3);
};
// db: of a thread's pixels and its two rows.
template <class Tile> struct Tf32Accumulator { float d[Tile::WGMMAS_M][Tile::WGMMA_N / 2], db[Tile::WGMMAS_M][2]; };

struct Tf32Params {
  WgradParams w;
  SplitKWorkspace to; // a single slice is dw
};

// ---- the producer ---------------------------------------------------------------------------------------------------

// One thread: issues the TMA loads of all stages of the block's slice. TMA rounds to TF32.
template <class Tile>
__device__ __forceinline__ void tf32_produce(const WgradParams &p, PipelineBarriers<Tile::STAGES> &barriers,
                                             uint32_t stages) {
  KTileCursor<TILE_K> cursor(p, blockIdx.z);
  PipelineState<Tile::STAGES> pipe(barriers);
  const WgradTileIndex tile = tile_index(p);
  Panel panel[Tile::PANELS];
#pragma unroll
  for (int i = 0; i < Tile::PANELS; i++) panel[i] = panel_of<CHANNELS>(p, tile.n * Tile::PANELS + i);
  for (; cursor.remaining; cursor.advance(p)) {
    const WgradPairMaps &pair = p.pair[cursor.pair];
    const Im2col &im2col = pair.at.im2col;
    const Position at = position_of(pair.at, cursor.first);
    const int y = im2col.y.in + im2col.y.in_stride * at.i, x = im2col.x.in + im2col.x.in_stride * at.j;
    const uint32_t a = stages + pipe.stage * Tile::STAGE_BYTES, b = a + Tile::A_BYTES;
    pipe.wait_empty();
    barrier_expect(pipe.full, Tile::STAGE_BYTES);
#pragma unroll
    for (int i = 0; i < Tile::A_PANELS; i++)
      tma_load_im2col(a + i * PANEL_FLOATS, &pair.dy, pipe.full, tile.m * Tile::TILE_M + i * CHANNELS, at.j, at.i, at.n,
                      0, 0);
#pragma unroll
    for (int i = 0; i < Tile::PANELS; i++)
      tma_load_im2col(b + i * PANEL_FLOATS, &pair.x, pipe.full, panel[i].c, x, y, at.n, panel[i].x, panel[i].y);
    pipe.advance();
  }
}

// ---- the consumers --------------------------------------------------------------------------------------------------

// Of a stage only the first `rows` pixels hold data: the others become zeros, NaN too.
template <class Tile> __device__ __forceinline__ void tf32_clear_tail(uint32_t stage, int rows) {
#pragma unroll 1
  for (int i = threadIdx.x; i < Tile::STAGE_BYTES / 16; i += CONSUMER_THREADS)
    if (i % (PANEL_FLOATS / 16) / (SWIZZLE_ROW / 16) >= rows)
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(stage + i * 16), "r"(0) : "memory");
  consumers_sync();
}

// The operand in registers of the wgmmas of a K block: rows r and r + 8 of a warp's sixteen are channels 2r and 2r + 1.
template <class Tile> struct Tf32Rows {
  uint32_t first[2]; // address of pixel 2t, 2t + 1 in a stage
  __device__ Tf32Rows() {
    const int warpgroup = threadIdx.x / WARPGROUP, warp = threadIdx.x % WARPGROUP / WARP, lane = threadIdx.x % WARP;
    const int row = (Tile::SPLIT_N ? 0 : warpgroup * Tile::WGMMAS_M * WGMMA_M) + warp * WGMMA_WARP_M;
    const int chunk = row % CHANNELS / 4 + lane / 8;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int pixel = 2 * (lane % 4) + h;
      first[h] = row / CHANNELS * PANEL_FLOATS + pixel * SWIZZLE_ROW + (chunk ^ pixel) * 16 + lane / 4 % 2 * 8;
    }
  }
  __device__ __forceinline__ void load(uint32_t (&a)[Tile::WGMMAS_M][4], uint32_t stage, int block) const {
#pragma unroll
    for (int i = 0; i < Tile::WGMMAS_M; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const uint32_t at = stage + first[h] + i * (WGMMA_M / CHANNELS) * PANEL_FLOATS + block * TF32_K * SWIZZLE_ROW;
        asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                     : "=r"(a[i][2 * h]), "=r"(a[i][2 * h + 1])
                     : "r"(at)
                     : "memory");
      }
  }
};

template <class Tile>
__device__ __forceinline__ void tf32_mainloop(Tf32Accumulator<Tile> &acc, const WgradParams &p,
                                              PipelineBarriers<Tile::STAGES> &barriers, uint32_t stages) {
  KTileCursor<TILE_K> cursor(p, blockIdx.z);
  PipelineState<Tile::STAGES> pipe(barriers), next(barriers);
  const uint32_t turned = stages + Tile::STAGES * Tile::STAGE_BYTES;
  const uint32_t own = Tile::SPLIT_N ? threadIdx.x / WARPGROUP * Tile::WGMMA_N * SWIZZLE_ROW : 0;
  const PixelTransposer transposer;
  const Tf32Rows<Tile> rows;
  uint32_t a[K_BLOCKS][Tile::WGMMAS_M][4];
  int at = 0; // the K-major tile that is next to be written
  const int own_n = tile_index(p).n;
  auto turn = [&] {
    const uint32_t stage = stages + next.stage * Tile::STAGE_BYTES;
    next.wait_full();
    if (cursor.positions - cursor.first < TILE_K) tf32_clear_tail<Tile>(stage, cursor.positions - cursor.first);
    transposer.turn<Tile::PANELS>(stage + Tile::A_BYTES, turned + at * Tile::TURNED_BYTES, PANEL_FLOATS);
    shared_write_fence();
    consumers_sync();
    next.advance();
  };
  if (!cursor.remaining) return;
  turn();
#pragma unroll 1
  while (true) {
    const uint32_t stage = stages + pipe.stage * Tile::STAGE_BYTES;
    const uint64_t b = matrix_descriptor(turned + at * Tile::TURNED_BYTES + own);
    const uint32_t step = cursor.first / TILE_K;
    const bool sums =
        p.db_partial && step - divide(step, p.tiles_n) * p.tiles_n.by == own_n; // tiles along N take turns
#pragma unroll
    for (int k = 0; k < K_BLOCKS; k++) {
      wgmma_wait<K_BLOCKS - 1>(); // those of the stage before that have read a[k]
      rows.load(a[k], stage, k);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < Tile::WGMMAS_M; i++)
        wgmma_tf32_registers<Tile::WGMMA_N>(acc.d[i], a[k][i], b + (k * TF32_K * 4 >> 4));
      wgmma_commit();
      if (sums)
#pragma unroll
        for (int i = 0; i < Tile::WGMMAS_M; i++)
#pragma unroll
          for (int row = 0; row < 2; row++)
            acc.db[i][row] += __uint_as_float(a[k][i][row]) + __uint_as_float(a[k][i][2 + row]);
    }
    __syncwarp();
    if (threadIdx.x % WARP == 0) barrier_arrive_at(pipe.empty); // by ordinary loads, all is read
    pipe.advance();
    cursor.advance(p);
    if (!cursor.remaining) break;
    at = at + 1 == TURNED ? 0 : at + 1;
    turn();
  }
  wgmma_wait<0>();
}

// ---- epilogue -------------------------------------------------------------------------------------------------------

// The accumulators of a slice go to the workspace [slices, k, r, s, c] as they are, those of a single one to dw.
template <class Tile>
__device__ __forceinline__ void tf32_store_slice(const Tf32Params &params, const Tf32Accumulator<Tile> &acc) {
  const WgradParams &p = params.w;
  const WgradTileIndex tile = tile_index(p);
  const bool last = p.slices.by == 1;
  const int warpgroup = threadIdx.x / WARPGROUP, warp = threadIdx.x % WARPGROUP / WARP, lane = threadIdx.x % WARP;
  const int row0 = tile.m * Tile::TILE_M + (Tile::SPLIT_N ? 0 : warpgroup * Tile::WGMMAS_M * WGMMA_M) +
                   warp * WGMMA_WARP_M + lane / 4 * 2;
  constexpr int PANELS_N = Tile::WGMMA_N / CHANNELS;
#pragma unroll
  for (int j = 0; j < PANELS_N; j++) {
    const int index = tile.n * Tile::PANELS + (Tile::SPLIT_N ? warpgroup * PANELS_N : 0) + j;
    const Panel panel = panel_of<CHANNELS>(p, index);
    const int tap = (panel.y * (int)p.s.by + panel.x) * p.dw.ldc;
#pragma unroll
    for (int i = 0; i < Tile::WGMMAS_M; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = row0 + i * WGMMA_M + half;
        if (row >= p.dw.n) continue;
        const float factor = last && p.scale ? p.scale[row] : 1.f;
        float *to = params.to.data + blockIdx.z * params.to.stride + (size_t)row * params.to.pitch + tap;
#pragma unroll
        for (int k = 0; k < CHANNELS / 8; k++) {
          const int c = panel.c + 8 * k + lane % 4 * 2;
          if (c >= p.dw.ldc) continue;
          const float *v = acc.d[i] + (j * (CHANNELS / 8) + k) * 4 + 2 * half;
          const float2 before = last && p.accumulate ? *(float2 *)(to + c) : make_float2(0.f, 0.f);
          *(float2 *)(to + c) =
              make_float2(c < p.dw.c ? before.x + factor * v[0] : 0.f, c + 1 < p.dw.c ? before.y + factor * v[1] : 0.f);
        }
      }
  }
}

// The sums of dy of a slice's turns, [slices, tiles along N, rows of all tiles].
template <class Tile>
__device__ __forceinline__ void tf32_store_db(const WgradParams &p, const Tf32Accumulator<Tile> &acc) {
  const WgradTileIndex tile = tile_index(p);
  const int warpgroup = threadIdx.x / WARPGROUP, warp = threadIdx.x % WARPGROUP / WARP, lane = threadIdx.x % WARP;
  float *to = p.db_partial + ((size_t)(blockIdx.z * p.tiles_n.by + tile.n) * p.tiles_m + tile.m) * Tile::TILE_M +
              (Tile::SPLIT_N ? 0 : warpgroup * Tile::WGMMAS_M * WGMMA_M) + warp * WGMMA_WARP_M + lane / 4 * 2;
#pragma unroll
  for (int i = 0; i < Tile::WGMMAS_M; i++)
#pragma unroll
    for (int row = 0; row < 2; row++) {
      float sum = acc.db[i][row]; // the lanes of a row have other pixels
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      if (lane % 4 == 0 && !(Tile::SPLIT_N && warpgroup)) to[i * WGMMA_M + row] = sum;
    }
}

// ---- kernel ---------------------------------------------------------------------------------------------------------

// dyᵀ · im2col(x) over one slice of the k tiles of all pairs: M output channels, N panels. Grid (threadblock tiles,
// rasterised by tile_index; 1; slices). Eight warps are two consumer warpgroups; one thread of the ninth is the
// producer.
template <class Tile>
__global__ __launch_bounds__(WGMMA_THREADS, 1) void tf32_wgrad_kernel(const __grid_constant__ Tf32Params params) {
  if constexpr (HAS_WGMMA) {
    __shared__ PipelineBarriers<Tile::STAGES> pipe;
    const uint32_t stages = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    if (threadIdx.x == 0) pipeline_init(pipe, 1, CONSUMER_WARPS);
    __syncthreads();
    if (threadIdx.x >= CONSUMER_THREADS) {
      registers_dealloc<PRODUCER_REGISTERS>();
      grid_wait_prerequisite();
      if (threadIdx.x == CONSUMER_THREADS) tf32_produce<Tile>(params.w, pipe, stages);
    } else {
      registers_alloc<CONSUMER_REGISTERS>();
      grid_wait_prerequisite();
      grid_launch_dependents();
      Tf32Accumulator<Tile> acc = {};
      tf32_mainloop<Tile>(acc, params.w, pipe, stages);
      if (params.w.db_partial) tf32_store_db(params.w, acc);
      tf32_store_slice(params, acc);
    }
  }
}

// ---- the heuristic: threadblock tile and split-K --------------------------------------------------------------------

// What a stage takes of an SM, in cycles.
struct Tf32Config {
  int rows, panels;
  double stage_cycles;
  void (*launch)(Device *, Tf32Params &, const FilterGrad *);
};
struct Tf32Plan {
  const Tf32Config *tile;
  int slices;
};

// The cheapest: stages, where memory does not bound them, of which each SM gets its share; slices are written, and read
// again by a second kernel. By shapes alone, or the bits would differ from one GPU to the next.
static Tf32Plan tf32_plan(const Tf32Config *configs, int count, int rows, int panels, double k_tiles, double bytes) {
  enum { SMS = 132, OVERHEAD = 3000, MOST_SLICES = 132, BYTES_A_CYCLE = 1700, REDUCTION = 5000 };
  Tf32Plan best = {};
  double least = INFINITY;
  for (const Tf32Config *c = configs; c < configs + count; c++) {
    const int tiles = blocks_for(rows, c->rows) * blocks_for(panels, c->panels);
    for (int slices = 1; slices <= MIN(k_tiles, (int)MOST_SLICES); slices++) {
      const int blocks = tiles * slices, waves = blocks_for(blocks, SMS);
      const double loop = waves * (ceil(k_tiles / slices) * c->stage_cycles + OVERHEAD);
      const double memory = bytes / BYTES_A_CYCLE * SMS / MIN(blocks, (int)SMS);
      const double written = 4. * rows * panels * CHANNELS / BYTES_A_CYCLE;
      const double cost =
          MAX(loop, memory) + 0.2 * MIN(loop, memory) + (slices > 1 ? 2 * slices * written + REDUCTION : written);
      if (cost < least) {
        least = cost;
        best = {c, slices};
      }
    }
  }
  return best;
}

// ---- launchers ------------------------------------------------------------------------------------------------------

template <class Tile> static void launch_tiles(Device *dev, Tf32Params &params, const FilterGrad *out) {
  WgradParams &p = params.w;
  const int slices = p.slices.by;
  p.tiles_n = divider(blocks_for(p.panels, Tile::PANELS));
  p.tiles_m = blocks_for(p.dw.n, Tile::TILE_M);
  int raster_m = MIN(p.tiles_m, 4);
  while (p.tiles_m % raster_m) raster_m--;
  p.raster_m = divider(raster_m);
  const int rows = p.tiles_m * Tile::TILE_M, sums = slices * p.tiles_n.by;
  const size_t filter = slices > 1 ? split_k_bytes(params.to) : 0, bias = out->db ? sizeof(float) * sums * rows : 0;
  char *workspace = filter + bias ? (char *)device_workspace(dev, filter + bias) : NULL;
  if (dev->measuring) return;
  if (filter) params.to.data = (float *)workspace;
  if (bias) p.db_partial = (float *)(workspace + filter);
  auto kernel = tf32_wgrad_kernel<Tile>;
  allow_shared(kernel, Tile::BYTES);
  cudaLaunchAttribute follow = dependent_launch_attribute();
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(p.tiles_n.by * p.tiles_m, 1, slices);
  config.blockDim = WGMMA_THREADS;
  config.dynamicSmemBytes = Tile::BYTES;
  config.stream = stream_of(dev);
  config.attrs = &follow;
  config.numAttrs = 0;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, params));
  if (slices > 1) split_k_reduce(dev, params.to, out);
  if (out->db) bias_reduce(dev, p.db_partial, sums, rows, p.dw.n, (float *)out->db, out->accumulate);
}

#define CONFIG(wgmmas, panels, split, cycles)                                                                          \
  { Tf32Tile<wgmmas, panels, split>::TILE_M, panels, cycles, launch_tiles<Tf32Tile<wgmmas, panels, split>> }
static const Tf32Config tf32_configs[] = {
    CONFIG(2, 4, false, 1850), CONFIG(1, 4, false, 1130), CONFIG(2, 2, false, 1200),
    CONFIG(1, 2, false, 750),  CONFIG(1, 4, true, 900),
};
#undef CONFIG

// Of few filters half of the smallest tile would be empty, where rung 04 has smaller ones.
bool tf32_wgrad_fits(const Conv *conv, const Tensor *x, const Tensor *dw) {
  return stem_wgrad_tf32_fits(conv, x, dw) || dw->n > WGMMA_M / 2;
}

void tf32_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  Tf32Params params = {};
  WgradParams &p = params.w;
  p.dw = out->dw;
  p.scale = (const float *)out->scale;
  p.accumulate = out->accumulate;
  p.r = divider(p.dw.h);
  p.s = divider(p.dw.w);
  p.panels = p.dw.h * p.dw.w * blocks_for(x->ldc, CHANNELS);
  double k_tiles = 0, bytes = 0;
  for (int i = 0; i < pairs; i++) {
    k_tiles += blocks_for(tensor_pixels(&dy[i]), TILE_K);
    bytes += (double)(tensor_bytes(&dy[i]) + tensor_bytes(&x[i]));
  }
  const Tf32Plan plan = tf32_plan(tf32_configs, COUNT(tf32_configs), p.dw.n, p.panels, MAX(k_tiles, 1), bytes);
  p.slices = divider(plan.slices);
  const int pitch = p.dw.h * p.dw.w * p.dw.ldc;
  params.to = {(float *)out->dw.data, plan.slices, pitch, (size_t)p.dw.n * pitch, false};
  for (int i = 0; i < pairs; i++)
    if (tensor_pixels(&dy[i]) && !dev->measuring)
      p.pair[p.pairs++] = pair_maps(conv, x[i], dy[i], p, TILE_K, 0, SWIZZLE_ROW);
  plan.tile->launch(dev, params, out);
}
