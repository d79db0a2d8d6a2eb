// The GEMM of packed blocks that the convolutions are made of. C [m, n] += A [m, k] · B [k, n], k ≤ GEMM_KC.
//
// After Goto, van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008: a tile of C is accumulated in
// vector registers while one column of A and one row of B a step stream past it. B's panels (GEMM_NR columns, k-major)
// stay in the first-level cache, the block of A in the second. Each element of C is a chain in ascending k within a
// block, and blocks are added in the caller's order: the bits depend on neither the tile it falls in nor the number of
// threads.
#pragma once
#include "cpu/reference.h"

// Accumulators, two vectors of B and one broadcast of A fill the registers: 32 with AVX-512, 16 elsewhere.
#if defined(__AVX512F__)
enum { GEMM_VECTOR_BYTES = 64, GEMM_MR = 14 };
#elif defined(__AVX2__)
enum { GEMM_VECTOR_BYTES = 32, GEMM_MR = 6 };
#else
enum { GEMM_VECTOR_BYTES = 16, GEMM_MR = 6 };
#endif

enum {
  GEMM_LANES = GEMM_VECTOR_BYTES / sizeof(real),
  GEMM_NR = 2 * GEMM_LANES,
  GEMM_KC = 256,
  GEMM_PITCH = GEMM_KC + 16, // of A's rows: room for copies in whole lanes, and off the powers of two
};

// Unaligned vectors that may alias reals.
typedef real Vec __attribute__((vector_size(GEMM_VECTOR_BYTES), aligned(sizeof(real)), may_alias));

// A function and not a cast: clang takes whole registers, not halves of them, only where a signature names the type.
#pragma GCC diagnostic ignored "-Wpsabi"
static inline __attribute__((always_inline)) Vec vec_load(const real *p) { return *(const Vec *)p; }

// Multiplications below which waking the other threads costs more than it saves: they take some 3 microseconds.
#define GEMM_PARALLEL_WORK ((size_t)1 << 18)

static inline int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// A [m, k] row by row, pitch GEMM_PITCH; B [panels of GEMM_NR columns][k][GEMM_NR], one panel every `panel` elements.
// C has pitch ldc. All three are padded to whole tiles: rows up to round_up(m, GEMM_MR) are read and written, columns
// up to round_up(n, GEMM_LANES); what stands in the padding of A and B reaches only the padding of C.
void OP(gemm_rows)(int m, int n, int k, const real *a, const real *b, size_t panel, real *c, int ldc);
// The same with A given column by column: a[k·lda + m].
void OP(gemm_columns)(int m, int n, int k, const real *a, int lda, const real *b, size_t panel, real *c, int ldc);

// What becomes of finished elements where that is the same for all: to = f(c + bias + addend). to and addend [m, n]
// with rows every `pitch` elements; bias [n]; NULL: none. n is a multiple of GEMM_LANES.
typedef struct GemmOut {
  real *to;
  const real *addend, *bias;
  int pitch;
  bool relu;
} GemmOut;
// gemm_rows of the last block of K, but that C + A · B goes there; C (NULL: zeros) is only read.
void OP(gemm_rows_out)(int m, int n, int k, const real *a, const real *b, size_t panel, real *c, int ldc,
                       const GemmOut *out);

// dst[j·dst_pitch + i] = src[i·src_pitch + j] for i < rows, j < columns.
void OP(transpose)(int rows, int columns, const real *src, size_t src_pitch, real *dst, size_t dst_pitch);
