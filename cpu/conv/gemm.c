// One source for every vector width: the compiler chooses the instructions, fused multiply-add included where this file
// alone is compiled with -ffp-contract=fast.
#include "cpu/conv/gemm.h"
#include "cpu/reference.h"

// As Vec, of four.
typedef real Quad __attribute__((vector_size(4 * sizeof(real)), aligned(sizeof(real)), may_alias));

typedef __typeof__((Vec){0} < (Vec){0}) VecMask;

#define INLINE static inline __attribute__((always_inline))

// Leaves NaN, as dest_write does.
INLINE Vec relu(Vec v) {
  const Vec zero = {0};
  return (Vec)(~(v < zero) & (VecMask)v);
}

// The end of a tile of which `rows` exist: through `out`, whose pointers are at row i and column j of its matrices.
INLINE void finish(int rows, const Vec acc[GEMM_MR][2], const real *c, int ldc, int vectors, const GemmOut *out, int i,
                   int j) {
  const size_t at = (size_t)i * out->pitch + j;
  for (int v = 0; v < vectors; v++) {
    const int lane = v * GEMM_LANES;
    const Vec zero = {0}, bias = out->bias ? vec_load(out->bias + j + lane) : zero;
    real *to = out->to + at + lane;
    const real *addend = out->addend ? out->addend + at + lane : NULL;
#pragma GCC unroll 14
    for (int r = 0; r < GEMM_MR; r++) {
      if (r >= rows) break;
      Vec x = acc[r][v];
      if (c) x += vec_load(c + (size_t)r * ldc + lane);
      if (out->bias) x += bias;
      if (addend) x += vec_load(addend + (size_t)r * out->pitch);
      if (out->relu) x = relu(x);
      *(Vec *)(to + (size_t)r * out->pitch) = x;
    }
  }
}

// GEMM_MR rows of A times a panel of B, `vectors` (1 or 2) vectors wide. Strides and widths are constants where this is
// inlined. What is read of B next comes into the second-level cache meanwhile, a line a step from `ahead` on: without,
// the first of the tiles that share a panel waits for memory.
INLINE void multiply(int k, const real *a, size_t row_stride, size_t k_stride, const real *b, int vectors,
                     const real *ahead, Vec acc[GEMM_MR][2]) {
  for (int p = 0; p < k; p++, a += k_stride, b += GEMM_NR) {
    __builtin_prefetch(ahead + p * GEMM_LANES, 0, 2);
    Vec b0 = vec_load(b), b1 = vec_load(b + (vectors - 1) * GEMM_LANES);
#pragma GCC unroll 14
    for (int i = 0; i < GEMM_MR; i++) {
      real x = a[i * row_stride];
      acc[i][0] += x * b0;
      if (vectors > 1) acc[i][1] += x * b1;
    }
  }
}

// One tile of C.
INLINE void tile(int k, const real *a, size_t row_stride, size_t k_stride, const real *b, real *c, int ldc, int vectors,
                 const real *ahead) {
  Vec acc[GEMM_MR][2] = {0};
  multiply(k, a, row_stride, k_stride, b, vectors, ahead, acc);
#pragma GCC unroll 14
  for (int i = 0; i < GEMM_MR; i++, c += ldc)
    for (int v = 0; v < vectors; v++) *(Vec *)(c + v * GEMM_LANES) += acc[i][v];
}

// The panel behind b: half of it in the first row of tiles, half in the second.
INLINE const real *panel_ahead(int k, const real *b, size_t panel, int i) {
  return i < 2 * GEMM_MR ? b + panel + (size_t)(i / GEMM_MR) * k * GEMM_LANES : b;
}

INLINE void block(int m, int n, int k, const real *a, size_t row_stride, size_t k_stride, const real *b, size_t panel,
                  real *c, int ldc) {
  for (int j = 0; j < n; j += GEMM_NR, b += panel)
    for (int i = 0; i < m; i += GEMM_MR) {
      const real *ahead = panel_ahead(k, b, panel, i);
      real *to = c + (size_t)i * ldc + j;
      if (n - j > GEMM_LANES)
        tile(k, a + i * row_stride, row_stride, k_stride, b, to, ldc, 2, ahead);
      else
        tile(k, a + i * row_stride, row_stride, k_stride, b, to, ldc, 1, ahead);
    }
}

void OP(gemm_rows)(int m, int n, int k, const real *a, const real *b, size_t panel, real *c, int ldc) {
  block(m, n, k, a, GEMM_PITCH, 1, b, panel, c, ldc);
}

void OP(gemm_rows_out)(int m, int n, int k, const real *a, const real *b, size_t panel, real *c, int ldc,
                       const GemmOut *out) {
  for (int j = 0; j < n; j += GEMM_NR, b += panel)
    for (int i = 0; i < m; i += GEMM_MR) {
      const real *from = a + (size_t)i * GEMM_PITCH, *ahead = panel_ahead(k, b, panel, i);
      const real *before = c ? c + (size_t)i * ldc + j : NULL;
      Vec acc[GEMM_MR][2] = {0};
      if (n - j > GEMM_LANES) {
        multiply(k, from, GEMM_PITCH, 1, b, 2, ahead, acc);
        finish(MIN(GEMM_MR, m - i), acc, before, ldc, 2, out, i, j);
      } else {
        multiply(k, from, GEMM_PITCH, 1, b, 1, ahead, acc);
        finish(MIN(GEMM_MR, m - i), acc, before, ldc, 1, out, i, j);
      }
    }
}

void OP(gemm_columns)(int m, int n, int k, const real *a, int lda, const real *b, size_t panel, real *c, int ldc) {
  block(m, n, k, a, 1, lda, b, panel, c, ldc);
}

// Elements `from` and `from` + 1 of both, in turn. Compilers make one shuffle of it; gcc 11 and clang share no builtin
// for that. By value, else gcc takes the elements one by one; how a vector wider than a register would be passed does
// not matter within a file.
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
