// Rung 05 for the mask predictor's backward pass: gradients of a transposed convolution, 2 × 2 with stride 2, behind
// whose ReLU own_logits are. The gradient of its output, four times as large as x, would be written once and read three
// times. It is a product of few numbers, dlogit · w of the object's class where the output is positive, so that with a
// bit for each sign a warpgroup makes it in shared memory, stage by stage, where wgmma takes it for operand A of dgrad
// and B of wgrad:
//
//   dgrad   dx [128 pixels, 256] = Σ_taps dy [128, 64 channels] · filter    K-major, rows of 64 channels of a pixel
//   wgrad   dw [256, tap, 64] = Σ_pixels x · dy [64 pixels, 64 channels]    MN-major: the same rows
//
// Values are rounded as own_logits_backward stores them, and dgrad's sums have the order of conv_forward: the same
// bits.
// Limit: the warpgroup that makes rows, which takes 1.7 times as long as the products of a stage.
#include <string.h>
#include "cuda/conv/ladder.h"
#include "cuda/conv/wgmma_scheduler.cuh"
#include "cuda/conv/wgmma_wgrad_epilogue.cuh"
#include "cuda/own_logits.cuh"

enum {
  CHANNELS = 256, // of x and of the hidden layer
  SIDE = 2,       // of the filter
  TAPS = SIDE * SIDE,
  CHUNK_CHANNELS = 64, // of a row that is made: 128 bytes
  CHUNKS = CHANNELS / CHUNK_CHANNELS,
  SIGN_BYTES = CHANNELS / 8,        // of a pixel
  MAKERS = WARPGROUP,               // threads that make rows, a row each
  MAKER_ARRIVALS = 1 + MAKERS / 32, // that make a stage full: TMA's expectation, and each warp
  MAKER_REGISTERS = 88,             // of a thread; consumers have the others
  MAKER_CONSUMERS_REGISTERS = 208,
  WGRAD_PANELS = 2, // of a tile of wgrad: 64 channels under both taps of a row
  AHEAD = 3,        // stages of wgrad for which a thread has begun to load
  WGRAD_TILES = TAPS * CHANNELS / CHUNK_CHANNELS / WGRAD_PANELS,
};

struct OwnPredictor {
  const uint8_t *signs; // [objects, 2h, 2w, SIGN_BYTES]
  const float *dlogits; // [objects, 2h, 2w]
  const int *label, *count;
  const void *w; // [classes, CHANNELS]
  Divider area, width;
  int objects, height;
};

__device__ __forceinline__ int rows_of(const OwnPredictor &p) { return min(*p.count, p.objects) * (int)p.area.by; }

// A pixel of x, as the thread that makes its rows of dy knows it.
struct OwnPixel {
  int hidden; // its first pixel of the hidden layer
  int object; // −1: there is none
};
__device__ __forceinline__ OwnPixel own_pixel(const OwnPredictor &p, int row, int rows) {
  if (row >= rows) return {0, -1};
  const int n = divide(row, p.area), rest = row - n * (int)p.area.by, i = divide(rest, p.width),
            j = rest - i * (int)p.width.by;
  return {(SIDE * (n * p.height + i) * (int)p.width.by + j) * SIDE, n};
}
__device__ __forceinline__ int hidden_pixel(const OwnPredictor &p, const OwnPixel &at, int tap) {
  return at.hidden + tap / SIDE * SIDE * (int)p.width.by + tap % SIDE;
}

