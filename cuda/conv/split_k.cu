// The ends of the filter gradient (partial sums to dw, columns of dy to db) and the beginning of the next step: the
// shadow of a filter in the type that the convolutions read. All are bound by memory.
#include "cuda/conv/implicit_gemm.cuh"
#include "cuda/conv/ladder.h"
#include "cuda/conv/split_k.cuh"

enum {
  WARP = 32,
  LANES = 8, // of a reduction, at most: slots are added in so many interleaved sums, then these in order
  THREADS = WARP * LANES,
  SLAB = 256,        // channels of dy that one block adds up
  PIECES = 128,      // of the pixels of dy
  FILL_BLOCKS = 528, // two waves of two blocks on each of 132 multiprocessors
  MIN_SLICE_K = 512, // pixels
  SLICE_K_STEP = 64,
  MAX_SLICES = 256,
};

// ---- kernels --------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void add(float4 &a, const float4 &b) { a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w; }

// A thread takes every blockDim.y-th slot of a group of four columns, and these sums are added in order; dw's rows are
// dense: [k, columns].
__global__ void split_k_reduce_kernel(SplitKWorkspace workspace, Tensor dw, int columns, const float *scale,
                                      bool accumulate) {
  __shared__ float4 part[THREADS];
  int group = blockIdx.x * blockDim.x + threadIdx.x, per_row = columns / 4, k = group / per_row;
  int column = group % per_row * 4, lanes = blockDim.y;
  float4 sum = {};
  if (k < dw.n)
#pragma unroll 4
    for (int s = threadIdx.y; s < workspace.slices; s += lanes)
      add(sum, *(const float4 *)(workspace.data + s * workspace.stride + (size_t)k * workspace.pitch + column));
  part[threadIdx.y * blockDim.x + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y || k >= dw.n) return;
  for (int i = 1; i < lanes; i++) add(sum, part[i * blockDim.x + threadIdx.x]);
  float factor = scale ? scale[k] : 1.f, v[4] = {sum.x, sum.y, sum.z, sum.w};
  float *to = (float *)dw.data + (size_t)k * columns + column;
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = column % dw.ldc + i < dw.c ? (accumulate ? to[i] : 0.f) + factor * v[i] : 0.f;
  *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
}

// partial[piece, ldc] = the sum of one piece of the pixels, for a slab of channels. Threads that take the same eight
// channels go through the piece in turns, and their sums are added in order.
template <class T> __global__ void column_sum_kernel(Tensor dy, float *partial) {
  __shared__ Eight part[THREADS];
  int slab = blockIdx.y * SLAB, groups = min(SLAB, dy.ldc - slab) / 8, lanes = THREADS / groups;
  int c = slab + threadIdx.x % groups * 8, lane = threadIdx.x / groups;
  size_t pixels = (size_t)rows_of(dy) * dy.h * dy.w, piece = (pixels + PIECES - 1) / PIECES;
  size_t end = min((blockIdx.x + 1) * piece, pixels);
  Eight sum = {};
  if (lane < lanes)
    for (size_t p = blockIdx.x * piece + lane; p < end; p += lanes) {
      Eight e = load8((const T *)dy.data + p * dy.ldc + c);
#pragma unroll
      for (int i = 0; i < 8; i++) sum.v[i] += e.v[i];
    }
  part[threadIdx.x] = sum;
  __syncthreads();
  if (lane) return;
  for (int l = 1; l < lanes; l++)
#pragma unroll
    for (int i = 0; i < 8; i++) sum.v[i] += part[l * groups + threadIdx.x].v[i];
  store8(partial + (size_t)blockIdx.x * dy.ldc + c, sum);
}

// A warp for each channel.
__global__ void bias_reduce_kernel(const float *partial, int pieces, int ldc, int channels, float *db,
                                   bool accumulate) {
  int c = blockIdx.x * LANES + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (c >= channels) return;
  float sum = 0;
  for (int p = lane; p < pieces; p += WARP) sum += partial[(size_t)p * ldc + c];
  sum = warp_sum(sum);
  if (lane == 0) db[c] = (accumulate ? db[c] : 0.f) + sum;
}

