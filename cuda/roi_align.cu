// RoIAlign over a feature pyramid (He et al., "Mask R-CNN", 2017, section 3; torchvision's MultiScaleRoIAlign). Forward
// and backward (roi_align_backward.cuh) both gather. Positions and weights come from exact/roi_bins.h, compiled without
// contraction, so that every RoI reads the level and the pixels that the CPU reads; only sums of features ask for fused
// multiply-add, by name.
#include "cuda/roi_align_backward.cuh"
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

static char *take(char **at, size_t bytes) {
  char *p = *at;
  *at += (bytes + 63) / 64 * 64;
  return p;
}

extern "C" void cuda_roi_align_backward(Device *dev, const RoiAlign *p, const Rois *rois, const Tensor *dy,
                                        const Dest *dx) {
  const int maps = dx[0].t.n * p->levels;
  const size_t firsts = (size_t)(maps + 1) * sizeof(int), capacity = (size_t)rois->capacity;
  char *at = (char *)device_workspace(dev, firsts + capacity * (sizeof(RoiReach) + sizeof(RoiGrid)) + 3 * 64);
  if (dev->measuring) return;
  CHECK(p->size <= 32); // a bit for each bin
  RoiBackwardArgs a = {};
  a.p = *p;
  a.rois = *rois;
  a.dy = *dy;
  a.sorted = {(int *)take(&at, firsts), (RoiReach *)take(&at, capacity * sizeof(RoiReach)),
              (RoiGrid *)take(&at, capacity * sizeof(RoiGrid))};
  roi_level_limits(p, a.limit);
  int tiles = 0;
  for (int l = p->levels - 1; l >= 0; l--) {
    const Tensor *t = &dx[l].t;
    check_shapes(p, rois, dy, t);
    CHECK(t->n == dx[0].t.n && t->w <= UINT16_MAX * COLUMNS);
    a.dx[l] = dest_args(&dx[l]);
    a.first[l] = tiles;
    tiles += t->n * blocks_for((size_t)t->h, ROWS) * blocks_for((size_t)t->w, COLUMNS);
  }
  roi_sort_kernel<<<maps, SORT_THREADS, 0, stream_of(dev)>>>(a);
  LAUNCH_CHECK();
  dim3 grid((unsigned)tiles, (unsigned)blocks_for((size_t)dy->ldc, 32 * 8));
  WITH_TYPE(dy->dtype, T, roi_align_backward_kernel<T><<<grid, THREADS, 0, stream_of(dev)>>>(a));
  LAUNCH_CHECK();
}
