// RoIAlign over a feature pyramid (He et al., "Mask R-CNN", 2017, section 3; torchvision's MultiScaleRoIAlign). Forward
// and backward both gather. Positions and weights come from exact/roi_bins.h, compiled without contraction, so that
// every RoI reads the level and the pixels that the CPU reads; only sums of features ask for fused multiply-add, by
// name.
#include "cuda/common.cuh"
extern "C" {
#include "exact/roi_bins.h"
}

// ---- forward --------------------------------------------------------------------------------------------------------

struct RoiForwardArgs {
  RoiAlign p;
  float limit[MAX_LEVELS];
  Rois rois;
  Tensor x[MAX_LEVELS], y;
  int parts; // threadblocks that share a RoI
};

// y += the bilinear sample at (row, column) of image n, channels c … c+7.
template <class T>
static __device__ __forceinline__ void add_sample(const Tensor &x, int n, Tap row, Tap column, int c, Eight &y) {
  Eight a = load8(pixel<T>(x, n, row.low, column.low) + c), b = load8(pixel<T>(x, n, row.low, column.high) + c);
  Eight d = load8(pixel<T>(x, n, row.high, column.low) + c), e = load8(pixel<T>(x, n, row.high, column.high) + c);
  float wa = (1 - row.fraction) * (1 - column.fraction), wb = (1 - row.fraction) * column.fraction;
  float wd = row.fraction * (1 - column.fraction), we = row.fraction * column.fraction;
#pragma unroll
  for (int i = 0; i < 8; i++) y.v[i] = fmaf(wa, a.v[i], fmaf(wb, b.v[i], fmaf(wd, d.v[i], fmaf(we, e.v[i], y.v[i]))));
}

// y [rois, size, size, c] from x[l] [n, h, w, c]. A thread computes a vector of eight channels of one bin; neighbours
// in a warp take the next channels of it, so that a pixel of 256 channels is one coalesced read by one warp, whose
// lanes agree on where to read. Bound by its loads, four pixels per sampling point, which the caches serve: reading x
// and writing y once would take 8 % of the time (results/profile-b4-h200.txt).
template <class T> static __global__ void roi_align_forward_kernel(const __grid_constant__ RoiForwardArgs a) {
  int size = a.p.size, groups = a.y.ldc / 8;
  int r = blockIdx.x / a.parts, item = blockIdx.x % a.parts * blockDim.x + threadIdx.x;
  if (r >= *a.rois.count || item >= size * size * groups) return;
  int c = item % groups * 8, bin_y = item / groups / size, bin_x = item / groups % size;
  RoiGrid grid = roi_grid(&a.p, a.limit, box_rows(&a.rois.box)[r]);
  const Tensor &x = a.x[grid.level];
  Eight sum = {};
  for (int sy = 0; sy < grid.y.samples; sy++) {
    Tap row = roi_tap(grid.y, bin_y, sy, x.h);
    if (row.low < 0) continue;
    for (int sx = 0; sx < grid.x.samples; sx++) {
      Tap column = roi_tap(grid.x, bin_x, sx, x.w);
      if (column.low >= 0) add_sample<T>(x, a.rois.image[r], row, column, c, sum);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; i++) sum.v[i] /= (float)grid.samples;
  store8(pixel<T>(a.y, r, bin_y, bin_x) + c, sum);
}

// ---- backward -------------------------------------------------------------------------------------------------------
//
// Gathers where the usual implementation scatters with atomics: a threadblock owns a tile of 8 × 8 pixels and 256
// channels of one level of one image. It goes through the RoIs in their order, picks those that reach the tile, and
// accumulates in registers; so no two threads write the same element, the order of every sum is fixed, and the epilogue
// is applied where the sum ends. The gradient is separable:
//   dx[y, x] = Σ_bin_x column[bin_x, x] · Σ_bin_y row[bin_y, y] · dy[bin_y, bin_x],
// where row and column hold the weights that all sampling points of a bin together give to a pixel.

enum {
  TILE = 8,            // pixels per side: a warp owns a row of the tile, a lane eight channels of it
  THREADS = 32 * TILE, // and 32 · 8 = 256 channels
  BATCH = 8,           // RoIs whose weights are in shared memory at a time
};

// The bounding box of the pixels that a RoI's gradient can reach, in tiles of its level's map; rows past the count are
// not written.
struct RoiReach {
  int map; // image · levels + level
  uint16_t y1, x1, y2, x2;
};

struct RoiBackwardArgs {
  RoiAlign p;
  float limit[MAX_LEVELS];
  Rois rois;
  Tensor dy;
  DestArgs dx[MAX_LEVELS];
  int first[MAX_LEVELS]; // threadblock of each level's first tile
  const RoiReach *reach;
};

// The tiles from the first to the last sampling point of an axis, one more pixel on either side for rounding.
static __device__ void reach_axis(RoiAxis axis, int bins, int size, uint16_t *first, uint16_t *last) {
  float a = axis.start, b = axis.start + (float)bins * axis.bin;
  *first = (uint16_t)((int)clip(floorf(fminf(a, b)) - 1, (float)(size - 1)) / TILE);
  *last = (uint16_t)((int)clip(floorf(fmaxf(a, b)) + 2, (float)(size - 1)) / TILE);
}

// reach [rois]: a thread per RoI, so that the tiles of the next kernel cull RoIs by comparing integers.
static __global__ void roi_reach_kernel(const __grid_constant__ RoiBackwardArgs a, RoiReach *reach) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= *a.rois.count) return;
  RoiGrid grid = roi_grid(&a.p, a.limit, box_rows(&a.rois.box)[r]);
  const Tensor &t = a.dx[grid.level].t;
  RoiReach to;
  to.map = a.rois.image[r] * a.p.levels + grid.level;
  reach_axis(grid.y, a.p.size, t.h, &to.y1, &to.y2);
  reach_axis(grid.x, a.p.size, t.w, &to.x1, &to.x2);
  reach[r] = to;
}

