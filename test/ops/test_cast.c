// Catches conversions to and from BF16 that do not round to the nearest number.
//
// Compares with the definition, round to nearest even; and the GPU with the CPU, bit for bit.
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/gpu.h"
#include "test/harness/op_fixture.h"

static float float_of(uint32_t bits) {
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}
// A number of BF16; infinity stands where the next number would, which is what decides what is rounded to it.
static double ordinal_of(uint16_t bits) {
  double sign = bits >> 15 ? -1 : 1;
  return (bits & 0x7fff) == 0x7f80 ? sign * 0x1p128 : (double)float_of((uint32_t)bits << 16);
}

static bool is_nearest(double v, uint16_t got) {
  if (isnan(v)) return isnan(ordinal_of(got));
  if (isinf(v)) return got == (v < 0 ? 0xff80 : 0x7f80);
  if (signbit(v) != got >> 15 || (got & 0x7fff) > 0x7f80) return false;
  double off = fabs(ordinal_of(got) - v), past = INFINITY;
  uint16_t size = got & 0x7fff, sign = got & 0x8000;
  if (size > 0) past = fmin(past, fabs(ordinal_of((uint16_t)(sign | (size - 1))) - v));
  if (size < 0x7f80) past = fmin(past, fabs(ordinal_of((uint16_t)(sign | (size + 1))) - v));
  bool beyond = size == 0x7f80 && fabs(v) >= 0x1p128;
  return beyond || off < past || (off == past && got % 2 == 0);
}

