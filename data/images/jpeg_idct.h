// The inverse cosine transform of libjpeg (jidctint.c, the accurate integer one), to the bit.
#pragma once
#include <stdint.h>

// Coefficients by row and column of frequency, to 8 × 8 samples whose rows are `pitch` bytes apart.
void jpeg_idct(uint8_t *samples, int pitch, const int16_t coefficients[64]);
// The reference, which processors without SSE2 use.
void jpeg_idct_plain(uint8_t *samples, int pitch, const int16_t coefficients[64]);
