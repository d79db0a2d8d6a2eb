#include "data/images/png_filter.h"
#include <string.h>
#include "base/alloc.h"

static inline void unfilter_bytes(int filter, uint8_t *restrict row, const uint8_t *restrict up, size_t size,
                                  const size_t bpp) {
  const size_t first = MIN(bpp, size);
  switch (filter) {
  case PNG_SUB:
    for (size_t i = bpp; i < size; i++) row[i] += row[i - bpp];
    break;
  case PNG_UP:
    for (size_t i = 0; i < size; i++) row[i] += up[i];
    break;
  case PNG_AVERAGE:
    for (size_t i = 0; i < first; i++) row[i] += up[i] / 2;
    for (size_t i = bpp; i < size; i++) row[i] += (uint8_t)((row[i - bpp] + up[i]) / 2);
    break;
  case PNG_PAETH:
    for (size_t i = 0; i < first; i++) row[i] += up[i]; // without left neighbours, Paeth predicts the byte above
    for (size_t i = bpp; i < size; i++) row[i] += png_paeth(row[i - bpp], up[i], up[i - bpp]);
    break;
  default: break;
  }
}

void png_unfilter_plain(int filter, uint8_t *restrict row, const uint8_t *restrict up, size_t size, size_t bpp) {
  switch (bpp) { // constants, so that the compiler unrolls the loops
  case 1: unfilter_bytes(filter, row, up, size, 1); break;
  case 2: unfilter_bytes(filter, row, up, size, 2); break;
  default: unfilter_bytes(filter, row, up, size, bpp); break;
  }
}

// ---- a pixel at a time ----------------------------------------------------------------------------------------------

#ifndef __SSE2__
void png_unfilter(int filter, uint8_t *restrict row, const uint8_t *restrict up, size_t size, size_t bpp) {
  png_unfilter_plain(filter, row, up, size, bpp);
}
#else
#include <emmintrin.h>

// In parts that are as large as their loads: a byte more of a vector would be another pixel's.
static inline __m128i load(const uint8_t *from, const size_t bpp) {
  uint64_t whole = 0;
  uint32_t four = 0;
  uint16_t two = 0;
  switch (bpp) {
  case 3: memcpy(&two, from, 2); return _mm_cvtsi32_si128((int)(two | (uint32_t)from[2] << 16));
  case 4: memcpy(&four, from, 4); return _mm_cvtsi32_si128((int)four);
  case 6:
    memcpy(&four, from, 4);
    memcpy(&two, from + 4, 2);
    return _mm_cvtsi64_si128((long long)(four | (uint64_t)two << 32));
  default: memcpy(&whole, from, 8); return _mm_cvtsi64_si128((long long)whole);
  }
}

static inline void store(uint8_t *to, __m128i v, const size_t bpp) {
  const uint64_t whole = (uint64_t)_mm_cvtsi128_si64(v);
  const uint32_t four = (uint32_t)whole;
  const uint16_t low = (uint16_t)whole, high = (uint16_t)(whole >> 32);
  switch (bpp) {
  case 3:
    memcpy(to, &low, 2);
    to[2] = (uint8_t)(whole >> 16);
    break;
  case 4: memcpy(to, &four, 4); break;
  case 6:
    memcpy(to, &four, 4);
    memcpy(to + 4, &high, 2);
    break;
  default: memcpy(to, &whole, 8); break;
  }
}

static inline __m128i magnitude(__m128i v) { return _mm_max_epi16(v, _mm_sub_epi16(_mm_setzero_si128(), v)); }

static inline __m128i choose(__m128i condition, __m128i then, __m128i otherwise) {
  return _mm_or_si128(_mm_and_si128(condition, then), _mm_andnot_si128(condition, otherwise));
}

// Eight bytes of png_paeth, as 16-bit values.
static inline __m128i paeth(__m128i a, __m128i b, __m128i c) {
  const __m128i from_b = _mm_sub_epi16(b, c), from_a = _mm_sub_epi16(a, c);
  const __m128i pa = magnitude(from_b), pb = magnitude(from_a), pc = magnitude(_mm_add_epi16(from_a, from_b));
  const __m128i least = _mm_min_epi16(_mm_min_epi16(pa, pb), pc);
  return choose(_mm_cmpeq_epi16(pa, least), a, choose(_mm_cmpeq_epi16(pb, least), b, c));
}

// Sub, Average and Paeth need the pixel on the left, which stays in a register.
static inline void unfilter_pixels(int filter, uint8_t *restrict row, const uint8_t *restrict up, size_t size,
                                   const size_t bpp) {
  const __m128i zero = _mm_setzero_si128(), one = _mm_set1_epi8(1);
  __m128i a = zero, c = zero;
  switch (filter) {
  case PNG_SUB:
    for (size_t i = 0; i < size; i += bpp) {
      a = _mm_add_epi8(a, load(row + i, bpp));
      store(row + i, a, bpp);
    }
    break;
  case PNG_AVERAGE:
    for (size_t i = 0; i < size; i += bpp) {
      const __m128i b = load(up + i, bpp), round_up = _mm_and_si128(_mm_xor_si128(a, b), one);
      a = _mm_add_epi8(_mm_sub_epi8(_mm_avg_epu8(a, b), round_up), load(row + i, bpp));
      store(row + i, a, bpp);
    }
    break;
  case PNG_PAETH:
    for (size_t i = 0; i < size; i += bpp) {
      const __m128i b = _mm_unpacklo_epi8(load(up + i, bpp), zero);
      const __m128i predicted = paeth(a, b, c);
      const __m128i sum = _mm_add_epi8(_mm_packus_epi16(predicted, zero), load(row + i, bpp));
      store(row + i, sum, bpp);
      a = _mm_unpacklo_epi8(sum, zero);
      c = b;
    }
    break;
  default: unfilter_bytes(filter, row, up, size, bpp); break;
  }
}

void png_unfilter(int filter, uint8_t *restrict row, const uint8_t *restrict up, size_t size, size_t bpp) {
  switch (bpp) { // constants, so that a pixel is loaded at once
  case 3: unfilter_pixels(filter, row, up, size, 3); break;
  case 4: unfilter_pixels(filter, row, up, size, 4); break;
  case 6: unfilter_pixels(filter, row, up, size, 6); break;
  case 8: unfilter_pixels(filter, row, up, size, 8); break;
  default: png_unfilter_plain(filter, row, up, size, bpp); break;
  }
}
#endif
