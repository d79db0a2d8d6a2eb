// The inverse cosine transform, bit for bit equal to libjpeg's accurate integer one (jidctint.c).
#pragma once
#include <stdint.h>

// Transforms coefficients, by row and column of frequency, to 8 × 8 samples in rows that are `pitch` bytes apart.
void jpeg_idct(uint8_t *samples, int pitch, const int16_t coefficients[64]);
// The reference, used by processors without SSE2.
void jpeg_idct_plain(uint8_t *samples, int pitch, const int16_t coefficients[64]);
