// RoIAlign over a feature pyramid (He et al., "Mask R-CNN", 2017, section 3; torchvision's MultiScaleRoIAlign). Forward
// and backward both gather. Positions and weights come from exact/roi_bins.h, compiled without contraction, so that
// every RoI reads the level and the pixels that the CPU reads; only sums of features ask for fused multiply-add, by
// name.
#include "cuda/common.cuh"
extern "C" {
#include "exact/roi_bins.h"
}

// ---- forward --------------------------------------------------------------------------------------------------------

enum {
  WARPS = 7,      // of a threadblock: with 256 channels it makes a row of seven bins at once
  STEPS = 7,      // vectors that a thread makes
  MOST_TAPS = 64, // of an axis in shared memory: bins · sampling points; more are made where they are needed
};

struct RoiForwardArgs {
  RoiAlign p;
  float limit[MAX_LEVELS];
  Rois rois;
  Tensor x[MAX_LEVELS], y;
  int bins, parts; // of a threadblock; threadblocks that share a RoI
};

// A Tap of one axis as the sum reads it: offsets in bytes, and both weights.
struct SampleTap {
  alignas(16) uint32_t low; // NO_SAMPLE: outside the map
  uint32_t high;
  float rest, fraction; // of low, of high
};
static constexpr uint32_t NO_SAMPLE = ~0u;

// Sampling point i of an axis over a map of `size` pixels that are `pitch` bytes apart.
static __device__ __forceinline__ SampleTap sample_tap(const RoiAxis &axis, int i, int size, uint32_t pitch) {
  Tap tap = roi_tap(axis, i / axis.samples, i % axis.samples, size);
  return {tap.low < 0 ? NO_SAMPLE : tap.low * pitch, tap.high * pitch, 1 - tap.fraction, tap.fraction};
}

template <class T> static __device__ __forceinline__ Eight load8_at(const T *p, uint32_t bytes) {
  return load8((const T *)((const char *)p + bytes));
}

// y += the bilinear sample of a map at (row, column), eight channels.
template <class T>
static __device__ __forceinline__ void add_sample(const T *map, const SampleTap &row, const SampleTap &column,
                                                  Eight &y) {
  const T *above = (const T *)((const char *)map + row.low), *below = (const T *)((const char *)map + row.high);
  Eight a = load8_at(above, column.low), b = load8_at(above, column.high);
  Eight d = load8_at(below, column.low), e = load8_at(below, column.high);
  float wa = row.rest * column.rest, wb = row.rest * column.fraction;
  float wd = row.fraction * column.rest, we = row.fraction * column.fraction;
#pragma unroll
  for (int i = 0; i < 8; i++) y.v[i] = fmaf(wa, a.v[i], fmaf(wb, b.v[i], fmaf(wd, d.v[i], fmaf(we, e.v[i], y.v[i]))));
}

// What a threadblock knows of its RoI.
struct RoiMap {
  RoiGrid grid;
  int h, w;                        // of its level's map
  uint32_t row_bytes, pixel_bytes; // of the map
  bool in_shared;                  // the taps
};
struct RoiTaps {
  SampleTap y[MOST_TAPS], x[MOST_TAPS];
};

// Makes the taps of a RoI's axes, in shared memory if there is room; returns whether all bins are of 2 × 2 sampling
// points, none of them outside the map. All threads call it.
static __device__ __forceinline__ bool make_taps(const RoiMap &m, int size, RoiTaps &taps) {
  int ny = size * m.grid.y.samples, nx = size * m.grid.x.samples;
  bool plain = m.in_shared && m.grid.y.samples == 2 && m.grid.x.samples == 2;
  for (int i = threadIdx.y * blockDim.x + threadIdx.x; m.in_shared && i < ny + nx; i += 32 * WARPS) {
    bool of_y = i < ny;
    int k = of_y ? i : i - ny;
    SampleTap tap = of_y ? sample_tap(m.grid.y, k, m.h, m.row_bytes) : sample_tap(m.grid.x, k, m.w, m.pixel_bytes);
    (of_y ? taps.y : taps.x)[k] = tap;
    plain &= tap.low != NO_SAMPLE;
  }
  return __syncthreads_and(plain);
}

// The mean of a bin's 2 × 2 samples, none outside: without branches, so that all loads are under way at once.
template <class T>
static __device__ __forceinline__ Eight plain_bin(const T *map, const SampleTap *y, const SampleTap *x) {
  Eight sum = {};
#pragma unroll
  for (int sy = 0; sy < 2; sy++)
#pragma unroll
    for (int sx = 0; sx < 2; sx++) add_sample(map, y[sy], x[sx], sum);
#pragma unroll
  for (int i = 0; i < 8; i++) sum.v[i] *= .25f; // the same bits as / 4
  return sum;
}

