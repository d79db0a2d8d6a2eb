// Rung 05, wgmma: wgrad, the GEMM dyᵀ · im2col(x), whose K is the pixels. Both operands lie in memory with a pixel's
// channels together, so that both are MN-major in shared memory, which wgmma takes for 16-bit types. A threadblock tile
// is some output channels (M) by some panels (N), a panel being 64 channels of x under one tap. Split-K: the pixels are
// cut into slices, so that there are blocks for the whole GPU; each block multiplies one tile over one slice, and
// wgmma_wgrad_epilogue.cuh adds the slices up, through distributed shared memory in a cluster or through a workspace
// and a second kernel. wgmma_wgrad_heuristic.cuh chooses the tile and the split.
//
// Neighbouring taps read the same pixels, one further on. Where the stride is 1, the panels of a tile can therefore be
// one patch of shared memory, each beginning a pixel after the one before, and x is loaded once for a row of the
// filter. For that the im2col view takes as many more output pixels to a row as it needs zeros between the rows of x;
// dy is zero there.
#include "cuda/conv/wgmma_wgrad.cuh"
#include "cuda/conv/wgmma_wgrad_heuristic.cuh"

// Rasterisation: how many tiles along M neighbouring blocks have, at most. Squares share most in L2. Where the slices
// are a cluster, a long row or column of tiles was faster, whichever side is longer.
static int raster_m_limit(const WgradParams &p) { return !p.cluster ? 4 : p.tiles_m >= (int)p.tiles_n.by ? 8 : 1; }

// ---- the producer ---------------------------------------------------------------------------------------------------

// Pixels of x that a stage holds.
template <class Tile> __device__ __forceinline__ int patch_pixels(bool shared_patch) {
  return WGRAD_TILE_K + (shared_patch ? Tile::PANELS - 1 : 0);
}

// The producer, one thread: issues the TMA loads of all stages of the block's slice.
template <class Tile>
__device__ __forceinline__ void wgrad_produce(const WgradParams &p, PipelineBarriers<Tile::STAGES> &barriers,
                                              uint32_t stages) {
  KTileCursor<WGRAD_TILE_K> cursor(p, blockIdx.z);
  PipelineState<Tile::STAGES> pipe(barriers);
  bool shared_patch = p.shared_patch;
  int bytes = Tile::A_BYTES + (shared_patch ? patch_pixels<Tile>(true) * SWIZZLE_ROW : Tile::PANELS * PANEL_BYTES);
  WgradTileIndex tile = tile_index(p);
  Panel panel[Tile::PANELS];
#pragma unroll
  for (int i = 0; i < Tile::PANELS; i++) panel[i] = panel_of(p, tile.n * Tile::PANELS + i);
  ProducerSignal started{WGRAD_STARTED, CONSUMER_THREADS + WARP};
  for (; cursor.remaining; cursor.advance(p)) {
    const WgradPairMaps &pair = p.pair[cursor.pair];
    const Im2col &im2col = pair.at.im2col;
    Position at = position_of(pair.at, cursor.first);
    int y = im2col.y.in + im2col.y.in_stride * at.i, x = im2col.x.in + im2col.x.in_stride * at.j;
    uint32_t a = stages + pipe.stage * Tile::STAGE_BYTES, b = a + Tile::A_BYTES;
    pipe.wait_empty();
    barrier_expect(pipe.full, bytes);
#pragma unroll
    for (int i = 0; i < Tile::A_PANELS; i++)
      tma_load_im2col(a + i * Tile::A_PANEL, &pair.dy, pipe.full, tile.m * Tile::TILE_M + i * PANEL, at.j, at.i, at.n,
                      0, 0);
#pragma unroll
    for (int i = 0; i < Tile::PANELS; i++)
      if (i == 0 || !shared_patch)
        tma_load_im2col(b + i * PANEL_BYTES, &pair.x, pipe.full, panel[i].c, x, y, at.n, panel[i].x, panel[i].y);
    started.send();
    pipe.advance();
  }
  started.send();
}

// ---- mainloop -------------------------------------------------------------------------------------------------------

