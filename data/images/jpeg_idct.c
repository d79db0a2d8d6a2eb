#include "data/images/jpeg_idct.h"
#include <stdbool.h>
#include <string.h>
#include "base/basics.h"

// Columns, then rows. Output i and 7 - i of a transform are the sum and the difference of two products, one with the
// even and one with the odd inputs. The factors are cosines times 2^13, to which libjpeg's butterflies multiply out.
enum { BLOCK = 8, HALF = 4, FRACTION = 13, KEPT = 2 };          // bits; those kept after the first pass
enum { FIRST = FRACTION - KEPT, SECOND = FRACTION + KEPT + 3 }; // bits rounded away; a pass is √8 too large
// 0.5 for rounding; 128 added to samples.
enum { FIRST_BIAS = 1 << (FIRST - 1), SECOND_BIAS = (1 << (SECOND - 1)) + (128 << SECOND) };

static const int16_t even[HALF][HALF] = { // of inputs 0, 4, 2, 6
    {8192, 8192, 10703, 4433},
    {8192, -8192, 4433, -10704},
    {8192, -8192, -4433, 10704},
    {8192, 8192, -10703, -4433}};
static const int16_t odd[HALF][HALF] = { // of inputs 1, 3, 5, 7
    {11363, 9633, 6437, 2260},
    {9633, -2259, -11362, -6436},
    {6437, -11362, 2261, 9633},
    {2260, -6436, 9633, -11363}};

// ---- the reference --------------------------------------------------------------------------------------------------

// Sixteen bits are enough for all but absurd coefficients; those saturate, as in libjpeg-turbo.
static int16_t saturate(int32_t v) { return (int16_t)MIN(MAX(v, INT16_MIN), INT16_MAX); }

static uint32_t dot(const int16_t factor[HALF], int a, int b, int c, int d) { // unsigned, because it may wrap
  return (uint32_t)factor[0] * (uint32_t)a + (uint32_t)factor[1] * (uint32_t)b + (uint32_t)factor[2] * (uint32_t)c +
         (uint32_t)factor[3] * (uint32_t)d;
}

// Transforms each column of `in` into a row of `out`.
static void transform(const int16_t in[BLOCK][BLOCK], int16_t out[BLOCK][BLOCK], uint32_t bias, int shift) {
  for (int x = 0; x < BLOCK; x++)
    for (int i = 0; i < HALF; i++) {
      const uint32_t e = dot(even[i], in[0][x], in[4][x], in[2][x], in[6][x]) + bias;
      const uint32_t o = dot(odd[i], in[1][x], in[3][x], in[5][x], in[7][x]);
      out[x][i] = saturate((int32_t)(e + o) >> shift);
      out[x][BLOCK - 1 - i] = saturate((int32_t)(e - o) >> shift);
    }
}

void jpeg_idct_plain(uint8_t *samples, int pitch, const int16_t coefficients[64]) {
  int16_t block[BLOCK][BLOCK], half[BLOCK][BLOCK];
  memcpy(block, coefficients, sizeof block);
  transform(block, half, FIRST_BIAS, FIRST);
  transform(half, block, SECOND_BIAS, SECOND);
  for (int y = 0; y < BLOCK; y++)
    for (int x = 0; x < BLOCK; x++) samples[y * pitch + x] = (uint8_t)MIN(MAX(block[y][x], 0), 255);
}

// ---- eight columns at a time ----------------------------------------------------------------------------------------

#ifndef __SSE2__
void jpeg_idct(uint8_t *samples, int pitch, const int16_t coefficients[64]) {
  jpeg_idct_plain(samples, pitch, coefficients);
}
#else
#include <emmintrin.h>

// Dot products of four columns, whose inputs are interleaved in the pairs ab and cd.
static inline __m128i dots(const int16_t factor[HALF], __m128i ab, __m128i cd) {
  const __m128i f01 = _mm_set1_epi32((uint16_t)factor[0] | factor[1] * (1 << 16));
  const __m128i f23 = _mm_set1_epi32((uint16_t)factor[2] | factor[3] * (1 << 16));
  return _mm_add_epi32(_mm_madd_epi16(ab, f01), _mm_madd_epi16(cd, f23));
}

static inline void transform_columns(__m128i row[BLOCK], int bias, int shift) {
  __m128i out[BLOCK][2];
  for (int k = 0; k < 2; k++) {
#define PAIR(a, b) (k ? _mm_unpackhi_epi16(row[a], row[b]) : _mm_unpacklo_epi16(row[a], row[b]))
    const __m128i p04 = PAIR(0, 4), p26 = PAIR(2, 6), p13 = PAIR(1, 3), p57 = PAIR(5, 7);
    for (int i = 0; i < HALF; i++) {
      const __m128i e = _mm_add_epi32(dots(even[i], p04, p26), _mm_set1_epi32(bias)), o = dots(odd[i], p13, p57);
      out[i][k] = _mm_srai_epi32(_mm_add_epi32(e, o), shift);
      out[BLOCK - 1 - i][k] = _mm_srai_epi32(_mm_sub_epi32(e, o), shift);
    }
  }
  for (int i = 0; i < BLOCK; i++) row[i] = _mm_packs_epi32(out[i][0], out[i][1]);
}

// Three perfect shuffles of the rows: each interleaves row i with row i + 4.
static inline void transpose(__m128i row[BLOCK]) {
  for (int pass = 0; pass < 3; pass++) {
    __m128i next[BLOCK];
    for (int i = 0; i < HALF; i++) {
      next[2 * i] = _mm_unpacklo_epi16(row[i], row[i + HALF]);
      next[2 * i + 1] = _mm_unpackhi_epi16(row[i], row[i + HALF]);
    }
    memcpy(row, next, sizeof next);
  }
}

static inline bool is_flat(const __m128i row[BLOCK]) { // only the DC coefficient, if any
  __m128i others = _mm_srli_si128(row[0], sizeof(int16_t));
  for (int i = 1; i < BLOCK; i++) others = _mm_or_si128(others, row[i]);
  return _mm_movemask_epi8(_mm_cmpeq_epi8(others, _mm_setzero_si128())) == 0xffff;
}

void jpeg_idct(uint8_t *samples, int pitch, const int16_t coefficients[64]) {
  __m128i row[BLOCK];
  memcpy(row, coefficients, sizeof row);
  if (is_flat(row)) { // most chroma blocks are
    const int32_t mean = saturate(coefficients[0] * (1 << KEPT)) * even[0][0] + SECOND_BIAS;
    for (int y = 0; y < BLOCK; y++) memset(samples + y * pitch, MIN(MAX(mean >> SECOND, 0), 255), BLOCK);
    return;
  }
  transform_columns(row, FIRST_BIAS, FIRST);
  transpose(row);
  transform_columns(row, SECOND_BIAS, SECOND);
  transpose(row);
  for (int y = 0; y < BLOCK; y++) _mm_storel_epi64((__m128i *)(samples + y * pitch), _mm_packus_epi16(row[y], row[y]));
}
#endif