struct MapTile { // position in tiles
  int level, image, y, x;
};

static __device__ __forceinline__ MapTile tile_of_block(const RoiBackwardArgs &a) {
  MapTile t;
  t.level = a.p.levels - 1;
  while ((int)blockIdx.x < a.first[t.level]) t.level--;
  const Tensor &map = a.dx[t.level].t;
  int across = (map.w + TILE - 1) / TILE, down = (map.h + TILE - 1) / TILE, i = blockIdx.x - a.first[t.level];
  t.x = i % across;
  t.y = i / across % down;
  t.image = i / across / down;
  return t;
}

// Culls: compacts the numbers of those of the RoIs base … base + THREADS that reach the tile into list, in order, by
// ballots and a prefix sum over the warps; returns how many.
static __device__ int list_rois(const RoiBackwardArgs &a, MapTile tile, int base, int count, int *list) {
  __shared__ int found[TILE]; // by warp
  int r = base + threadIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  bool hit = false;
  if (r < count) {
    RoiReach to = a.reach[r];
    hit = to.map == tile.image * a.p.levels + tile.level && to.y1 <= tile.y && tile.y <= to.y2 && to.x1 <= tile.x &&
          tile.x <= to.x2;
  }
  unsigned hits = __ballot_sync(~0u, hit);
  if (lane == 0) found[warp] = __popc(hits);
  __syncthreads();
  int before = 0, all = 0;
  for (int w = 0; w < TILE; w++) {
    if (w == warp) before = all;
    all += found[w];
  }
  if (hit) list[before + __popc(hits & ((1u << lane) - 1))] = r;
  __syncthreads();
  return all;
}

