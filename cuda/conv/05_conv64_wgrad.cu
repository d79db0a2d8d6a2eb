// Rung 05's wgrad for 3 × 3 convolutions of 64 to 64 channels, in 16 bits. Idea: a threadblock sums the whole gradient,
// 64 × 576, over a piece of the images' row of pixels (conv64.cuh), so that dy and x are read once for all taps.
// Removes: tiles of the gradient, each of which reads dy again, and x for each row of taps.
// Adds to the rung before: three consumer warpgroups, one for each row of the filter: 64 × 192 of dyᵀ · x, whose three
// panels are one patch of x a pixel apart. All read the same dy, 64 pixels at a time, and a ring of x, each at its own
// distance. The pieces' sums are added in order by a second kernel.
// Limit: shared memory, which gives a product of 192 columns 85 of its 128 bytes a clock; memory.
#include "cuda/conv/conv64.cuh"
#include "cuda/conv/ladder.h"
#include "cuda/conv/split_k.cuh"
#include "cuda/conv/wgmma_wgrad_heuristic.cuh"

enum {
  STEP = 64, // pixels
  STEP_BYTES = STEP * SWIZZLE_ROW,
  RING = 20,  // steps of x
  STAGES = 6, // of dy
  GROUPS = 3, // consumer warpgroups, rows of the filter
  PANELS = 3, // of a warpgroup: taps of such a row
  COLUMNS = PANELS * CONV64_CHANNELS,
  FRAGMENTS = COLUMNS / 8, // of a thread
  GROUP_THREADS = GROUPS * WARPGROUP,
  KERNEL_THREADS = GROUP_THREADS + WARPGROUP,
  KERNEL_PRODUCER_REGISTERS = 24,
  KERNEL_CONSUMER_REGISTERS = 160,
  KERNEL_SHARED = (RING + 1 + STAGES) * STEP_BYTES + SWIZZLE_ATOM,
  REDUCE_ELEMENTS = 32, // of a block of the second kernel, by so many threads each
  REDUCE_LANES = 8,
  SLICE_FLOAT4S = FRAGMENTS * GROUP_THREADS,
  ONES_COLUMNS = 8,
};

struct Conv64WgradParams {
  CUtensorMap x, dy;
  int pitch;           // pixels to the one below
  int steps;           // of all images
  Divider area, width; // as in Im2colView
  float4 *workspace;   // [slices, fragments, threads]
  float *db_partial;   // [slices, warpgroups, channels]; NULL: not asked for
};
struct Conv64WgradShared {
  PipelineBarriers<RING> x;
  PipelineBarriers<STAGES> dy;
};

// Steps of x that a step's taps meet, up to those of row `y` of the filter.
__host__ __device__ static constexpr int steps_read(int pitch, int y) { return 1 + (y * pitch + 2 + STEP - 1) / STEP; }

// By one thread: x ahead of dy, for steps `first` … `first + count - 1`.
__device__ __forceinline__ void conv64_wgrad_produce(const Conv64WgradParams &p, Conv64WgradShared &shared,
                                                     uint32_t ring, int first, int count) {
  PipelineState<RING> x(shared.x);
  PipelineState<STAGES> dy(shared.dy);
  auto position = [&](int step) {
    const uint32_t pixel = step * STEP, n = divide(pixel, p.area), rest = pixel - n * p.area.by,
                   i = divide(rest, p.width);
    return Position{(int)n, (int)i, (int)(rest - i * p.width.by)};
  };
  const int ahead = steps_read(p.pitch, 2) - 1;
  for (int i = 0; i < count + ahead; i++) {
    const Position at = position(first + i);
    x.wait_empty();
    barrier_expect(x.full, x.stage ? STEP_BYTES : 2 * STEP_BYTES);
    tma_load_im2col(ring + x.stage * STEP_BYTES, &p.x, x.full, 0, at.j - 1, at.i - 1, at.n, 0, 0);
    if (!x.stage) tma_load_im2col(ring + RING * STEP_BYTES, &p.x, x.full, 0, at.j - 1, at.i - 1, at.n, 0, 0);
    x.advance();
    if (i < ahead) continue;
    const Position to = position(first + i - ahead);
    dy.wait_empty();
    barrier_expect(dy.full, STEP_BYTES);
    tma_load_im2col(ring + (RING + 1 + dy.stage) * STEP_BYTES, &p.dy, dy.full, 0, to.j, to.i, to.n, 0, 0);
    dy.advance();
  }
}