// Rows `first` … `end` of a panel, of so many bytes each, become zero.
__device__ __forceinline__ void clear_rows(uint32_t panel, int row, int first, int end) {
#pragma unroll 1
  for (int i = first * row / 16 + threadIdx.x; i < end * row / 16; i += CONSUMER_THREADS)
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(panel + i * 16), "r"(0) : "memory");
}
// A stage of which only the first `rows` pixels hold data: there is anything in the others, NaN too. A patch, which
// lies behind dy, has more of them.
template <class Tile> __device__ __forceinline__ void clear_tail(uint32_t stage, int rows, bool shared_patch) {
#pragma unroll 1
  for (int i = 0; i < Tile::A_PANELS; i++) clear_rows(stage + i * Tile::A_PANEL, Tile::A_ROW, rows, WGRAD_TILE_K);
#pragma unroll 1
  for (int i = 0; i < (shared_patch ? 1 : Tile::PANELS); i++)
    clear_rows(stage + Tile::A_BYTES + i * PANEL_BYTES, SWIZZLE_ROW, rows,
               i ? WGRAD_TILE_K : patch_pixels<Tile>(shared_patch));
  shared_write_fence();
  consumers_sync();
}

// A column of ones beside x: a channel of dy times ones is its bias's gradient, so that wgmma sums db, too.
template <class T> struct Ones {
  static constexpr int WGMMA_N = 8; // the fewest of a wgmma
  T v[WGMMA_N * WGMMA_K];
};

template <class T, class Tile>
__device__ __forceinline__ void wgrad_mainloop(WgradAccumulator<Tile> &acc, const WgradParams &p,
                                               PipelineBarriers<Tile::STAGES> &barriers, uint32_t stages,
                                               const Ones<T> &ones, KTileCursor<WGRAD_TILE_K> cursor) {
  constexpr int A_STEP = WGMMA_K * Tile::A_ROW, STEP = WGMMA_K * SWIZZLE_ROW;
  PipelineState<Tile::STAGES> pipe(barriers);
  int warpgroup = threadIdx.x / WARPGROUP;
  bool shared_patch = p.shared_patch, has_db = p.db_partial;
  int own = tile_index(p).n;
  int apart = shared_patch ? SWIZZLE_ROW : PANEL_BYTES, patch = patch_pixels<Tile>(shared_patch);
  uint32_t a0 = Tile::SPLIT_N ? 0 : warpgroup * Tile::WGMMAS_M * Tile::A_PANEL;
  uint32_t b0 = Tile::A_BYTES + (Tile::SPLIT_N ? warpgroup * Tile::PANELS_N * apart : 0);
  uint64_t column = unswizzled_descriptor(pinned_address(ones.v));
  bool elected = threadIdx.x % WARPGROUP == 0;
  uint32_t previous_empty = 0; // the empty barrier of the stage before, at which this thread arrives
  auto release = [&] {
    if (previous_empty) barrier_arrive_at(previous_empty);
  };
  for (; cursor.remaining; cursor.advance(p)) {
    uint32_t stage = stages + pipe.stage * Tile::STAGE_BYTES;
    int rows = cursor.positions - cursor.first;
    pipe.wait_full();
    if (rows < patch) clear_tail<Tile>(stage, rows, shared_patch);
    uint64_t a = matrix_descriptor<Tile::A_ROW>(stage + a0), b = matrix_descriptor(stage + b0, apart);
    uint32_t step = cursor.first / WGRAD_TILE_K;
    if (has_db && step - divide(step, p.tiles_n) * p.tiles_n.by == own) { // tiles along N take turns at db
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < WGRAD_TILE_K / WGMMA_K; i++)
#pragma unroll
        for (int j = 0; j < Tile::WGMMAS_M; j++)
          wgmma<T, Ones<T>::WGMMA_N, false, true>(acc.db[j], a + ((j * Tile::A_PANEL + i * A_STEP) >> 4), column, true);
    }
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < WGRAD_TILE_K / WGMMA_K; i++)
#pragma unroll
      for (int j = 0; j < Tile::WGMMAS_M; j++)
        wgmma<T, Tile::WGMMA_N, true, true>(acc.dw[j], a + ((j * Tile::A_PANEL + i * A_STEP) >> 4), b + (i * STEP >> 4),
                                            true);
    wgmma_commit();
    wgmma_wait<1>();
    release(); // the wgmmas that read the stage before are complete
    previous_empty = elected ? pipe.empty : 0;
    pipe.advance();
  }
  wgmma_wait<0>();
  release();
}

// ---- kernel and launchers -------------------------------------------------------------------------------------------

