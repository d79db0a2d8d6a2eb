// RoIAlign's gradient over a feature pyramid. Gathers where the usual implementation scatters with atomics: a
// threadblock owns a tile of 8 × 4 pixels and 256 channels of one level of one image. It goes through the RoIs that
// reach the tile, in their order, and accumulates in registers; so no two threads write the same element, the order of
// every sum is fixed, and the epilogue is applied where the sum ends. The gradient is separable:
//   dx[y, x] = Σ_bin_x column[bin_x, x] · Σ_bin_y row[bin_y, y] · dy[bin_y, bin_x],
// where row and column hold the weights that all sampling points of a bin together give to a pixel.
#pragma once
#include "cuda/common.cuh"
extern "C" {
#include "exact/roi_bins.h"
}

enum {                 // of the gradient
  ROWS = 8,            // of a tile: each is a warp's, a lane of which has eight channels of it
  COLUMNS = 4,         // of a tile: pixels that a thread accumulates
  THREADS = 32 * ROWS, // and 32 · 8 = 256 channels
  BATCH = 2 * ROWS,    // RoIs whose weights are made at a time, two by a warp
  SORT_THREADS = 1024,
};

// The bounding box of the pixels that a RoI's gradient can reach, in tiles of its level's map.
struct RoiReach {
  alignas(16) int roi;
  uint16_t y1, x1, y2, x2;
};

// The RoIs sorted by the map that they read, image · levels + level; in their order within a map.
struct SortedRois {
  int *first;      // [maps + 1] of each map
  RoiReach *reach; // [rois]
  RoiGrid *grid;   // [rois]
};

struct RoiBackwardArgs {
  RoiAlign p;
  float limit[MAX_LEVELS];
  Rois rois;
  Tensor dy;
  DestArgs dx[MAX_LEVELS];
  int first[MAX_LEVELS]; // threadblock of each level's first tile: the last level comes first
  SortedRois sorted;
};

// ---- which RoIs reach which map -------------------------------------------------------------------------------------

// The tiles of `tile` pixels from the first to the last sampling point of an axis, one more pixel on either side for
// rounding.
static __device__ void reach_axis(RoiAxis axis, int bins, int size, int tile, uint16_t *first, uint16_t *last) {
  float a = axis.start, b = axis.start + (float)bins * axis.bin;
  *first = (uint16_t)((int)clip(floorf(fminf(a, b)) - 1, (float)(size - 1)) / tile);
  *last = (uint16_t)((int)clip(floorf(fmaxf(a, b)) + 2, (float)(size - 1)) / tile);
}

// Of the threads of a threadblock that say so, how many have a lower index; *all: how many there are.
static __device__ int count_before(bool yes, int *all) {
  __shared__ int found[32]; // by warp
  unsigned votes = __ballot_sync(~0u, yes);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  __syncthreads(); // found may still be read by the call before
  if (lane == 0) found[warp] = __popc(votes);
  __syncthreads();
  const int mine = lane < (int)blockDim.x / 32 ? found[lane] : 0;
  *all = (int)__reduce_add_sync(~0u, (unsigned)mine);
  return (int)__reduce_add_sync(~0u, lane < warp ? (unsigned)mine : 0) + __popc(votes & ((1u << lane) - 1));
}

// A threadblock per map: counts the RoIs of the maps before its own, then lists its own behind them.
static __global__ void __launch_bounds__(SORT_THREADS) roi_sort_kernel(const __grid_constant__ RoiBackwardArgs a) {
  const int map = blockIdx.x, count = min(*a.rois.count, a.dy.n);
  int before = 0;
  for (int r = threadIdx.x; r < count; r += SORT_THREADS) {
    const int level = roi_level(&a.p, a.limit, box_rows(&a.rois.box)[r]);
    before += a.rois.image[r] * a.p.levels + level < map;
  }
  int at = block_sum(before);
  if (threadIdx.x == 0) a.sorted.first[map] = at;
  for (int base = 0; base < count; base += SORT_THREADS) {
    const int r = base + threadIdx.x;
    RoiGrid grid = {};
    bool mine = false;
    if (r < count) {
      grid = roi_grid(&a.p, a.limit, box_rows(&a.rois.box)[r]);
      mine = a.rois.image[r] * a.p.levels + grid.level == map;
    }
    int all, to = at + count_before(mine, &all);
    if (mine) {
      const Tensor &t = a.dx[grid.level].t;
      RoiReach reach = {r};
      reach_axis(grid.y, a.p.size, t.h, ROWS, &reach.y1, &reach.y2);
      reach_axis(grid.x, a.p.size, t.w, COLUMNS, &reach.x1, &reach.x2);
      a.sorted.reach[to] = reach;
      a.sorted.grid[to] = grid;
    }
    at += all;
  }
  if (threadIdx.x == 0 && map == (int)gridDim.x - 1) a.sorted.first[map + 1] = at;
}

