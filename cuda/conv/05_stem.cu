// Rung 05, the stem: forward implicit GEMM for images, of four channels at most, whose taps are too short for a stage.
// A patch of the image lies in shared memory without the padding channels: two pixels side by side are one row of 16
// bytes of a core matrix, and four taps side by side are sixteen channels, the K of one wgmma. So wgmma reads a patch
// under every tap by another matrix descriptor: a row of the filter further is a row of the patch further, and four
// taps further is a constant distance. Since descriptors say how far core matrices are apart, these overlap as the
// pixels under neighbouring taps do. Persistent: each block's warpgroup copies the next tile's patch while the tensor
// cores are busy with this one's, and the few blocks of an SM fill each other's gaps.
//
// Where a pair of pixels lies, for output pixel m and the i-th pair of taps: pair i begins at pixel stride · m + 2i of
// the patch.
//   stride 1: row m + 2i, and every pixel lies in two rows: that of its own, and that of the pixel to its left;
//   stride 2: row m + i;
//   stride 4: row m + i / 2 of one of two planes, which even and odd pairs have to themselves.
#include "cuda/conv/ladder.h"
#include "cuda/conv/wgmma.cuh"

enum {
  CHANNELS = 8,                                // of a pixel in memory
  PIXEL_BYTES = 8,                             // of a pixel's first four channels
  PAIR_BYTES = 16,                             // of two of them: a row of a core matrix
  CORE_BYTES = 128,                            // of a core matrix: eight rows
  TAPS = 4,                                    // side by side: the K of a wgmma
  TILE_W = WGMMA_M,                            // threadblock tile
  ROWS_AT_ONCE = 2,                            // of output pixels, which the accumulators hold
  FILTERS = 64,                                // of a block
  FILTER_BYTES = FILTERS * TAPS * PIXEL_BYTES, // of the bank, under four taps
  WARPS = WARPGROUP / 32,
  STAGING_BYTES = WGMMA_WARP_M * SWIZZLE_ROW,
  ALL_STAGING_BYTES = WARPS * ROWS_AT_ONCE * STAGING_BYTES,
  MAX_BLOCKS = 4, // of an SM: as many as registers allow
  SM_SHARED = 228 * 1024,
  BLOCK_RESERVED = 2048, // of shared memory for each block: static, and the system's
};

// Bytes in shared memory, and distances there.
struct StemLayout {
  int rows;               // of output pixels, of a tile
  int patch_h, patch_w;   // pixels
  int pitch;              // bytes of a row of the patch
  int next_pair;          // bytes from the first pair of four taps to the second
  int next_taps;          // bytes to the next four taps
  int bank, patch, total; // of the filter, of one patch, of all
};

struct StemParams {
  CUtensorMap result; // [n, h, w, channels]
  DestArgs out;
  Tensor in, filter;
  int pad, groups; // groups: of four taps side by side
  StemLayout s;
  int tiles_y, tiles_x; // tiles of an image
};

struct StemTile {
  int n, y, x;
};
__device__ __forceinline__ StemTile stem_tile(const StemParams &p, int tile) {
  int row = tile / p.tiles_x;
  return {row / p.tiles_y, row % p.tiles_y * p.s.rows, tile % p.tiles_x * TILE_W};
}

// ---- shared memory --------------------------------------------------------------------------------------------------

// The filter: [rows of taps, groups of four, pairs of taps, filters, two taps, four channels], zeros where there is no
// tap or no filter.
template <class T> __device__ void load_bank(const StemParams &p, int first, uint32_t bank) {
  const Tensor &w = p.filter;
  for (int i = threadIdx.x; i < w.h * p.groups * TAPS * FILTERS; i += WARPGROUP) {
    int tap = i / FILTERS, filter = i % FILTERS, tx = tap % (p.groups * TAPS), ty = tap / (p.groups * TAPS);
    uint2 v = {};
    if (first + filter < w.n && tx < w.w) v = *(const uint2 *)pixel<T>(w, first + filter, ty, tx);
    uint32_t pair = bank + tap / 2 * FILTERS * PAIR_BYTES + filter * PAIR_BYTES;
    store_shared(pair + tap % 2 * PIXEL_BYTES, __uint_as_float(v.x), __uint_as_float(v.y));
  }
}

// cp_async16 of ptx.cuh, of 8 bytes.
__device__ __forceinline__ void cp_async8(uint32_t to, const void *from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(inside ? 8 : 0) : "memory");
}