// The mean of any bin's samples; those outside count as zero.
template <class T>
static __device__ __forceinline__ Eight any_bin(const T *map, const RoiMap &m, const RoiTaps &taps, int bin_y,
                                                int bin_x) {
  int ny = m.grid.y.samples, nx = m.grid.x.samples;
  Eight sum = {};
#pragma unroll 1
  for (int sy = bin_y * ny; sy < (bin_y + 1) * ny; sy++) {
    SampleTap row = m.in_shared ? taps.y[sy] : sample_tap(m.grid.y, sy, m.h, m.row_bytes);
    if (row.low == NO_SAMPLE) continue;
#pragma unroll 1
    for (int sx = bin_x * nx; sx < (bin_x + 1) * nx; sx++) {
      SampleTap column = m.in_shared ? taps.x[sx] : sample_tap(m.grid.x, sx, m.w, m.pixel_bytes);
      if (column.low != NO_SAMPLE) add_sample(map, row, column, sum);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; i++) sum.v[i] /= (float)m.grid.samples;
  return sum;
}

// y [rois, size, size, c] from x[l] [n, h, w, c]. A threadblock per RoI and part of its bins; a warp computes a bin,
// each lane vectors of eight channels (where there are fewer than 32 of these, several bins), so that a pixel of 256
// channels is one coalesced read by a warp whose lanes agree on where to read. Positions and weights are the same for
// all channels: the threadblock makes those of its RoI's axes once. Neighbouring bins, which read the same pixels, are
// made by one threadblock at about the same time, for L1's sake. Bound by what L2 delivers, and nearly so by
// instructions, which convert and sum four pixels per sampling point; reading x and writing y once would take a
// fraction of the time.
template <class T>
static __global__ void __launch_bounds__(32 * WARPS, 4)
    roi_align_forward_kernel(const __grid_constant__ RoiForwardArgs a) {
  __shared__ RoiTaps taps;
  int r = blockIdx.x / a.parts, first = blockIdx.x % a.parts * a.bins, size = a.p.size;
  if (r >= *a.rois.count) return;
  RoiMap m = {roi_grid(&a.p, a.limit, box_rows(&a.rois.box)[r])};
  const Tensor &x = a.x[m.grid.level];
  m.h = x.h;
  m.w = x.w;
  m.pixel_bytes = x.ldc * sizeof(T);
  m.row_bytes = x.w * m.pixel_bytes;
  m.in_shared = size * max(m.grid.y.samples, m.grid.x.samples) <= MOST_TAPS;
  bool plain = make_taps(m, size, taps);
  const T *map = pixel<T>(x, a.rois.image[r], 0, 0);
  int last = min(first + a.bins, size * size);
  for (int bin = first + threadIdx.y; bin < last; bin += blockDim.y) {
    int bin_y = (unsigned)bin / (unsigned)size, bin_x = bin - bin_y * size;
    for (int c = threadIdx.x * 8; c < a.y.ldc; c += blockDim.x * 8) {
      Eight mean =
          plain ? plain_bin(map + c, taps.y + 2 * bin_y, taps.x + 2 * bin_x) : any_bin(map + c, m, taps, bin_y, bin_x);
      store8(pixel<T>(a.y, r, bin_y, bin_x) + c, mean);
    }
  }
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
  RoiForwardArgs a = {};
  a.p = *p;
  a.rois = *rois;
  a.y = *y;
  roi_level_limits(p, a.limit);
  for (int l = 0; l < p->levels; l++) {
    check_shapes(p, rois, y, &x[l]);
    CHECK(tensor_bytes(&x[l]) / MAX(x[l].n, 1) < UINT32_MAX); // offsets within an image
    a.x[l] = x[l];
  }
  int lanes = 1; // of a bin: as many as there are vectors, rounded up to a power of two
  while (lanes < 32 && lanes * 8 < y->ldc) lanes *= 2;
  dim3 block(lanes, 32 * WARPS / lanes);
  a.bins = block.y * STEPS;
  a.parts = blocks_for((size_t)p->size * p->size, a.bins);
  WITH_TYPE(y->dtype, T, roi_align_forward_kernel<T><<<rois->capacity * a.parts, block, 0, stream_of(dev)>>>(a));
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
