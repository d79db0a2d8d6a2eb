// One source for every vector width: the compiler chooses the instructions, fused multiply-add included where this file
// alone is compiled with -ffp-contract=fast.
#include "cpu/conv/gemm.h"
#include "cpu/reference.h"

// Unaligned vectors that may alias reals.
typedef real Vec __attribute__((vector_size(GEMM_VECTOR_BYTES), aligned(sizeof(real)), may_alias));
typedef real Quad __attribute__((vector_size(4 * sizeof(real)), aligned(sizeof(real)), may_alias));

#define INLINE static inline __attribute__((always_inline))

// A function and not a cast: clang takes whole registers, not halves of them, only where a signature names the type.
INLINE Vec load(const real *p) { return *(const Vec *)p; }

// One tile of C: GEMM_MR rows, `vectors` (1 or 2) vectors wide. Strides and widths are constants where this is inlined.
INLINE void tile(int k, const real *a, size_t row_stride, size_t k_stride, const real *b, real *c, int ldc,
                 int vectors) {
  Vec acc[GEMM_MR][2] = {0};
  for (int p = 0; p < k; p++, a += k_stride, b += GEMM_NR) {
    Vec b0 = load(b), b1 = load(b + (vectors - 1) * GEMM_LANES);
#pragma GCC unroll 14
    for (int i = 0; i < GEMM_MR; i++) {
      real x = a[i * row_stride];
      acc[i][0] += x * b0;
      if (vectors > 1) acc[i][1] += x * b1;
    }
  }
#pragma GCC unroll 14
  for (int i = 0; i < GEMM_MR; i++, c += ldc)
    for (int v = 0; v < vectors; v++) *(Vec *)(c + v * GEMM_LANES) += acc[i][v];
}

INLINE void block(int m, int n, int k, const real *a, size_t row_stride, size_t k_stride, const real *b, size_t panel,
                  real *c, int ldc) {
  for (int j = 0; j < n; j += GEMM_NR, b += panel)
    for (int i = 0; i < m; i += GEMM_MR) {
      real *to = c + (size_t)i * ldc + j;
      if (n - j > GEMM_LANES)
        tile(k, a + i * row_stride, row_stride, k_stride, b, to, ldc, 2);
      else
        tile(k, a + i * row_stride, row_stride, k_stride, b, to, ldc, 1);
    }
}

void OP(gemm_rows)(int m, int n, int k, const real *a, const real *b, size_t panel, real *c, int ldc) {
  block(m, n, k, a, GEMM_PITCH, 1, b, panel, c, ldc);
}

void OP(gemm_columns)(int m, int n, int k, const real *a, int lda, const real *b, size_t panel, real *c, int ldc) {
  block(m, n, k, a, 1, lda, b, panel, c, ldc);
}

// Elements `from` and `from` + 1 of both, in turn. Compilers make one shuffle of it; gcc 11 and clang share no builtin
// for that. By value, else gcc takes the elements one by one; how a vector wider than a register would be passed does
// not matter within a file.
#pragma GCC diagnostic ignored "-Wpsabi"
INLINE Quad interleave(Quad a, Quad b, int from) { return (Quad){a[from], b[from], a[from + 1], b[from + 1]}; }

// Two rounds of interleaving transpose 4 × 4.
INLINE void transpose4(const real *src, size_t src_pitch, real *dst, size_t dst_pitch) {
  Quad r[4], t[4];
  for (int i = 0; i < 4; i++) r[i] = *(const Quad *)(src + i * src_pitch);
  for (int i = 0; i < 2; i++) {
    t[2 * i] = interleave(r[i], r[i + 2], 0);
    t[2 * i + 1] = interleave(r[i], r[i + 2], 2);
  }
  for (int i = 0; i < 2; i++) {
    *(Quad *)(dst + 2 * i * dst_pitch) = interleave(t[i], t[i + 2], 0);
    *(Quad *)(dst + (2 * i + 1) * dst_pitch) = interleave(t[i], t[i + 2], 2);
  }
}

void OP(transpose)(int rows, int columns, const real *src, size_t src_pitch, real *dst, size_t dst_pitch) {
  for (int i = 0; i < rows; i += 4)
    for (int j = 0; j < columns; j += 4) {
      const real *from = src + i * src_pitch + j;
      real *to = dst + j * dst_pitch + i;
      if (rows - i >= 4 && columns - j >= 4) {
        transpose4(from, src_pitch, to, dst_pitch);
        continue;
      }
      for (int y = 0; y < MIN(4, rows - i); y++)
        for (int x = 0; x < MIN(4, columns - j); x++) to[x * dst_pitch + y] = from[y * src_pitch + x];
    }
}