// What a thread needs of a pixel's row of dy, on its way to shared memory. Loads to registers would have to arrive
// before rows_made's fence lets the thread go on.
template <int CHUNKS> struct __align__(16) OwnRow {
  uint2 signs[CHUNKS];
  float dlogit;
  int label;
};
__device__ __forceinline__ void copy_async4(void *to, const void *from, bool any) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(any ? 4 : 0)
               : "memory");
}
// Without a pixel, zeros.
template <int CHUNKS>
__device__ __forceinline__ void fetch_row(const OwnPredictor &p, const OwnPixel &at, int tap, int c,
                                          OwnRow<CHUNKS> &to) {
  const bool any = at.object >= 0;
  const int pixel = any ? hidden_pixel(p, at, tap) : 0;
  const uint8_t *signs = p.signs + (size_t)pixel * SIGN_BYTES + c / 8;
  if constexpr (CHUNKS > 1) {
#pragma unroll
    for (int i = 0; i < CHUNKS; i += 2) cp_async16(shared_address(&to.signs[i]), signs + i * 8, any);
  } else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(to.signs)), "l"(signs),
                 "r"(any ? 8 : 0)
                 : "memory");
  copy_async4(&to.dlogit, p.dlogits + pixel, any);
  copy_async4(&to.label, p.label + max(at.object, 0), any);
  cp_async_commit();
}

// 64 channels of a class's filter, and a row of dy made of them at `row` of a tile, swizzled: dlogit · w where the
// sign's bit is set.
template <class T> struct OwnFilter {
  Raw8<T> raw[CHUNK_CHANNELS / 8];
  __device__ __forceinline__ void load(const T *w) {
#pragma unroll
    for (int i = 0; i < CHUNK_CHANNELS / 8; i++) raw[i] = read8(w + i * 8);
  }
  __device__ __forceinline__ void make_row(uint32_t tile, int row, uint2 signs, float dlogit) const {
    const uint32_t to = tile + row * SWIZZLE_ROW;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t shifted[8]; // bit 8j + 7 is the sign of channel 8j + i
#pragma unroll
      for (int i = 0; i < 8; i++) shifted[i] = (half ? signs.y : signs.x) << (7 - i);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int i = half * 4 + j;
        const Eight w = to_eight<T>(raw[i]);
        uint32_t v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
          uint32_t mask; // sixteen times each sign: a selector of 8 and more takes a byte's highest bit eight times
          asm("prmt.b32 %0, %1, %2, %3;"
              : "=r"(mask)
              : "r"(shifted[2 * k]), "r"(shifted[2 * k + 1]), "r"(0xcc88 + 0x1111 * j));
          v[k] = pack<T>(dlogit * w.v[2 * k], dlogit * w.v[2 * k + 1]) & mask;
        }
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + ((i ^ row % 8) * 16)), "r"(v[0]), "r"(v[1]),
                     "r"(v[2]), "r"(v[3])
                     : "memory");
      }
    }
  }
};
// The thread's rows of a stage are there, for wgmma to read.
__device__ __forceinline__ void rows_made(uint32_t full) {
  shared_write_fence();
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive_at(full);
}

// ---- dgrad ----------------------------------------------------------------------------------------------------------

struct OwnDgradParams {
  OwnPredictor own;
  CUtensorMap filter, result;
  DestArgs out;
};

template <class T> using DgradTile = WgmmaTile<T, 128, CHANNELS, false>;

template <class T> struct OwnDgradShared {
  PipelineBarriers<DgradTile<T>::STAGES> pipe;
  OwnRow<CHUNKS> rows[2][MAKERS]; // of this tap and the next
};

template <class T>
__device__ __forceinline__ void make_dgrad(const OwnDgradParams &p, OwnDgradShared<T> &shared, uint32_t stages) {
  using Tile = DgradTile<T>;
  const OwnPredictor &own = p.own;
  PipelineState<Tile::STAGES> pipe(shared.pipe);
  const int thread = threadIdx.x % WARPGROUP, rows = rows_of(own);
  int first = blockIdx.x * Tile::TILE_M;
  OwnPixel at = own_pixel(own, first + thread, rows);
  if (first < rows) fetch_row(own, at, 0, 0, shared.rows[0][thread]);
  while (first < rows) {
#pragma unroll 1
    for (int tap = 0; tap < TAPS; tap++) {
      if (tap + 1 == TAPS) {
        first += gridDim.x * Tile::TILE_M;
        at = own_pixel(own, first + thread, rows);
      }
      fetch_row(own, at, (tap + 1) % TAPS, 0, shared.rows[(tap + 1) % 2][thread]);
      cp_async_wait<1>();
      const OwnRow<CHUNKS> &now = shared.rows[tap % 2][thread];
      const T *w = (const T *)own.w + now.label * CHANNELS;
      const float dlogit = now.dlogit;
#pragma unroll
      for (int i = 0; i < CHUNKS; i++) {
        const uint32_t a = stages + pipe.stage * Tile::STAGE_BYTES;
        OwnFilter<T> filter;
        filter.load(w + i * CHUNK_CHANNELS);
        pipe.wait_empty();
        if (thread == 0) {
          barrier_expect(pipe.full, Tile::B_BYTES);
          tma_load(a + Tile::A_BYTES, &p.filter, pipe.full, i * CHUNK_CHANNELS, tap, 0, 0);
        }
        filter.make_row(a, thread, now.signs[i], dlogit);
        rows_made(pipe.full);
        pipe.advance();
      }
    }
  }
}

