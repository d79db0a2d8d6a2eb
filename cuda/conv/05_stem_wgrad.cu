// Rung 05, the stem's gradient by filter, for images of four channels at most. dw = dyᵀ · im2col(x): M are filters, K
// 64 pixels of a row, and N the taps of one row of the filter, which wgmma reads from one patch (stem.cuh) under every
// row by another matrix descriptor, MN-major: eight pixels are the rows of a core matrix, a pair of taps its columns. A
// block keeps the gradient of all taps in its accumulators, half of their rows in each of its warpgroups, for all tiles
// that it takes: split-K, one slice for each block, which a second kernel adds in a fixed order.
#include "cuda/conv/ladder.h"
#include "cuda/conv/stem.cuh"

enum {
  THREADS = CONSUMERS * WARPGROUP,
  WARPS = THREADS / 32,
  DY_BYTES = TILE_W * SWIZZLE_ROW, // of a row of output pixels
  LANES = 8,                       // that share an element's slices
};

struct StemGradParams {
  CUtensorMap dy; // [n, h, w, channels]
  StemInput x;
  int taps_h, half; // rows of taps: all, those of the first warpgroup
  float *dw, *db;   // slices [filters, slices, 64, taps_h, taps of the groups, 4]; [filters, slices, 64] or NULL
};

// Rows of taps of a warpgroup, at most, and groups of them; N of a wgmma: all groups of a row, where their pairs are
// evenly spaced.
template <class T_, int ROWS_, int GROUPS_> struct StemGradTile {
  using T = T_;
  static constexpr int ROWS = ROWS_, GROUPS = GROUPS_, ACROSS = 4 * GROUP * GROUPS;
  static constexpr int N = GROUPS == 2 ? 32 : 16, WGMMAS = ACROSS / N;
  static constexpr int BLOCKS = GROUPS == 3 ? 1 : 2; // of an SM, whose registers they share
};

template <class T> struct StemGradShared {
  alignas(128) T ones[2 * CORE_BYTES / sizeof(T)];
  uint64_t full[2]; // of dy's stages
};

// ---- kernel ---------------------------------------------------------------------------------------------------------

template <class Tile> struct StemGradAccumulator { float dw[Tile::ROWS][Tile::WGMMAS][Tile::N / 2], db[4]; };

// Issues the wgmmas of a tile. The second warpgroup, which has no more rows of taps than the first, sums dy, too: times
// a matrix of ones.
template <class Tile>
__device__ __forceinline__ void grad_multiply(StemGradAccumulator<Tile> &acc, const StemGradParams &p, int stride,
                                              int warpgroup, uint32_t dy, uint32_t patch, uint32_t ones) {
  using T = typename Tile::T;
  const StemPatch &s = p.x.patch;
  int taps = warpgroup ? p.taps_h - p.half : p.half;
  uint64_t a = matrix_descriptor(dy), column = unswizzled_descriptor(ones);
  uint64_t b = unswizzled_descriptor(patch + (warpgroup ? p.half * s.pitch : 0), CORE_BYTES, s.next_pair);
  bool sums = p.db && warpgroup;
  wgmma_fence();
#pragma unroll 1
  for (int row = 0; row < s.rows; row++, b += stride * s.pitch >> 4) {
    uint64_t under = b;
#pragma unroll 1
    for (int k = 0; k < TILE_W / WGMMA_K; k++) {
#pragma unroll
      for (int i = 0; i < Tile::ROWS; i++)
        if (i < taps) {
          wgmma_fence();
#pragma unroll
          for (int j = 0; j < Tile::WGMMAS; j++)
            wgmma<T, Tile::N, true, true>(acc.dw[i][j], a, under + (i * s.pitch + j * s.next_group >> 4), true);
        }
      if (sums) {
        wgmma_fence();
        wgmma<T, 8, true, true>(acc.db, a, column, true);
      }
      a += WGMMA_K * SWIZZLE_ROW >> 4;
      under += WGMMA_K * PAIR_BYTES >> 4;
    }
  }
  wgmma_fence();
  wgmma_commit();
}

template <class Tile>
__device__ void write_slice(const StemGradAccumulator<Tile> &acc, const StemGradParams &p, int warpgroup) {
  int lane = threadIdx.x % 32, taps = warpgroup ? p.taps_h - p.half : p.half;
  size_t filter = ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * STEM_FILTERS +
                  threadIdx.x % WARPGROUP / 32 * WGMMA_WARP_M + lane / 4;
#pragma unroll
  for (int i = 0; i < Tile::ROWS; i++)
    if (i < taps)
#pragma unroll
      for (int j = 0; j < Tile::WGMMAS; j++)
#pragma unroll
        for (int q = 0; q < Tile::N / 4; q++) { // two columns of row r, then of r + 8
          size_t row = (filter + q % 2 * 8) * p.taps_h + warpgroup * p.half + i;
          float *to = p.dw + row * Tile::ACROSS + j * Tile::N + q / 2 * 8 + lane % 4 * 2;
          *(float2 *)to = make_float2(acc.dw[i][j][2 * q], acc.dw[i][j][2 * q + 1]);
        }
  if (p.db && warpgroup && lane % 4 == 0) {
    p.db[filter] = acc.db[0];
    p.db[filter + 8] = acc.db[2];
  }
}

