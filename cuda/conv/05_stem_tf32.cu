// Rung 05, the stem in TF32: what 05_stem.cu computes, with a pixel of floats for a core matrix's row (stem.cuh). The
// filter has twice the size, so that an SM has room for one block, and what is copied has to be rounded on the way,
// which cp.async cannot: warps specialise. One warpgroup loads the patches, rounds and stores them, a tile ahead; two
// multiply and store the result, rows of output pixels each, and wait for nobody but the patch.
#include "cuda/conv/ladder.h"
#include "cuda/conv/stem_bank.cuh"

enum {
  CONSUMER_THREADS = CONSUMERS * WARPGROUP,
  THREADS = CONSUMER_THREADS + WARPGROUP,
  CONSUMER_WARPS = CONSUMER_THREADS / 32,
  STAGES = 2, // patches
  LOADS = 16, // of a thread, in flight at once
};

// Filters of a block and rows at once of a warpgroup, which leave room in shared memory for two patches.
template <int STRIDE> struct StemTf32Block {
  static constexpr int FILTERS = STRIDE == 4 ? STEM_FILTERS / 2 : STEM_FILTERS, ROWS = STRIDE == 4 ? 1 : ROWS_AT_ONCE;
  using Box = EpilogueTile<float, FILTERS>;
  static constexpr int STAGING_BYTES = CONSUMER_WARPS * ROWS * Box::BYTES;
};

struct StemTf32ForwardParams {
  CUtensorMap result; // [n, h, w, channels]
  DestArgs out;
  StemInput x;
  Divider patch_w;
  Tensor filter;
  int bank; // bytes of the filter in shared memory
};

// ---- kernel ---------------------------------------------------------------------------------------------------------

// A tile's patch, by the producer warpgroup; zeros outside the image.
template <int STRIDE>
__device__ __forceinline__ void load_rounded_patch(const StemTf32ForwardParams &p, const StemTile &t, uint32_t patch) {
  const StemPatch &s = p.x.patch;
  const int x0 = t.x * STRIDE - p.x.pad, y0 = t.y * STRIDE - p.x.pad, pixels = s.h * s.w;
#pragma unroll 1
  for (int begin = threadIdx.x % WARPGROUP; begin < pixels; begin += LOADS * WARPGROUP) {
    float4 v[LOADS];
    uint32_t to[LOADS];
#pragma unroll
    for (int k = 0; k < LOADS; k++) {
      const int at = begin + k * WARPGROUP, row = divide(at, p.patch_w), i = at - row * s.w, y = y0 + row, x = x0 + i;
      const bool inside = at < pixels && (unsigned)y < (unsigned)p.x.in.h && (unsigned)x < (unsigned)p.x.in.w;
      v[k] = inside ? *(const float4 *)pixel<float>(p.x.in, t.n, y, x) : float4{};
      to[k] = patch + row * s.pitch + patch_offset<float, STRIDE>(s, i);
    }
#pragma unroll
    for (int k = 0; k < LOADS; k++)
      if (begin + k * WARPGROUP < pixels) round_shared16(to[k], v[k]);
  }
}

