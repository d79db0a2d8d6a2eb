// The parameters, the threadblock tile and the epilogue of rung 05's wgrad. The epilogue is a split-K reduction:
// accumulators leave a block to dw, to the blocks of its cluster through distributed shared memory, or to the
// workspace, which a second kernel reduces. The order in which slices are added is always the same.
#pragma once
#include "cuda/conv/ladder.h"
#include "cuda/conv/split_k.cuh"
#include "cuda/conv/wgmma.cuh"

enum {
  WGRAD_TILE_K = 64, // pixels of a stage
  PANEL = 64,        // channels: a swizzled row of 16-bit elements
  PANEL_BYTES = WGRAD_TILE_K * SWIZZLE_ROW,
  CONSUMER_THREADS = CONSUMERS * WARPGROUP, // of the consumer warpgroups
  WARP = 32,
  CONSUMERS_BARRIER = 1 + CONSUMERS, // a named barrier, behind those of the warpgroups
  WGRAD_STARTED,
  REDUCE_LOADS = 8, // of a thread of the reduction kernel, in flight at once
  REDUCE_BYTES = REDUCE_LOADS * CONSUMER_THREADS * 16,
  BLOCK_SHARED = 1024, // shared memory that each block takes besides its own
  UNIT = 8,            // threads whose accumulators the same block of a cluster reduces
  UNITS = CONSUMER_THREADS / UNIT,
  UNIT_BYTES = UNIT * 16, // a fragment of each
  MAX_UNITS = 36,         // blocks of a cluster · the share of each, rounded up: at most, with six
};

static constexpr int NARROW_CHANNELS = 16, NARROW_ROW = 32; // of dy; bytes of them

// The kernel's parameters. What a block reads first comes first, and dw before the many pairs: parameters come from
// memory a line at a time.
struct WgradPairMaps {
  Tensor rows;   // whose count says how many rows hold data
  int area;      // output pixels of such a row
  Im2colView at; // im2col view of x, as the tensor maps see it
  CUtensorMap dy, x;
};
struct WgradParams {
  int pairs, panels; // panels: in all
  Divider slices;
  Divider r, s, taps, tiles_n; // the filter's, its taps in all; tiles along N
  Divider raster_m;            // tiles along M that neighbouring blocks have
  int tiles_m;                 // of the whole result
  Divider share;               // units of a block of a cluster
  bool shared_patch;           // the panels of a tile are one patch
  bool cluster;                // the slices of a tile are its blocks
  bool accumulate;
  float4 *workspace; // [slices, tiles, fragments of a tile, threads]; NULL: the epilogue writes dw
  float *db_partial; // [slices, tiles_n, rows of all tiles]: dy summed up by channel
  Tensor dw;
  int row; // elements of a row of dw
  const float *scale;
  float *db; // NULL: not asked for
  WgradPairMaps pair[CONV_MAX_PAIRS];
};
static_assert(sizeof(WgradParams) <= 32764, "a kernel's arguments");

// A threadblock tile: TILE_M output channels by PANELS. The consumer warpgroups share its rows, or the panels where the
// rows are few. A fragment is what a thread has of the accumulators in eight columns: two of one row, and two of the
// row eight below. NARROW: dy has no more than 16 channels, and no others are loaded: they stand for the tile's other
// rows, too, which nobody stores.
template <int TILE_M_, int PANELS_, bool NARROW = false> struct WgradTile {
  static constexpr int TILE_M = TILE_M_, PANELS = PANELS_;
  static constexpr int A_ROW = NARROW ? NARROW_ROW : SWIZZLE_ROW, A_PANEL = WGRAD_TILE_K * A_ROW; // bytes
  static constexpr bool SPLIT_N = TILE_M == WGMMA_M; // the consumer warpgroups share the panels
  static constexpr int WGMMAS_M = SPLIT_N ? 1 : TILE_M / (CONSUMERS * WGMMA_M),
                       PANELS_N = SPLIT_N ? PANELS / CONSUMERS : PANELS;
  static constexpr int WGMMA_N = PANELS_N * PANEL, GROUPS = WGMMA_N / 8,
                       FRAGMENTS = WGMMAS_M * GROUPS; // of a warpgroup
  static constexpr int A_PANELS = TILE_M / PANEL, A_BYTES = A_PANELS * A_PANEL;
  static constexpr int STAGE_BYTES = A_BYTES + PANELS * PANEL_BYTES,
                       ALL_STAGES = (MAX_SHARED - 2 * SWIZZLE_ATOM) / STAGE_BYTES;
  static constexpr int STAGES = ALL_STAGES < 8 ? ALL_STAGES : 8, BYTES = STAGES * STAGE_BYTES + SWIZZLE_ATOM;
  static_assert(STAGES >= 4 && WGMMAS_M >= 1 && PANELS_N * (SPLIT_N ? CONSUMERS : 1) == PANELS &&
                A_PANEL % SWIZZLE_ATOM == 0);
  static_assert(!NARROW || SPLIT_N);
  static_assert(FRAGMENTS % 8 == 0 && FRAGMENTS * MAX_UNITS * UNIT_BYTES <= STAGES * STAGE_BYTES);
};

