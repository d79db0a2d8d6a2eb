// What has no name in CUDA C++ but in its assembly: copies of 16 bytes from global to shared memory that do not pass
// through registers (cp.async, sm_80), rounding to TF32, fragments loaded from memory that is known to be shared; and the
// shared memory whose size a launch decides.
#pragma once
#include <mma.h>
#include <stdint.h>
#include <type_traits>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
static constexpr bool AMPERE = false;
#else
static constexpr bool AMPERE = true;
#endif

__device__ __forceinline__ unsigned char *dynamic_shared() {
  extern __shared__ __align__(128) unsigned char memory[];
  return memory;
}

// Zeros unless `inside`; `from` is then not read, but still has to be an address in global memory. Elsewhere than on
// sm_80 and later the copy is done when this returns.
__device__ __forceinline__ void copy16_async(void *to, const void *from, bool inside) {
  if constexpr (AMPERE) {
    uint32_t shared = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
  } else
    *(uint4 *)to = inside ? *(const uint4 *)from : uint4{};
}
// Closes the group of copies issued since the one before.
__device__ __forceinline__ void copies_commit() {
  if constexpr (AMPERE) asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until all but the last `PENDING` groups of this thread have arrived.
template <int PENDING> __device__ __forceinline__ void copies_wait() {
  if constexpr (AMPERE) asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// To nearest, ties away from zero, as a float: sm_80.
__device__ __forceinline__ float round_to_tf32(float v) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  return __uint_as_float(bits);
}

// nvcuda::wmma::load_matrix_sync from shared memory. For bf16 and TF32 the library's own forgets which memory it reads,
// and the compiler then fetches single words where one ldmatrix would do.
#define WMMA_LOAD(operand, layout, type)                                                                               \
  asm volatile("wmma.load." operand ".sync.aligned." layout "." type " {%0, %1, %2, %3}, [%4], %5;"                    \
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                                                    \
               : "r"(shared), "r"(pitch)                                                                               \
               : "memory")
#define WMMA_LOAD_TYPE(type)                                                                                           \
  if constexpr (IS_A && ROW_MAJOR)                                                                                     \
    WMMA_LOAD("a", "row", type);                                                                                       \
  else if constexpr (IS_A)                                                                                             \
    WMMA_LOAD("a", "col", type);                                                                                       \
  else if constexpr (ROW_MAJOR)                                                                                        \
    WMMA_LOAD("b", "row", type);                                                                                       \
  else                                                                                                                 \
    WMMA_LOAD("b", "col", type);
template <bool IS_A, bool ROW_MAJOR, class Fragment, class T>
__device__ __forceinline__ void wmma_load_shared(Fragment &f, const T *from, unsigned pitch) {
  if constexpr (std::is_same_v<T, __half>)
    nvcuda::wmma::load_matrix_sync(f, from, pitch);
  else {
    static_assert(sizeof f.x == 16, "four registers");
    uint32_t *to = (uint32_t *)f.x, shared = (uint32_t)__cvta_generic_to_shared(from);
    if constexpr (sizeof(T) == 2) {
      WMMA_LOAD_TYPE("m16n16k16.shared.bf16")
    } else {
      WMMA_LOAD_TYPE("m16n16k8.shared.tf32")
    }
  }
}
#undef WMMA_LOAD_TYPE
#undef WMMA_LOAD
