// What every kernel file uses: checked calls, element types, 16-byte vectors of eight channels, the epilogue that a
// Dest describes, and warp and threadblock reductions in a fixed order. An op is a host function in C linkage, named
// cuda_<op>, which launches its kernels on dev->stream and returns.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <type_traits>
extern "C" {
#include "base/error.h"
#include "nn/device.h"
#include "nn/ops.h"
}

// ---- checked calls ----------------------------------------------------------------------------------------------

[[noreturn]] void cuda_failed(cudaError_t error, const char *expression, const char *file, int line);
#define CUDA_CHECK(call)                                                                                               \
  do {                                                                                                                 \
    cudaError_t error_ = (call);                                                                                       \
    if (error_ != cudaSuccess) cuda_failed(error_, #call, __FILE__, __LINE__);                                         \
  } while (0)
// After every launch: a bad configuration is reported here, a fault of the kernel by the next call that synchronises.
#define LAUNCH_CHECK() CUDA_CHECK(cudaGetLastError())

static inline cudaStream_t stream_of(const Device *dev) { return (cudaStream_t)dev->stream; }
// Multiprocessors for persistent kernels whose sums do not depend on how many they take.
static inline int granted_to_products(const Device *dev) { return MAX(dev->granted - dev->lent, 1); }
// Dynamic shared memory beyond 48 KB has to be asked for.
template <class Kernel> static void allow_shared(Kernel *kernel, size_t bytes) {
  if (bytes > 32 << 10) // a kernel's own arrays take their part of the 48 KB that need no asking
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
}
// Threadblocks for so many items: the ceiling of the quotient.
static inline int blocks_for(size_t items, int per_block) { return (int)((items + per_block - 1) / per_block); }

// ---- programmatic dependent launch --------------------------------------------------------------------------------
//
// A grid that is launched so may begin before the one ahead of it in the stream, its prerequisite, has ended; its wait
// ends when that has, with all that it has written to be seen. From sm_90 on.

// Lets a dependent grid begin once every block has called it or ended.
__device__ __forceinline__ void grid_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// What needs the prerequisite grid, or is to count on both having ended, comes after it.
__device__ __forceinline__ void grid_wait_prerequisite() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The host's side: makes a launch dependent on the one before it in the stream.
static inline cudaLaunchAttribute dependent_launch_attribute() {
  cudaLaunchAttribute follow = {};
  follow.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  follow.val.programmaticStreamSerializationAllowed = 1;
  return follow;
}
// Launches a kernel that calls grid_wait_prerequisite, dependent where the GPU can do that.
template <class... Formal, class... Actual>
static void launch_dependent(Device *dev, void (*kernel)(Formal...), dim3 grid, dim3 block, Actual... args) {
  cudaLaunchAttribute follow = dependent_launch_attribute();
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream_of(dev);
  config.attrs = &follow;
  config.numAttrs = dev->wgmma ? 1 : 0;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, Formal(args)...));
}

// ---- element types ------------------------------------------------------------------------------------------------

// Instantiates its last argument with T = float, __nv_bfloat16 or __half: arithmetic is float, T is how it is stored.
#define WITH_TYPE(dtype, T, ...)                                                                                       \
  switch (dtype) {                                                                                                     \
  case F32: {                                                                                                          \
    using T = float;                                                                                                   \
    __VA_ARGS__;                                                                                                       \
    break;                                                                                                             \
  }                                                                                                                    \
  case BF16: {                                                                                                         \
    using T = __nv_bfloat16;                                                                                           \
    __VA_ARGS__;                                                                                                       \
    break;                                                                                                             \
  }                                                                                                                    \
  case F16: {                                                                                                          \
    using T = __half;                                                                                                  \
    __VA_ARGS__;                                                                                                       \
    break;                                                                                                             \
  }                                                                                                                    \
  default: CHECK(!"dtype");                                                                                            \
  }

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
template <class T> __device__ __forceinline__ T from_float(float v);
template <> __device__ __forceinline__ float from_float<float>(float v) { return v; }
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) { return __float2bfloat16(v); }
template <> __device__ __forceinline__ __half from_float<__half>(float v) { return __float2half(v); }

