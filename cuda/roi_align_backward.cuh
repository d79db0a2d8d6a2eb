// RoIAlign's gradient over a feature pyramid. Gathers where the usual implementation scatters with atomics: a warp owns
// four pixels side by side and 256 channels of one level of one image. It goes through the RoIs that reach these, in
// their order, and accumulates in registers; so no two threads write the same element, the order of every sum is fixed,
// and the epilogue is applied where the sum ends. Warps never wait for each other. The gradient is separable:
//   dx[y, x] = Σ_bin_x column[bin_x, x] · Σ_bin_y row[bin_y, y] · dy[bin_y, bin_x],
// where row and column hold the weights that all sampling points of a bin together give to a pixel.
#pragma once
#include "cuda/common.cuh"
extern "C" {
#include "exact/roi_bins.h"
}

enum {                 // of the gradient
  ROWS = 8,            // of a threadblock's tile: each is a warp's, a lane of which has eight channels of it
  COLUMNS = 4,         // of a tile: pixels that a thread accumulates
  THREADS = 32 * ROWS, // and 32 · 8 = 256 channels
  SORT_THREADS = 1024,
};

// The bounding box of the pixels that a RoI's gradient can reach: rows, and groups of COLUMNS, of its level's map.
struct RoiReach {
  alignas(16) int roi;
  int y1, y2;
  uint16_t x1, x2;
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

// The first and the last pixel that an axis reaches: by its sampling points, one more on either side for rounding.
struct Reach {
  int first, last;
};
static __device__ Reach reach_of(RoiAxis axis, int bins, int size) {
  float a = axis.start, b = axis.start + (float)bins * axis.bin;
  return {(int)clip(floorf(fminf(a, b)) - 1, (float)(size - 1)), (int)clip(floorf(fmaxf(a, b)) + 2, (float)(size - 1))};
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
      const Reach y = reach_of(grid.y, a.p.size, t.h), x = reach_of(grid.x, a.p.size, t.w);
      a.sorted.reach[to] = {r, y.first, y.last, (uint16_t)(x.first / COLUMNS), (uint16_t)(x.last / COLUMNS)};
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

// What a warp keeps in shared memory: RoIs that reach its pixels, as they are sorted, of which at most 32 and a few are
// to be summed; and of the RoIs that are being summed the weights, by lane: the first `lanes_of_roi` lanes belong to
// the first RoI, a lane to each of its bins, and so on.
struct WarpRois {
  float4 columns[32]; // the weights of a bin's column
  float row[32];      // that of its row, divided by the number of sampling points
  int list[64];       // a ring
};

static __device__ __forceinline__ int lanes_of_roi(int bins) { return bins <= 8 ? 8 : bins <= 16 ? 16 : 32; }

// What a RoI gives to a warp's pixels: weights, and as bits the bins that have any.
struct RoiWeights {
  const float *row;
  const float4 *columns;
  unsigned in_row, in_columns;
};

// The lane's weights of bin b of a RoI for pixel `row` of its y axis, and for COLUMNS pixels from `column` on.
static __device__ __forceinline__ void weights_of_bin(const RoiGrid &grid, const Tensor &map, int b, int row,
                                                      int column, float *of_row, float *of_columns) {
  for (int s = 0; s < grid.y.samples; s++) {
    const Tap tap = roi_tap(grid.y, b, s, map.h);
    *of_row += (tap.low == row ? 1 - tap.fraction : 0) + (tap.high == row ? tap.fraction : 0);
  }
  for (int s = 0; s < grid.x.samples; s++) {
    const Tap tap = roi_tap(grid.x, b, s, map.w);
#pragma unroll
    for (int k = 0; k < COLUMNS; k++)
      of_columns[k] += (tap.low == column + k ? 1 - tap.fraction : 0) + (tap.high == column + k ? tap.fraction : 0);
  }
}

// sum [COLUMNS] += a bin's share: its column's weights times Σ_bin_y row · dy.
static __device__ __forceinline__ void add_bin(const float4 &weights, const Eight &down, Eight *sum) {
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

// Adds a RoI to the warp's pixels; dy points at the thread's channels of the RoI's first bin. A warp agrees on
// everything but the channels, so that nothing diverges. A row mostly has one or two bins: they are loaded for two
// columns of bins at once, before the first is needed.
template <class T>
static __device__ __forceinline__ void add_roi(const Tensor &t, const T *dy, const RoiWeights &weights, Eight *sum) {
  unsigned bins_y = weights.in_row, bins_x = weights.in_columns;
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
      add_scaled(weights.row[y0], to_eight<T>(v[i][0]), down);
      if (second) add_scaled(weights.row[y1], to_eight<T>(v[i][1]), down);
      for (unsigned left = bins_y; left;) {
        const int y = take_bit(left);
        add_scaled(weights.row[y], load8(at(y, x)), down);
      }
      add_bin(weights.columns[x], down, sum);
    }
  }
}

// dx[l] [n, h, w, c] from dy [rois, size, size, c]. Grid (tiles of all levels and images, 256 channels each). Tiles of
// the last levels, which many RoIs reach, begin first. The floor is reading dy and writing dx once, where it is added
// to only what RoIs reach; a warp reads of dy what its RoIs give to it, and makes their weights, a few RoIs at once.
template <class T>
static __global__ void __launch_bounds__(THREADS, sizeof(T) == 4 ? 2 : 3)
    roi_align_backward_kernel(const __grid_constant__ RoiBackwardArgs a) {
  __shared__ WarpRois rois_of_warp[ROWS];
  const MapTile tile = tile_of_block(a);
  const DestArgs &dx = a.dx[tile.level];
  const int bins = a.p.size, map = tile.image * a.p.levels + tile.level, lane = threadIdx.x % 32;
  const int channel = (blockIdx.y * 32 + lane) * 8;
  const int c = min(channel, a.dy.ldc - 8); // lanes without channels follow
  const int y = tile.y * ROWS + threadIdx.x / 32;
  const int each = lanes_of_roi(bins), b = lane % each, slot = lane / each;
  if (y >= dx.t.h) return;
  WarpRois &mine = rois_of_warp[threadIdx.x / 32];
  Eight sum[COLUMNS] = {};
  bool given = false;
  int listed = 0, summed = 0;
  const int end = a.sorted.first[map + 1];
  for (int base = a.sorted.first[map]; base < end; base += 32) {
    bool hit = false;
    if (base + lane < end) {
      const RoiReach to = a.sorted.reach[base + lane];
      hit = to.y1 <= y && y <= to.y2 && to.x1 <= tile.x && tile.x <= to.x2;
    }
    const unsigned hits = __ballot_sync(~0u, hit);
    if (hit) mine.list[(listed + __popc(hits & ((1u << lane) - 1))) % 64] = base + lane;
    listed += __popc(hits);
    __syncwarp();
    while (listed - summed >= 32 / each || (base + 32 >= end && summed < listed)) {
      const int count = min(32 / each, listed - summed);
      int roi = 0;
      float row = 0, columns[COLUMNS] = {};
      bool any = false;
      if (slot < count && b < bins) {
        const int i = mine.list[(summed + slot) % 64];
        const RoiGrid grid = a.sorted.grid[i];
        roi = a.sorted.reach[i].roi;
        weights_of_bin(grid, dx.t, b, y, tile.x * COLUMNS, &row, columns);
        mine.row[lane] = row / (float)grid.samples;
        mine.columns[lane] = {columns[0], columns[1], columns[2], columns[3]};
      }
#pragma unroll
      for (int k = 0; k < COLUMNS; k++) any |= columns[k] != 0;
      const unsigned in_row = __ballot_sync(~0u, row != 0), in_columns = __ballot_sync(~0u, any);
      const unsigned bits = each == 32 ? ~0u : (1u << each) - 1;
      __syncwarp();
      for (int i = 0; i < count; i++) {
        const int first = i * each, r = __shfl_sync(~0u, roi, first);
        const RoiWeights weights = {mine.row + first, mine.columns + first, in_row >> first & bits,
                                    in_columns >> first & bits};
        if (!weights.in_row || !weights.in_columns) continue;
        given = true;
        add_roi<T>(a.dy, pixel<T>(a.dy, r, 0, 0) + c, weights, sum);
      }
      __syncwarp();
      summed += count;
    }
  }
  if (channel >= dx.t.ldc || (!given && dest_keeps(dx))) return;
#pragma unroll
  for (int i = 0; i < COLUMNS; i++) {
    const int x = tile.x * COLUMNS + i;
    if (x < dx.t.w) dest_store8<T>(dx, tile.image, y, x, c, sum[i]);
  }
}
