// Rung 05, the stem: forward implicit GEMM for images (three channels, eight with padding) and filters up to 7 × 7 with
// stride 2, whose taps are too short for a stage. Two pixels side by side are sixteen channels, the K of one wgmma, and
// to the right of a pixel lie the next ones: with a front tap of zeros where the padding is odd, four such pairs are a
// row of the filter. So a patch of the image is loaded once, as it is, and wgmma reads it under every tap by another
// matrix descriptor: a row of the filter further is a row of the patch further, and a pair of taps further is one pair
// of pixels. Persistent and warp-specialised like the rung's other kernels: one producer thread, two consumer
// warpgroups, which keep the whole filter in shared memory.
#include "cuda/conv/ladder.h"
#include "cuda/conv/wgmma.cuh"

enum {
  CHANNELS = 8, // of a pixel
  PAIR_BYTES = 32,
  TAPS_Y = 7,
  PAIRS = 4,  // of taps side by side
  TILE_H = 4, // threadblock tile: two rows of output pixels for each consumer warpgroup
  TILE_W = WGMMA_M,
  FILTERS = 64,
  PATCH_H = 2 * (TILE_H - 1) + TAPS_Y,
  PATCH_W = TILE_W + 8, // pairs: PAIRS - 1 more than output pixels, and whole swizzle atoms
  PATCH_BYTES = PATCH_H * PATCH_W * PAIR_BYTES,
  FILTER_BYTES = FILTERS * PAIR_BYTES, // of one pair of taps
  BANK_BYTES = TAPS_Y * PAIRS * FILTER_BYTES,
  STAGES = 4,
  STAGING_BYTES = WGMMA_WARP_M * SWIZZLE_ROW,
  ALL_STAGING_BYTES = 4 * TILE_H * STAGING_BYTES,
  SHARED_BYTES = SWIZZLE_ATOM + BANK_BYTES + ALL_STAGING_BYTES + STAGES * PATCH_BYTES,
};
static_assert(PATCH_W >= TILE_W + PAIRS - 1 && SHARED_BYTES <= MAX_SHARED - 2048 && TILE_H == 2 * CONSUMERS);

struct StemParams {
  CUtensorMap image, filter; // [n, h, w / 2, pair]; [filters, taps down, (taps across, channels)]
  CUtensorMap result;        // [n, h, w, channels]
  DestArgs out;
  Tensor in;
  int pad_y, pad_pairs, front; // front: 1 if a tap of zeros comes first
  int tiles_y, tiles_x;        // tiles of an image
};

struct StemShared {
  alignas(8) float bias[FILTERS];
  PipelineBarriers<STAGES> pipe;
  uint64_t filter;
};

struct StemTile {
  int n, y, x;
};
__device__ __forceinline__ StemTile stem_tile(const StemParams &p, int tile) {
  int row = tile / p.tiles_x;
  return {row / p.tiles_y, row % p.tiles_y * TILE_H, tile % p.tiles_x * TILE_W};
}

// ---- kernel ---------------------------------------------------------------------------------------------------------

__device__ void stem_produce(const StemParams &p, StemShared &s, uint32_t bank, int tiles) {
  uint32_t filter = pinned_address(&s.filter);
  barrier_expect(filter, BANK_BYTES);
  for (int i = 0; i < TAPS_Y * PAIRS; i++)
    tma_load(bank + i * FILTER_BYTES, &p.filter, filter, (2 * (i % PAIRS) - p.front) * CHANNELS, i / PAIRS, 0, 0);
  PipelineState<STAGES> pipe(s.pipe);
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, pipe.advance()) {
    StemTile t = stem_tile(p, tile);
    pipe.wait_empty();
    barrier_expect(pipe.full, PATCH_BYTES);
    tma_load(bank + BANK_BYTES + pipe.stage * PATCH_BYTES, &p.image, pipe.full, 0, t.x - p.pad_pairs, 2 * t.y - p.pad_y,
             t.n);
  }
}