// Eight consecutive channels in registers, as float. Pitches are multiples of eight, so that every access is one
// (16-bit types) or two (float) vectorised, aligned accesses of 16 bytes, and a warp's are coalesced.
struct Eight {
  float v[8];
};
template <class T> __device__ __forceinline__ Eight load8(const T *p) {
  Eight e;
  if constexpr (sizeof(T) == 4) {
    float4 a = *(const float4 *)p, b = *(const float4 *)(p + 4);
    e = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  } else {
    uint4 raw = *(const uint4 *)p;
    const T *t = (const T *)&raw;
    const uint32_t *pair = (const uint32_t *)&raw;
#pragma unroll
    for (int i = 0; i < 8; i++)
      if constexpr (std::is_same_v<T, __nv_bfloat16>) // a float's upper half: one instruction instead of two
        e.v[i] = __uint_as_float(i % 2 ? pair[i / 2] & 0xffff0000u : pair[i / 2] << 16);
      else
        e.v[i] = to_float(t[i]);
  }
  return e;
}
template <class T> __device__ __forceinline__ void store8(T *p, const Eight &e) {
  if constexpr (sizeof(T) == 4) {
    *(float4 *)p = make_float4(e.v[0], e.v[1], e.v[2], e.v[3]);
    *(float4 *)(p + 4) = make_float4(e.v[4], e.v[5], e.v[6], e.v[7]);
  } else {
    uint4 raw;
    T *t = (T *)&raw;
#pragma unroll
    for (int i = 0; i < 8; i++) t[i] = from_float<T>(e.v[i]);
    *(uint4 *)p = raw;
  }
}

// Of four neighbouring lanes each has a pair of channels of four vectors, as tensor cores leave accumulators: channels
// 2 · (lane % 4) and the next of vector i at v[2i]. Lane i of them gets vector i: a transposition, by an exchange with
// one neighbour and then with the other.
__device__ __forceinline__ Eight quad_transpose(const float *v) {
  Eight e = {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]};
#pragma unroll
  for (int by = 1; by <= 2; by *= 2)
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (!(i / 2 & by)) {
        float &low = e.v[i], &high = e.v[i + 2 * by];
        bool upper = threadIdx.x & by;
        float other = __shfl_xor_sync(~0u, upper ? low : high, by);
        if (upper)
          low = other;
        else
          high = other;
      }
  return e;
}
__device__ __forceinline__ void add8(Eight &to, const Eight &e) {
#pragma unroll
  for (int k = 0; k < 8; k++) to.v[k] += e.v[k];
}

// ---- tensors --------------------------------------------------------------------------------------------------------

// Valid rows: the device-side count where there is one.
__device__ __forceinline__ int rows_of(const Tensor &t) { return t.count ? min(*t.count, t.n) : t.n; }
// Pixel (n, y, x) of an NHWC tensor: its ldc channels.
template <class T> __device__ __forceinline__ T *pixel(const Tensor &t, int n, int y, int x) {
  return (T *)t.data + (((size_t)n * t.h + y) * t.w + x) * t.ldc;
}

// Elementwise kernels give a thread to each vector of eight channels, in the order of memory, so that a warp's accesses
// are coalesced. Where vector i stands:
struct VectorPosition {
  int n, y, x, c; // c: the first of its channels
};
__device__ __forceinline__ VectorPosition position_of(const Tensor &t, unsigned i) {
  unsigned per_pixel = t.ldc / 8, pixel = i / per_pixel, row = pixel / t.w, n = row / t.h;
  return {(int)n, (int)(row - n * t.h), (int)(pixel - row * t.w), (int)(i - pixel * per_pixel) * 8};
}
// How many vectors of eight channels a tensor has.
static inline unsigned eights_of(const Tensor *t) {
  CHECK(t->ldc % 8 == 0 && tensor_elements(t) / 8 < UINT32_MAX);
  return (unsigned)(tensor_elements(t) / 8);
}
// Of a one-dimensional grid.
__device__ __forceinline__ unsigned thread_index() { return blockIdx.x * blockDim.x + threadIdx.x; }

// ---- epilogue -------------------------------------------------------------------------------------------------------
//
// What happens to a result on its way from registers to memory, fused into the kernel that computes it: bias, residual
// or other addend, accumulation, ReLU or the mask of its gradient, conversion to the destination's type.

// A Dest by value, as kernels take it. Optional tensors have data == NULL where they are absent.
struct DestArgs {
  Tensor t, addend, mask;
  const float *bias;
  bool accumulate, relu;
  bool resized; // the addend has half or twice the height and width
  float *moments;
};
static inline DestArgs dest_args(const Dest *d) {
  DestArgs a = {d->t, {}, {}, (const float *)d->bias, d->accumulate, d->relu, false, (float *)d->moments};
  if (d->addend) {
    a.addend = *d->addend;
    a.resized = a.addend.h != a.t.h || a.addend.w != a.t.w;
  }
  if (d->mask) a.mask = *d->mask;
  return a;
}

// Whether adding nothing to a destination leaves it as it is.
__device__ __forceinline__ bool dest_keeps(const DestArgs &d) {
  return d.accumulate && !d.addend.data && !d.bias && !d.relu && !d.mask.data;
}

// Eight consecutive channels as they are stored: half the registers of an Eight in 16-bit types.
template <class T> struct Raw8 { uint4 words[sizeof(T) / 2]; };
template <class T> __device__ __forceinline__ Raw8<T> read8(const T *p) { return *(const Raw8<T> *)p; }
template <class T> __device__ __forceinline__ Eight to_eight(const Raw8<T> &raw) { return load8((const T *)&raw); }