// Starts the copies of a tile's patch, zeros outside the image. A warp takes every fourth row.
template <class T, int STRIDE>
__device__ __forceinline__ void load_patch(const StemParams &p, const StemTile &t, uint32_t patch) {
  int lane = threadIdx.x % 32, x0 = t.x * STRIDE - p.pad;
  for (int row = threadIdx.x / 32; row < p.s.patch_h; row += WARPS) {
    int y = t.y * STRIDE - p.pad + row;
    bool in_row = (unsigned)y < (unsigned)p.in.h;
    const T *from = pixel<T>(p.in, t.n, in_row ? y : 0, 0);
    uint32_t to = patch + row * p.s.pitch;
    for (int i = lane; i < p.s.patch_w; i += 32) {
      bool inside = in_row && (unsigned)(x0 + i) < (unsigned)p.in.w;
      const T *source = from + (inside ? (x0 + i) * CHANNELS : 0);
      if (STRIDE == 1) {
        cp_async8(to + i * PAIR_BYTES, source, inside);
        if (i > 0) cp_async8(to + i * PAIR_BYTES - PIXEL_BYTES, source, inside);
      } else
        cp_async8(to + i / STRIDE * PAIR_BYTES + i % STRIDE / 2 * p.s.next_pair + i % 2 * PIXEL_BYTES, source, inside);
    }
  }
  cp_async_commit();
}

// ---- kernel ---------------------------------------------------------------------------------------------------------

// Issues the wgmmas of a tile's output rows `first` and the next.
template <class T, int STRIDE>
__device__ __forceinline__ void stem_multiply(float (&acc)[ROWS_AT_ONCE][FILTERS / 2], const StemParams &p, int first,
                                              uint32_t patch, uint32_t bank) {
  int output_row = STRIDE * p.s.pitch;
  uint64_t a = unswizzled_descriptor(patch + first * output_row, p.s.next_pair, CORE_BYTES);
  uint64_t b = unswizzled_descriptor(bank, FILTERS * PAIR_BYTES, CORE_BYTES);
  wgmma_fence();
#pragma unroll 1
  for (int ty = 0; ty < p.filter.h; ty++) {
    uint64_t under = a;
#pragma unroll 1
    for (int i = 0; i < p.groups; i++) {
#pragma unroll
      for (int j = 0; j < ROWS_AT_ONCE; j++)
        wgmma<T, FILTERS, false>(acc[j], under + (j * output_row >> 4), b, ty + i > 0);
      under += p.s.next_taps >> 4;
      b += FILTER_BYTES >> 4;
    }
    a += p.s.pitch >> 4;
  }
  wgmma_commit();
}

