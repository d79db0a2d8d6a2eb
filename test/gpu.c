#include "test/gpu.h"
#include "nn/rng.h"

enum { GUARD = 256, GUARD_BYTE = 0xA5 };

static Device *open_with_scratch(const char *name, size_t bytes, Err *err) {
  Device *dev = device_open(name, err);
  if (!dev) return NULL;
  dev->scratch_bytes = bytes;
  CHECK(device_reserve_scratch(dev, err));
  return dev;
}

Device *gpu_device(void) {
  static Device *dev;
  Err err;
  if (!dev) dev = open_with_scratch("cuda", (size_t)1 << 30, &err);
  if (!dev) test_skip(err.msg);
  return dev;
}

Device *cpu_device(void) {
  static Device *dev;
  if (!dev) dev = open_with_scratch("cpu", (size_t)1 << 28, NULL);
  return dev;
}

// ---- 16-bit formats on the host ---------------------------------------------------------------------------------

static uint16_t to_bf16(float v) {
  uint32_t u;
  memcpy(&u, &v, 4);
  if (v != v) return (uint16_t)(u >> 16 | 0x40);
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16); // to nearest, ties to even
}
static float from_bf16(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float v;
  memcpy(&v, &u, 4);
  return v;
}
static float from_f16(uint16_t h) {
  int exponent = h >> 10 & 31, mantissa = h & 1023;
  float v = exponent == 0    ? ldexpf((float)mantissa, -24)
            : exponent == 31 ? (mantissa ? NAN : INFINITY)
                             : ldexpf((float)(mantissa | 1024), exponent - 25);
  return h >> 15 ? -v : v;
}
static uint16_t to_f16(float v) {
  uint16_t sign = signbit(v) ? 0x8000 : 0;
  float a = fabsf(v);
  if (v != v) return sign | 0x7e00;
  if (a >= 65520) return sign | 0x7c00;
  int e;
  frexpf(a, &e);
  int shift = MAX(e - 11, -24); // of the last bit that is kept
  uint32_t units = (uint32_t)rintf(ldexpf(a, -shift));
  if (e < -13) return (uint16_t)(sign | units); // subnormal; a carry makes the smallest normal number
  return (uint16_t)(sign | (((uint32_t)(e + 14) << 10) + units - 1024));
}

static void encode(DType t, void *dst, const float *src, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (t == F32)
      ((float *)dst)[i] = src[i];
    else
      ((uint16_t *)dst)[i] = t == BF16 ? to_bf16(src[i]) : to_f16(src[i]);
  }
}
static void decode(DType t, float *dst, const void *src, size_t n) {
  for (size_t i = 0; i < n; i++) {
    uint16_t h = t == F32 ? 0 : ((const uint16_t *)src)[i];
    dst[i] = t == F32 ? ((const float *)src)[i] : t == BF16 ? from_bf16(h) : from_f16(h);
  }
}
static double eps(DType t) { return t == F32 ? 0x1p-24 : t == BF16 ? 0x1p-9 : 0x1p-12; }

// ---- twins ------------------------------------------------------------------------------------------------------

static uint64_t hash(const void *p, size_t n) {
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)p)[i]) * 1099511628211u;
  return h;
}

// Both sides from the CPU's values, with guards behind.
static void place(Twin *t, float *values) {
  size_t n = tensor_elements(&t->cpu), bytes = tensor_bytes(&t->gpu);
  unsigned char *raw = xmalloc(bytes + GUARD);
  encode(t->gpu.dtype, raw, values, n);
  decode(t->gpu.dtype, values, raw, n);
  memset(raw + bytes, GUARD_BYTE, GUARD);
  t->gpu.data = device_alloc(gpu_device(), bytes + GUARD);
  CHECK(t->gpu.data);
  device_upload(gpu_device(), t->gpu.data, raw, bytes + GUARD);
  device_sync(gpu_device());
  t->before = hash(raw, bytes);
  free(raw);
  t->cpu.data = device_alloc(cpu_device(), n * sizeof(float));
  memcpy(t->cpu.data, values, n * sizeof(float));
  free(values);
}

