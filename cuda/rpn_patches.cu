// What the RPN's 3 × 3 convolution sees at the cells of sampled anchors, and the gradient of that. Of some hundred
// thousand cells a few hundred are sampled, and only there do the RPN's losses have a gradient: its convolutions run
// backward over these patches, rather than over maps of zeros. A warp has a pixel, a lane eight of its channels at a
// time. Limit: memory, where dx has to be filled with zeros between the patches.
#include "cuda/common.cuh"
#include "exact/anchor_cell.h"

enum {
  THREADS = 256,
  WARPS = THREADS / 32,
  TAPS = 9,
  LANES_CHANNELS = 32 * 8, // of a warp's load
  PIXELS = 8,              // of a warp
};

struct PatchArgs {
  Anchors anchors;
  RpnTargets targets;
  Tensor patches; // [images·batch, 3, 3, c]
};

struct PatchMaps {
  Tensor level[MAX_LEVELS];
};

// The patches. A warp for each tap of each row.
template <class T>
__global__ void rpn_patches_kernel(const __grid_constant__ PatchArgs p, const __grid_constant__ PatchMaps x) {
  const int i = thread_index() / 32, lane = threadIdx.x % 32, row = i / TAPS, tap = i % TAPS;
  if (row >= p.patches.n) return;
  const int n = row / p.targets.batch;
  const T *from = NULL; // zeros
  if (row % p.targets.batch < p.targets.count[n]) {
    const AnchorCell at = anchor_cell(&p.anchors, p.targets.index[row]);
    const Tensor &map = x.level[at.level];
    const int py = at.y + tap / 3 - 1, px = at.x + tap % 3 - 1;
    if ((unsigned)py < (unsigned)map.h && (unsigned)px < (unsigned)map.w) from = pixel<T>(map, n, py, px);
  }
  T *to = pixel<T>(p.patches, row, tap / 3, tap % 3);
  for (int c = lane * 8; c < p.patches.ldc; c += LANES_CHANNELS)
    *(Raw8<T> *)(to + c) = from ? read8(from + c) : Raw8<T>{};
}

// Level and cell of a row's anchor in an int; -1: no sample.
enum { CELL_BITS = 14 };
__device__ __forceinline__ int packed(AnchorCell at) { return (at.level << CELL_BITS | at.y) << CELL_BITS | at.x; }
__device__ __forceinline__ AnchorCell unpacked(int cell) {
  constexpr int MASK = (1 << CELL_BITS) - 1;
  return {cell >> 2 * CELL_BITS, cell >> CELL_BITS & MASK, cell & MASK, 0};
}

// cells [images·batch], and first [pixels of all levels and images]: of the patches that a pixel is in, the first one's
// sample · 9 + tap. Filled with ones before. A thread for each tap of each row.
__global__ void rpn_first_patch_kernel(const __grid_constant__ PatchArgs p, int *cells, unsigned *first) {
  const int i = thread_index(), row = i / TAPS, tap = i % TAPS, n = row / p.targets.batch;
  const int sample = row - n * p.targets.batch;
  if (n >= p.targets.images) return;
  const bool any = sample < p.targets.count[n];
  const AnchorCell at = any ? anchor_cell(&p.anchors, p.targets.index[row]) : AnchorCell{};
  if (tap == 0) cells[row] = any ? packed(at) : -1;
  if (!any) return;
  const int py = at.y + tap / 3 - 1, px = at.x + tap % 3 - 1;
  for (int l = 0; l < at.level; l++) first += (size_t)p.targets.images * p.anchors.level[l].h * p.anchors.level[l].w;
  const AnchorLevel &level = p.anchors.level[at.level];
  if ((unsigned)py < (unsigned)level.h && (unsigned)px < (unsigned)level.w)
    atomicMin(first + ((size_t)n * level.h + py) * level.w + px, (unsigned)(sample * TAPS + tap));
}

// Σ of the patches that a pixel is in, in the order of samples, of channels c …; the same in all lanes but for c.
template <class T>
__device__ Eight sum_patches(const PatchArgs &p, const int *cells, int n, int l, int y, int x, int first, int c,
                             bool inside) {
  Eight sum = {};
  const int lane = threadIdx.x % 32, row0 = n * p.targets.batch;
#pragma unroll 2
  for (int base = first / TAPS; base < p.targets.batch; base += 32) {
    const int cell = base + lane < p.targets.batch ? cells[row0 + base + lane] : -1;
    const AnchorCell at = unpacked(cell);
    const int tap = cell >= 0 && at.level == l ? patch_tap(at, y, x) : -1;
    for (unsigned left = __ballot_sync(~0u, tap >= 0); left; left &= left - 1) {
      const int from = __ffs(left) - 1, own = __shfl_sync(~0u, tap, from);
      if (inside) add8(sum, load8(pixel<T>(p.patches, row0 + base + from, own / 3, own % 3) + c));
    }
  }
  return sum;
}