// ---- tiles ----------------------------------------------------------------------------------------------------------

struct MapTile { // position in tiles
  int level, image, y, x;
};

static __device__ __forceinline__ MapTile tile_of_block(const RoiBackwardArgs &a) {
  MapTile t;
  t.level = 0;
  while ((int)blockIdx.x < a.first[t.level]) t.level++;
  const Tensor &map = a.dx[t.level].t;
  int across = (map.w + COLUMNS - 1) / COLUMNS, down = (map.h + ROWS - 1) / ROWS, i = blockIdx.x - a.first[t.level];
  t.x = i % across;
  t.y = i / across % down;
  t.image = i / across / down;
  return t;
}

// Of the RoIs base … base + THREADS, as they are sorted, lists those that reach the tile, in order; returns how many.
static __device__ int list_rois(const SortedRois &sorted, MapTile tile, int base, int end, int *list) {
  const int i = base + threadIdx.x;
  bool hit = false;
  if (i < end) {
    RoiReach to = sorted.reach[i];
    hit = to.y1 <= tile.y && tile.y <= to.y2 && to.x1 <= tile.x && tile.x <= to.x2;
  }
  int all, at = count_before(hit, &all);
  if (hit) list[at] = i;
  __syncthreads();
  return all;
}

// What a RoI gives to a tile, in shared memory: weights and, as bits, the bins that have any.
struct RoiWeights {
  float *rows, *columns;      // [bins, ROWS] divided by the number of sampling points, [bins, COLUMNS]
  uint32_t *in_row, *in_tile; // [ROWS] of rows, [1] of columns
};
static __device__ __forceinline__ RoiWeights weights_at(float *shared, int bins, int i) {
  float *rows = shared + i * (bins * (ROWS + COLUMNS) + ROWS + COLUMNS); // a multiple of 16 bytes
  uint32_t *used = (uint32_t *)(rows + bins * (ROWS + COLUMNS));
  return {rows, rows + bins * ROWS, used, used + ROWS};
}
static size_t weight_bytes(int bins) { return (size_t)2 * BATCH * (bins + 1) * (ROWS + COLUMNS) * sizeof(float); }

// Makes them, a bin of either axis by a lane.
static __device__ void fill_weights(const RoiGrid &grid, const Tensor &map, MapTile tile, int bins, RoiWeights to) {
  const int lane = threadIdx.x % 32;
  uint64_t used_columns = 0; // bit i of item i
  for (int first = 0; first < 2 * bins; first += 32) {
    const int i = first + lane;
    const bool of_y = i < bins;
    const RoiAxis axis = of_y ? grid.y : grid.x;
    const int b = of_y ? i : i - bins, size = of_y ? map.h : map.w, from = of_y ? tile.y * ROWS : tile.x * COLUMNS;
    float weight[ROWS] = {};
    for (int s = 0; i < 2 * bins && s < axis.samples; s++) {
      Tap tap = roi_tap(axis, b, s, size);
#pragma unroll
      for (int k = 0; k < ROWS; k++)
        weight[k] += (tap.low == from + k ? 1 - tap.fraction : 0) + (tap.high == from + k ? tap.fraction : 0);
    }
    bool any = false;
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
      uint32_t used = __ballot_sync(~0u, of_y && weight[k] != 0);
      if (first == 0 && lane == 0) to.in_row[k] = used; // as many as 32 bins
      if (of_y) to.rows[b * ROWS + k] = weight[k] / (float)grid.samples;
    }
#pragma unroll
    for (int k = 0; k < COLUMNS; k++) {
      if (!of_y && b < bins) to.columns[b * COLUMNS + k] = weight[k];
      any |= weight[k] != 0;
    }
    used_columns |= (uint64_t)__ballot_sync(~0u, !of_y && any) << first;
  }
  if (lane == 0) *to.in_tile = (uint32_t)(used_columns >> bins);
}

// sum [COLUMNS] += a bin's share: its column's weights times Σ_bin_y row · dy.
static __device__ __forceinline__ void add_bin(const float *columns, const Eight &down, Eight *sum) {
  const float4 weights = *(const float4 *)columns;
  const float weight[COLUMNS] = {weights.x, weights.y, weights.z, weights.w};
#pragma unroll
  for (int x = 0; x < COLUMNS; x++) {
    if (weight[x] == 0) continue; // as for all of the warp
#pragma unroll
    for (int i = 0; i < 8; i++) sum[x].v[i] = fmaf(weight[x], down.v[i], sum[x].v[i]);
  }
}