// The weight that the sampling points of bin b together give to pixel `at` of an axis, over a map of `size` pixels.
static __device__ float bin_weight(RoiAxis axis, int b, int at, int size) {
  float weight = 0;
  for (int s = 0; s < axis.samples; s++) {
    Tap tap = roi_tap(axis, b, s, size);
    weight += (tap.low == at ? 1 - tap.fraction : 0) + (tap.high == at ? tap.fraction : 0);
  }
  return weight;
}

// weights [rois, 2, bins, TILE] in shared memory: of the tile's rows (divided by the number of sampling points) and
// columns.
static __device__ void fill_weights(const RoiBackwardArgs &a, MapTile tile, const int *list, int rois, float *weights) {
  int bins = a.p.size;
  const Tensor &map = a.dx[tile.level].t;
  for (int i = threadIdx.x; i < rois * 2 * bins * TILE; i += THREADS) {
    int at = i % TILE, b = i / TILE % bins, columns = i / TILE / bins % 2;
    RoiGrid grid = roi_grid(&a.p, a.limit, box_rows(&a.rois.box)[list[i / TILE / bins / 2]]);
    weights[i] = columns ? bin_weight(grid.x, b, tile.x * TILE + at, map.w)
                         : bin_weight(grid.y, b, tile.y * TILE + at, map.h) / (float)grid.samples;
  }
}

// Adds a RoI to one row of the tile, sum [TILE] pixels of eight channels; dy points at channel c of the RoI's first
// bin, NULL in lanes without channels. Bins without weight are skipped by ballot: a warp agrees on everything but the
// channels, so nothing diverges.
template <class T>
static __device__ __forceinline__ void add_roi(const Tensor &t, const T *dy, const float *weights, int row,
                                               Eight *sum) {
  int bins = t.w, lane = threadIdx.x % 32;
  const float *columns = weights + bins * TILE;
  float mine = 0; // of the row, for bin `lane`
  bool column_used = false;
  if (lane < bins) {
    mine = weights[lane * TILE + row];
    for (int x = 0; x < TILE; x++) column_used |= columns[lane * TILE + x] != 0;
  }
  unsigned bins_y = __ballot_sync(~0u, mine != 0), bins_x = __ballot_sync(~0u, column_used);
  if (!bins_y) return;
  for (; bins_x; bins_x &= bins_x - 1) {
    int bin_x = __ffs(bins_x) - 1;
    Eight down = {}; // Σ_bin_y row · dy
    for (unsigned left = bins_y; left; left &= left - 1) {
      int bin_y = __ffs(left) - 1;
      float weight = __shfl_sync(~0u, mine, bin_y);
      if (!dy) continue;
      Eight v = load8(dy + (size_t)(bin_y * bins + bin_x) * t.ldc);
#pragma unroll
      for (int i = 0; i < 8; i++) down.v[i] = fmaf(weight, v.v[i], down.v[i]);
    }
#pragma unroll
    for (int x = 0; x < TILE; x++) {
      float weight = columns[bin_x * TILE + x];
      if (weight == 0) continue;
#pragma unroll
      for (int i = 0; i < 8; i++) sum[x].v[i] = fmaf(weight, down.v[i], sum[x].v[i]);
    }
  }
}

