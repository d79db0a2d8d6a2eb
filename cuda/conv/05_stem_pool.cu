// The stem (05_stem.cu) and the maximum pooling behind it, 3 × 3 windows at stride 2, in one pass: a quarter of the
// bytes is written, and what pooling would read never leaves the SM. A block goes down strips of 31 pooled pixels, four
// rows of output pixels of the convolution at a time; the row above them is what it has kept of the last four. Values
// are rounded, and maxima taken, as the two ops do it: the same bits.
#include "cuda/conv/ladder.h"
#include "cuda/conv/stem_bank.cuh"

enum {
  SIZE = 3,
  STRIDE = 2,                         // of both, the convolution and the windows
  POOLED_W = (TILE_W - 1) / STRIDE,   // of a tile; SIZE - STRIDE output pixels are also the next tile's
  POOLED_ROWS = 2,                    // of a tile
  OUTPUT_ROWS = STRIDE * POOLED_ROWS, // that are new
  PATCH_ROWS = OUTPUT_ROWS + 1,       // of output pixels, with that above them
  WARPS = WARPGROUP / 32,
  STAGING_BYTES = WGMMA_WARP_M * SWIZZLE_ROW,
  ROW_BYTES = WARPS * STAGING_BYTES, // of TILE_W maxima of columns
  BLOCKS = 3,                        // of an SM: as many as shared memory allows
  REGISTERS = STEM_FILTERS / 4,      // of a row's pairs of elements
};

struct StemPoolParams {
  DestArgs out; // what is pooled
  StemInput x;
  Tensor filter;
  int bank;               // bytes of the filter in shared memory
  int output_h, output_w; // of the convolution
  int tiles_y, tiles_x;   // of an image
};

// ---- kernel ---------------------------------------------------------------------------------------------------------

template <class T> __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  Pair pa, pb;
  memcpy(&pa, &a, sizeof a);
  memcpy(&pb, &b, sizeof b);
  const Pair max = __hmax2_nan(pa, pb);
  uint32_t bits;
  memcpy(&bits, &max, sizeof bits);
  return bits;
}

// A row of output pixels, rounded; zeros outside the image: behind a ReLU only what is larger counts.
template <class T>
__device__ __forceinline__ void finish_row(uint32_t (&out)[REGISTERS], const float *acc, const float *bias,
                                           bool inside0, bool inside8) {
  const int pair = 2 * (threadIdx.x % 4);
#pragma unroll
  for (int k = 0; k < REGISTERS; k++) {
    const float2 b = *(const float2 *)(bias + k / 2 * 8 + pair);
    const uint32_t v = pack<T>(acc[2 * k] + b.x, acc[2 * k + 1] + b.y);
    out[k] = (k % 2 ? inside8 : inside0) ? v : 0;
  }
}

