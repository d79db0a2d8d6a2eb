// Numbers of one type as numbers of another: what ranks send each other in half the bytes.
#include <math.h>
#include <string.h>
#include "cpu/reference.h"

static bool is_castable(DType t) { return t == F32 || t == F64 || t == BF16; }

static double load_number(const void *x, DType t, size_t i) {
  if (t == F64) return ((const double *)x)[i];
  if (t == F32) return (double)((const float *)x)[i];
  uint32_t bits = (uint32_t)((const uint16_t *)x)[i] << 16;
  float v;
  memcpy(&v, &bits, sizeof v);
  return (double)v;
}

// To nearest, ties to even. What a double has beyond a float is rounded to odd first, which keeps on which side of a
// tie it is; rounding twice to nearest would not.
static uint16_t bf16_of(double v) {
  float f = (float)v;
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  if (isnan(v)) return (uint16_t)(bits >> 16 | 0x40);
  if ((double)f != v) {
    if (fabs((double)f) > fabs(v)) bits--;
    bits |= 1;
  }
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void store_number(void *y, DType t, size_t i, double v) {
  if (t == F64) ((double *)y)[i] = v;
  if (t == F32) ((float *)y)[i] = (float)v;
  if (t == BF16) ((uint16_t *)y)[i] = bf16_of(v);
}

void OP(cast)(Device *dev, size_t n, const void *x, DType from, void *y, DType to) {
  if (dev->measuring) return;
  CHECK(is_castable(from) && is_castable(to));
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < n; i++) store_number(y, to, i, load_number(x, from, i));
}