// A column of ones: dyᵀ times ones is the bias' gradient. Warpgroups take turns at it.
template <class T>
__device__ __forceinline__ void conv64_wgrad_consume(const Conv64WgradParams &p, Conv64WgradShared &shared,
                                                     uint32_t ring, const T *ones, int count) {
  const int group = uniform(threadIdx.x / WARPGROUP), thread = threadIdx.x % WARPGROUP;
  PipelineState<RING> x(shared.x);
  PipelineState<STAGES> dy(shared.dy);
  const uint32_t x_empty = pinned_address(shared.x.empty);
  const uint64_t column = unswizzled_descriptor(pinned_address(ones));
  const int distance = group * p.pitch, reads = steps_read(p.pitch, group);
  float dw[COLUMNS / 2] = {}, db[ONES_COLUMNS / 2] = {};
  int arrived = 0, slot = 0; // steps of x that were waited for; of this step
  int turn = group;
  uint32_t x_before = 0, dy_before = 0; // the barriers of the step before, of one thread
  auto release = [&] {
    if (!x_before) return;
    barrier_arrive_at(x_before);
    barrier_arrive_at(dy_before);
  };
  for (int i = 0; i < count; i++) {
    dy.wait_full();
    for (; arrived < i + reads; arrived++) {
      x.wait_full();
      x.advance();
    }
    const uint64_t a = matrix_descriptor(ring + (RING + 1 + dy.stage) * STEP_BYTES);
    if (turn == 0 && p.db_partial) {
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < STEP / WGMMA_K; k++)
        wgmma<T, ONES_COLUMNS, false, true>(db, a + (k * WGMMA_K * SWIZZLE_ROW >> 4), column, true);
    }
    turn = turn ? turn - 1 : GROUPS - 1;
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < STEP / WGMMA_K; k++) {
      int pixel = slot * STEP + distance + k * WGMMA_K;
      if (pixel >= RING * STEP) pixel -= RING * STEP;
      wgmma<T, COLUMNS, true, true>(dw, a + (k * WGMMA_K * SWIZZLE_ROW >> 4),
                                    matrix_descriptor(ring + pixel * SWIZZLE_ROW, SWIZZLE_ROW), true);
    }
    wgmma_commit();
    wgmma_wait<1>();
    release();
    x_before = thread ? 0 : x_empty + 8 * slot;
    dy_before = dy.empty;
    dy.advance();
    if (++slot == RING) slot = 0;
  }
  wgmma_wait<0>();
  float4 *to = p.workspace + (size_t)blockIdx.x * SLICE_FLOAT4S + threadIdx.x;
#pragma unroll
  for (int i = 0; i < FRAGMENTS; i++)
    to[i * GROUP_THREADS] = make_float4(dw[4 * i], dw[4 * i + 1], dw[4 * i + 2], dw[4 * i + 3]);
  if (!p.db_partial || thread % 4) return; // others hold the same
  float *sums =
      p.db_partial + (blockIdx.x * GROUPS + group) * CONV64_CHANNELS + thread / 32 * WGMMA_WARP_M + thread % 32 / 4;
  sums[0] = db[0];
  sums[8] = db[2];
}

// The gradient's sums over a slice of all pixels, a threadblock's, to the workspace.
template <class T>
__global__ __launch_bounds__(KERNEL_THREADS, 1) void conv64_wgrad_kernel(const __grid_constant__ Conv64WgradParams p) {
  if constexpr (HAS_WGMMA) {
    __shared__ Conv64WgradShared shared;
    __shared__ alignas(128) T ones[ONES_COLUMNS * WGMMA_K];
    const uint32_t ring = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    const int first = (int64_t)p.steps * blockIdx.x / gridDim.x,
              count = (int)((int64_t)p.steps * (blockIdx.x + 1) / gridDim.x) - first;
    grid_launch_dependents();
    if (threadIdx.x == 0) {
      pipeline_init(shared.x, 1, GROUPS);
      pipeline_init(shared.dy, 1, GROUPS);
    }
    if (threadIdx.x < COUNT(ones)) ones[threadIdx.x] = from_float<T>(1.f);
    shared_write_fence();
    __syncthreads();
    if (uniform(threadIdx.x / WARPGROUP) == GROUPS) {
      registers_dealloc<KERNEL_PRODUCER_REGISTERS>();
      if (threadIdx.x == GROUP_THREADS) conv64_wgrad_produce(p, shared, ring, first, count);
    } else {
      registers_alloc<KERNEL_CONSUMER_REGISTERS>();
      conv64_wgrad_consume<T>(p, shared, ring, ones, count);
    }
  }
}