// Grid (slices, groups of 64 filters); a block takes every gridDim.x-th tile.
template <class Tile, int STRIDE>
__global__ __launch_bounds__(THREADS, Tile::BLOCKS) void stem_wgrad_kernel(const __grid_constant__ StemGradParams p) {
  if constexpr (HAS_WGMMA) {
    using T = typename Tile::T;
    __shared__ StemGradShared<T> s;
    uint32_t dy = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    int dy_bytes = p.x.patch.rows * DY_BYTES, patch_bytes = p.x.patch.bytes;
    uint32_t patches = dy + 2 * dy_bytes, ones = pinned_address(s.ones), full = pinned_address(s.full);
    int warpgroup = uniform(threadIdx.x / WARPGROUP), tiles = stem_tiles(p.x), stage = 0;
    StemGradAccumulator<Tile> acc = {};
    auto load = [&](int tile, int stage) {
      StemTile t = stem_tile(p.x, tile);
      if (threadIdx.x == 0) {
        barrier_expect(full + 8 * stage, dy_bytes);
        tma_load(dy + stage * dy_bytes, &p.dy, full + 8 * stage, blockIdx.y * STEM_FILTERS, t.x, t.y, t.n);
      }
      load_patch<T, STRIDE, WARPS>(p.x, t, patches + stage * patch_bytes);
    };
    if (threadIdx.x == 0) {
      barrier_init(full, 1);
      barrier_init(full + 8, 1);
      barrier_init_fence();
    }
    if (threadIdx.x < COUNT(s.ones)) s.ones[threadIdx.x] = from_float<T>(1.f);
    __syncthreads();
    if (blockIdx.x < tiles) load(blockIdx.x, 0);
    uint32_t parity = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      cp_async_wait<0>();
      shared_write_fence();
      __syncthreads(); // the patch is there, and the other stage free: its wgmmas were waited for
      barrier_wait(full + 8 * stage, parity);
      grad_multiply<Tile>(acc, p, STRIDE, warpgroup, dy + stage * dy_bytes, patches + stage * patch_bytes, ones);
      stage ^= 1;
      parity ^= !stage;
      if (tile + (int)gridDim.x < tiles) load(tile + gridDim.x, stage);
      wgmma_wait<0>();
    }
    write_slice<Tile>(acc, p, warpgroup);
  }
}