template <class T>
__global__ void filter_shadow_kernel(Tensor master, const float *scale, Tensor shadow, unsigned per_row,
                                     unsigned eights) {
  unsigned i = thread_index();
  if (i >= eights) return;
  Eight e = load8((const float *)master.data + (size_t)i * 8);
  float factor = scale ? scale[i / per_row] : 1.f;
#pragma unroll
  for (int k = 0; k < 8; k++) e.v[k] *= factor;
  store8((T *)shadow.data + (size_t)i * 8, e);
}

// ---- launchers ------------------------------------------------------------------------------------------------------

int split_k_slices(size_t pixels, size_t blocks) {
  size_t slices = MIN(FILL_BLOCKS / MAX(blocks, (size_t)1), pixels / MIN_SLICE_K);
  return (int)MIN(MAX(slices, (size_t)1), (size_t)MAX_SLICES);
}

WgradGemm wgrad_gemm(const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out, int rows,
                     int columns, int slices) {
  const Tensor *dw = &out->dw;
  WgradGemm p = {};
  p.pairs = pairs;
  p.m = dy->ldc;
  p.tiles_m = blocks_for(p.m, rows);
  p.tiles_n = blocks_for((size_t)dw->h * dw->w * dw->ldc, columns);
  // Whole stages of any kernel, so that only the last slot of a pair ends in the middle of one.
  p.slice_k = blocks_for(wgrad_gemm_k(pairs, dy), slices * SLICE_K_STEP) * SLICE_K_STEP;
  for (int i = 0; i < pairs; i++) {
    p.operands[i] = {wgrad_view(conv, &x[i], dw, &dy[i]), dy[i].data, p.workspace.slices};
    p.workspace.slices += blocks_for(tensor_pixels(&dy[i]), p.slice_k);
  }
  p.workspace.pitch = p.tiles_n * columns;
  p.workspace.stride = (size_t)p.tiles_m * rows * p.workspace.pitch;
  return p;
}

void split_k_reduce(Device *dev, const SplitKWorkspace &workspace, const FilterGrad *out) {
  const Tensor *dw = &out->dw;
  int columns = dw->h * dw->w * dw->ldc;
  int lanes = 1; // a thread of its own for each two slots, so that few slots do not leave threads idle
  while (lanes < LANES && 4 * lanes <= workspace.slices) lanes *= 2;
  dim3 block(THREADS / lanes, lanes);
  split_k_reduce_kernel<<<blocks_for((size_t)dw->n * columns / 4, block.x), block, 0, stream_of(dev)>>>(
      workspace, *dw, columns, (const float *)out->scale, out->accumulate);
  LAUNCH_CHECK();
}

void column_sums(Device *dev, int n, const Tensor *dy, float *db, bool accumulate) {
  int ldc = dy->ldc;
  float *partial = (float *)device_scratch(dev, (size_t)n * PIECES * ldc * sizeof(float));
  if (!partial) return;
  for (int i = 0; i < n; i++) {
    dim3 grid(PIECES, blocks_for(ldc, SLAB));
    float *to = partial + (size_t)i * PIECES * ldc;
    WITH_TYPE(dy[i].dtype, T, { column_sum_kernel<T><<<grid, THREADS, 0, stream_of(dev)>>>(dy[i], to); });
    LAUNCH_CHECK();
  }
  bias_reduce_kernel<<<blocks_for(dy->c, LANES), THREADS, 0, stream_of(dev)>>>(partial, n * PIECES, ldc, dy->c, db,
                                                                               accumulate);
  LAUNCH_CHECK();
}

extern "C" void cuda_bias_grad(Device *dev, const Tensor *dy, void *db, bool accumulate) {
  column_sums(dev, 1, dy, (float *)db, accumulate);
}

extern "C" void cuda_filter_shadow(Device *dev, const Tensor *master, const void *scale, const Tensor *shadow) {
  if (dev->measuring) return;
  CHECK(master->dtype == F32 && tensor_elements(master) == tensor_elements(shadow));
  unsigned eights = eights_of(master), per_row = eights / MAX(master->n, 1);
  if (!eights) return;
  WITH_TYPE(shadow->dtype, T, {
    filter_shadow_kernel<T><<<blocks_for(eights, THREADS), THREADS, 0, stream_of(dev)>>>(*master, (const float *)scale,
                                                                                         *shadow, per_row, eights);
  });
  LAUNCH_CHECK();
}
