// Rung 05, the stem's gradient by filter in TF32, for images of four channels at most. dwᵀ = im2col(x)ᵀ · dy: M are
// four channels of each tap, N 64 filters, K the pixels of a row. wgmma takes floats K-major only: x is the operand in
// registers, for which plain loads find what lies under each tap in one patch (stem.cuh), and dy is transposed
// (pixel_transposer.cuh), 32 pixels at a time. A block keeps the gradient of all taps in its accumulators, half of them
// in each of its warpgroups, for all tiles that it takes: split-K, one slice for each block, or two where the taps are
// so few that the warpgroups share the pixels instead. A second kernel adds the slices in a fixed order.
#include "cuda/conv/ladder.h"
#include "cuda/conv/pixel_transposer.cuh"
#include "cuda/conv/stem.cuh"

enum {
  THREADS = CONSUMERS * WARPGROUP,
  WARPS = THREADS / 32,
  DY_PANELS = STEM_FILTERS / CHANNELS,
  PANEL_ROW = TILE_W * SWIZZLE_ROW, // bytes of a row of output pixels in a panel
  TURNED_BYTES = DY_PANELS * PANEL_FLOATS,
  SUM_LANES = THREADS / 32, // that share an element's slices
};

// WGMMAS: of 64 channels of taps, of a warpgroup. SHARED_K: the warpgroups have the same taps, and half of the pixels.
template <int WGMMAS_, bool SHARED_K_> struct StemTf32Tile {
  static constexpr int WGMMAS = WGMMAS_, PARTS = SHARED_K_ ? CONSUMERS : 1, BLOCKS = K_BLOCKS / PARTS;
  static constexpr int ROWS = WGMMAS * WGMMA_M * CONSUMERS / PARTS; // of all taps
};

struct StemTf32Params {
  CUtensorMap dy; // [n, h, w, channels]
  StemInput x;
  int taps_h, taps_w;
  float *dw, *db; // slices [groups of filters, slices, 4 · taps, 64]; [groups of filters, blocks, 64] or NULL
};

// ---- kernel ---------------------------------------------------------------------------------------------------------

