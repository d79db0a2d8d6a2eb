// Catches conversions to and from BF16 that do not round to the nearest number.
//
// Numbers of one type as numbers of another, on the GPU against the CPU reference, bit for bit.
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/gpu.h"

static bool is_nan(DType t, const void *p, size_t i) {
  uint32_t bits = t == F32 ? ((const uint32_t *)p)[i] : (uint32_t)((const uint16_t *)p)[i] << 16;
  return (bits & 0x7fffffff) > 0x7f800000;
}

// n numbers by both devices; and what lies behind them stays.
static void check_cast(size_t n, const void *x, DType from, DType to) {
  size_t in = dtype_size(from), out = dtype_size(to);
  TwinArray source = twin_array(n + 1, in, NULL), y = twin_array(n + 1, out, NULL);
  memcpy(source.cpu, x, n * in);
  device_upload(gpu_device(), source.gpu, source.cpu, n * in);
  device_sync(gpu_device());
  for (int gpu = 0; gpu < 2; gpu++) {
    Device *dev = gpu ? gpu_device() : cpu_device();
    dev->ops->cast(dev, n, twin_array_data(&source, gpu), from, twin_array_data(&y, gpu), to);
  }
  char *got = gpu_fetch(y.gpu, (n + 1) * out), *want = y.cpu;
  int wrong = 0;
  for (size_t i = 0; i <= n; i++) {
    bool same = !memcmp(got + i * out, want + i * out, out);
    wrong += !same && !(i < n && is_nan(to, got, i) && is_nan(to, want, i));
  }
  if (!EXPECT_INT(wrong, 0)) printf("  %zu numbers, dtype %d to %d\n", n, from, to);
  free(got);
  twin_array_free(&source);
  twin_array_free(&y);
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
