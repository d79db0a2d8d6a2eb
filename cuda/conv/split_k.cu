// Split-K for rungs 02 to 04: how many slices of wgrad, the operands of its launch, and the reductions of the workspace
// into dw, which is bound by memory, and into forward's and dgrad's Dest.
#include "cuda/conv/implicit_gemm.cuh"
#include "cuda/conv/ladder.h"
#include "cuda/conv/split_k.cuh"

enum {
  WARP = 32,
  LANES = 8, // of the reduction, at most: slices are added in so many interleaved sums, then these in order
  THREADS = WARP * LANES,
  FILL_BLOCKS = 528, // two waves of two threadblocks on each of an H100's 132 SMs
  MIN_SLICE_K = 512, // pixels
  SLICE_K_STEP = 64,
  MAX_SLICES = 256,
};

// ---- kernels --------------------------------------------------------------------------------------------------------

// dw [k, columns] (+)= scale [k] · Σ slices of the workspace. A thread takes every blockDim.y-th slice of a group of
// four columns, and the threads of a group add these sums in order; dw's rows are dense.
__global__ void split_k_reduce_kernel(SplitKWorkspace workspace, Tensor dw, int columns, const float *scale,
                                      bool accumulate) {
  __shared__ float4 part[THREADS];
  int group = blockIdx.x * blockDim.x + threadIdx.x, per_row = columns / 4, k = group / per_row;
  int column = group % per_row * 4, lanes = blockDim.y;
  int c = column % dw.ldc, from = workspace.half_taps ? (column - c) / 2 + c : column;
  float4 sum = {};
  if (k < dw.n && c < dw.c)
#pragma unroll 4
    for (int s = threadIdx.y; s < workspace.slices; s += lanes)
      add4(sum, *(const float4 *)(workspace.data + s * workspace.stride + (size_t)k * workspace.pitch + from));
  part[threadIdx.y * blockDim.x + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y || k >= dw.n) return;
  for (int i = 1; i < lanes; i++) add4(sum, part[i * blockDim.x + threadIdx.x]);
  float factor = scale ? scale[k] : 1.f, v[4] = {sum.x, sum.y, sum.z, sum.w};
  float *to = (float *)dw.data + (size_t)k * columns + column;
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = c + i < dw.c ? (accumulate ? to[i] : 0.f) + factor * v[i] : 0.f;
  *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
}

// The problem's Dest from Σ slices of the workspace, [rows, ldc] each. A thread adds the slices of eight channels of a
// row in order.
template <class T> __global__ void split_k_reduce_to_dest_kernel(SplitKWorkspace workspace, GemmProblem problem) {
  grid_wait_prerequisite();
  unsigned i = thread_index(), per_row = workspace.pitch / 8, row = i / per_row, column = (i - row * per_row) * 8;
  if (row >= (unsigned)view_rows(problem.view)) return;
  const float *from = workspace.data + (size_t)row * workspace.pitch + column;
  Eight sum = load8(from);
#pragma unroll 4
  for (int s = 1; s < workspace.slices; s++) add8(sum, load8(from + s * workspace.stride));
  problem_store8<T>(problem, row, column, sum);
}

// ---- launchers ------------------------------------------------------------------------------------------------------

int split_k_slices(size_t pixels, size_t blocks) {
  size_t slices = MIN(FILL_BLOCKS / MAX(blocks, (size_t)1), pixels / MIN_SLICE_K);
  return (int)MIN(MAX(slices, (size_t)1), (size_t)MAX_SLICES);
}

WgradGemm wgrad_gemm(const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out, int rows,
                     int columns, int slices, bool half_taps) {
  const Tensor *dw = &out->dw;
  WgradGemm p = {};
  p.pairs = pairs;
  p.m = dy->ldc;
  p.tiles_m = blocks_for(p.m, rows);
  p.tiles_n = blocks_for((size_t)dw->h * dw->w * dw->ldc / (half_taps ? 2 : 1), columns);
  p.workspace.half_taps = half_taps;
  // Whole stages of any kernel, so that only the last slice of a pair ends in the middle of one.
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
  int lanes = 1; // one for each two slices, so that few slices do not leave threads idle
  while (lanes < LANES && 4 * lanes <= workspace.slices) lanes *= 2;
  dim3 block(THREADS / lanes, lanes);
  split_k_reduce_kernel<<<blocks_for((size_t)dw->n * columns / 4, block.x), block, 0, stream_of(dev)>>>(
      workspace, *dw, columns, (const float *)out->scale, out->accumulate);
  LAUNCH_CHECK();
}

void split_k_reduce_to_dest(Device *dev, const SplitKWorkspace &workspace, const GemmProblem &problem) {
  WITH_TYPE(problem.out.t.dtype, T,
            launch_dependent(dev, split_k_reduce_to_dest_kernel<T>, blocks_for(workspace.stride / 8, THREADS), THREADS,
                             workspace, problem))
}