template <class T>
__device__ __forceinline__ void consume_dgrad(const OwnDgradParams &p, OwnDgradShared<T> &shared, uint32_t stages) {
  using Tile = DgradTile<T>;
  constexpr int K_TILES = TAPS * CHUNKS;
  PipelineState<Tile::STAGES> pipe(shared.pipe);
  const int warpgroup = threadIdx.x / WARPGROUP, thread = threadIdx.x % WARPGROUP, warp = uniform(thread / 32);
  const typename Tile::Staging box{stages + Tile::STAGES * Tile::STAGE_BYTES +
                                   (warpgroup * 4 + warp) * Tile::STAGING_BYTES};
  const int rows = rows_of(p.own);
  for (int first = blockIdx.x * Tile::TILE_M; first < rows; first += gridDim.x * Tile::TILE_M) {
    float acc[CHANNELS / 2];
    const int row = first + warpgroup * WGMMA_M + warp * WGMMA_WARP_M, own_row = row + epilogue_lane_row();
    const OwnPixel at = own_pixel(p.own, own_row, rows);
    EpilogueRow to = {at.object < 0 ? -1 : own_row, own_row};
    epilogue_prefetch<T, CHANNELS>(p.out, to, 0);
    uint32_t before = 0;
    for (int i = 0; i < K_TILES; i++) {
      const uint32_t stage = stages + pipe.stage * Tile::STAGE_BYTES;
      pipe.wait_full();
      const uint64_t a = matrix_descriptor(stage + warpgroup * WGMMA_M * SWIZZLE_ROW),
                     b = matrix_descriptor(stage + Tile::A_BYTES);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < CHUNK_CHANNELS / WGMMA_K; k++)
        wgmma<T, CHANNELS, false>(acc, a + (k * WGMMA_K * 2 >> 4), b + (k * WGMMA_K * 2 >> 4), i + k > 0);
      wgmma_commit();
      wgmma_wait<1>();
      if (before && thread == 0) barrier_arrive_at(before);
      before = pipe.empty;
      pipe.advance();
    }
    wgmma_wait<0>();
    if (thread == 0) barrier_arrive_at(before);
    epilogue_wait_read<0>();
    epilogue_store_rows(p.out, acc, to, 0, NULL, box);
    if (thread % 32 == 0)
      box.issue_stores(CHANNELS, [&](int c, uint32_t from) { tma_store(&p.result, from, c, 0, row, 0); });
  }
  bulk_wait_read();
}

// dx [objects, h, w, 256]: tiles of 128 pixels, of which each block takes every gridDim.x-th.
template <class T>
__global__ __launch_bounds__(WGMMA_THREADS, 1) void own_dgrad_kernel(const __grid_constant__ OwnDgradParams p) {
  if constexpr (HAS_WGMMA) {
    __shared__ OwnDgradShared<T> shared;
    const uint32_t stages = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    if (threadIdx.x == 0) pipeline_init(shared.pipe, MAKER_ARRIVALS, CONSUMERS);
    __syncthreads();
    if (uniform(threadIdx.x / WARPGROUP) == CONSUMERS) {
      registers_dealloc<MAKER_REGISTERS>();
      make_dgrad<T>(p, shared, stages);
    } else {
      registers_alloc<MAKER_CONSUMERS_REGISTERS>();
      consume_dgrad<T>(p, shared, stages);
    }
  }
}