// dyᵀ · im2col(x) over one slice of the k tiles of all pairs: M output channels, N panels. Grid (threadblock tiles,
// rasterised by tile_index; 1; slices); where a cluster reduces, it is the slices of a tile. Of the block's warps,
// eight are two consumer warpgroups, one thread of the next is the producer, and one warp prefetches the tensor maps.
// Slices go to the workspace [slices, tiles, fragments, threads], or to dw [k, r, s, c] through the cluster or at once.
template <class T, class Tile>
__global__ __launch_bounds__(WGMMA_THREADS, 1) void wgmma_wgrad_kernel(const __grid_constant__ WgradParams p) {
  if constexpr (HAS_WGMMA) {
    __shared__ PipelineBarriers<Tile::STAGES> pipe;
    __shared__ alignas(128) Ones<T> ones;
    uint32_t begin = pinned_address(dynamic_shared()),
             stages = (begin + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    int warp = uniform(threadIdx.x / WARP);
    if (warp >= CONSUMER_THREADS / WARP) {
      registers_dealloc<PRODUCER_REGISTERS>();
      if (warp > CONSUMER_THREADS / WARP) {
        int i = (int)threadIdx.x - CONSUMER_THREADS - WARP;
        if (i < p.pairs) {
          const WgradPairMaps *pair = generic_parameters(p.pair) + i;
          tma_prefetch_map(&pair->dy);
          tma_prefetch_map(&pair->x);
        }
        return;
      }
      if (threadIdx.x % WARP) return;
      pipeline_init(pipe, 1, CONSUMERS);
      wgrad_produce<Tile>(p, pipe, stages);
    } else {
      named_sync(WGRAD_STARTED, CONSUMER_THREADS + WARP);
      grid_launch_dependents();
      if (threadIdx.x < COUNT(ones.v)) ones.v[threadIdx.x] = from_float<T>(1.f);
      shared_write_fence();
      consumers_sync();
      int row = tile_index(p).m * Tile::TILE_M + threadIdx.x; // whose scale the epilogue needs
      if (p.scale && threadIdx.x < Tile::TILE_M && row < p.dw.n) prefetch_l2(p.scale + row);
      KTileCursor<WGRAD_TILE_K> cursor(p, blockIdx.z);
      registers_alloc<CONSUMER_REGISTERS>();
      WgradAccumulator<Tile> acc = {};
      wgrad_mainloop<T, Tile>(acc, p, pipe, stages, ones, cursor);
      if (p.db_partial) epilogue_db(p, acc);
      if (p.workspace)
        write_workspace(p, acc);
      else
        epilogue_dw(p, acc, stages);
    }
  }
}

template <class T, class Tile> static void launch_tiles(Device *dev, WgradParams &p) {
  int slices = p.slices.by;
  p.tiles_n = divider(blocks_for(p.panels, Tile::PANELS));
  p.share = divider(blocks_for(UNITS, p.cluster ? slices : 1));
  CHECK(!p.cluster || slices * p.share.by <= MAX_UNITS);
  p.tiles_m = blocks_for(p.dw.n, Tile::TILE_M);
  int raster_m = MIN(p.tiles_m, raster_m_limit(p));
  while (p.tiles_m % raster_m) raster_m--;
  p.raster_m = divider(raster_m);
  dim3 grid(p.tiles_n.by * p.tiles_m, 1, slices);
  size_t fragments = (size_t)grid.x * Tile::FRAGMENTS * CONSUMER_THREADS, rows = (size_t)p.tiles_m * Tile::TILE_M / 4;
  SliceArray filter = {NULL, slices > 1 && !p.cluster ? fragments : 0, slices},
             bias = {NULL, p.db ? rows : 0, (int)(slices * p.tiles_n.by)};
  size_t workspace_float4s = filter.count * filter.stride + bias.count * bias.stride;
  float4 *workspace = workspace_float4s ? (float4 *)device_workspace(dev, workspace_float4s * sizeof(float4)) : NULL;
  if (dev->measuring) return;
  if (filter.stride) filter.data = p.workspace = workspace;
  if (bias.stride) {
    bias.data = workspace + filter.count * filter.stride;
    p.db_partial = (float *)bias.data;
  }
  auto kernel = wgmma_wgrad_kernel<T, Tile>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::BYTES));
  cudaLaunchAttribute cluster = {}, follow = dependent_launch_attribute();
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = p.cluster ? slices : 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = WGMMA_THREADS;
  config.dynamicSmemBytes = Tile::BYTES;
  config.stream = stream_of(dev);
  config.attrs = &cluster;
  config.numAttrs = p.cluster;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, p));
  if (!workspace_float4s) return;
  int lanes = 1; // that share an element
  while (lanes < CONSUMER_THREADS / WARP && lanes * REDUCE_LOADS < (filter.stride ? filter : bias).count) lanes *= 2;
  config.blockDim = dim3(CONSUMER_THREADS / lanes, lanes);
  config.gridDim = blocks_for(filter.stride + bias.stride, CONSUMER_THREADS / lanes);
  // Each SM that is granted has its share of the blocks: with less memory to a block, the first to be free would take
  // more.
  int each = blocks_for(config.gridDim.x, dev->granted);
  config.dynamicSmemBytes = MAX(REDUCE_BYTES, (MAX_SHARED + BLOCK_SHARED) / each / 128 * 128 - BLOCK_SHARED);
  config.attrs = &follow;
  config.numAttrs = 1;
  auto reduce = wgmma_wgrad_reduce_kernel<Tile>;
  CUDA_CHECK(cudaFuncSetAttribute(reduce, cudaFuncAttributeMaxDynamicSharedMemorySize, MAX_SHARED));
  CUDA_CHECK(cudaLaunchKernelEx(&config, reduce, p, filter, bias));
}

