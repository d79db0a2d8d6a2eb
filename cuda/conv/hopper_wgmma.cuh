// wgmma, a warpgroup's asynchronous matrix multiply-accumulate on tiles in shared memory: matrix descriptors, and the
// instruction itself.
#pragma once
#include "cuda/conv/hopper.cuh"

enum {
  WGMMA_M = 64,      // of one wgmma
  WGMMA_K = 16,      // of one wgmma, of 16-bit types
  WGMMA_WARP_M = 16, // rows of a warp
};

// The matrix descriptor of a swizzled tile with rows of ROW bytes: its address, and the stride between groups of eight
// rows. `across`: the leading dimension's stride, between columns of ROW bytes, for an MN-major operand with more than
// one such column.
template <int ROW = SWIZZLE_ROW>
__device__ __forceinline__ uint64_t matrix_descriptor(uint32_t address, int across = 0) {
  static_assert(ROW == 128 || ROW == 32);
  constexpr uint64_t SWIZZLE = ROW == 128 ? 1 : 3;
  uint32_t own = address & (MAX_ADDRESS - 1); // a cluster's addresses hold the rank of the block above
  return (uint64_t)(own >> 4) | (uint64_t)(across >> 4) << 16 | (uint64_t)(8 * ROW >> 4) << 32 | SWIZZLE << 62;
}

// The same without a swizzle, of core matrices: eight rows of 16 bytes, one after the other. The next 16 bytes of K are
// `across` bytes on, the next eight rows `down` bytes; core matrices may overlap. By default, eight rows of 16 elements
// of K, the first eight of all rows before the others.
__device__ __forceinline__ uint64_t unswizzled_descriptor(uint32_t address, int across = 128, int down = 256) {
  uint32_t own = address & (MAX_ADDRESS - 1);
  return (uint64_t)(own >> 4) | (uint64_t)(across >> 4) << 16 | (uint64_t)(down >> 4) << 32;
}

// Before the first wgmma that uses registers or shared memory written by ordinary instructions. ptxas wants one on
// every path to a wgmma or a commit, round loops and past branches too; it puts in what is missing and says so (C7519).
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until all but the last `PENDING` groups are complete.
template <int PENDING> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Ten accumulator registers, %t0 … %t9, and as operands.
#define WGMMA_R10(t)                                                                                                   \
  "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define WGMMA_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_D8(i)                                                                                                    \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),          \
      "+f"(d[i + 7])
#define WGMMA_D32(i) WGMMA_D8(i), WGMMA_D8(i + 8), WGMMA_D8(i + 16), WGMMA_D8(i + 24)
// The operands after the accumulators are numbers a, b, add, a_major, b_major; `majors`: the last two in text.
#define WGMMA_ASM(shape, type, registers, a, b, add, majors, ...)                                                      \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #add ", 0;\n"                                                  \
               "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" registers "}, %" #a ", %" #b           \
               ", add, 1, 1" majors ";\n}"                                                                             \
               : __VA_ARGS__                                                                                           \
               : "l"(a_desc), "l"(b_desc), "r"((int)accumulate), "n"(A_MN_MAJOR), "n"(B_MN_MAJOR))
#define WGMMA_TYPES(shape, registers, a, b, add, a_major, b_major, ...)                                                \
  if constexpr (std::is_same_v<T, float>)                                                                              \
    WGMMA_ASM(shape "k8", "tf32", registers, a, b, add, "", __VA_ARGS__);                                              \
  else if constexpr (std::is_same_v<T, __half>)                                                                        \
    WGMMA_ASM(shape "k16", "f16", registers, a, b, add, ", %" #a_major ", %" #b_major, __VA_ARGS__);                   \
  else                                                                                                                 \
    WGMMA_ASM(shape "k16", "bf16", registers, a, b, add, ", %" #a_major ", %" #b_major, __VA_ARGS__)

// d [64, N] = a [64, k16] · b + (accumulate ? d : 0), by a warpgroup. Of the accumulators d, a thread has rows r and r
// + 8, r = 16 · warp + lane / 4, and of every eight columns 2 · (lane % 4) and the next: d[4j …] = (r, r), (r + 8, r +
// 8) of columns 8j …. b is K-major, [N, k16], or MN-major, [k16, N], if B_MN_MAJOR; a likewise. Floats are taken as
// TF32, k8, and K-major only.
template <class T, int N, bool B_MN_MAJOR, bool A_MN_MAJOR = false>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], uint64_t a_desc, uint64_t b_desc, bool accumulate) {
  static_assert(!std::is_same_v<T, float> || !(A_MN_MAJOR || B_MN_MAJOR));
  static_assert(N == 8 || N == 16 || N == 32 || N == 64 || N == 128 || N == 192 || N == 256);
  if constexpr (N == 8) {
    WGMMA_TYPES("m64n8", "%0, %1, %2, %3", 4, 5, 6, 7, 8, WGMMA_D4(0));
  } else if constexpr (N == 16) {
    WGMMA_TYPES("m64n16", "%0, %1, %2, %3, %4, %5, %6, %7", 8, 9, 10, 11, 12, WGMMA_D8(0));
  } else if constexpr (N == 32) {
    WGMMA_TYPES("m64n32", WGMMA_R10() "%10, %11, %12, %13, %14, %15", 16, 17, 18, 19, 20, WGMMA_D8(0), WGMMA_D8(8));
  } else if constexpr (N == 64) {
    WGMMA_TYPES("m64n64", WGMMA_R10() WGMMA_R10(1) WGMMA_R10(2) "%30, %31", 32, 33, 34, 35, 36, WGMMA_D32(0));
  } else if constexpr (N == 128) {
    WGMMA_TYPES("m64n128",
                WGMMA_R10() WGMMA_R10(1) WGMMA_R10(2) WGMMA_R10(3) WGMMA_R10(4) WGMMA_R10(5) "%60, %61, %62, %63", 64,
                65, 66, 67, 68, WGMMA_D32(0), WGMMA_D32(32));
  } else if constexpr (N == 192) {
    WGMMA_TYPES("m64n192",
                WGMMA_R10() WGMMA_R10(1) WGMMA_R10(2) WGMMA_R10(3) WGMMA_R10(4) WGMMA_R10(5) WGMMA_R10(6) WGMMA_R10(7)
                    WGMMA_R10(8) "%90, %91, %92, %93, %94, %95",
                96, 97, 98, 99, 100, WGMMA_D32(0), WGMMA_D32(32), WGMMA_D32(64));
  } else {
    WGMMA_TYPES("m64n256",
                WGMMA_R10() WGMMA_R10(1) WGMMA_R10(2) WGMMA_R10(3) WGMMA_R10(4) WGMMA_R10(5) WGMMA_R10(6) WGMMA_R10(7)
                    WGMMA_R10(8) WGMMA_R10(9) WGMMA_R10(10)
                        WGMMA_R10(11) "%120, %121, %122, %123, %124, %125, %126, %127",
                128, 129, 130, 131, 132, WGMMA_D32(0), WGMMA_D32(32), WGMMA_D32(64), WGMMA_D32(96));
  }
}