template <class T>
__device__ void stem_consume(const StemParams &p, StemShared &s, uint32_t bank, int tiles, int warpgroup) {
  PipelineState<STAGES> pipe(s.pipe);
  int warp = uniform(threadIdx.x % WARPGROUP / 32);
  uint32_t staging = bank + BANK_BYTES + STAGES * PATCH_BYTES + (warpgroup * 4 + warp) * 2 * STAGING_BYTES;
  barrier_wait(pinned_address(&s.filter), 0);
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, pipe.advance()) {
    StemTile t = stem_tile(p, tile);
    pipe.wait_full();
    uint32_t patch = bank + BANK_BYTES + pipe.stage * PATCH_BYTES;
    float acc[2][FILTERS / 2] = {};
#pragma unroll 1
    for (int tap = 0; tap < TAPS_Y; tap++) {
      wgmma_fence();
#pragma unroll
      for (int pair = 0; pair < PAIRS; pair++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
          int at = (2 * (2 * warpgroup + j) + tap) * PATCH_W + pair;
          wgmma<T, FILTERS, false>(acc[j], matrix_descriptor<PAIR_BYTES>(patch + at * PAIR_BYTES),
                                   matrix_descriptor<PAIR_BYTES>(bank + (tap * PAIRS + pair) * FILTER_BYTES), true);
        }
    }
    wgmma_commit();
    wgmma_wait<0>();
    if (threadIdx.x % WARPGROUP == 0) barrier_arrive_at(pipe.empty);
    epilogue_wait_read<0>();
#pragma unroll
    for (int j = 0; j < 2; j++) {
      int y = t.y + 2 * warpgroup + j, x0 = t.x + warp * WGMMA_WARP_M, x = x0 + epilogue_lane_row();
      EpilogueRow row = epilogue_row(p.out, y < p.out.t.h && x < p.out.t.w, t.n, y, x);
      EpilogueTile<T, FILTERS> box{staging + j * STAGING_BYTES};
      epilogue_store_rows(p.out, acc[j], row, 0, s.bias, box);
      if (threadIdx.x % 32 == 0)
        box.issue_stores(p.out.t.ldc, [&](int c, uint32_t from) { tma_store(&p.result, from, c, x0, y, t.n); });
    }
  }
  bulk_wait_read();
}

// y [n, p, q, 64 channels at most] from x [n, h, w, 8]. A threadblock for each SM that is granted, which takes every
// gridDim.x-th tile of 4 rows by 64 output pixels; a consumer warpgroup has two of the rows, a wgmma of 64 pixels each.
template <class T>
__global__ __launch_bounds__(WGMMA_THREADS, 1) void stem_kernel(const __grid_constant__ StemParams p) {
  if constexpr (HAS_WGMMA) {
    __shared__ StemShared s;
    uint32_t bank = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    int warpgroup = uniform(threadIdx.x / WARPGROUP), tiles = rows_of(p.in) * p.tiles_y * p.tiles_x;
    if (threadIdx.x == 0) {
      barrier_init(pinned_address(&s.filter), 1);
      pipeline_init(s.pipe, 1, CONSUMERS);
    }
    if (warpgroup == 0) load_bias<FILTERS>(p.out, 0, s.bias);
    __syncthreads();
    if (warpgroup == CONSUMERS) {
      registers_dealloc<PRODUCER_REGISTERS>();
      if (threadIdx.x == CONSUMERS * WARPGROUP) stem_produce(p, s, bank, tiles);
    } else {
      registers_alloc<CONSUMER_REGISTERS>();
      stem_consume<T>(p, s, bank, tiles, warpgroup);
    }
  }
}

// ---- launcher -------------------------------------------------------------------------------------------------------

bool stem_fits(const Conv *conv, int pairs, const Tensor *x, const Tensor *w) {
  return pairs == 1 && x->ldc == CHANNELS && conv->stride == 2 && x->w % 2 == 0 && w->h <= TAPS_Y &&
         w->w + conv->pad % 2 <= 2 * PAIRS && channel_pitch(w->n) <= FILTERS;
}

template <class T> static void launch(Device *dev, const StemParams &p, int tiles) {
  auto kernel = stem_kernel<T>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES));
  kernel<<<MIN(tiles, dev->granted), WGMMA_THREADS, SHARED_BYTES, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}

void stem_forward(Device *dev, const Conv *conv, const Tensor *x, const Tensor *w, const Dest *y) {
  if (!x->n) return;
  StemParams p = {};
  size_t pair = PAIR_BYTES / dtype_size(x->dtype);
  p.image = map_tiled(x->data, x->dtype, {pair, (size_t)x->w / 2, (size_t)x->h, (size_t)x->n},
                      {(int)pair, PATCH_W, PATCH_H, 1});
  p.filter =
      map_tiled(w->data, w->dtype, {(size_t)w->w * w->ldc, (size_t)w->h, (size_t)w->n, 1}, {(int)pair, 1, FILTERS, 1});
  const Tensor *t = &y->t;
  p.result = map_tiled(t->data, t->dtype, {(size_t)t->ldc, (size_t)t->w, (size_t)t->h, (size_t)t->n},
                       {FILTERS, WGMMA_WARP_M, 1, 1}, MAP_RESULT);
  p.out = dest_args(y);
  p.in = *x;
  p.pad_y = conv->pad;
  p.front = conv->pad % 2;
  p.pad_pairs = (conv->pad + p.front) / 2;
  p.tiles_y = blocks_for(y->t.h, TILE_H);
  p.tiles_x = blocks_for(y->t.w, TILE_W);
  int tiles = x->n * p.tiles_y * p.tiles_x;
  if (w->dtype == BF16)
    launch<__nv_bfloat16>(dev, p, tiles);
  else
    launch<__half>(dev, p, tiles);
}
