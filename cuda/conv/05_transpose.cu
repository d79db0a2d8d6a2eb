// Rung 05, dgrad in TF32: the filter, transposed to workspace, since wgmma takes floats K-major only, and K are its
// outputs.
#include "cuda/conv/wgmma.cuh"

enum { TRANSPOSE = 32, TRANSPOSE_ROWS = 8 }; // a threadblock transposes TRANSPOSE × TRANSPOSE elements

// [filters, taps, channels] -> [channels, taps, filters], zeros in filters' padding channels. Grid (tiles of 32
// filters, tiles of 32 channels, taps). A tile passes through shared memory, so that loads and stores are both
// coalesced; its rows are padded by one element, so that columns are free of bank conflicts.
__global__ void filters_transpose_kernel(const Tensor w, const Tensor to) {
  __shared__ float tile[TRANSPOSE][TRANSPOSE + 1];
  int filter0 = blockIdx.x * TRANSPOSE, channel0 = blockIdx.y * TRANSPOSE, taps = w.h * w.w;
  const float *from = (const float *)w.data;
  for (int i = threadIdx.y; i < TRANSPOSE; i += TRANSPOSE_ROWS) {
    int filter = filter0 + i, channel = channel0 + threadIdx.x;
    bool inside = filter < w.n && channel < w.ldc;
    tile[i][threadIdx.x] = inside ? from[((size_t)filter * taps + blockIdx.z) * w.ldc + channel] : 0.f;
  }
  __syncthreads();
  for (int i = threadIdx.y; i < TRANSPOSE; i += TRANSPOSE_ROWS) {
    int channel = channel0 + i, filter = filter0 + threadIdx.x;
    if (channel < to.n && filter < to.ldc)
      ((float *)to.data)[((size_t)channel * taps + blockIdx.z) * to.ldc + filter] = tile[threadIdx.x][i];
  }
}

Tensor filters_transpose(Device *dev, const Tensor *w) {
  Tensor t = *w;
  t.n = w->ldc;
  t.c = w->n;
  t.ldc = channel_pitch(w->n);
  t.data = device_workspace(dev, tensor_bytes(&t));
  if (!t.data) return t;
  dim3 blocks(blocks_for(t.ldc, TRANSPOSE), blocks_for(t.n, TRANSPOSE), w->h * w->w),
      threads(TRANSPOSE, TRANSPOSE_ROWS);
  filters_transpose_kernel<<<blocks, threads, 0, stream_of(dev)>>>(*w, t);
  LAUNCH_CHECK();
  return t;
}