// The bias of channels c … c+7; anything in padding channels.
__device__ __forceinline__ Eight dest_bias8(const DestArgs &d, int c) {
  Eight b;
#pragma unroll
  for (int k = 0; k < 8; k++) b.v[k] = d.bias[min(c + k, d.t.c - 1)];
  return b;
}

// A resized addend at channels c … c+7 of pixel (n, y, x): FPN's top-down input of half the size, nearest-upsampled, or
// a gradient of twice the size, summed over 2×2.
template <class T> __device__ __forceinline__ Eight dest_resized8(const DestArgs &d, int n, int y, int x, int c) {
  const Tensor &a = d.addend;
  if (a.h < d.t.h || a.w < d.t.w) return load8(pixel<T>(a, n, y / 2, x / 2) + c);
  Eight sum = {};
#pragma unroll 1 // the loads of four pixels at once would cost every kernel with this epilogue 20 registers
  for (int i = 2 * y; i < min(2 * y + 2, a.h); i++)
#pragma unroll 1
    for (int j = 2 * x; j < min(2 * x + 2, a.w); j++) add8(sum, load8(pixel<T>(a, n, i, j) + c));
  return sum;
}

// What the epilogue reads at `offset`, in elements, which is the same in all tensors of a Dest but a resized addend.
// Kernels that store several vectors issue the loads of all of them before the first store, to overlap their latencies.
// What a Dest does not have is as in `none`.
template <class T> struct DestReads { Raw8<T> addend, old, mask; };
template <class T>
__device__ __forceinline__ DestReads<T> dest_read8(const DestArgs &d, size_t offset, const DestReads<T> &none) {
  DestReads<T> r = none;
  if (d.addend.data && !d.resized) r.addend = read8((const T *)d.addend.data + offset);
  if (d.accumulate) r.old = read8((const T *)d.t.data + offset);
  if (d.mask.data) r.mask = read8((const T *)d.mask.data + offset);
  return r;
}
template <class T> __device__ __forceinline__ DestReads<T> dest_read8(const DestArgs &d, size_t offset) {
  DestReads<T> none;
  return dest_read8<T>(d, offset, none);
}
// The rest of the epilogue, for channels c … c+7: v holds the bias and a resized addend already. Padding channels
// (c + k ≥ t.c) are stored as zero.
template <class T>
__device__ __forceinline__ void dest_write8(const DestArgs &d, size_t offset, int c, Eight v, const DestReads<T> &r) {
  if (d.addend.data && !d.resized) add8(v, to_eight<T>(r.addend));
  if (d.accumulate) add8(v, to_eight<T>(r.old));
  if (d.relu)
#pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] = v.v[k] < 0.f ? 0.f : v.v[k]; // NaN stays
  if (d.mask.data) {
    Eight m = to_eight<T>(r.mask);
#pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] = m.v[k] > 0.f ? v.v[k] : 0.f;
  }
  if (c + 8 > d.t.c)
#pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] = c + k < d.t.c ? v.v[k] : 0.f;
  store8((T *)d.t.data + offset, v);
}

// The whole epilogue of one vector: t = keep · f(v + bias + addend + (accumulate ? t : 0)) for channels c … c+7 of
// pixel (n, y, x); c is a multiple of 8. In a loop around many of these, `none` has to be {}: the compiler would keep
// what it does not know from one iteration to the next, in registers of its own for each.
template <class T>
__device__ __forceinline__ void dest_store8(const DestArgs &d, int n, int y, int x, int c, Eight v,
                                            const DestReads<T> &none) {
  size_t offset = (((size_t)n * d.t.h + y) * d.t.w + x) * d.t.ldc + c;
  if (d.bias) add8(v, dest_bias8(d, c));
  if (d.resized) add8(v, dest_resized8<T>(d, n, y, x, c));
  dest_write8<T>(d, offset, c, v, dest_read8<T>(d, offset, none));
}
template <class T> __device__ __forceinline__ void dest_store8(const DestArgs &d, int n, int y, int x, int c, Eight v) {
  DestReads<T> none;
  dest_store8<T>(d, n, y, x, c, v, none);
}

// ---- reductions in a fixed order ------------------------------------------------------------------------------------
//
// Butterflies of warp shuffles: the order of the sum, and so its bits, depends on nothing but the shape of the
// threadblock.

// Sum over the warp, the same value in every lane.
template <class T> __device__ __forceinline__ T warp_sum(T v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
  return v;
}
// Sum over the threadblock, the same value in every thread: warps first, then their sums by every warp alike. Every
// thread must call it; blockDim.x is a multiple of 32.
template <class T> __device__ T block_sum(T v) {
  __shared__ T part[32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  v = warp_sum(v);
  __syncthreads(); // part may still be read by the call before
  if (lane == 0) part[warp] = v;
  __syncthreads();
  v = lane < warps ? part[lane] : T(0);
  return warp_sum(v);
}