// Grid (blocks, groups of 64 filters); a block takes every gridDim.x-th tile.
template <class Tile, int STRIDE>
__global__ __launch_bounds__(THREADS, 1) void stem_wgrad_tf32_kernel(const __grid_constant__ StemTf32Params p) {
  if constexpr (HAS_WGMMA) {
    __shared__ uint64_t full[2]; // of dy's stages
    __shared__ float4 sums[WARPS][DY_PANELS][8];
    const StemPatch &s = p.x.patch;
    const uint32_t dy = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    const int panel = s.rows * PANEL_ROW, dy_bytes = DY_PANELS * panel;
    const uint32_t turned = dy + 2 * dy_bytes, patches = turned + TURNED * TURNED_BYTES, full0 = pinned_address(full);
    const int warp = uniform(threadIdx.x / 32), warpgroup = warp / (WARPGROUP / 32), lane = threadIdx.x % 32;
    const int tiles = stem_tiles(p.x), rows = 4 * p.taps_h * p.taps_w;
    const int first =
        (Tile::PARTS > 1 ? 0 : warpgroup * Tile::WGMMAS * WGMMA_M) + warp % (WARPGROUP / 32) * 16 + lane / 4;

    // Where a thread's rows of A, r and r + 8 of each wgmma, begin in a patch; rows that are no tap read the first one.
    uint32_t under[Tile::WGMMAS][2];
#pragma unroll
    for (int i = 0; i < Tile::WGMMAS; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = first + i * WGMMA_M + half * 8, tap = row < rows ? row / 4 : 0, ty = tap / p.taps_w;
        under[i][half] = ty * s.pitch + patch_offset<float, STRIDE>(s, tap - ty * p.taps_w) + row % 4 * 4 +
                         lane % 4 * 2 * PAIR_BYTES;
      }

    auto load = [&](int tile, int stage) {
      const StemTile t = stem_tile(p.x, tile);
      if (threadIdx.x == 0) {
        barrier_expect(full0 + 8 * stage, dy_bytes);
#pragma unroll
        for (int i = 0; i < DY_PANELS; i++)
          tma_load(dy + stage * dy_bytes + i * panel, &p.dy, full0 + 8 * stage,
                   blockIdx.y * STEM_FILTERS + i * CHANNELS, t.x, t.y, t.n);
      }
      load_patch<float, STRIDE, WARPS>(p.x, t, patches + stage * s.bytes);
    };
    if (threadIdx.x == 0) {
      barrier_init(full0, 1);
      barrier_init(full0 + 8, 1);
      barrier_init_fence();
    }
    __syncthreads();
    if (blockIdx.x < tiles) load(blockIdx.x, 0);

    const PixelTransposer transposer;
    float acc[Tile::WGMMAS][STEM_FILTERS / 2] = {};
    float4 db[DY_PANELS] = {};
    uint32_t a[Tile::BLOCKS][Tile::WGMMAS][4], parity = 0;
    int stage = 0, at = 0; // at: the K-major tile that is next to be written
    if (blockIdx.x < tiles) {
      // One loop over the steps of all tiles: in two, ptxas would wait for each wgmma.
      const int steps = s.rows * (TILE_W / TILE_K);
      int step = 0, tile = blockIdx.x;
      uint32_t patch = patches;
#pragma unroll 1
      do {
        if (step == 0) {
          patch = patches + stage * s.bytes;
          cp_async_wait<0>();
          round_patch<STRIDE, WARPS>(s, patch);
          __syncthreads(); // the patch is there, and the other stage free: all have read it
          if (tile + (int)gridDim.x < tiles) load(tile + gridDim.x, stage ^ 1);
          barrier_wait(full0 + 8 * stage, parity);
        }
        const int row = step / (TILE_W / TILE_K), pixel = step % (TILE_W / TILE_K) * TILE_K;
        const uint32_t tile_at = turned + at * TURNED_BYTES;
        at = at + 1 == TURNED ? 0 : at + 1;
        transposer.turn<DY_PANELS>(dy + stage * dy_bytes + row * PANEL_ROW + pixel * SWIZZLE_ROW, tile_at, panel, &db);
        shared_write_fence();
        __syncthreads();
        const int k0 = Tile::PARTS > 1 ? warpgroup * Tile::BLOCKS : 0;
        const uint64_t b = matrix_descriptor(tile_at) + (k0 * TF32_K * 4 >> 4);
        const uint32_t from = patch + row * STRIDE * s.pitch + (pixel + k0 * TF32_K) * PAIR_BYTES;
#pragma unroll
        for (int k = 0; k < Tile::BLOCKS; k++) {
          wgmma_wait<Tile::BLOCKS - 1>(); // those of the step before that have read a[k]
#pragma unroll
          for (int i = 0; i < Tile::WGMMAS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) // row r, r + 8 of a pixel, then of the next
              asm volatile("ld.shared.b32 %0, [%1];"
                           : "=r"(a[k][i][j])
                           : "r"(from + under[i][j % 2] + (k * TF32_K + j / 2) * PAIR_BYTES)
                           : "memory");
          wgmma_fence();
#pragma unroll
          for (int i = 0; i < Tile::WGMMAS; i++)
            wgmma_tf32_registers<STEM_FILTERS>(acc[i], a[k][i], b + (k * TF32_K * 4 >> 4));
          wgmma_commit();
        }
        if (++step == steps) {
          step = 0;
          stage ^= 1;
          parity ^= !stage;
          tile += gridDim.x;
        }
      } while (tile < tiles);
      wgmma_wait<0>();
    }

    const size_t block = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
    float *to = p.dw + (block * Tile::PARTS + (Tile::PARTS > 1 ? warpgroup : 0)) * rows * STEM_FILTERS;
#pragma unroll
    for (int i = 0; i < Tile::WGMMAS; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = first + i * WGMMA_M + half * 8;
        if (row < rows)
#pragma unroll
          for (int j = 0; j < STEM_FILTERS / 8; j++)
            *(float2 *)(to + row * STEM_FILTERS + j * 8 + lane % 4 * 2) =
                make_float2(acc[i][4 * j + 2 * half], acc[i][4 * j + 2 * half + 1]);
      }
    if (!p.db) return;
#pragma unroll
    for (int i = 0; i < DY_PANELS; i++) {
#pragma unroll
      for (int by = 8; by < 32; by *= 2) // lanes of other pixels
        add4(db[i], make_float4(__shfl_xor_sync(~0u, db[i].x, by), __shfl_xor_sync(~0u, db[i].y, by),
                                __shfl_xor_sync(~0u, db[i].z, by), __shfl_xor_sync(~0u, db[i].w, by)));
      if (lane < 8) sums[warp][i][lane] = db[i];
    }
    __syncthreads();
    if (threadIdx.x < STEM_FILTERS) {
      float sum = 0;
      for (int w = 0; w < WARPS; w++) sum += ((const float *)sums[w])[threadIdx.x];
      p.db[block * STEM_FILTERS + threadIdx.x] = sum;
    }
  }
}

// dw [k, r, s, c] from its slices, db [k] from its blocks'; a block of threads for 32 filters of a channel of a tap,
// one more for db. A warp adds every eighth slice, and the first adds up the warps' sums in order.
__global__ void stem_sum_tf32_kernel(const float *slices_dw, const float *slices_db, int slices, int blocks, Tensor dw,
                                     float *db, const float *scale, bool accumulate) {
  __shared__ float part[SUM_LANES][32];
  const int rows = 4 * dw.h * dw.w, row = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int k = blockIdx.y * 32 + lane, group = k / STEM_FILTERS;
  const bool is_db = row == rows;
  const int count = is_db ? blocks : slices, each = is_db ? 1 : rows;
  const float *from = (is_db ? slices_db : slices_dw + row * STEM_FILTERS) +
                      (size_t)group * count * each * STEM_FILTERS + k % STEM_FILTERS;
  float sum = 0;
#pragma unroll 4
  for (int i = warp; i < count; i += SUM_LANES) sum += from[(size_t)i * each * STEM_FILTERS];
  part[warp][lane] = sum;
  __syncthreads();
  if (warp || k >= dw.n) return;
  for (int i = 1; i < SUM_LANES; i++) sum += part[i][lane];
  if (is_db) {
    db[k] = (accumulate ? db[k] : 0.f) + sum;
    return;
  }
  const int c = row % 4;
  float *to = (float *)dw.data + ((size_t)k * dw.h * dw.w + row / 4) * STEM_CHANNELS + c;
  *to = c < dw.c ? (accumulate ? *to : 0.f) + sum * (scale ? scale[k] : 1.f) : 0.f;
  to[4] = 0;
}