// ---- wgrad ----------------------------------------------------------------------------------------------------------

struct OwnWgradParams {
  OwnPredictor own;
  CUtensorMap x;
  WgradParams wgrad;
};
using OwnWgradTile = WgradTile<CHANNELS, WGRAD_PANELS>;

// The stages of 64 pixels of a slice. The last stage of all ends with the last pixel, so that no row past the objects
// is read; of pixels that the stage before had, too, dy is zero.
struct OwnSlice {
  int begin, end, rows;
  __device__ __forceinline__ OwnSlice(const OwnWgradParams &p) : rows(rows_of(p.own)) {
    const int all = (rows + WGRAD_TILE_K - 1) / WGRAD_TILE_K, share = divide(all, p.wgrad.slices),
              more = all - share * (int)p.wgrad.slices.by, slice = blockIdx.z;
    begin = share * slice + min(slice, more);
    end = begin + share + (slice < more);
  }
  __device__ __forceinline__ int first_row(int stage) const {
    return max(min(stage * WGRAD_TILE_K, rows - WGRAD_TILE_K), 0);
  }
};

struct OwnWgradShared {
  PipelineBarriers<OwnWgradTile::STAGES> pipe;
  OwnRow<1> rows[AHEAD + 1][MAKERS]; // of this stage and the next ones
};

template <class T>
__device__ __forceinline__ void make_wgrad(const OwnWgradParams &p, OwnWgradShared &shared, uint32_t stages) {
  using Tile = OwnWgradTile;
  const OwnPredictor &own = p.own;
  const OwnSlice slice(p);
  PipelineState<Tile::STAGES> pipe(shared.pipe);
  const int thread = threadIdx.x % WARPGROUP, panel = uniform(thread / WGRAD_TILE_K), row = thread % WGRAD_TILE_K;
  const Panel at = panel_of(p.wgrad, blockIdx.x * WGRAD_PANELS + panel);
  const T *w = (const T *)own.w + at.c;
  auto fetch = [&](int stage) {
    const int begin = stage * WGRAD_TILE_K, pixel = slice.first_row(stage) + row;
    const bool any = stage < slice.end && pixel >= begin;
    fetch_row(own, own_pixel(own, any ? pixel : slice.rows, slice.rows), at.y * SIDE + at.x, at.c,
              shared.rows[stage % (AHEAD + 1)][thread]);
  };
  OwnFilter<T> filter;
  int loaded = -1; // the class whose filter it is
  for (int i = 0; i < AHEAD; i++) fetch(slice.begin + i);
#pragma unroll 1
  for (int stage = slice.begin; stage < slice.end; stage++) {
    fetch(stage + AHEAD);
    cp_async_wait<AHEAD>();
    const OwnRow<1> now = shared.rows[stage % (AHEAD + 1)][thread];
    if (now.label != loaded) filter.load(w + now.label * CHANNELS);
    loaded = now.label;
    const uint32_t a = stages + pipe.stage * Tile::STAGE_BYTES, b = a + Tile::A_BYTES;
    pipe.wait_empty();
    if (thread == 0) {
      barrier_expect(pipe.full, Tile::A_BYTES);
      tma_load(a, &p.x, pipe.full, 0, slice.first_row(stage), 0, 0);
    }
    filter.make_row(b + panel * PANEL_BYTES, row, now.signs[0], now.dlogit);
    rows_made(pipe.full);
    pipe.advance();
  }
}