// y [n, p, q, k] from x [n, h, w, 8], of which four channels count. Grid (persistent blocks, groups of FILTERS); a
// block takes every gridDim.x-th tile, a consumer warpgroup ROWS of output pixels at a time.
template <int STRIDE>
__global__ __launch_bounds__(THREADS, 1) void stem_tf32_kernel(const __grid_constant__ StemTf32ForwardParams p) {
  if constexpr (HAS_WGMMA) {
    using Block = StemTf32Block<STRIDE>;
    constexpr int FILTERS = Block::FILTERS, ROWS = Block::ROWS;
    __shared__ uint64_t barriers[2 * STAGES]; // full, then empty
    __shared__ alignas(8) float bias[FILTERS];
    uint32_t staging = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    const uint32_t bank = staging + Block::STAGING_BYTES, patches = bank + p.bank;
    const uint32_t full = pinned_address(barriers), empty = full + 8 * STAGES;
    const int warp = uniform(threadIdx.x / 32), column = blockIdx.y * FILTERS, tiles = stem_tiles(p.x);
    if (threadIdx.x == 0) {
      for (int i = 0; i < STAGES; i++) {
        barrier_init(full + 8 * i, WARPGROUP);
        barrier_init(empty + 8 * i, CONSUMER_THREADS);
      }
      barrier_init_fence();
    }
    load_bank<float, THREADS, FILTERS>(p.filter, p.x.patch.groups, column, bank);
    load_bias<FILTERS>(p.out, column, bias);
    shared_write_fence();
    __syncthreads();

    int stage = 0;
    uint32_t parity = 0;
    auto advance = [&] {
      stage ^= 1;
      parity ^= !stage;
    };
    if (warp >= CONSUMER_WARPS) {
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, advance()) {
        barrier_wait(empty + 8 * stage, parity ^ 1);
        load_rounded_patch<STRIDE>(p, stem_tile(p.x, tile), patches + stage * p.x.patch.bytes);
        shared_write_fence();
        barrier_arrive_at(full + 8 * stage);
      }
      return;
    }
    const int own = warp / (WARPGROUP / 32) * ROWS; // first row of the warpgroup
    staging += warp * ROWS * Block::Box::BYTES;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, advance()) {
      const StemTile t = stem_tile(p.x, tile);
      barrier_wait(full + 8 * stage, parity);
#pragma unroll 1
      for (int first = own; first < p.x.patch.rows; first += CONSUMERS * ROWS) {
        float acc[ROWS][FILTERS / 2];
        stem_multiply<float, STRIDE>(acc, p.x.patch, p.filter.h, first, patches + stage * p.x.patch.bytes, bank);
        wgmma_wait<0>();
        if (first + CONSUMERS * ROWS >= p.x.patch.rows) barrier_arrive_at(empty + 8 * stage);
        epilogue_wait_read<0>();
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
          const int y = t.y + first + j, x0 = t.x + warp % (WARPGROUP / 32) * WGMMA_WARP_M,
                    x = x0 + epilogue_lane_row();
          const EpilogueRow row = epilogue_row(p.out, y < p.out.t.h && x < p.out.t.w, t.n, y, x);
          const typename Block::Box box{staging + j * Block::Box::BYTES};
          epilogue_store_rows(p.out, acc[j], row, column, bias, box);
          if (threadIdx.x % 32 == 0)
            box.issue_stores(p.out.t.ldc - column,
                             [&](int c, uint32_t from) { tma_store(&p.result, from, column + c, x0, y, t.n); });
        }
      }
    }
    bulk_wait_read();
  }
}

// ---- launcher -------------------------------------------------------------------------------------------------------

static StemPatch tf32_patch(const Conv *conv, const Tensor *w) {
  const int rows = conv->stride == 4 ? 2 : w->h <= 7 ? 8 : 4;
  return stem_patch(conv->stride, w->h, blocks_for(w->w, GROUP), rows, true);
}
template <int STRIDE> static int block_shared(const Conv *conv, const Tensor *w) {
  using Block = StemTf32Block<STRIDE>;
  return SWIZZLE_ATOM + Block::STAGING_BYTES + stem_bank_bytes(w, Block::FILTERS) + STAGES * tf32_patch(conv, w).bytes;
}

bool stem_tf32_fits(const Conv *conv, const Tensor *x, const Tensor *w) {
  if (!stem_is(conv, x, w) || MAX(w->h, w->w) > 16) return false;
  const int shared = conv->stride == 4 ? block_shared<4>(conv, w) : block_shared<1>(conv, w);
  return shared <= MAX_SHARED - BLOCK_RESERVED;
}

template <int STRIDE> static void launch(Device *dev, const Conv *conv, StemTf32ForwardParams &p) {
  using Block = StemTf32Block<STRIDE>;
  auto kernel = stem_tf32_kernel<STRIDE>;
  const int shared = block_shared<STRIDE>(conv, &p.filter), filters = blocks_for(p.filter.n, Block::FILTERS);
  p.bank = stem_bank_bytes(&p.filter, Block::FILTERS);
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  const dim3 grid(MIN(stem_capacity(p.x), blocks_for(dev->granted, filters)), filters);
  kernel<<<grid, THREADS, shared, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}

void stem_tf32_forward(Device *dev, const Conv *conv, const Tensor *x, const Tensor *w, const Dest *y) {
  if (!x->n) return;
  StemTf32ForwardParams p = {};
  const Tensor *t = &y->t;
  CHECK(tensor_pixels(t) >> 31 == 0 && (!y->addend || tensor_pixels(y->addend) >> 31 == 0));
  p.result = map_tiled(t->data, F32, {(size_t)t->ldc, (size_t)t->w, (size_t)t->h, (size_t)t->n},
                       {StemTf32Block<4>::Box::BOX_COLUMNS, WGMMA_WARP_M, 1, 1}, MAP_RESULT);
  p.out = dest_args(y);
  p.x = stem_input(x, conv, t, tf32_patch(conv, w));
  p.patch_w = divider(p.x.patch.w);
  p.filter = *w;
  if (conv->stride == 1)
    launch<1>(dev, conv, p);
  else if (conv->stride == 2)
    launch<2>(dev, conv, p);
  else
    launch<4>(dev, conv, p);
}