struct PatchDests {
  DestArgs level[MAX_LEVELS];
};

// dx of all levels: blockIdx.y is the level, a warp has PIXELS pixels.
template <class T>
__global__ void rpn_patches_backward_kernel(const __grid_constant__ PatchArgs p, const __grid_constant__ PatchDests dx,
                                            const int *cells, const unsigned *first) {
  const int l = blockIdx.y, lane = threadIdx.x % 32, images = p.targets.images;
  const DestArgs &d = dx.level[l];
  const int pixels = images * d.t.h * d.t.w, pitch = d.t.ldc;
  for (int k = 0; k < l; k++) first += (size_t)images * dx.level[k].t.h * dx.level[k].t.w;
  const int begin = (blockIdx.x * WARPS + threadIdx.x / 32) * PIXELS;
  const bool keeps = dest_keeps(d);
  const unsigned mine = lane < PIXELS && begin + lane < pixels ? first[begin + lane] : ~0u;
  for (int k = 0; k < PIXELS && begin + k < pixels; k++) {
    const unsigned own = __shfl_sync(~0u, mine, k);
    if (own == ~0u && keeps) continue;
    const int i = begin + k;
    for (int c = lane * 8; c - lane * 8 < pitch; c += LANES_CHANNELS) {
      const bool inside = c < pitch;
      Eight v = {};
      if (own != ~0u) {
        const int row = i / d.t.w, n = row / d.t.h;
        v = sum_patches<T>(p, cells, n, l, row - n * d.t.h, i - row * d.t.w, own, c, inside);
      }
      const size_t offset = (size_t)i * pitch + c;
      if (inside) dest_write8<T>(d, offset, c, v, dest_read8<T>(d, offset, {}));
    }
  }
}

// ---- launchers ------------------------------------------------------------------------------------------------------

static PatchArgs patch_args(const Anchors *anchors, const RpnTargets *targets, const Tensor *patches) {
  CHECK(patches->n == targets->images * targets->batch && patches->h == 3 && patches->w == 3 && patches->ldc % 8 == 0);
  return {*anchors, *targets, *patches};
}
static void check_map(const Anchors *anchors, int l, const Tensor *t, const Tensor *patches, int images) {
  CHECK(t->h == anchors->level[l].h && t->w == anchors->level[l].w && t->n == images);
  CHECK(t->ldc == patches->ldc && t->dtype == patches->dtype && tensor_pixels(t) < (size_t)1 << 30);
}

extern "C" void cuda_rpn_patches(Device *dev, const Anchors *anchors, const RpnTargets *targets, const Tensor *x,
                                 const Tensor *y) {
  if (dev->measuring || !y->n) return;
  const PatchArgs p = patch_args(anchors, targets, y);
  PatchMaps maps = {};
  for (int l = 0; l < anchors->levels; l++) {
    check_map(anchors, l, &x[l], y, targets->images);
    maps.level[l] = x[l];
  }
  WITH_TYPE(y->dtype, T, {
    rpn_patches_kernel<T><<<blocks_for((size_t)y->n * TAPS, WARPS), THREADS, 0, stream_of(dev)>>>(p, maps);
    LAUNCH_CHECK();
  })
}

extern "C" void cuda_rpn_patches_backward(Device *dev, const Anchors *anchors, const RpnTargets *targets,
                                          const Tensor *dy, const Dest *dx) {
  size_t pixels = 0, most = 0;
  for (int l = 0; l < anchors->levels; l++) {
    pixels += tensor_pixels(&dx[l].t);
    most = MAX(most, tensor_pixels(&dx[l].t));
  }
  unsigned *first = (unsigned *)device_workspace(dev, MAX(pixels + dy->n, 1) * sizeof *first);
  if (!first || !pixels) return;
  int *cells = (int *)(first + pixels);
  const PatchArgs p = patch_args(anchors, targets, dy);
  PatchDests dests = {};
  for (int l = 0; l < anchors->levels; l++) {
    check_map(anchors, l, &dx[l].t, dy, targets->images);
    dests.level[l] = dest_args(&dx[l]);
    CHECK(!dx[l].bias && !dests.level[l].resized && MAX(dx[l].t.h, dx[l].t.w) < 1 << CELL_BITS);
  }
  CUDA_CHECK(cudaMemsetAsync(first, 0xff, pixels * sizeof *first, stream_of(dev)));
  if (dy->n)
    rpn_first_patch_kernel<<<blocks_for((size_t)dy->n * TAPS, THREADS), THREADS, 0, stream_of(dev)>>>(p, cells, first);
  LAUNCH_CHECK();
  const dim3 grid(blocks_for(most, WARPS * PIXELS), anchors->levels);
  WITH_TYPE(dy->dtype, T, {
    rpn_patches_backward_kernel<T><<<grid, THREADS, 0, stream_of(dev)>>>(p, dests, cells, first);
    LAUNCH_CHECK();
  })
}