// dx[l] [n, h, w, c] from dy [rois, size, size, c]. Grid (tiles of all levels and images, 256 channels each); a tile's
// 8 pixels × 8 channels per thread are 64 accumulators in registers, two threadblocks per SM. Bound by reading dy, once
// per tile that a RoI reaches, and by computing weights: minimal traffic would take a fifth of the time
// (results/profile-b4-h200.txt). A tile that no RoI reaches is one pass over the RoIs' bounding boxes.
template <class T>
static __global__ void __launch_bounds__(THREADS, 2)
    roi_align_backward_kernel(const __grid_constant__ RoiBackwardArgs a) {
  extern __shared__ float weights[]; // [BATCH, 2, bins, TILE]
  __shared__ int list[THREADS];
  MapTile tile = tile_of_block(a);
  const DestArgs &dx = a.dx[tile.level];
  int count = min(*a.rois.count, a.dy.n), bins = a.p.size;
  int row = threadIdx.x / 32, c = (blockIdx.y * 32 + threadIdx.x % 32) * 8;
  Eight sum[TILE] = {};
  for (int base = 0; base < count; base += THREADS) {
    int found = list_rois(a, tile, base, count, list);
    for (int from = 0; from < found; from += BATCH) {
      int rois = min(BATCH, found - from);
      fill_weights(a, tile, list + from, rois, weights);
      __syncthreads();
      for (int i = 0; i < rois; i++) {
        const T *dy = c < a.dy.ldc ? pixel<T>(a.dy, list[from + i], 0, 0) + c : NULL;
        add_roi<T>(a.dy, dy, weights + i * 2 * bins * TILE, row, sum);
      }
      __syncthreads();
    }
  }
  int y = tile.y * TILE + row;
  if (y >= dx.t.h || c >= dx.t.ldc) return;
#pragma unroll
  for (int i = 0; i < TILE; i++) {
    int x = tile.x * TILE + i;
    if (x < dx.t.w) dest_store8<T>(dx, tile.image, y, x, c, sum[i]);
  }
}

// ---- launchers ------------------------------------------------------------------------------------------------------

static void check_shapes(const RoiAlign *p, const Rois *rois, const Tensor *y, const Tensor *x) {
  CHECK(p->levels <= MAX_LEVELS && y->h == p->size && y->w == p->size && rois->capacity <= y->n);
  CHECK(x->dtype == y->dtype && x->ldc == y->ldc);
}

extern "C" void cuda_roi_align_forward(Device *dev, const RoiAlign *p, const Rois *rois, const Tensor *x,
                                       const Tensor *y) {
  if (dev->measuring) return;
  enum { BLOCK = 256 };
  RoiForwardArgs a = {};
  a.p = *p;
  a.rois = *rois;
  a.y = *y;
  a.parts = blocks_for((size_t)p->size * p->size * (y->ldc / 8), BLOCK);
  roi_level_limits(p, a.limit);
  for (int l = 0; l < p->levels; l++) {
    check_shapes(p, rois, y, &x[l]);
    a.x[l] = x[l];
  }
  WITH_TYPE(y->dtype, T, roi_align_forward_kernel<T><<<rois->capacity * a.parts, BLOCK, 0, stream_of(dev)>>>(a));
  LAUNCH_CHECK();
}

extern "C" void cuda_roi_align_backward(Device *dev, const RoiAlign *p, const Rois *rois, const Tensor *dy,
                                        const Dest *dx) {
  RoiReach *reach = (RoiReach *)device_workspace(dev, (size_t)rois->capacity * sizeof(RoiReach));
  if (dev->measuring) return;
  CHECK(p->size <= 32); // a lane for each bin
  RoiBackwardArgs a = {};
  a.p = *p;
  a.rois = *rois;
  a.dy = *dy;
  a.reach = reach;
  roi_level_limits(p, a.limit);
  int tiles = 0;
  for (int l = 0; l < p->levels; l++) {
    const Tensor *t = &dx[l].t;
    check_shapes(p, rois, dy, t);
    a.dx[l] = dest_args(&dx[l]);
    a.first[l] = tiles;
    tiles += t->n * blocks_for((size_t)t->h, TILE) * blocks_for((size_t)t->w, TILE);
  }
  roi_reach_kernel<<<blocks_for((size_t)rois->capacity, THREADS), THREADS, 0, stream_of(dev)>>>(a, reach);
  LAUNCH_CHECK();
  dim3 grid((unsigned)tiles, (unsigned)blocks_for((size_t)dy->ldc, 32 * 8));
  size_t shared = (size_t)BATCH * 2 * p->size * TILE * sizeof(float);
  WITH_TYPE(dy->dtype, T, roi_align_backward_kernel<T><<<grid, THREADS, shared, stream_of(dev)>>>(a));
  LAUNCH_CHECK();
}
