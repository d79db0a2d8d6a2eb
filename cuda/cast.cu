// Numbers of one type as numbers of another: what ranks send each other in half the bytes. The floor is memory traffic:
// a grid-stride loop over vectors of eight, in accesses of 16 bytes.
#include "cuda/common.cuh"

enum { THREADS = 256, BLOCKS = 132 * 8 }; // fills an H100's 132 SMs

// y [n] = x [n], rounded to nearest, ties to even. One read of x, one write of y.
template <class From, class To> __global__ void cast_kernel(size_t n, const From *x, To *y) {
  size_t first = thread_index(), step = (size_t)gridDim.x * blockDim.x, whole = n / 8 * 8;
  for (size_t i = first; i < n / 8; i += step) store8(y + 8 * i, load8(x + 8 * i));
  if (first < n % 8) y[whole + first] = from_float<To>(to_float(x[whole + first]));
}

// ---- launchers ------------------------------------------------------------------------------------------------------

template <class From, class To> static void launch(Device *dev, size_t n, const void *x, void *y) {
  int blocks = MIN(MAX(blocks_for(n, 8 * THREADS), 1), BLOCKS);
  cast_kernel<<<blocks, THREADS, 0, stream_of(dev)>>>(n, (const From *)x, (To *)y);
  LAUNCH_CHECK();
}

static bool aligned(const void *p) { return (uintptr_t)p % sizeof(float4) == 0; }

extern "C" void cuda_cast(Device *dev, size_t n, const void *x, DType from, void *y, DType to) {
  if (dev->measuring || !n) return;
  CHECK((from == F32 || from == BF16) && (to == F32 || to == BF16));
  CHECK(aligned(x) && aligned(y));
  if (from == to)
    CUDA_CHECK(cudaMemcpyAsync(y, x, n * dtype_size(to), cudaMemcpyDeviceToDevice, stream_of(dev)));
  else if (to == BF16)
    launch<float, __nv_bfloat16>(dev, n, x, y);
  else
    launch<__nv_bfloat16, float>(dev, n, x, y);
}
