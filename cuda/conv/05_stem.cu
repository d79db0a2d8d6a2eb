// Rung 05, the stem: forward implicit GEMM for images, of four channels at most, whose taps are too short for a stage.
// M are 64 pixels of a row, N filters, and the K of one wgmma four taps side by side (stem.cuh): wgmma reads one patch
// under every tap by another matrix descriptor. Persistent: each block's warpgroup copies the next tile's patch while
// the tensor cores are busy with this one's, and the few blocks of an SM fill each other's gaps.
#include "cuda/conv/ladder.h"
#include "cuda/conv/stem_bank.cuh"

enum {
  WARPS = WARPGROUP / 32,
  STAGING_BYTES = WGMMA_WARP_M * SWIZZLE_ROW,
  ALL_STAGING_BYTES = WARPS * ROWS_AT_ONCE * STAGING_BYTES,
  MAX_BLOCKS = 4, // of an SM: as many as registers allow
};

struct StemParams {
  CUtensorMap result; // [n, h, w, channels]
  DestArgs out;
  StemInput x;
  Tensor filter;
  int bank; // bytes of the filter in shared memory
};

// ---- kernel ---------------------------------------------------------------------------------------------------------

// y [n, p, q, k] from x [n, h, w, 8], of which four channels count. Grid (persistent blocks, groups of 64 filters); a
// block takes every gridDim.x-th tile, two rows of output pixels at a time.
template <class T, int STRIDE>
__global__ __launch_bounds__(WARPGROUP, MAX_BLOCKS) void stem_kernel(const __grid_constant__ StemParams p) {
  if constexpr (HAS_WGMMA) {
    __shared__ alignas(8) float bias[STEM_FILTERS];
    uint32_t staging = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    uint32_t bank = staging + ALL_STAGING_BYTES, patch = bank + p.bank, next = patch + p.x.patch.bytes;
    int warp = uniform(threadIdx.x / 32), column = blockIdx.y * STEM_FILTERS;
    int tiles = stem_tiles(p.x), tile = blockIdx.x;
    if (tile >= tiles) return;
    staging += warp * ROWS_AT_ONCE * STAGING_BYTES;
    StemTile t = stem_tile(p.x, tile);
    load_patch<T, STRIDE, WARPS>(p.x, t, patch);
    load_bank<T>(p.filter, p.x.patch.groups, column, bank);
    load_bias<STEM_FILTERS>(p.out, column, bias);
    while (true) {
      cp_async_wait<0>();
      shared_write_fence();
      __syncthreads(); // the patch is there, and the other one free: its wgmmas were waited for
      StemTile after = t;
      bool more = (tile += gridDim.x) < tiles;
#pragma unroll 1
      for (int first = 0; first < p.x.patch.rows; first += ROWS_AT_ONCE) {
        float acc[ROWS_AT_ONCE][STEM_FILTERS / 2];
        stem_multiply<T, STRIDE>(acc, p.x.patch, p.filter.h, first, patch, bank);
        if (first == 0 && more) {
          after = stem_tile(p.x, tile);
          load_patch<T, STRIDE, WARPS>(p.x, after, next);
        }
        wgmma_wait<0>();
        epilogue_wait_read<0>();
#pragma unroll
        for (int j = 0; j < ROWS_AT_ONCE; j++) {
          int y = t.y + first + j, x0 = t.x + warp * WGMMA_WARP_M, x = x0 + epilogue_lane_row();
          EpilogueRow row = epilogue_row(p.out, y < p.out.t.h && x < p.out.t.w, t.n, y, x);
          EpilogueTile<T, STEM_FILTERS> box{staging + j * STAGING_BYTES};
          epilogue_store_rows(p.out, acc[j], row, column, bias, box);
          if (threadIdx.x % 32 == 0)
            box.issue_stores(p.out.t.ldc - column,
                             [&](int c, uint32_t from) { tma_store(&p.result, from, column + c, x0, y, t.n); });
        }
      }
      if (!more) break;
      t = after;
      uint32_t done = patch;
      patch = next;
      next = done;
    }
    bulk_wait_read();
  }
}

// ---- launcher -------------------------------------------------------------------------------------------------------

static StemPatch forward_patch(const Conv *conv, const Tensor *w) {
  return stem_patch(conv->stride, w->h, blocks_for(w->w, GROUP), w->h <= 7 ? 4 : 2);
}
static int forward_shared(const Conv *conv, const Tensor *w) {
  return SWIZZLE_ATOM + ALL_STAGING_BYTES + stem_bank_bytes(w) + 2 * forward_patch(conv, w).bytes;
}

bool stem_fits(const Conv *conv, const Tensor *x, const Tensor *w) {
  if (w->dtype == F32) return stem_tf32_fits(conv, x, w);
  return stem_is(conv, x, w) && MAX(w->h, w->w) <= 16 && forward_shared(conv, w) <= MAX_SHARED - BLOCK_RESERVED;
}

template <class T, int STRIDE> static void launch_stride(Device *dev, const StemParams &p, int shared) {
  auto kernel = stem_kernel<T, STRIDE>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  int filters = blocks_for(p.filter.n, STEM_FILTERS), blocks = MIN(MAX_BLOCKS, SM_SHARED / (shared + BLOCK_RESERVED));
  dim3 grid(MIN(stem_capacity(p.x), blocks_for(dev->granted * blocks, filters)), filters);
  kernel<<<grid, WARPGROUP, shared, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}
template <class T> static void launch(Device *dev, int stride, const StemParams &p, int shared) {
  if (stride == 1)
    launch_stride<T, 1>(dev, p, shared);
  else if (stride == 2)
    launch_stride<T, 2>(dev, p, shared);
  else
    launch_stride<T, 4>(dev, p, shared);
}

void stem_forward(Device *dev, const Conv *conv, const Tensor *x, const Tensor *w, const Dest *y) {
  if (!x->n) return;
  if (w->dtype == F32) return stem_tf32_forward(dev, conv, x, w, y);
  StemParams p = {};
  const Tensor *t = &y->t;
  CHECK(tensor_pixels(t) >> 31 == 0 && (!y->addend || tensor_pixels(y->addend) >> 31 == 0));
  p.result = map_tiled(t->data, t->dtype, {(size_t)t->ldc, (size_t)t->w, (size_t)t->h, (size_t)t->n},
                       {STEM_FILTERS, WGMMA_WARP_M, 1, 1}, MAP_RESULT);
  p.out = dest_args(y);
  p.x = stem_input(x, conv, t, forward_patch(conv, w));
  p.filter = *w;
  p.bank = stem_bank_bytes(w);
  if (w->dtype == BF16)
    launch<__nv_bfloat16>(dev, conv->stride, p, forward_shared(conv, w));
  else
    launch<__half>(dev, conv->stride, p, forward_shared(conv, w));
}