static float normal(uint64_t key, uint64_t i) {
  double u = (rng_u32(key, 2 * i) + 0.5) * 0x1p-32, v = rng_u32(key, 2 * i + 1) * 0x1p-32;
  return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static Twin shaped(DType dtype, int n, int h, int w, int c) {
  return (Twin){.cpu = tensor(F32, n, h, w, c), .gpu = tensor(dtype, n, h, w, c)};
}

Twin twin_random(DType dtype, int n, int h, int w, int c, double scale, uint64_t seed) {
  Twin t = shaped(dtype, n, h, w, c);
  float *values = xcalloc(tensor_elements(&t.cpu), sizeof *values);
  for (size_t i = 0; i < tensor_elements(&t.cpu); i++)
    if ((int)(i % (size_t)t.cpu.ldc) < c) values[i] = (float)scale * normal(rng_key(seed, RNG_TEST), i);
  place(&t, values);
  return t;
}

Twin twin_poisoned(DType dtype, int n, int h, int w, int c) {
  Twin t = shaped(dtype, n, h, w, c);
  float *values = xmalloc(tensor_elements(&t.cpu) * sizeof *values);
  for (size_t i = 0; i < tensor_elements(&t.cpu); i++) values[i] = NAN;
  place(&t, values);
  return t;
}

Twin twin_packed(int rows, int c, const float *values) {
  Twin t = {.cpu = tensor_packed(F32, rows, c), .gpu = tensor_packed(F32, rows, c)};
  float *copy = xmalloc((size_t)rows * (size_t)c * sizeof *copy);
  for (size_t i = 0; i < (size_t)rows * (size_t)c; i++) copy[i] = values ? values[i] : NAN;
  place(&t, copy);
  return t;
}

void twin_rows(Twin *t, int rows) {
  int *cpu = xmalloc(sizeof *cpu), *gpu = device_alloc(gpu_device(), sizeof *gpu);
  *cpu = rows;
  device_upload(gpu_device(), gpu, cpu, sizeof *cpu);
  device_sync(gpu_device());
  t->cpu.count = cpu;
  t->gpu.count = gpu;
}

void twin_free(Twin *t) {
  device_free(cpu_device(), t->cpu.data);
  device_free(gpu_device(), t->gpu.data);
  free((int *)t->cpu.count);
  device_free(gpu_device(), (int *)t->gpu.count);
  *t = (Twin){0};
}

void *gpu_fetch(const void *gpu, size_t bytes) {
  void *host = xmalloc(bytes);
  device_download(gpu_device(), host, gpu, bytes);
  return host;
}

void twin_check_guards(const Twin *t, bool unchanged) {
  size_t bytes = tensor_bytes(&t->gpu);
  unsigned char *raw = gpu_fetch(t->gpu.data, bytes + GUARD);
  bool whole = true;
  for (int i = 0; i < GUARD; i++) whole &= raw[bytes + (size_t)i] == GUARD_BYTE;
  EXPECT(whole && "nothing is written past the end");
  if (unchanged) EXPECT(hash(raw, bytes) == t->before && "inputs are left alone");
  free(raw);
}

void twin_check(const Twin *t, const float *bound, double factor) {
  size_t n = tensor_elements(&t->gpu);
  int rows = t->cpu.count ? *t->cpu.count : t->cpu.n;
  size_t valid = n / (size_t)MAX(t->cpu.n, 1) * (size_t)rows;
  void *raw = gpu_fetch(t->gpu.data, tensor_bytes(&t->gpu));
  float *got = xmalloc(n * sizeof *got);
  decode(t->gpu.dtype, got, raw, n);
  const float *want = t->cpu.data;
  size_t worst = 0, wrong = 0;
  double worst_ratio = 0;
  for (size_t i = 0; i < valid; i++) {
    bool pad = (int)(i % (size_t)t->cpu.ldc) >= t->cpu.c;
    double scale = fmax(bound ? (double)bound[i] : 0, fabs((double)want[i]));
    double tolerance = pad ? 0 : factor * (eps(t->gpu.dtype) * scale + 1e-30);
    double error = pad ? fabs((double)got[i]) : fabs((double)got[i] - want[i]);
    if (pad ? error == 0 : error <= tolerance) continue;
    if (!pad && isinf(want[i]) && got[i] == want[i]) continue;
    wrong++;
    double ratio = error == error ? error / fmax(tolerance, 1e-38) : INFINITY;
    if (ratio > worst_ratio) worst_ratio = ratio, worst = i;
  }
  if (!EXPECT(wrong == 0))
    printf("  %zu of %zu elements; worst at %zu: got %g, want %g (%.1f x the tolerance)\n", wrong, valid, worst,
           (double)got[worst], (double)want[worst], worst_ratio);
  free(got);
  free(raw);
}

// ---- arrays -----------------------------------------------------------------------------------------------------

TwinArray twin_array(size_t n, size_t size, const void *values) {
  TwinArray a = {.n = n, .size = size, .cpu = xmalloc(n * size)};
  if (values)
    memcpy(a.cpu, values, n * size);
  else
    memset(a.cpu, 0xFF, n * size);
  a.gpu = device_alloc(gpu_device(), n * size);
  CHECK(a.gpu);
  device_upload(gpu_device(), a.gpu, a.cpu, n * size);
  device_sync(gpu_device());
  return a;
}

void twin_array_free(TwinArray *a) {
  free(a->cpu);
  device_free(gpu_device(), a->gpu);
  *a = (TwinArray){0};
}

void twin_array_check_equal(const TwinArray *a, size_t n) {
  CHECK(n <= a->n);
  unsigned char *got = gpu_fetch(a->gpu, a->n * a->size);
  size_t i = 0;
  while (i < n * a->size && got[i] == ((unsigned char *)a->cpu)[i]) i++;
  if (!EXPECT(i == n * a->size)) printf("  first difference in element %zu of %zu\n", i / a->size, n);
  free(got);
}
