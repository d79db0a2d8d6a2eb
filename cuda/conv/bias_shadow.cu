// What accompanies the filter's gradient: the bias's gradient (db, the column sums of dy) and the filter's shadow, its
// master rounded to the type that the convolutions read. Both are bound by memory.
#include "cuda/conv/bias_shadow.cuh"

enum {
  WARP = 32,
  LANES = 8, // channels of a threadblock of bias_reduce_kernel, a warp for each
  THREADS = WARP * LANES,
  SLAB = 256,   // channels of dy that one threadblock adds up
  PIECES = 512, // of the pixels of dy: as many threadblocks as fill an H100
};

// ---- kernels --------------------------------------------------------------------------------------------------------

// First pass: partial [PIECES, ldc] = the column sums of one piece of dy's pixels. Grid (pieces, slabs of channels).
// Threads that take the same eight channels interleave over the piece's pixels, and their sums are added in order.
template <class T> __global__ void column_sum_kernel(Tensor dy, float *partial) {
  __shared__ Eight part[THREADS];
  int slab = blockIdx.y * SLAB, groups = min(SLAB, dy.ldc - slab) / 8, lanes = THREADS / groups;
  int c = slab + threadIdx.x % groups * 8, lane = threadIdx.x / groups;
  size_t pixels = (size_t)rows_of(dy) * dy.h * dy.w, piece = (pixels + PIECES - 1) / PIECES;
  size_t end = min((blockIdx.x + 1) * piece, pixels);
  Eight sum = {};
  if (lane < lanes)
#pragma unroll 4
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

// Second pass: db [channels] (+)= Σ partial [pieces, ldc]. A warp for each channel: its lanes interleave over the
// pieces, and shuffles add them in a fixed order.
__global__ void bias_reduce_kernel(const float *partial, int pieces, int ldc, int channels, float *db,
                                   bool accumulate) {
  int c = blockIdx.x * LANES + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (c >= channels) return;
  float sum = 0;
  for (int p = lane; p < pieces; p += WARP) sum += partial[(size_t)p * ldc + c];
  sum = warp_sum(sum);
  if (lane == 0) db[c] = (accumulate ? db[c] : 0.f) + sum;
}

// shadow [k, r, s, c] = master · scale [k], rounded to T; no scale: 1. A thread for every eight channels, `per_row` of
// them in a filter; one read and one write of the filter.
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

void bias_reduce(Device *dev, const float *partial, int pieces, int ldc, int channels, float *db, bool accumulate) {
  bias_reduce_kernel<<<blocks_for(channels, LANES), THREADS, 0, stream_of(dev)>>>(partial, pieces, ldc, channels, db,
                                                                                  accumulate);
  LAUNCH_CHECK();
}

void column_sums(Device *dev, int n, const Tensor *dy, float *db, bool accumulate) {
  int ldc = dy->ldc;
  float *partial = (float *)device_workspace(dev, (size_t)n * PIECES * ldc * sizeof(float));
  if (!partial) return;
  for (int i = 0; i < n; i++) {
    dim3 grid(PIECES, blocks_for(ldc, SLAB));
    float *to = partial + (size_t)i * PIECES * ldc;
    WITH_TYPE(dy[i].dtype, T, { column_sum_kernel<T><<<grid, THREADS, 0, stream_of(dev)>>>(dy[i], to); });
    LAUNCH_CHECK();
  }
  bias_reduce(dev, partial, n * PIECES, ldc, dy->c, db, accumulate);
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