// ---- tiles and panels -----------------------------------------------------------------------------------------------

// A block's tile among those of its slice. Rasterisation: neighbouring blocks have columns of `p.raster_m` tiles; what
// several SMs of one GPC read at the same time comes from L2 once, least of it in squares.
struct WgradTileIndex {
  int n, m; // tile along N; along M
};
__device__ __forceinline__ WgradTileIndex tile_index(const WgradParams &p) {
  int column = divide(blockIdx.x, p.raster_m), band = divide(column, p.tiles_n), raster_m = p.raster_m.by;
  return {column - band * (int)p.tiles_n.by, band * raster_m + (int)blockIdx.x - column * raster_m};
}

struct Panel {
  int c, y, x; // first channel, tap
};
// Taps of a row are neighbours. Past the last panel there are no channels.
template <int CHANNELS = PANEL> __device__ __forceinline__ Panel panel_of(const WgradParams &p, int panel) {
  int row = divide(panel, p.s), column = divide(row, p.r);
  return {column * CHANNELS, row - column * (int)p.r.by, panel - row * (int)p.s.by};
}

// All consumer threads, through a named barrier.
__device__ __forceinline__ void consumers_sync() { named_sync(CONSUMERS_BARRIER, CONSUMER_THREADS); }
template <class Tile> struct WgradAccumulator { float dw[Tile::WGMMAS_M][Tile::WGMMA_N / 2], db[Tile::WGMMAS_M][4]; };

// ---- the epilogue ---------------------------------------------------------------------------------------------------

// A column of the tiles in dw: its channel, and which element of a row it is.
struct DwColumn {
  int c, element;
};
__device__ __forceinline__ DwColumn dw_column(const WgradParams &p, int panel, int column) {
  int block = divide(panel, p.taps), c = block * PANEL + column;
  return {c, (panel - block * (int)p.taps.by) * p.dw.ldc + c};
}

template <int N> struct alignas(4 * N) Floats { float v[N]; };

// dw (+)= scale · v in row k, from a column on, and of w in the row eight below. Few branches: they would keep the rows
// from being computed together.
template <int N>
__device__ __forceinline__ void store_dw(const WgradParams &p, int k, const DwColumn &at, Floats<N> v, Floats<N> w) {
  bool first = k < p.dw.n && at.c < p.dw.ldc, second = k + 8 < p.dw.n && at.c < p.dw.ldc;
  float *row = (float *)p.dw.data + (int64_t)k * p.row + at.element;
  Floats<N> *to = (Floats<N> *)row, *below = (Floats<N> *)(row + 8 * (int64_t)p.row), old = {}, old_below = {};
  float factor = 1.f, factor_below = 1.f;
  if (p.accumulate) {
    if (first) old = *to;
    if (second) old_below = *below;
  }
  if (p.scale) {
    factor = p.scale[min(k, p.dw.n - 1)];
    factor_below = p.scale[min(k + 8, p.dw.n - 1)];
  }
#pragma unroll
  for (int i = 0; i < N; i++) {
    v.v[i] = old.v[i] + factor * v.v[i];
    w.v[i] = old_below.v[i] + factor_below * w.v[i];
    if (at.c + i >= p.dw.c) v.v[i] = w.v[i] = 0.f;
  }
  if (first) *to = v;
  if (second) *below = w;
}

// The first element of a thread's fragment in its tile.
struct TileCoord {
  uint32_t row, column;
};
template <class Tile> __device__ __forceinline__ TileCoord tile_coord(uint32_t fragment, uint32_t thread) {
  uint32_t warpgroup = thread / WARPGROUP, group = fragment % Tile::GROUPS, lane = thread % WARP;
  uint32_t wgmma = (Tile::SPLIT_N ? 0 : warpgroup * Tile::WGMMAS_M) + fragment / Tile::GROUPS;
  return {wgmma * WGMMA_M + thread % WARPGROUP / WARP * 16 + lane / 4,
          (Tile::SPLIT_N ? warpgroup * Tile::WGMMA_N : 0) + group * 8 + lane % 4 * 2};
}