// y [n, p, q, k] from x [n, h, w, 8], of which four channels count. Grid (persistent blocks, groups of 64 filters); a
// block takes every gridDim.x-th tile of s.rows by 64 output pixels, two rows at a time.
template <class T, int STRIDE>
__global__ __launch_bounds__(WARPGROUP, MAX_BLOCKS) void stem_kernel(const __grid_constant__ StemParams p) {
  if constexpr (HAS_WGMMA) {
    __shared__ alignas(8) float bias[FILTERS];
    uint32_t staging = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    uint32_t bank = staging + ALL_STAGING_BYTES, patch = bank + p.s.bank, next = patch + p.s.patch;
    int warp = uniform(threadIdx.x / 32), column = blockIdx.y * FILTERS;
    int tiles = rows_of(p.in) * p.tiles_y * p.tiles_x, tile = blockIdx.x;
    if (tile >= tiles) return;
    staging += warp * ROWS_AT_ONCE * STAGING_BYTES;
    StemTile t = stem_tile(p, tile);
    load_patch<T, STRIDE>(p, t, patch);
    load_bank<T>(p, column, bank);
    load_bias<FILTERS>(p.out, column, bias);
    while (true) {
      cp_async_wait<0>();
      shared_write_fence();
      __syncthreads(); // the patch is there, and the other one free: its wgmmas were waited for
      StemTile after = t;
      bool more = (tile += gridDim.x) < tiles;
#pragma unroll 1
      for (int first = 0; first < p.s.rows; first += ROWS_AT_ONCE) {
        float acc[ROWS_AT_ONCE][FILTERS / 2];
        stem_multiply<T, STRIDE>(acc, p, first, patch, bank);
        if (first == 0 && more) {
          after = stem_tile(p, tile);
          load_patch<T, STRIDE>(p, after, next);
        }
        wgmma_wait<0>();
        epilogue_wait_read<0>();
#pragma unroll
        for (int j = 0; j < ROWS_AT_ONCE; j++) {
          int y = t.y + first + j, x0 = t.x + warp * WGMMA_WARP_M, x = x0 + epilogue_lane_row();
          EpilogueRow row = epilogue_row(p.out, y < p.out.t.h && x < p.out.t.w, t.n, y, x);
          EpilogueTile<T, FILTERS> box{staging + j * STAGING_BYTES};
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

static StemLayout stem_layout(const Conv *conv, const Tensor *w) {
  StemLayout s = {};
  int groups = blocks_for(w->w, TAPS), stride = conv->stride;
  s.rows = w->h <= 7 ? 4 : 2;
  s.patch_h = stride * (s.rows - 1) + w->h;
  s.patch_w = stride * (TILE_W - 1) + TAPS * groups;
  int pairs = stride == 1 ? s.patch_w : blocks_for(s.patch_w, stride); // of a row, of one plane
  s.pitch = pairs * PAIR_BYTES * (stride == 4 ? 2 : 1);
  s.next_pair = stride == 1 ? 2 * PAIR_BYTES : stride == 2 ? PAIR_BYTES : pairs * PAIR_BYTES;
  s.next_taps = TAPS / stride * PAIR_BYTES;
  s.bank = w->h * groups * FILTER_BYTES;
  s.patch = s.patch_h * s.pitch;
  s.total = SWIZZLE_ATOM + ALL_STAGING_BYTES + s.bank + 2 * s.patch;
  return s;
}

bool stem_fits(const Conv *conv, int pairs, const Tensor *x, const Tensor *w) {
  int s = conv->stride;
  return pairs == 1 && x->ldc == CHANNELS && w->c <= 4 && (s == 1 || s == 2 || s == 4) && w->h * w->w > 1 &&
         MAX(w->h, w->w) <= 16 && stem_layout(conv, w).total <= MAX_SHARED - BLOCK_RESERVED;
}

template <class T, int STRIDE> static void launch_stride(Device *dev, const StemParams &p, int tiles) {
  auto kernel = stem_kernel<T, STRIDE>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, p.s.total));
  int filters = blocks_for(p.filter.n, FILTERS), blocks = MIN(MAX_BLOCKS, SM_SHARED / (p.s.total + BLOCK_RESERVED));
  dim3 grid(MIN(tiles, blocks_for(dev->granted * blocks, filters)), filters);
  kernel<<<grid, WARPGROUP, p.s.total, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}
template <class T> static void launch(Device *dev, const Conv *conv, const StemParams &p, int tiles) {
  if (conv->stride == 1)
    launch_stride<T, 1>(dev, p, tiles);
  else if (conv->stride == 2)
    launch_stride<T, 2>(dev, p, tiles);
  else
    launch_stride<T, 4>(dev, p, tiles);
}

void stem_forward(Device *dev, const Conv *conv, const Tensor *x, const Tensor *w, const Dest *y) {
  if (!x->n) return;
  StemParams p = {};
  const Tensor *t = &y->t;
  CHECK(tensor_pixels(t) >> 31 == 0 && (!y->addend || tensor_pixels(y->addend) >> 31 == 0));
  p.result = map_tiled(t->data, t->dtype, {(size_t)t->ldc, (size_t)t->w, (size_t)t->h, (size_t)t->n},
                       {FILTERS, WGMMA_WARP_M, 1, 1}, MAP_RESULT);
  p.out = dest_args(y);
  p.in = *x;
  p.filter = *w;
  p.pad = conv->pad;
  p.groups = blocks_for(w->w, TAPS);
  p.s = stem_layout(conv, w);
  p.tiles_y = blocks_for(t->h, p.s.rows);
  p.tiles_x = blocks_for(t->w, TILE_W);
  CHECK((size_t)x->n * p.tiles_y * p.tiles_x >> 30 == 0); // counted in int, a grid further than the last
  int tiles = x->n * p.tiles_y * p.tiles_x;
  if (w->dtype == BF16)
    launch<__nv_bfloat16>(dev, conv, p, tiles);
  else
    launch<__half>(dev, conv, p, tiles);
}