template <class T> static auto launcher(const WgradConfig &config, bool narrow) -> void (*)(Device *, WgradParams &) {
  if (narrow && config.panels == 4) return launch_tiles<T, WgradTile<64, 4, true>>;
  if (narrow) return launch_tiles<T, WgradTile<64, 2, true>>;
#define TILE(r, p)                                                                                                     \
  if (config.rows == r && config.panels == p) return launch_tiles<T, WgradTile<r, p>>
  TILE(256, 3);
  TILE(256, 2);
  TILE(256, 1);
  TILE(128, 4);
  TILE(128, 3);
  TILE(128, 2);
  TILE(64, 4);
  TILE(64, 2);
#undef TILE
  die_unforeseen("wgrad has no tile of %d rows and %d panels", config.rows, config.panels);
}

static WgradShape wgrad_shape(const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const Tensor *dw) {
  WgradShape shape = {dw->n, dw->h * dw->w * blocks_for(x->ldc, PANEL), dw->w};
  shape.shareable = conv->stride == 1 && dw->w > 1;
  for (int i = 0; i < pairs; i++) {
    double rows = (double)dy[i].n * dy[i].h, read = (double)dw->h * dw->w * tensor_pixels(&dy[i]) * x[i].ldc;
    for (int shared_patch = 0; shared_patch < 2; shared_patch++)
      shape.k_tiles[shared_patch] += ceil(rows * (dy[i].w + (shared_patch ? row_padding(conv, dw) : 0)) / WGRAD_TILE_K);
    shape.megabytes += (tensor_elements(&dy[i]) + MIN(tensor_elements(&x[i]), read)) * dtype_size(x->dtype) / 1e6;
  }
  return shape;
}

void wgmma_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  const bool floats = x->dtype == F32;
  if (floats && stem_wgrad_tf32_fits(conv, x, &out->dw)) return stem_wgrad_tf32(dev, conv, pairs, x, dy, out);
  if (floats) return tf32_wgrad(dev, conv, pairs, x, dy, out);
  if (stem_wgrad_fits(conv, x, &out->dw)) return stem_wgrad(dev, conv, pairs, x, dy, out);
  if (pairs == 1 && conv64_wgrad_fits(conv, x, dy, &out->dw)) return conv64_wgrad(dev, x, dy, out);
  WgradParams p = {};
  p.dw = out->dw;
  p.scale = (const float *)out->scale;
  p.db = (float *)out->db;
  p.accumulate = out->accumulate;
  p.r = divider(p.dw.h);
  p.s = divider(p.dw.w);
  p.taps = divider(p.dw.h * p.dw.w);
  CHECK((size_t)p.dw.h * p.dw.w * p.dw.ldc < (size_t)1 << 31);
  p.row = p.dw.h * p.dw.w * p.dw.ldc;
  WgradShape shape = wgrad_shape(conv, pairs, x, dy, &p.dw);
  WgradConfig config = wgrad_config(shape, dev->multiprocessors - dev->granted);
  bool narrow = config.rows == PANEL && p.dw.n <= NARROW_CHANNELS;
  p.panels = shape.panels;
  p.shared_patch = config.shared_patch;
  p.slices = divider(config.slices);
  p.cluster = config.cluster;
  for (int i = 0; i < pairs; i++)
    if (tensor_pixels(&dy[i]) && !dev->measuring)
      p.pair[p.pairs++] = pair_maps(conv, x[i], dy[i], p, WGRAD_TILE_K, p.shared_patch ? config.panels - 1 : 0,
                                    narrow ? NARROW_ROW : SWIZZLE_ROW);
  auto launch = x->dtype == BF16 ? launcher<__nv_bfloat16>(config, narrow) : launcher<__half>(config, narrow);
  launch(dev, p);
}