static __device__ __forceinline__ void add_scaled(float weight, const Eight &v, Eight &to) {
#pragma unroll
  for (int i = 0; i < 8; i++) to.v[i] = fmaf(weight, v.v[i], to.v[i]);
}

static __device__ __forceinline__ int take_bit(unsigned &bits) {
  int i = __ffs(bits) - 1;
  bits &= bits - 1;
  return i;
}

// Adds a RoI to one row of the tile; dy points at the thread's channels of the RoI's first bin. A warp agrees on
// everything but the channels, so that nothing diverges. A row mostly has one or two bins: they are loaded for two
// columns of bins at once, before the first is needed.
template <class T>
static __device__ __forceinline__ void add_roi(const Tensor &t, const T *dy, RoiWeights weights, int row, Eight *sum) {
  unsigned bins_y = weights.in_row[row], bins_x = *weights.in_tile;
  if (!bins_y || !bins_x) return;
  const int y0 = take_bit(bins_y);
  const bool second = bins_y;
  const int y1 = second ? take_bit(bins_y) : y0;
  auto at = [&](int y, int x) { return dy + (y * t.w + x) * t.ldc; };
  while (bins_x) {
    const int x0 = take_bit(bins_x);
    const bool pair = bins_x;
    const int x1 = pair ? take_bit(bins_x) : x0;
    Raw8<T> v[2][2] = {{read8(at(y0, x0)), read8(at(y1, x0))}, {read8(at(y0, x1)), read8(at(y1, x1))}};
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int x = i ? x1 : x0;
      if (i && !pair) return;
      Eight down = {};
      add_scaled(weights.rows[y0 * ROWS + row], to_eight<T>(v[i][0]), down);
      if (second) add_scaled(weights.rows[y1 * ROWS + row], to_eight<T>(v[i][1]), down);
      for (unsigned left = bins_y; left;) {
        const int y = take_bit(left);
        add_scaled(weights.rows[y * ROWS + row], load8(at(y, x)), down);
      }
      add_bin(weights.columns + x * COLUMNS, down, sum);
    }
  }
}

// dx[l] [n, h, w, c] from dy [rois, size, size, c]. Grid (tiles of all levels and images, 256 channels each). Tiles of
// the last levels, which many RoIs reach, begin first. The floor is reading dy and writing dx once, where it is added
// to only what RoIs reach; a tile reads of dy what its RoIs give to it, and makes their weights: those of the next
// batch while the last warps are still at work on this one.
template <class T>
static __global__ void __launch_bounds__(THREADS, sizeof(T) == 4 ? 2 : 3)
    roi_align_backward_kernel(const __grid_constant__ RoiBackwardArgs a) {
  extern __shared__ float4 shared[];
  __shared__ int list[THREADS];
  const MapTile tile = tile_of_block(a);
  const DestArgs &dx = a.dx[tile.level];
  const int bins = a.p.size, map = tile.image * a.p.levels + tile.level;
  const int row = threadIdx.x / 32, channel = (blockIdx.y * 32 + threadIdx.x % 32) * 8;
  const int c = min(channel, a.dy.ldc - 8); // lanes without channels follow
  Eight sum[COLUMNS] = {};
  bool given = false; // to this row of the tile
  const int end = a.sorted.first[map + 1];
  for (int base = a.sorted.first[map]; base < end; base += THREADS) {
    const int found = list_rois(a.sorted, tile, base, end, list);
    auto fill = [&](int from) {
      for (int i = from + row; i < min(from + BATCH, found); i += ROWS)
        fill_weights(a.sorted.grid[list[i]], dx.t, tile, bins, weights_at((float *)shared, bins, i % (2 * BATCH)));
    };
    fill(0);
    __syncthreads();
    for (int from = 0; from < found; from += BATCH) {
      fill(from + BATCH);
      for (int i = from; i < min(from + BATCH, found); i++) {
        const int roi = a.sorted.reach[list[i]].roi;
        const RoiWeights weights = weights_at((float *)shared, bins, i % (2 * BATCH));
        given |= weights.in_row[row] && *weights.in_tile;
        add_roi<T>(a.dy, pixel<T>(a.dy, roi, 0, 0) + c, weights, row, sum);
      }
      __syncthreads();
    }
  }
  const int y = tile.y * ROWS + row;
  if (y >= dx.t.h || channel >= dx.t.ldc) return;
  if (!given && dest_keeps(dx)) return;
#pragma unroll
  for (int i = 0; i < COLUMNS; i++) {
    const int x = tile.x * COLUMNS + i;
    if (x < dx.t.w) dest_store8<T>(dx, tile.image, y, x, c, sum[i]);
  }
}