template <class Tile> __device__ __forceinline__ float4 fragment_of(const WgradAccumulator<Tile> &acc, int fragment) {
  const float *v = acc.dw[fragment / Tile::GROUPS] + fragment % Tile::GROUPS * 4;
  return make_float4(v[0], v[1], v[2], v[3]);
}

// A slice to the workspace, in the order of registers, so that a warp writes whole lines.
template <class Tile>
__device__ __forceinline__ void write_workspace(const WgradParams &p, const WgradAccumulator<Tile> &acc) {
  WgradTileIndex at = tile_index(p);
  size_t tile = (size_t)blockIdx.z * gridDim.x + at.m * p.tiles_n.by + at.n;
  float4 *to = p.workspace + tile * Tile::FRAGMENTS * CONSUMER_THREADS + threadIdx.x;
#pragma unroll
  for (int i = 0; i < Tile::FRAGMENTS; i++) to[i * CONSUMER_THREADS] = fragment_of(acc, i);
}
// The reduction in a cluster, whose blocks are the slices of a tile; an unsplit GEMM's only block does the same alone.
// Each block reduces some units over all slices and writes them to dw. Accumulators go to the block that reduces them,
// by stores to distributed shared memory: fragment after fragment, of each slice after slice, of each thread after
// thread. A unit's are four rows of 64 columns or several times 64. A thread adds up four columns of a row, and of the
// row eight below, from two neighbours of a unit; half a warp has 64 columns, which are 256 bytes of dw. It reads eight
// fragments for that, which are swizzled: a unit's threads change places from one to the next, so that eight of the
// half warp meet eight banks.
template <class Tile>
__device__ __forceinline__ void epilogue_dw(const WgradParams &p, const WgradAccumulator<Tile> &acc, uint32_t memory) {
  constexpr int PITCH = MAX_UNITS * UNIT_BYTES; // from fragment to fragment
  auto bank_swizzle = [](int fragment) { return ((fragment & 1) | (fragment & 2) << 1) * 16; };
  int share = p.share.by, slices = gridDim.z, slice = blockIdx.z;
  int group = threadIdx.x / UNIT, quotient = divide(group, p.share), rest = group - quotient * share;
  uint32_t to = remote_address(memory, quotient) + ((slice * share + rest) * UNIT + threadIdx.x % UNIT) * 16;
  // The mainloop is over: stages are not read again, all copies to them have arrived, and clear_tail's zeros are behind
  // barriers of their blocks: there is nothing to order.
  if (p.cluster)
    cluster_sync_relaxed();
  else
    consumers_sync();
#pragma unroll
  for (int i = 0; i < Tile::FRAGMENTS; i++) store_cluster((to ^ bank_swizzle(i)) + i * PITCH, fragment_of(acc, i));
  if (p.cluster)
    cluster_sync();
  else
    consumers_sync();
  constexpr int PIECES = Tile::WGMMAS_M * Tile::PANELS_N; // of a unit: 64 columns of its rows
  WgradTileIndex tile = tile_index(p);
  int lane = threadIdx.x % WARP, half = lane % 2, next = lane / 16; // of eight columns; row
  int end = min(share, UNITS - slice * share) * PIECES;
#pragma unroll 1
  for (int i = threadIdx.x / WARP; i < end; i += CONSUMER_THREADS / WARP) {
    int unit = i / PIECES, piece = i % PIECES, fragment = piece * 8 + lane / 2 % 8;
    uint32_t from = memory + fragment * PITCH + (((unit * UNIT + next * 4 + half * 2) * 16) ^ bank_swizzle(fragment));
    float4 a = load_shared16(from), b = load_shared16(from ^ 16);
#pragma unroll 1
    for (int j = 1; j < slices; j++) {
      from += share * UNIT_BYTES;
      add4(a, load_shared16(from));
      add4(b, load_shared16(from ^ 16));
    }
    TileCoord at = tile_coord<Tile>(fragment, (slice * share + unit) * UNIT + next * 4);
    DwColumn column = dw_column(p, tile.n * Tile::PANELS + at.column / PANEL, at.column % PANEL + half * 4);
    store_dw<4>(p, tile.m * Tile::TILE_M + at.row, column, {a.x, a.y, b.x, b.y}, {a.z, a.w, b.z, b.w});
  }
}
template <class Tile>
__device__ __forceinline__ void epilogue_db(const WgradParams &p, const WgradAccumulator<Tile> &acc) {
  int warpgroup = threadIdx.x / WARPGROUP;
  if (threadIdx.x % 4 || (Tile::SPLIT_N && warpgroup)) return; // others hold the same
  WgradTileIndex tile = tile_index(p);
  float *to = p.db_partial + ((size_t)(blockIdx.z * p.tiles_n.by + tile.n) * p.tiles_m + tile.m) * Tile::TILE_M;
#pragma unroll
  for (int i = 0; i < Tile::WGMMAS_M; i++) {
    int row = tile_coord<Tile>(i * Tile::GROUPS, threadIdx.x).row;
    to[row] = acc.db[i][0];
    to[row + 8] = acc.db[i][2];
  }
}