// ---- launcher -------------------------------------------------------------------------------------------------------

static StemPatch tf32_patch(const Conv *conv, const Tensor *dw) {
  return stem_patch(conv->stride, dw->h, blocks_for(dw->w, GROUP), conv->stride < 4 ? 4 : 2, true);
}
static int tf32_shared(const StemPatch &patch) {
  return SWIZZLE_ATOM + 2 * (patch.rows * DY_PANELS * PANEL_ROW + patch.bytes) + TURNED * TURNED_BYTES;
}
static int channels_of_taps(const Tensor *dw) { return 4 * dw->h * dw->w; }

bool stem_wgrad_tf32_fits(const Conv *conv, const Tensor *x, const Tensor *dw) {
  return stem_is(conv, x, dw) && channels_of_taps(dw) <= StemTf32Tile<4, false>::ROWS &&
         tf32_shared(tf32_patch(conv, dw)) <= MAX_SHARED - BLOCK_RESERVED;
}

template <class Tile, int STRIDE> static void launch_stride(Device *dev, const StemTf32Params &p, dim3 grid) {
  auto kernel = stem_wgrad_tf32_kernel<Tile, STRIDE>;
  const int shared = tf32_shared(p.x.patch);
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  kernel<<<grid, THREADS, shared, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}
template <class Tile> static void launch(Device *dev, int stride, const StemTf32Params &p, dim3 grid) {
  if (stride == 1)
    launch_stride<Tile, 1>(dev, p, grid);
  else if (stride == 2)
    launch_stride<Tile, 2>(dev, p, grid);
  else
    launch_stride<Tile, 4>(dev, p, grid);
}

static void wgrad_of_pair(Device *dev, const Conv *conv, const Tensor *x, const Tensor *dy, const FilterGrad *out,
                          float *workspace, int blocks) {
  const Tensor *dw = &out->dw;
  const int groups = blocks_for(dw->n, STEM_FILTERS), rows = channels_of_taps(dw);
  const int parts = rows <= WGMMA_M ? CONSUMERS : 1;
  StemTf32Params p = {};
  p.taps_h = dw->h;
  p.taps_w = dw->w;
  p.dw = workspace;
  if (tensor_pixels(dy)) {
    p.x = stem_input(x, conv, dy, tf32_patch(conv, dw));
    blocks = MIN(blocks, stem_capacity(p.x));
    if (out->db) p.db = workspace + (size_t)groups * blocks * parts * rows * STEM_FILTERS;
    p.dy = map_tiled(dy->data, F32, {(size_t)dy->ldc, (size_t)dy->w, (size_t)dy->h, (size_t)dy->n},
                     {CHANNELS, TILE_W, p.x.patch.rows, 1});
    const dim3 grid(blocks, groups);
    if (rows <= StemTf32Tile<1, true>::ROWS)
      launch<StemTf32Tile<1, true>>(dev, conv->stride, p, grid);
    else if (rows <= StemTf32Tile<2, false>::ROWS)
      launch<StemTf32Tile<2, false>>(dev, conv->stride, p, grid);
    else
      launch<StemTf32Tile<4, false>>(dev, conv->stride, p, grid);
  } else
    blocks = 0;
  const dim3 grid(rows + (out->db ? 1 : 0), blocks_for(dw->n, 32));
  stem_sum_tf32_kernel<<<grid, 32 * SUM_LANES, 0, stream_of(dev)>>>(
      p.dw, p.db, blocks * parts, blocks, *dw, (float *)out->db, (const float *)out->scale, out->accumulate);
  LAUNCH_CHECK();
}

void stem_wgrad_tf32(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy,
                     const FilterGrad *out) {
  const int groups = blocks_for(out->dw.n, STEM_FILTERS), blocks = blocks_for(dev->granted, groups);
  const size_t slice = (size_t)CONSUMERS * channels_of_taps(&out->dw) + 1; // of a filter: dw, at most; db
  float *workspace = (float *)device_workspace(dev, groups * blocks * STEM_FILTERS * slice * sizeof(float));
  if (!workspace) return;
  FilterGrad next = *out;
  for (int i = 0; i < pairs; i++, next.accumulate = true)
    wgrad_of_pair(dev, conv, &x[i], &dy[i], &next, workspace, blocks);
}