template <class T>
__device__ __forceinline__ void consume_wgrad(const OwnWgradParams &p, OwnWgradShared &shared, uint32_t stages) {
  using Tile = OwnWgradTile;
  constexpr int STEP = WGMMA_K * SWIZZLE_ROW;
  const OwnSlice slice(p);
  PipelineState<Tile::STAGES> pipe(shared.pipe);
  const int warpgroup = threadIdx.x / WARPGROUP;
  WgradAccumulator<Tile> acc = {};
  uint32_t before = 0;
  for (int i = slice.begin; i < slice.end; i++) {
    const uint32_t stage = stages + pipe.stage * Tile::STAGE_BYTES;
    pipe.wait_full();
    const uint64_t a = matrix_descriptor(stage + warpgroup * Tile::WGMMAS_M * Tile::A_PANEL),
                   b = matrix_descriptor(stage + Tile::A_BYTES, PANEL_BYTES);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < WGRAD_TILE_K / WGMMA_K; k++)
#pragma unroll
      for (int j = 0; j < Tile::WGMMAS_M; j++)
        wgmma<T, Tile::WGMMA_N, true, true>(acc.dw[j], a + ((j * Tile::A_PANEL + k * STEP) >> 4), b + (k * STEP >> 4),
                                            true);
    wgmma_commit();
    wgmma_wait<1>();
    if (before && threadIdx.x % WARPGROUP == 0) barrier_arrive_at(before);
    before = pipe.empty;
    pipe.advance();
  }
  wgmma_wait<0>();
  write_workspace(p.wgrad, acc);
}

// Grid (WGRAD_TILES, 1, slices): blocks of a slice read the same x.
template <class T>
__global__ __launch_bounds__(WGMMA_THREADS, 1) void own_wgrad_kernel(const __grid_constant__ OwnWgradParams p) {
  if constexpr (HAS_WGMMA) {
    __shared__ OwnWgradShared shared;
    const uint32_t stages = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    if (threadIdx.x == 0) pipeline_init(shared.pipe, MAKER_ARRIVALS, CONSUMERS);
    __syncthreads();
    grid_launch_dependents();
    if (uniform(threadIdx.x / WARPGROUP) == CONSUMERS) {
      registers_dealloc<MAKER_REGISTERS>();
      make_wgrad<T>(p, shared, stages);
    } else {
      registers_alloc<MAKER_CONSUMERS_REGISTERS>();
      consume_wgrad<T>(p, shared, stages);
    }
  }
}

// ---- launchers ------------------------------------------------------------------------------------------------------

// Rows of x have to fill a stage of wgrad.
extern "C" bool cuda_own_predictors(Device *dev, const Tensor *x, const Tensor *filter, const Tensor *w) {
  const bool halves = x->dtype == BF16 || x->dtype == F16,
             chosen = !dev->conv_rung || !strcmp(dev->conv_rung->name, "wgmma");
  return dev->wgmma && chosen && halves && x->c == CHANNELS && filter->n == CHANNELS && filter->c == CHANNELS &&
         filter->h == SIDE && filter->w == SIDE && w->c == CHANNELS && w->h * w->w == 1 &&
         x->h * x->w >= WGRAD_TILE_K && tensor_pixels(x) * TAPS < (size_t)1 << 31;
}

static OwnPredictor own_predictor(const RoiTargets *targets, const Tensor *x, const Tensor *w, const Tensor *dlogits,
                                  const void *signs) {
  CHECK(dlogits->n == x->n && dlogits->h == SIDE * x->h && dlogits->w == SIDE * x->w && dlogits->ldc == 1);
  return {(const uint8_t *)signs,
          (const float *)dlogits->data,
          targets->object_label,
          targets->objects.count,
          w->data,
          divider(x->h * x->w),
          divider(x->w),
          x->n,
          x->h};
}

template <class T> static void launch_dgrad(Device *dev, const OwnDgradParams &p, int tiles) {
  using Tile = DgradTile<T>;
  allow_shared(own_dgrad_kernel<T>, Tile::BYTES);
  own_dgrad_kernel<T><<<MIN(tiles, granted_to_products(dev)), WGMMA_THREADS, Tile::BYTES, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}