// Of every number of BF16, what lies just after it, around the middle and just before the next.
TEST_OP(cast_to_bf16_is_the_nearest_number) {
  static const uint16_t after[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  enum { N = 65536 };
  float *x = fixture_alloc(f, N * sizeof *x);
  uint16_t *y = fixture_alloc(f, N * sizeof *y);
  for (int k = 0; k < COUNT(after); k++) {
    for (uint32_t i = 0; i < N; i++) x[i] = float_of(i << 16 | after[k]);
    RUN(f, cast, N, x, F32, y, BF16);
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += !is_nearest((double)x[i], y[i]);
    EXPECT_INT(wrong, 0);
  }
}

TEST_DOUBLE(cast_from_bf16_is_exact) {
  enum { N = 65536 };
  uint16_t *x = fixture_alloc(f, N * sizeof *x), *back = fixture_alloc(f, N * sizeof *back);
  double *y = fixture_alloc(f, N * sizeof *y);
  float *z = fixture_alloc(f, N * sizeof *z);
  for (int i = 0; i < N; i++) x[i] = (uint16_t)i;
  RUN(f, cast, N, x, BF16, y, F64);
  RUN(f, cast, N, x, BF16, z, F32);
  RUN(f, cast, N, y, F64, back, BF16);
  int wrong = 0;
  for (int i = 0; i < N; i++) {
    float want = float_of((uint32_t)i << 16);
    bool right = isnan(want) ? isnan(y[i]) && isnan(z[i]) && isnan(ordinal_of(back[i]))
                             : y[i] == (double)want && z[i] == want && back[i] == i;
    wrong += !right;
  }
  EXPECT_INT(wrong, 0);
}

// Doubles so close to the middle of two numbers of BF16 that a float would be the middle; out of a float's range, too.
TEST_DOUBLE(cast_of_double_to_bf16_rounds_once) {
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
  for (int i = 0; i < 2 * COUNT(values) + RANDOM; i++) {
    double v = i < 2 * COUNT(values) ? values[i / 2]
                                     : ldexp(rng_u32(1, (uint64_t)i), (int)(rng_u32(2, (uint64_t)i) % 300) - 200);
    uint16_t y;
    if (i % 2) v = -v;
    RUN(f, cast, 1, &v, F64, &y, BF16);
    if (!EXPECT(is_nearest(v, y))) printf("  %a: %04x\n", v, y);
  }
}

TEST_CPUS(cast_of_none_and_of_the_same_type) {
  const float *x = fixture_copy(f, 3 * sizeof *x, (const float[]){1, -0.0f, INFINITY});
  float *y = fixture_copy(f, 3 * sizeof *y, (const float[]){5, 5, 5});
  RUN(f, cast, 0, x, F32, y, F32);
  EXPECT(y[0] == 5);
  fixture_measure(f);
  f->dev->ops->cast(f->dev, 3, x, F32, y, F32);
  fixture_ready(f);
  fixture_done(f);
  EXPECT(y[0] == 5);
  RUN(f, cast, 2, x, F32, y, F32);
  EXPECT(!memcmp(x, y, 2 * sizeof *x) && y[2] == 5);
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

static bool is_nan(DType t, const void *p, size_t i) {
  uint32_t bits = t == F32 ? ((const uint32_t *)p)[i] : (uint32_t)((const uint16_t *)p)[i] << 16;
  return (bits & 0x7fffffff) > 0x7f800000;
}

// n numbers by both devices; and what lies behind them stays.
static void check_cast(size_t n, const void *x, DType from, DType to) {
  size_t in = dtype_size(from), out = dtype_size(to);
  ArrayPair source = array_pair(n + 1, in, NULL), y = array_pair(n + 1, out, NULL);
  memcpy(source.cpu, x, n * in);
  device_upload(gpu_device(), source.gpu, source.cpu, n * in);
  device_sync(gpu_device());
  for (int gpu = 0; gpu < 2; gpu++) {
    Device *dev = gpu ? gpu_device() : cpu_device();
    dev->ops->cast(dev, n, array_pair_data(&source, gpu), from, array_pair_data(&y, gpu), to);
  }
  char *got = gpu_fetch(y.gpu, (n + 1) * out), *want = y.cpu;
  int wrong = 0;
  for (size_t i = 0; i <= n; i++) {
    bool same = !memcmp(got + i * out, want + i * out, out);
    wrong += !same && !(i < n && is_nan(to, got, i) && is_nan(to, want, i));
  }
  if (!EXPECT_INT(wrong, 0)) printf("  %zu numbers, dtype %d to %d\n", n, from, to);
  free(got);
  array_pair_free(&source);
  array_pair_free(&y);
}

// None, less than a vector, whole vectors, around a block's, and more than the grid takes at once.
static const size_t sizes[] = {0, 1, 7, 8, 9, 15, 16, 2047, 2048, 2055, 132 * 8 * 256 * 8 + 13};

TEST(cuda_cast_equals_cpu) {
  if (!gpu_device()) return;
  static const DType types[] = {F32, BF16};
  size_t most = sizes[COUNT(sizes) - 1];
  uint32_t *random = xmalloc(most * sizeof *random); // of any bits: NaN, infinity, subnormal numbers are among them
  for (size_t i = 0; i < most; i++) random[i] = rng_u32(3, i);
  for (int i = 0; i < COUNT(sizes); i++)
    for (int from = 0; from < COUNT(types); from++)
      for (int to = 0; to < COUNT(types); to++) check_cast(sizes[i], random, types[from], types[to]);
  free(random);
}

// Every number of BF16, exactly, and what lies just after it, around the middle and just before the next.
TEST(cuda_cast_of_every_bf16) {
  if (!gpu_device()) return;
  static const uint16_t below[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  enum { N = 65536 };
  uint32_t *x = xmalloc(N * sizeof *x);
  uint16_t *narrow = xmalloc(N * sizeof *narrow);
  for (int k = 0; k < COUNT(below); k++) {
    for (uint32_t i = 0; i < N; i++) x[i] = i << 16 | below[k];
    check_cast(N, x, F32, BF16);
  }
  for (int i = 0; i < N; i++) narrow[i] = (uint16_t)i;
  check_cast(N, narrow, BF16, F32);
  free(x);
  free(narrow);
}