// dw [64, 3, 3, 64] (+)= scale · Σ slices. Threads (x, 0 … y) share a fragment: their interleaved sums are added in
// order. The last block adds up db.
__global__ __launch_bounds__(REDUCE_ELEMENTS *REDUCE_LANES) void conv64_wgrad_reduce_kernel(
    const float4 *workspace, const float *db_partial, int slices, float *dw, float *db, const float *scale,
    bool accumulate) {
  __shared__ float4 sums[REDUCE_LANES][REDUCE_ELEMENTS];
  grid_wait_prerequisite();
  if (blockIdx.x * REDUCE_ELEMENTS == SLICE_FLOAT4S) {
    const int k = threadIdx.y * REDUCE_ELEMENTS + threadIdx.x;
    if (k >= CONV64_CHANNELS) return;
    float sum = 0;
#pragma unroll 8
    for (int i = 0; i < slices * GROUPS; i++) sum += db_partial[i * CONV64_CHANNELS + k];
    db[k] = (accumulate ? db[k] : 0.f) + sum;
    return;
  }
  const int index = blockIdx.x * REDUCE_ELEMENTS + threadIdx.x;
  float4 sum = {};
#pragma unroll 8
  for (int i = threadIdx.y; i < slices; i += REDUCE_LANES) add4(sum, workspace[(size_t)i * SLICE_FLOAT4S + index]);
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y) return;
#pragma unroll
  for (int i = 1; i < REDUCE_LANES; i++) add4(sum, sums[i][threadIdx.x]);
  const int fragment = index / GROUP_THREADS, thread = index % GROUP_THREADS, lane = thread % 32;
  const int row = thread % WARPGROUP / 32 * WGMMA_WARP_M + lane / 4, column = fragment * 8 + lane % 4 * 2;
  auto store = [&](int k, float a, float b) {
    float2 *to = (float2 *)(dw + (k * CONV64_TAPS + thread / WARPGROUP * PANELS) * CONV64_CHANNELS + column);
    const float factor = scale ? scale[k] : 1.f;
    const float2 old = accumulate ? *to : make_float2(0.f, 0.f);
    *to = make_float2(old.x + factor * a, old.y + factor * b);
  };
  store(row, sum.x, sum.y);
  store(row + 8, sum.z, sum.w);
}

bool conv64_wgrad_fits(const Conv *conv, const Tensor *x, const Tensor *dy, const Tensor *dw) {
  return conv64_is(conv, x, dw) && dy->ldc == CONV64_CHANNELS && !dy->count && steps_read(x->w + 1, 2) + 2 <= RING &&
         tensor_pixels(x) >> 30 == 0 && x->n;
}

void conv64_wgrad(Device *dev, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  const Im2col read = conv64_row(x, 1), written = conv64_row(x, 0);
  const Im2colView view = im2col_view(x, &written);
  Conv64WgradParams p = {};
  p.steps = blocks_for(view_capacity(view), STEP);
  const int slices = MIN(p.steps, resident_of(1, dev->multiprocessors - dev->granted));
  const size_t bias = out->db ? (size_t)slices * GROUPS * CONV64_CHANNELS : 0; // floats
  p.workspace = (float4 *)device_workspace(dev, (size_t)slices * SLICE_FLOAT4S * sizeof(float4) + bias * sizeof(float));
  if (dev->measuring) return;
  if (bias) p.db_partial = (float *)(p.workspace + (size_t)slices * SLICE_FLOAT4S);
  p.x = map_im2col(x, &read, STEP, MAP_OPERAND_PROMOTED);
  p.dy = map_im2col(dy, &written, STEP, MAP_OPERAND_PROMOTED);
  p.pitch = view.width.by;
  p.area = view.area;
  p.width = view.width;
  auto kernel = x->dtype == BF16 ? conv64_wgrad_kernel<__nv_bfloat16> : conv64_wgrad_kernel<__half>;
  allow_shared(kernel, KERNEL_SHARED);
  kernel<<<slices, KERNEL_THREADS, KERNEL_SHARED, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
  launch_dependent(dev, conv64_wgrad_reduce_kernel, SLICE_FLOAT4S / REDUCE_ELEMENTS + (out->db != NULL),
                   dim3(REDUCE_ELEMENTS, REDUCE_LANES), p.workspace, p.db_partial, slices, (float *)out->dw.data,
                   (float *)out->db, (const float *)out->scale, out->accumulate);
}