extern "C" void cuda_own_predictor_dgrad(Device *dev, const RoiTargets *targets, const Tensor *filter, const Tensor *w,
                                         const Tensor *dlogits, const void *signs, const Dest *dx) {
  const Tensor *t = &dx->t;
  CHECK(cuda_own_predictors(dev, t, filter, w) && !dx->bias && !dx->moments);
  if (dev->measuring || !t->n) return;
  OwnDgradParams p = {own_predictor(targets, t, w, dlogits, signs), map_filters(filter, CHUNK_CHANNELS, CHANNELS),
                      map_pixels(t, CHUNK_CHANNELS, WGMMA_WARP_M, MAP_RESULT), dest_args(dx)};
  CHECK(!p.out.resized);
  const int tiles = blocks_for(tensor_pixels(t), 128);
  if (t->dtype == BF16)
    launch_dgrad<__nv_bfloat16>(dev, p, tiles);
  else
    launch_dgrad<__half>(dev, p, tiles);
}

template <class T> static void launch_wgrad(Device *dev, OwnWgradParams &p) {
  using Tile = OwnWgradTile;
  const int slices = p.wgrad.slices.by;
  const SliceArray filter = {p.wgrad.workspace, (size_t)WGRAD_TILES * Tile::FRAGMENTS * CONSUMER_THREADS, slices},
                   bias = {};
  allow_shared(own_wgrad_kernel<T>, Tile::BYTES);
  own_wgrad_kernel<T><<<dim3(WGRAD_TILES, 1, slices), WGMMA_THREADS, Tile::BYTES, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
  int lanes = 1; // that share an element
  while (lanes < CONSUMER_THREADS / WARP && lanes * REDUCE_LOADS < slices) lanes *= 2;
  cudaLaunchAttribute follow = dependent_launch_attribute();
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks_for(filter.stride, CONSUMER_THREADS / lanes);
  config.blockDim = dim3(CONSUMER_THREADS / lanes, lanes);
  config.dynamicSmemBytes = REDUCE_BYTES;
  config.stream = stream_of(dev);
  config.attrs = &follow;
  config.numAttrs = 1;
  CUDA_CHECK(cudaLaunchKernelEx(&config, wgmma_wgrad_reduce_kernel<Tile>, p.wgrad, filter, bias));
}

// Of the multiprocessors granted, slices take as many as are whole multiples of the tiles.
extern "C" void cuda_own_predictor_wgrad(Device *dev, const RoiTargets *targets, const Tensor *x, const Tensor *hidden,
                                         const Tensor *w, const Tensor *dlogits, const void *signs,
                                         const FilterGrad out[2]) {
  const Tensor *dw = &out->dw;
  CHECK(cuda_own_predictors(dev, x, dw, w) && !out->scale && dw->dtype == F32);
  own_logits_sums(dev, targets, hidden, w, dlogits, &out[1], (float *)out->db, out->accumulate);
  const int slices = MAX(dev->granted / WGRAD_TILES, 1);
  OwnWgradParams p = {};
  p.wgrad.workspace = (float4 *)device_workspace(dev, (size_t)slices * tensor_elements(dw) * sizeof(float));
  if (dev->measuring || !x->n) return;
  p.own = own_predictor(targets, x, w, dlogits, signs);
  const size_t pixel = CHANNELS * dtype_size(x->dtype);
  p.x = map_strided(x->data, x->dtype, {PANEL, tensor_pixels(x), CHANNELS / PANEL, 1},
                    {pixel, SWIZZLE_ROW, pixel * tensor_pixels(x)}, {PANEL, WGRAD_TILE_K, CHANNELS / PANEL, 1},
                    MAP_OPERAND);
  WgradParams &g = p.wgrad;
  g.panels = TAPS * CHANNELS / PANEL;
  g.slices = divider(slices);
  g.r = g.s = divider(SIDE);
  g.taps = divider(TAPS);
  g.tiles_n = divider(WGRAD_TILES);
  g.tiles_m = 1;
  g.raster_m = divider(1);
  g.accumulate = out->accumulate;
  g.dw = *dw;
  g.row = TAPS * CHANNELS;
  if (x->dtype == BF16)
    launch_wgrad<__nv_bfloat16>(dev, p);
  else
    launch_wgrad<__half>(dev, p);
}