// y [n, p, q, k]: the maxima of windows of the convolution of x [n, h, w, 8], of which four channels count. Grid
// (persistent blocks, groups of 64 filters); a block takes tiles one after the other, down an image.
template <class T>
__global__ __launch_bounds__(WARPGROUP, BLOCKS) void stem_pool_kernel(const __grid_constant__ StemPoolParams p) {
  if constexpr (HAS_WGMMA) {
    __shared__ alignas(8) float bias[STEM_FILTERS];
    const uint32_t staging = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    const uint32_t bank = staging + ROW_BYTES;
    uint32_t patch = bank + p.bank, next = patch + p.x.patch.bytes;
    const int warp = uniform(threadIdx.x / 32), column = blockIdx.y * STEM_FILTERS;
    const int64_t tiles = (int64_t)rows_of(p.x.in) * p.tiles_y * p.tiles_x;
    int tile = tiles * blockIdx.x / gridDim.x;
    const int end = tiles * (blockIdx.x + 1) / gridDim.x;
    if (tile >= end) return;
    auto at = [&](int tile) { // the output pixel above and left of its windows
      const int strip = tile / p.tiles_y;
      return StemTile{strip / p.tiles_x, tile % p.tiles_y * OUTPUT_ROWS - 1, strip % p.tiles_x * STRIDE * POOLED_W - 1};
    };
    StemTile t = at(tile);
    bool above = t.y >= 0; // the row above has to be computed
    load_patch<T, STRIDE, WARPS>(p.x, t, patch, above ? 0 : STRIDE);
    load_bank<T>(p.filter, p.x.patch.groups, column, bank);
    load_bias<STEM_FILTERS>(p.out, column, bias);
    uint32_t kept[REGISTERS] = {}; // the row above
    for (;; tile++) {
      cp_async_wait<0>();
      shared_write_fence();
      __syncthreads(); // the patch is there, and the other one free: its wgmmas were waited for
      const int x = t.x + warp * WGMMA_WARP_M + threadIdx.x % 32 / 4;
      const bool inside0 = (unsigned)x < (unsigned)p.output_w, inside8 = x + 8 < p.output_w;
      float acc[ROWS_AT_ONCE][STEM_FILTERS / 2];
      if (above) {
        stem_multiply<T, STRIDE>(acc, p.x.patch, p.filter.h, 0, patch, bank);
        wgmma_wait<0>();
        finish_row<T>(kept, acc[0], bias, inside0, inside8);
      } else if (t.y < 0)
#pragma unroll
        for (int k = 0; k < REGISTERS; k++) kept[k] = 0;
      StemTile after = t;
      const bool more = tile + 1 < end;
#pragma unroll 1
      for (int row = 0; row < POOLED_ROWS; row++) {
        stem_multiply<T, STRIDE>(acc, p.x.patch, p.filter.h, 1 + STRIDE * row, patch, bank);
        if (row == 0 && more) {
          after = at(tile + 1);
          load_patch<T, STRIDE, WARPS>(p.x, after, next, STRIDE);
        }
        wgmma_wait<0>();
        const bool last = t.y + STRIDE * (row + 1) < p.output_h; // the window's last row is inside
        uint32_t max[REGISTERS], below[REGISTERS];
        finish_row<T>(max, acc[0], bias, inside0, inside8);
        finish_row<T>(below, acc[1], bias, inside0 && last, inside8 && last);
#pragma unroll
        for (int k = 0; k < REGISTERS; k++) {
          max[k] = larger<T>(larger<T>(kept[k], max[k]), below[k]);
          kept[k] = below[k];
        }
        if (row) __syncthreads(); // those of the row before have been read
        const EpilogueTile<T, STEM_FILTERS> box{staging + warp * STAGING_BYTES};
#pragma unroll
        for (int q = 0; q < REGISTERS / 4; q++) {
          const uint32_t m[4] = {max[4 * q], max[4 * q + 1], max[4 * q + 2], max[4 * q + 3]};
          stmatrix_pairs(box.matrix_row(q), m);
        }
        __syncthreads();
        constexpr int CHUNKS = SWIZZLE_ROW / 16;
        const int py = (t.y + 1) / STRIDE + row, px0 = (t.x + 1) / STRIDE;
#pragma unroll
        for (int i = threadIdx.x; i < POOLED_W * CHUNKS; i += WARPGROUP) {
          const int px = px0 + i / CHUNKS, chunk = i % CHUNKS, c = column + chunk * 8;
          uint32_t v[4] = {}; // the ReLU
#pragma unroll
          for (int k = 0; k < SIZE; k++) {
            const int m = i / CHUNKS * STRIDE + k;
            const EpilogueTile<T, STEM_FILTERS> of{staging + m / WGMMA_WARP_M * STAGING_BYTES};
            const float4 f = load_shared16(of.address(m % WGMMA_WARP_M, chunk));
            uint32_t u[4];
            memcpy(u, &f, sizeof u);
#pragma unroll
            for (int j = 0; j < 4; j++) v[j] = larger<T>(v[j], u[j]);
          }
          if (c + 8 > p.out.t.c) // channels of padding: NaN of the image would be NaN there
#pragma unroll
            for (int j = 0; j < 4; j++) v[j] &= c + 2 * j >= p.out.t.c ? 0 : c + 2 * j + 1 >= p.out.t.c ? 0xffff : ~0u;
          if (py < p.out.t.h && px < p.out.t.w && c < p.out.t.ldc)
            *(uint4 *)(pixel<T>(p.out.t, t.n, py, px) + c) = {v[0], v[1], v[2], v[3]};
        }
      }
      if (!more) break;
      t = after;
      above = false;
      const uint32_t done = patch;
      patch = next;
      next = done;
    }
  }
}

// ---- launcher -------------------------------------------------------------------------------------------------------

static StemPatch pool_patch(const Tensor *w) { return stem_patch(STRIDE, w->h, blocks_for(w->w, GROUP), PATCH_ROWS); }
static int pool_shared(const Tensor *w) {
  return SWIZZLE_ATOM + ROW_BYTES + stem_bank_bytes(w) + 2 * pool_patch(w).bytes;
}

bool stem_pools(const Conv *conv, const Pool *pool, const Tensor *x, const Tensor *w) {
  return stem_is(conv, x, w) && conv->stride == STRIDE && pool->size == SIZE && pool->stride == STRIDE &&
         pool->pad == 1 && MAX(w->h, w->w) <= 16 && pool_shared(w) <= MAX_SHARED - BLOCK_RESERVED;
}

template <class T> static void launch(Device *dev, const StemPoolParams &p, int shared) {
  auto kernel = stem_pool_kernel<T>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  const int filters = blocks_for(p.filter.n, STEM_FILTERS), blocks = MIN(BLOCKS, SM_SHARED / (shared + BLOCK_RESERVED));
  const dim3 grid(MIN(p.x.in.n * p.tiles_y * p.tiles_x, blocks_for(dev->granted * blocks, filters)), filters);
  kernel<<<grid, WARPGROUP, shared, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}

void stem_pool_forward(Device *dev, const Conv *conv, const Tensor *x, const Tensor *w, const Dest *y) {
  if (!x->n) return;
  CHECK(y->relu && !y->addend && !y->mask && !y->accumulate && !y->moments);
  StemPoolParams p = {};
  p.out = dest_args(y);
  p.x = {*x, conv->pad, 0, 0, pool_patch(w)};
  p.filter = *w;
  p.bank = stem_bank_bytes(w);
  p.output_h = (x->h + 2 * conv->pad - w->h) / conv->stride + 1;
  p.output_w = (x->w + 2 * conv->pad - w->w) / conv->stride + 1;
  p.tiles_y = blocks_for(y->t.h, POOLED_ROWS);
  p.tiles_x = blocks_for(y->t.w, POOLED_W);
  CHECK((size_t)x->n * p.tiles_y * p.tiles_x >> 30 == 0); // counted in int
  if (w->dtype == BF16)
    launch<__nv_bfloat16>(dev, p, pool_shared(w));
  else
    launch<__half>(dev, p, pool_shared(w));
}