// ---- the reduction kernel -------------------------------------------------------------------------------------------

// What the reduction kernel adds up: `count` arrays, the slices, of `stride` times four floats.
struct SliceArray {
  const float4 *data;
  size_t stride;
  int count;
};

// Where a fragment lies in dw.
struct FragmentCoord {
  int k;
  DwColumn column;
};
template <class Tile>
__device__ __forceinline__ FragmentCoord fragment_coord(const WgradParams &p, int tile, int fragment, int thread) {
  TileCoord at = tile_coord<Tile>(fragment, thread);
  int tile_m = divide(tile, p.tiles_n), panel = (tile - tile_m * (int)p.tiles_n.by) * Tile::PANELS + at.column / PANEL;
  return {(int)(tile_m * Tile::TILE_M + at.row), dw_column(p, panel, at.column % PANEL)};
}
__device__ __forceinline__ void store_fragment(const WgradParams &p, const FragmentCoord &at, const float4 &v) {
  store_dw<2>(p, at.k, at.column, {v.x, v.y}, {v.z, v.w});
}

// Element `index` of every step-th slice from the first on. All loads of a batch are in flight at once, the last one's
// too: through shared memory with cp.async, since ptxas keeps only two in flight to registers, whatever their order in
// the source.
__device__ __forceinline__ float4 reduce_slices(const SliceArray &s, size_t index, int first, int step,
                                                float4 *loaded) {
  const float4 *from = s.data + first * s.stride + index;
  size_t apart = step * s.stride;
  float4 acc = {};
#pragma unroll 1
  for (int remaining = s.count - first; remaining > 0; remaining -= REDUCE_LOADS * step) {
#pragma unroll
    for (int j = 0; j < REDUCE_LOADS; j++, from += apart)
      cp_async16(shared_address(loaded + j * CONSUMER_THREADS), from, j * step < remaining);
    cp_async_commit();
    cp_async_wait<0>();
#pragma unroll
    for (int j = 0; j < REDUCE_LOADS; j++) add4(acc, loaded[j * CONSUMER_THREADS]);
  }
  return acc;
}

// The split-K reduction: dw [k, r, s, c] (+)= scale · Σ slices, and behind it db [k] (+)= Σ slices. Launched as a
// dependent of the mainloop's kernel. Threads (x, 0 … y) share an element, and their interleaved sums are added in
// order.
template <class Tile>
__global__ __launch_bounds__(CONSUMER_THREADS) void wgmma_wgrad_reduce_kernel(const __grid_constant__ WgradParams p,
                                                                              SliceArray filter, SliceArray bias) {
  if constexpr (HAS_WGMMA) {
    float4 *pair = (float4 *)dynamic_shared(), *own = pair + threadIdx.y * blockDim.x + threadIdx.x;
    size_t index = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    bool is_bias = index >= filter.stride;
    if (is_bias) index -= filter.stride;
    SliceArray array = {is_bias ? bias.data : filter.data, is_bias ? bias.stride : filter.stride,
                        is_bias ? bias.count : filter.count};
    uint32_t fragment = (uint32_t)(index / CONSUMER_THREADS);
    FragmentCoord at = fragment_coord<Tile>(p, fragment / Tile::FRAGMENTS, fragment % Tile::FRAGMENTS,
                                            (int)(index % CONSUMER_THREADS));
    grid_wait_prerequisite();
    float4 acc = {};
    if (index < array.stride) acc = reduce_slices(array, index, threadIdx.y, blockDim.y, own);
    if (blockDim.y > 1) {
      *own = acc;
      __syncthreads();
      if (threadIdx.y) return;
#pragma unroll 1
      for (int i = 1; i < blockDim.y; i++) add4(acc, pair[i * blockDim.x + threadIdx.x]);
    }
    if (index >= array.stride) return;
    if (!is_bias) {
      store_fragment(p, at, acc);
    } else {
      float v[] = {acc.x, acc.y, acc.z, acc.w};
      for (int i = 0, k = 4 * (int)index; i < 4 && k < p.dw.n; i++, k++)
        p.db[k] = (p.accumulate ? p.db[k] : 0.f) + v[i];
    }
  }
}
