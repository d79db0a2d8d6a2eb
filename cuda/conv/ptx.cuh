// PTX that CUDA C++ has no name for: cp.async, copies of 16 bytes from global to shared memory that do not pass through
// registers, rounding to TF32, ldmatrix, mma.sync, and wmma loads from memory that is known to be shared; and the
// shared memory whose size a launch decides. sm_80, the oldest GPU that a build takes, has all of it.
#pragma once
#include <mma.h>
#include <stdint.h>
#include <type_traits>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
static constexpr bool HOPPER = false;
#else
static constexpr bool HOPPER = true;
#endif

__device__ __forceinline__ unsigned char *dynamic_shared() {
  extern __shared__ __align__(128) unsigned char memory[];
  return memory;
}

// The same value, but not known to be one of the kernel's arguments, which the compiler would rather load again, slowly
// where their index is only known at run time, than keep.
__device__ __forceinline__ int in_register(int v) {
  asm volatile("" : "+r"(v));
  return v;
}
// A pointer to global memory.
template <class T> __device__ __forceinline__ T *in_register(T *p) {
  size_t global = __cvta_generic_to_global(p);
  asm volatile("" : "+l"(global));
  return (T *)__cvta_global_to_generic(global);
}

// An address in shared memory, as the instructions take it.
__device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

// Zeros unless `inside`; `from` is then not read, but still has to be an address in global memory.
__device__ __forceinline__ void cp_async16(uint32_t to, const void *from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
__device__ __forceinline__ void cp_async16(void *to, const void *from, bool inside) {
  cp_async16(shared_address(to), from, inside);
}
// Closes the group of copies issued since the one before.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all but the last `PENDING` groups of this thread are complete.
template <int PENDING> __device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// To nearest, as a float. Ties go to even on sm_90, where that is one instruction, and away from zero on older ones,
// which have no other way.
__device__ __forceinline__ float round_to_tf32(float v) {
  uint32_t bits;
  if constexpr (HOPPER)
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  else
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  return __uint_as_float(bits);
}

// An operand of mma.sync: 16 rows of A or columns of B by the K of one instruction, a pair of 16-bit values or one
// float to a register. Lane l has of rows l / 4 and l / 4 + 8: the first half of K of both, then the second half of
// both; of columns l / 4 and l / 4 + 8: both halves of the first, then of the second.
struct Fragment {
  uint32_t r[4];
};

// ldmatrix: four matrices of 8 rows by 16 bytes; lane l gives the address of row l % 8 of matrix l / 8 and gets row l /
// 4, bytes 4 · (l % 4) … of each. TRANSPOSED (16-bit elements): of the transposed matrices.
template <bool TRANSPOSED> __device__ __forceinline__ Fragment ldmatrix_x4(uint32_t row) {
  Fragment f;
  if constexpr (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
                 : "r"(row)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
                 : "r"(row)
                 : "memory");
  return f;
}

__device__ __forceinline__ void load_shared4(uint32_t from, uint32_t &a) {
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(a) : "r"(from) : "memory");
}
__device__ __forceinline__ void load_shared8(uint32_t from, uint32_t &a, uint32_t &b) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(from) : "memory");
}

// acc += a · bᵀ for 16 rows and eight of b's columns, the first or the second half. Lane l has of the accumulators row
// l / 4, columns 2 · (l % 4) and the next, then the same of row l / 4 + 8.
#define MMA(shape_and_types)                                                                                           \
  asm("mma.sync.aligned." shape_and_types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"           \
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])                                                         \
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[2 * half]), "r"(b.r[2 * half + 1]))
template <class T>
__device__ __forceinline__ void mma_sync(float (&acc)[4], const Fragment &a, const Fragment &b, int half) {
  if constexpr (std::is_same_v<T, float>)
    MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
  else if constexpr (std::is_same_v<T, __half>)
    MMA("m16n8k16.row.col.f32.f16.f16.f32");
  else
    MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
}
#undef MMA

// nvcuda::wmma::load_matrix_sync from shared memory. For bf16 and TF32 the library's own loses the memory's state
// space, and the compiler then loads single words where one ldmatrix would do.
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
    uint32_t *to = (uint32_t *)f.x, shared = shared_address(from);
    if constexpr (sizeof(T) == 2) {
      WMMA_LOAD_TYPE("m16n16k16.shared.bf16")
    } else {
      WMMA_LOAD_TYPE("m16n16k8.shared.tf32")
    }
  }
}
#undef WMMA_LOAD_TYPE
#undef WMMA_LOAD
