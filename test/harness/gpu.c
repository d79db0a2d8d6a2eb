#include "test/harness/gpu.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/addends.h"

enum { GUARD_BYTE = 0xA5 };

static Device *open_with_scratch(const char *name, size_t bytes, Err *err) {
  Device *dev = device_open(name, err);
  if (!dev) return NULL;
  dev->workspace_bytes = bytes;
  CHECK(device_reserve_workspace(dev, err));
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
  uint32_t magnitude = h & 0x7fff, u = magnitude << 13 | (magnitude >= 0x7c00 ? 0x7f800000 : 0);
  float v;
  memcpy(&v, &u, 4);
  v *= magnitude < 0x7c00 ? 0x1p112f : 1; // the bias of the exponent, subnormal numbers included
  return h >> 15 ? -v : v;
}
static uint16_t to_f16(float v) {
  uint16_t sign = signbit(v) ? 0x8000 : 0;
  float a = fabsf(v);
  if (v != v) return sign | 0x7e00;
  if (a >= 65520) return sign | 0x7c00;
  if (a == 0) return sign;
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
float float_at(const Tensor *t, size_t i) {
  float value;
  decode(t->dtype, &value, (const char *)t->data + i * dtype_size(t->dtype), 1);
  return value;
}
void float_set(const Tensor *t, size_t i, float value) {
  encode(t->dtype, (char *)t->data + i * dtype_size(t->dtype), &value, 1);
}
static double eps(DType t) { return t == F32 ? 0x1p-24 : t == BF16 ? 0x1p-8 : 0x1p-11; } // half the step above 1
// Half the distance between numbers below the normal range, where errors stop being relative.
static double tiny(DType t) { return t == F16 ? 0x1p-25 : 1e-30; }

// ---- pairs ------------------------------------------------------------------------------------------------------

// Eight at a time and what is left.
uint64_t hash_bytes(const void *p, size_t n) {
  uint64_t h = 14695981039346656037u, word;
  for (size_t i = 0; i < n; i += sizeof word) {
    word = 0;
    memcpy(&word, (const char *)p + i, MIN(sizeof word, n - i));
    h = (h ^ word) * 1099511628211u;
    h ^= h >> 32;
  }
  return h;
}

// Both sides from the CPU's values, with guards behind.
static void store(TensorPair *t, float *values) {
  size_t n = tensor_elements(&t->cpu), bytes = tensor_bytes(&t->gpu);
  unsigned char *raw = xmalloc(bytes + PAIR_GUARD);
  encode(t->gpu.dtype, raw, values, n);
  decode(t->gpu.dtype, values, raw, n);
  memset(raw + bytes, GUARD_BYTE, PAIR_GUARD);
  t->gpu.data = device_alloc(gpu_device(), bytes + PAIR_GUARD);
  CHECK(t->gpu.data);
  device_upload(gpu_device(), t->gpu.data, raw, bytes + PAIR_GUARD);
  device_sync(gpu_device());
  t->before = hash_bytes(raw, bytes);
  free(raw);
  t->cpu.data = device_alloc(cpu_device(), n * sizeof(float));
  memcpy(t->cpu.data, values, n * sizeof(float));
  free(values);
}

static float normal(uint64_t key, uint64_t i) {
  double u = (rng_u32(key, 2 * i) + 0.5) * 0x1p-32, v = rng_u32(key, 2 * i + 1) * 0x1p-32;
  return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static TensorPair shaped(DType dtype, int n, int h, int w, int c) {
  return (TensorPair){.cpu = tensor(F32, n, h, w, c), .gpu = tensor(dtype, n, h, w, c)};
}

TensorPair pair_random(DType dtype, int n, int h, int w, int c, double scale, uint64_t seed) {
  TensorPair t = shaped(dtype, n, h, w, c);
  float *values = xcalloc(tensor_elements(&t.cpu), sizeof *values);
  for (size_t i = 0; i < tensor_elements(&t.cpu); i++)
    if ((int)(i % (size_t)t.cpu.ldc) < c) values[i] = (float)scale * normal(rng_key(seed, RNG_TEST), i);
  store(&t, values);
  return t;
}

TensorPair pair_poisoned(DType dtype, int n, int h, int w, int c) {
  TensorPair t = shaped(dtype, n, h, w, c);
  float *values = xmalloc(tensor_elements(&t.cpu) * sizeof *values);
  for (size_t i = 0; i < tensor_elements(&t.cpu); i++) values[i] = NAN;
  store(&t, values);
  return t;
}

TensorPair pair_poisoned_like(const TensorPair *t) {
  TensorPair like = pair_poisoned(t->gpu.dtype, t->cpu.n, t->cpu.h, t->cpu.w, t->cpu.c);
  if (t->cpu.count) pair_rows(&like, *t->cpu.count);
  return like;
}

TensorPair pair_values(DType dtype, int n, int h, int w, int c, const float *values) {
  TensorPair t = shaped(dtype, n, h, w, c);
  float *padded = xcalloc(tensor_elements(&t.cpu), sizeof *padded);
  for (size_t i = 0; i < tensor_pixels(&t.cpu); i++)
    memcpy(padded + i * (size_t)t.cpu.ldc, values + i * (size_t)c, (size_t)c * sizeof *padded);
  store(&t, padded);
  return t;
}

TensorPair pair_packed(int rows, int c, const float *values) {
  TensorPair t = {.cpu = tensor_packed(F32, rows, c), .gpu = tensor_packed(F32, rows, c)};
  float *copy = xmalloc((size_t)rows * (size_t)c * sizeof *copy);
  for (size_t i = 0; i < (size_t)rows * (size_t)c; i++) copy[i] = values ? values[i] : NAN;
  store(&t, copy);
  return t;
}

void pair_rows(TensorPair *t, int rows) {
  int *cpu = xmalloc(sizeof *cpu), *gpu = device_alloc(gpu_device(), sizeof *gpu);
  *cpu = rows;
  device_upload(gpu_device(), gpu, cpu, sizeof *cpu);
  device_sync(gpu_device());
  t->cpu.count = cpu;
  t->gpu.count = gpu;
}

void pair_free(TensorPair *t) {
  device_free(cpu_device(), t->cpu.data);
  device_free(gpu_device(), t->gpu.data);
  free((int *)t->cpu.count);
  device_free(gpu_device(), (int *)t->gpu.count);
  *t = (TensorPair){0};
}

void *gpu_fetch(const void *gpu, size_t bytes) {
  void *host = xmalloc(bytes);
  device_download(gpu_device(), host, gpu, bytes);
  return host;
}

float *gpu_fetch_floats(const Tensor *gpu) {
  size_t n = tensor_elements(gpu);
  void *raw = gpu_fetch(gpu->data, tensor_bytes(gpu));
  float *values = xmalloc(n * sizeof *values);
  decode(gpu->dtype, values, raw, n);
  free(raw);
  return values;
}

void pair_check_guards(const TensorPair *t, bool unchanged) {
  size_t bytes = tensor_bytes(&t->gpu);
  unsigned char *raw = gpu_fetch(t->gpu.data, bytes + PAIR_GUARD);
  bool whole = true;
  for (int i = 0; i < PAIR_GUARD; i++) whole &= raw[bytes + (size_t)i] == GUARD_BYTE;
  EXPECT(whole && "nothing is written past the end");
  if (unchanged) EXPECT(hash_bytes(raw, bytes) == t->before && "inputs are left alone");
  free(raw);
}

bool pair_check(const TensorPair *t, const float *bound, double factor) {
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
    double tolerance = pad ? 0 : factor * (eps(t->gpu.dtype) * scale + tiny(t->gpu.dtype));
    double error = pad ? fabs((double)got[i]) : fabs((double)got[i] - want[i]);
    if (pad ? error == 0 : error <= tolerance) continue;
    if (!pad && isinf(want[i]) && got[i] == want[i]) continue;
    wrong++;
    double ratio = error == error ? error / fmax(tolerance, 1e-38) : INFINITY;
    if (ratio > worst_ratio) {
      worst_ratio = ratio;
      worst = i;
    }
  }
  if (!EXPECT(wrong == 0))
    printf("  %zu of %zu elements; worst at %zu: got %g, want %g (%.1f x the tolerance)\n", wrong, valid, worst,
           (double)got[worst], (double)want[worst], worst_ratio);
  free(got);
  free(raw);
  return wrong == 0;
}

// ---- arrays -----------------------------------------------------------------------------------------------------

ArrayPair array_pair(size_t n, size_t size, const void *values) {
  ArrayPair a = {.n = n, .size = size, .cpu = xmalloc(n * size)};
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

void array_pair_free(ArrayPair *a) {
  free(a->cpu);
  device_free(gpu_device(), a->gpu);
  *a = (ArrayPair){0};
}

void array_pair_check_equal(const ArrayPair *a, size_t n) {
  CHECK(n <= a->n);
  unsigned char *got = gpu_fetch(a->gpu, a->n * a->size);
  size_t i = 0;
  while (i < n * a->size && got[i] == ((unsigned char *)a->cpu)[i]) i++;
  if (!EXPECT(i == n * a->size)) printf("  first difference in element %zu of %zu\n", i / a->size, n);
  free(got);
}

// ---- Dest -------------------------------------------------------------------------------------------------------

static const char *const addend_names[] = {"none", "same", "half", "double", "double, odd", "itself"};

// |t| in memory of its own.
static Tensor magnitude(const Tensor *t) {
  Tensor m = *t;
  m.data = xmalloc(tensor_bytes(t));
  for (size_t i = 0; i < tensor_elements(t); i++) ((float *)m.data)[i] = fabsf(((const float *)t->data)[i]);
  return m;
}

// Adds what the Dest adds, in absolute values, to `bound`. `before` is what stands in the destination.
static void widen(const Tensor *bound, const Dest *d, const Tensor *before) {
  Tensor old = magnitude(before), addend = magnitude(d->addend ? d->addend : before);
  Dest sum = {.t = *bound, .accumulate = true, .addend = d->addend ? &addend : NULL};
  cpu_device()->ops->copy(cpu_device(), d->accumulate ? &old : NULL, &sum);
  free(old.data);
  free(addend.data);
}

static bool same_rows(const TensorPair *a, const TensorPair *b) {
  size_t bytes = tensor_bytes(&a->gpu);
  int rows = a->cpu.count ? *a->cpu.count : a->cpu.n;
  void *x = gpu_fetch(a->gpu.data, bytes), *y = gpu_fetch(b->gpu.data, bytes);
  bool same = !memcmp(x, y, bytes / (size_t)MAX(a->cpu.n, 1) * (size_t)rows);
  free(x);
  free(y);
  return same;
}

static void check_dest(PairOp *op, void *context, const TensorPair *shape, const Tensor *bound, double factor,
                       AddendType type, int flags, uint64_t seed) {
  const Tensor *s = &shape->cpu;
  DType dtype = shape->gpu.dtype;
  bool accumulate = flags & 1, itself = type == ITSELF;
  TensorPair addend = pair_random(dtype, s->n, addend_size(type, s->h), addend_size(type, s->w), s->c, 1, seed + 1);
  TensorPair mask = pair_random(dtype, s->n, s->h, s->w, s->c, 1, seed + 2), out[2];
  Tensor total = magnitude(bound);
  for (int run = 0; run < 2; run++) {
    TensorPair *t = &out[run];
    *t = accumulate || itself ? pair_random(dtype, s->n, s->h, s->w, s->c, 1, seed + 3)
                              : pair_poisoned(dtype, s->n, s->h, s->w, s->c);
    t->cpu.count = s->count;
    t->gpu.count = shape->gpu.count;
    for (int gpu = 0; gpu < 2; gpu++) {
      Dest d = {.t = *pair_side(t, gpu), .accumulate = accumulate, .relu = flags & 2};
      if (type != NO_ADDEND) d.addend = itself ? &d.t : pair_side(&addend, gpu);
      if (flags & 4) d.mask = pair_side(&mask, gpu);
      if (!gpu && !run) widen(&total, &d, &t->cpu);
      op(gpu ? gpu_device() : cpu_device(), gpu, context, &d);
    }
  }
  // Up to five additions on either side count in F32; in 16 bits they are negligible against the last rounding.
  bool ok = pair_check(&out[0], total.data, factor + (dtype == F32 ? 10 : 1.01));
  ok &= EXPECT(same_rows(&out[0], &out[1]) && "the same bits twice");
  if (!ok)
    printf("  addend %s, accumulate %d, relu %d, mask %d\n", addend_names[type], accumulate, !!(flags & 2),
           !!(flags & 4));
  pair_check_guards(&out[0], false);
  pair_check_guards(&addend, true);
  pair_check_guards(&mask, true);
  for (int run = 0; run < 2; run++) {
    out[run].cpu.count = out[run].gpu.count = NULL;
    pair_free(&out[run]);
  }
  pair_free(&addend);
  pair_free(&mask);
  free(total.data);
}

void pair_check_dests(PairOp *op, void *context, const TensorPair *shape, const float *bound, double factor,
                      uint64_t seed) {
  Tensor plain = shape->cpu;
  plain.data = xcalloc(tensor_elements(&plain), sizeof(float));
  if (bound)
    memcpy(plain.data, bound, tensor_bytes(&plain));
  else
    op(cpu_device(), false, context, &(Dest){.t = plain});
  for (AddendType type = NO_ADDEND; type < ADDEND_TYPES; type++)
    for (int flags = 0; flags < 8; flags++)
      if (type != ITSELF || !(flags & 1))
        check_dest(op, context, shape, &plain, factor, type, flags, seed + (uint64_t)(type * 8 + flags) * 16);
  free(plain.data);
}
