// Catches conversions to and from BF16 that do not round to the nearest number.
//
// Numbers of one type as numbers of another, held to the definition: the nearest number, of two the even one.
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/op.h"

static const char *const devices[] = {"cpu", "cpu64"};

static float float_of(uint32_t bits) {
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}
// A number of BF16; infinity stands where the next number would, which is what decides what is rounded to it.
static double place_of(uint16_t bits) {
  double sign = bits >> 15 ? -1 : 1;
  return (bits & 0x7fff) == 0x7f80 ? sign * 0x1p128 : (double)float_of((uint32_t)bits << 16);
}

static bool is_nearest(double v, uint16_t got) {
  if (isnan(v)) return isnan(place_of(got));
  if (isinf(v)) return got == (v < 0 ? 0xff80 : 0x7f80);
  if (signbit(v) != got >> 15 || (got & 0x7fff) > 0x7f80) return false;
  double off = fabs(place_of(got) - v), past = INFINITY;
  uint16_t size = got & 0x7fff, sign = got & 0x8000;
  if (size > 0) past = fmin(past, fabs(place_of((uint16_t)(sign | (size - 1))) - v));
  if (size < 0x7f80) past = fmin(past, fabs(place_of((uint16_t)(sign | (size + 1))) - v));
  bool beyond = size == 0x7f80 && fabs(v) >= 0x1p128;
  return beyond || off < past || (off == past && got % 2 == 0);
}

// Of every number of BF16, what lies just after it, around the middle and just before the next.
TEST(cast_to_bf16_is_the_nearest_number) {
  static const uint16_t below[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  enum { N = 65536 };
  float *x = xmalloc(N * sizeof *x);
  uint16_t *y = xmalloc(N * sizeof *y);
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int k = 0; k < COUNT(below); k++) {
      for (uint32_t i = 0; i < N; i++) x[i] = float_of(i << 16 | below[k]);
      dev->ops->cast(dev, N, x, F32, y, BF16);
      int wrong = 0;
      for (int i = 0; i < N; i++) wrong += !is_nearest((double)x[i], y[i]);
      EXPECT_INT(wrong, 0);
    }
    device_close(dev);
  }
  free(x);
  free(y);
}

TEST(cast_from_bf16_is_exact) {
  enum { N = 65536 };
  uint16_t *x = xmalloc(N * sizeof *x), *back = xmalloc(N * sizeof *back);
  double *y = xmalloc(N * sizeof *y);
  float *z = xmalloc(N * sizeof *z);
  for (int i = 0; i < N; i++) x[i] = (uint16_t)i;
  Device *dev = device_open("cpu64", NULL);
  dev->ops->cast(dev, N, x, BF16, y, F64);
  dev->ops->cast(dev, N, x, BF16, z, F32);
  dev->ops->cast(dev, N, y, F64, back, BF16);
  int wrong = 0;
  for (int i = 0; i < N; i++) {
    float want = float_of((uint32_t)i << 16);
    bool right = isnan(want) ? isnan(y[i]) && isnan(z[i]) && isnan(place_of(back[i]))
                             : y[i] == (double)want && z[i] == want && back[i] == i;
    wrong += !right;
  }
  EXPECT_INT(wrong, 0);
  device_close(dev);
  free(x);
  free(back);
  free(y);
  free(z);
}

// Doubles so close to the middle of two numbers of BF16 that a float would be the middle; out of a float's range, too.
TEST(cast_of_double_to_bf16_rounds_once) {
  static const double values[] = {1 + 0x1p-8,
                                  0x1p-8 + 1 + 0x1p-40,
                                  1 + 0x1p-8 - 0x1p-40,
                                  1 + 3 * 0x1p-8 - 0x1p-50,
                                  0x1p-134,
                                  0x1p-134 + 0x1p-180,
                                  0x1p-134 - 0x1p-180,
                                  1e-300,
                                  0x1.ffp127,
                                  0x1.fefffffffp127,
                                  1e300,
                                  0x1.fffffffp127,
                                  0x1.8p-133,
                                  0.0,
                                  INFINITY,
                                  NAN,
                                  0x1.ffffffp0,
                                  0x1.00fffffffp5,
                                  0x1.01p5,
                                  0x1.010000001p5};
  enum { RANDOM = 1000 };
  Device *dev = device_open("cpu64", NULL);
  for (int i = 0; i < 2 * COUNT(values) + RANDOM; i++) {
    double v = i < 2 * COUNT(values) ? values[i / 2]
                                     : ldexp(rng_u32(1, (uint64_t)i), (int)(rng_u32(2, (uint64_t)i) % 300) - 200);
    uint16_t y;
    if (i % 2) v = -v;
    dev->ops->cast(dev, 1, &v, F64, &y, BF16);
    if (!EXPECT(is_nearest(v, y))) printf("  %a: %04x\n", v, y);
  }
  device_close(dev);
}

TEST(cast_of_none_and_of_the_same_type) {
  Device *dev = device_open("cpu", NULL);
  const float x[3] = {1, -0.0f, INFINITY};
  float y[3] = {5, 5, 5};
  dev->ops->cast(dev, 0, x, F32, y, F32);
  EXPECT(y[0] == 5);
  dev->measuring = true;
  dev->ops->cast(dev, 3, x, F32, y, F32);
  dev->measuring = false;
  EXPECT(y[0] == 5);
  dev->ops->cast(dev, 2, x, F32, y, F32);
  EXPECT(!memcmp(x, y, 2 * sizeof *x) && y[2] == 5);
  device_close(dev);
}