// The same of N columns with a in registers, as ldmatrix_pairs has them: of rows r and r + 8, eight columns, then the
// next eight; b is K-major. Not for floats.
template <class T, int N = 64>
__device__ __forceinline__ void wgmma_registers(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b_desc,
                                                bool accumulate) {
  static_assert(N == 64 || N == 128);
#define WGMMA_REGISTERS(shape, type, registers, a0, a1, a2, a3, b, add, ...)                                           \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #add ", 0;\n"                                                  \
               "wgmma.mma_async.sync.aligned." shape "k16.f32." type "." type " {" registers "}, {%" #a0 ", %" #a1     \
               ", %" #a2 ", %" #a3 "}, %" #b ", add, 1, 1, 0;\n}"                                                      \
               : __VA_ARGS__                                                                                           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_desc), "r"((int)accumulate))
#define WGMMA_REGISTERS_TYPES(shape, registers, a0, a1, a2, a3, b, add, ...)                                           \
  if constexpr (std::is_same_v<T, __half>)                                                                             \
    WGMMA_REGISTERS(shape, "f16", registers, a0, a1, a2, a3, b, add, __VA_ARGS__);                                     \
  else                                                                                                                 \
    WGMMA_REGISTERS(shape, "bf16", registers, a0, a1, a2, a3, b, add, __VA_ARGS__)
  if constexpr (N == 64) {
    WGMMA_REGISTERS_TYPES("m64n64", WGMMA_R10() WGMMA_R10(1) WGMMA_R10(2) "%30, %31", 32, 33, 34, 35, 36, 37,
                          WGMMA_D32(0));
  } else {
    WGMMA_REGISTERS_TYPES(
        "m64n128", WGMMA_R10() WGMMA_R10(1) WGMMA_R10(2) WGMMA_R10(3) WGMMA_R10(4) WGMMA_R10(5) "%60, %61, %62, %63",
        64, 65, 66, 67, 68, 69, WGMMA_D32(0), WGMMA_D32(32));
  }
}
#undef WGMMA_REGISTERS_TYPES
#undef WGMMA_REGISTERS

// d [64, N] += a · b of TF32 with a in registers, rows r and r + 8 of column lane % 4, then of the fourth from it; b is
// K-major, [N, k8].
template <int N>
__device__ __forceinline__ void wgmma_tf32_registers(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b_desc) {
  static_assert(N == 64 || N == 128);
#define WGMMA_REGISTERS(shape, registers, a0, a1, a2, a3, b, ...)                                                      \
  asm volatile("{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"                                                          \
               "wgmma.mma_async.sync.aligned." shape "k8.f32.tf32.tf32 {" registers "}, {%" #a0 ", %" #a1 ", %" #a2    \
               ", %" #a3 "}, %" #b ", add, 1, 1;\n}"                                                                   \
               : __VA_ARGS__                                                                                           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_desc))
  if constexpr (N == 64)
    WGMMA_REGISTERS("m64n64", WGMMA_R10() WGMMA_R10(1) WGMMA_R10(2) "%30, %31", 32, 33, 34, 35, 36, WGMMA_D32(0));
  else
    WGMMA_REGISTERS("m64n128",
                    WGMMA_R10() WGMMA_R10(1) WGMMA_R10(2) WGMMA_R10(3) WGMMA_R10(4) WGMMA_R10(5) "%60, %61, %62, %63",
                    64, 65, 66, 67, 68, WGMMA_D32(0), WGMMA_D32(32));
}
#undef WGMMA_REGISTERS
#undef WGMMA_TYPES
#undef WGMMA_ASM
#undef WGMMA_D32
#undef WGMMA_D8
#undef WGMMA_D4
#undef WGMMA_R10