// dw [k, r, s, c] and db [k] from their slices, in the order of eight sums of every eighth, which shuffles add. Eight
// lanes to a tap, one tap more for db.
__global__ void stem_sum_kernel(const float *slices_dw, const float *slices_db, int slices, int across, Tensor dw,
                                float *db, const float *scale, bool accumulate) {
  int item = (blockIdx.x * blockDim.x + threadIdx.x) / LANES, lane = threadIdx.x % LANES, taps = dw.h * dw.w;
  int k = item / (taps + 1), tap = item % (taps + 1);
  if (k >= dw.n) return;
  size_t first = (size_t)k / STEM_FILTERS * slices * STEM_FILTERS + k % STEM_FILTERS;
  float4 sum = {};
  if (tap < taps) {
    const float *from = slices_dw + (first * dw.h + tap / dw.w) * across * STEM_MOST + tap % dw.w * STEM_MOST;
    size_t step = (size_t)STEM_FILTERS * dw.h * across * STEM_MOST;
#pragma unroll 4
    for (int i = lane; i < slices; i += LANES) {
      float4 v = *(const float4 *)(from + i * step);
      sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
  } else if (db)
    for (int i = lane; i < slices; i += LANES) sum.x += slices_db[first + (size_t)i * STEM_FILTERS];
  uint32_t sharers = ((1u << LANES) - 1) << (threadIdx.x % 32 - lane);
#pragma unroll
  for (int by = LANES / 2; by > 0; by /= 2) {
    sum.x += __shfl_xor_sync(sharers, sum.x, by);
    sum.y += __shfl_xor_sync(sharers, sum.y, by);
    sum.z += __shfl_xor_sync(sharers, sum.z, by);
    sum.w += __shfl_xor_sync(sharers, sum.w, by);
  }
  if (lane) return;
  if (tap == taps) {
    if (db) db[k] = (accumulate ? db[k] : 0.f) + sum.x;
    return;
  }
  float factor = scale ? scale[k] : 1.f, *to = (float *)dw.data + ((size_t)k * taps + tap) * dw.ldc;
  float v[STEM_MOST] = {sum.x, sum.y, sum.z, sum.w};
  for (int c = 0; c < dw.ldc; c++) to[c] = c < dw.c ? v[c] * factor + (accumulate ? to[c] : 0.f) : 0.f;
}

// ---- launcher -------------------------------------------------------------------------------------------------------

// Which tile: rows of taps of a warpgroup, and groups. Two groups are one wgmma, for which a stride of 4 leaves their
// pairs at two distances.
struct StemGradShape {
  int rows, groups;
};
static StemGradShape grad_shape(const Conv *conv, const Tensor *dw) {
  if (MAX(dw->h, dw->w) <= 4) return {2, 1};
  if (MAX(dw->h, dw->w) <= 8 && conv->stride < 4) return {4, 2};
  return {6, 3};
}
static StemPatch grad_patch(const Conv *conv, const Tensor *dw) {
  return stem_patch(conv->stride, dw->h, grad_shape(conv, dw).groups, conv->stride < 4 ? 4 : 2);
}
static int grad_shared(const StemPatch &patch) { return SWIZZLE_ATOM + 2 * (patch.rows * DY_BYTES + patch.bytes); }

bool stem_wgrad_fits(const Conv *conv, const Tensor *x, const Tensor *dw) {
  return stem_is(conv, x, dw) && MAX(dw->h, dw->w) <= 12 &&
         grad_shared(grad_patch(conv, dw)) <= MAX_SHARED - BLOCK_RESERVED;
}

template <class Tile, int STRIDE> static void launch_stride(Device *dev, const StemGradParams &p, dim3 grid) {
  auto kernel = stem_wgrad_kernel<Tile, STRIDE>;
  int shared = grad_shared(p.x.patch);
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  kernel<<<grid, THREADS, shared, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}
template <class T>
static void launch(Device *dev, const Conv *conv, const Tensor *dw, const StemGradParams &p, dim3 grid) {
  StemGradShape shape = grad_shape(conv, dw);
#define LAUNCH(rows_, groups_, stride_)                                                                                \
  if (shape.rows == rows_ && conv->stride == stride_)                                                                  \
  return launch_stride<StemGradTile<T, rows_, groups_>, stride_>(dev, p, grid)
  LAUNCH(2, 1, 1);
  LAUNCH(2, 1, 2);
  LAUNCH(2, 1, 4);
  LAUNCH(4, 2, 1);
  LAUNCH(4, 2, 2);
  LAUNCH(6, 3, 1);
  LAUNCH(6, 3, 2);
  LAUNCH(6, 3, 4);
#undef LAUNCH
  CHECK(!"a stride of the stem");
}

static void wgrad_of_pair(Device *dev, const Conv *conv, const Tensor *x, const Tensor *dy, const FilterGrad *out,
                          float *workspace, int slices) {
  const Tensor *dw = &out->dw;
  StemGradShape shape = grad_shape(conv, dw);
  int filters = blocks_for(dw->n, STEM_FILTERS), across = GROUP * shape.groups;
  StemGradParams p = {};
  p.taps_h = dw->h;
  p.half = (dw->h + 1) / 2;
  p.dw = workspace;
  if (out->db) p.db = workspace + (size_t)filters * slices * STEM_FILTERS * dw->h * across * STEM_MOST;
  if (!tensor_pixels(dy))
    slices = 0;
  else {
    p.x = stem_input(x, conv, dy, grad_patch(conv, dw));
    slices = MIN(slices, stem_capacity(p.x));
    p.dy = map_tiled(dy->data, dy->dtype, {(size_t)dy->ldc, (size_t)dy->w, (size_t)dy->h, (size_t)dy->n},
                     {STEM_FILTERS, TILE_W, p.x.patch.rows, 1});
    if (x->dtype == BF16)
      launch<__nv_bfloat16>(dev, conv, dw, p, dim3(slices, filters));
    else
      launch<__half>(dev, conv, dw, p, dim3(slices, filters));
  }
  size_t lanes = (size_t)dw->n * (dw->h * dw->w + 1) * LANES;
  stem_sum_kernel<<<blocks_for(lanes, THREADS), THREADS, 0, stream_of(dev)>>>(
      p.dw, p.db, slices, across, *dw, (float *)out->db, (const float *)out->scale, out->accumulate);
  LAUNCH_CHECK();
}

void stem_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  const Tensor *dw = &out->dw;
  StemGradShape shape = grad_shape(conv, dw);
  int filters = blocks_for(dw->n, STEM_FILTERS), shared = grad_shared(grad_patch(conv, dw));
  int blocks = MIN(shape.groups == 3 ? 1 : 2, SM_SHARED / (shared + BLOCK_RESERVED));
  int slices = blocks_for(dev->granted * blocks, filters);
  size_t slice = (size_t)dw->h * GROUP * shape.groups * STEM_MOST + 1; // of a filter: dw, db
  float *workspace = (float *)device_workspace(dev, filters * slices * STEM_FILTERS * slice * sizeof(float));
  if (!workspace) return;
  FilterGrad next = *out;
  for (int i = 0; i < pairs; i++, next.accumulate = true)
    wgrad_of_pair(dev, conv, &x[i], &dy[i], &next, workspace, slices);
}
