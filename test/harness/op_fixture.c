// Guarded memory of a device, and elements of tensors of any type.
#include "test/harness/op_fixture.h"
#include "base/alloc.h"

enum { GUARD = 256, GUARD_BYTE = 0x5a };

// ---- devices --------------------------------------------------------------------------------------------------------

void on_cpus(const char *devices, FixtureTest *test) {
  static const char *const names[] = {"cpu", "cpu64"};
  for (int i = 0; i < COUNT(names); i++) {
    if (i == 0 && strcmp(devices, "cpu64") == 0) continue;
    Fixture f = {.dev = device_open(names[i], NULL)};
    f.type = f.dev->real;
    test(&f);
    fixture_clear(&f);
    device_close(f.dev);
  }
}

static void on_gpu_type(FixtureTest *test, DType type) {
  Fixture f = {.dev = gpu_device(), .type = type};
  if (!f.dev) return;
  long failures = test_failures();
  test_memory(f.dev);
  test(&f);
  test_memory(NULL);
  fixture_clear(&f);
  if (test_failures() > failures)
    printf("  with activations in %s\n", type == F32 ? "F32" : type == BF16 ? "BF16" : "F16");
}
void on_gpu(FixtureTest *test) { on_gpu_type(test, F32); }
void on_gpu_types(FixtureTest *test) {
  if (!gpu_device()) return;
  static const DType types[] = {F32, BF16, F16};
  for (int i = 0; i < COUNT(types); i++) on_gpu_type(test, types[i]);
}

void fixture_measure(Fixture *f) { f->reserved = op_measure(f->dev); }
void fixture_ready(Fixture *f) { op_ready(f->dev, f->reserved); }
void fixture_done(Fixture *f) { op_done(f->dev, f->reserved); }

// ---- memory ---------------------------------------------------------------------------------------------------------

void *fixture_alloc(Fixture *f, size_t bytes) {
  CHECK(f->n < FIXTURE_BLOCKS);
  char *p = device_host_alloc(f->dev, bytes + 2 * GUARD); // which a GPU reads and writes where it lies
  CHECK(p);
  memset(p, GUARD_BYTE, bytes + 2 * GUARD);
  f->blocks[f->n++] = (struct FixtureBlock){.data = p + GUARD, .bytes = bytes};
  return memset(p + GUARD, 0xff, bytes);
}

void *fixture_copy(Fixture *f, size_t bytes, const void *from) { return memcpy(fixture_alloc(f, bytes), from, bytes); }

void fixture_freeze(Fixture *f) {
  for (int i = 0; i < f->n; i++) {
    f->blocks[i].before = hash_bytes(f->blocks[i].data, f->blocks[i].bytes);
    f->blocks[i].frozen = true;
  }
}

void fixture_clear(Fixture *f) {
  bool whole = true, unchanged = true;
  for (int i = 0; i < f->n; i++) {
    struct FixtureBlock *b = &f->blocks[i];
    for (int k = 1; k <= GUARD; k++) whole &= b->data[-k] == GUARD_BYTE && b->data[b->bytes + k - 1] == GUARD_BYTE;
    if (b->frozen) unchanged &= hash_bytes(b->data, b->bytes) == b->before;
    device_host_free(f->dev, b->data - GUARD);
  }
  if (f->n) EXPECT(whole && "nothing is written past the end");
  if (f->n) EXPECT(unchanged && "inputs are left alone");
  f->n = 0;
}

Tensor fixture_tensor(Fixture *f, Tensor shape) {
  shape.data = fixture_alloc(f, tensor_bytes(&shape));
  return shape;
}
Tensor fixture_map(Fixture *f, int n, int h, int w, int c) { return fixture_typed(f, f->type, n, h, w, c); }
Tensor fixture_typed(Fixture *f, DType type, int n, int h, int w, int c) {
  return fixture_tensor(f, tensor(type, n, h, w, c));
}
Tensor fixture_packed(Fixture *f, int n, int c) { return fixture_tensor(f, tensor_packed(f->dev->real, n, c)); }
Tensor fixture_single(Fixture *f, int n, int h, int w) {
  Tensor t = tensor_packed(f->dev->real, n, 1);
  t.h = h;
  t.w = w;
  return fixture_tensor(f, t);
}
Tensor fixture_floats(Fixture *f, const Tensor *t) {
  Tensor floats = *t;
  floats.dtype = F32;
  floats = fixture_tensor(f, floats);
  for (size_t i = 0; i < tensor_elements(t); i++) set_at(&floats, i, get_at(t, i));
  return floats;
}
int *fixture_count(Fixture *f, int rows) { return fixture_copy(f, sizeof rows, &rows); }
int *fixture_ints(Fixture *f, int n) { return fixture_alloc(f, (size_t)n * sizeof(int)); }
Boxes fixture_boxes(Fixture *f, int groups, int capacity) {
  int n = groups * capacity;
  return (Boxes){.groups = groups,
                 .capacity = capacity,
                 .box = fixture_packed(f, n, 4),
                 .score = fixture_packed(f, n, 1),
                 .index = fixture_ints(f, n),
                 .count = fixture_ints(f, groups)};
}
Rois fixture_rois(Fixture *f, int capacity) {
  return (Rois){.capacity = capacity,
                .box = fixture_packed(f, capacity, 4),
                .image = fixture_ints(f, capacity),
                .count = fixture_ints(f, 1)};
}

void expect_reference(Fixture *f, TestOp *op, void *floats, const Tensor *got) {
  if (!f->dev->gpu) return;
  Tensor want = *got;
  want.dtype = F32;
  want = fixture_tensor(f, want);
  op(cpu_device(), floats, &(Dest){.t = want}); // which has workspace enough
  expect_rounded(got, &want);
}

// ---- elements -------------------------------------------------------------------------------------------------------

double get_at(const Tensor *t, size_t i) {
  return t->dtype == F64 ? ((const double *)t->data)[i] : (double)float_at(t, i);
}

void set_at(const Tensor *t, size_t i, double value) {
  if (t->dtype == F64)
    ((double *)t->data)[i] = value;
  else
    float_set(t, i, (float)value);
}
void set_box(const Tensor *t, int row, double x1, double y1, double x2, double y2) {
  const double box[4] = {x1, y1, x2, y2};
  for (int k = 0; k < 4; k++) set_at(t, 4 * (size_t)row + k, box[k]);
}
void get_box(const Tensor *t, int row, double box[4]) {
  for (int k = 0; k < 4; k++) box[k] = get_at(t, 4 * (size_t)row + k);
}
size_t pixel(const Tensor *t, int n, int y, int x) { return (((size_t)n * t->h + y) * t->w + x) * t->ldc; }
double epsilon(const Fixture *f) { return f->dev->real == F64 ? DBL_EPSILON : (double)FLT_EPSILON; }

bool same_boxes(const Boxes *got, const Boxes *want, const char *what) {
  size_t size = dtype_size(got->box.dtype);
  for (int g = 0; g < want->groups; g++) {
    if (got->count[g] != want->count[g]) {
      printf("  %s: group %d has %d rows, should have %d\n", what, g, got->count[g], want->count[g]);
      return false;
    }
    for (int i = 0; i < want->count[g]; i++) {
      size_t a = (size_t)g * (size_t)got->capacity + (size_t)i, b = (size_t)g * (size_t)want->capacity + (size_t)i;
      if (got->index[a] == want->index[b] &&
          !memcmp((char *)got->score.data + a * size, (char *)want->score.data + b * size, size) &&
          !memcmp((char *)got->box.data + 4 * a * size, (char *)want->box.data + 4 * b * size, 4 * size))
        continue;
      printf("  %s: group %d, row %d of %d: got index %d score %a box", what, g, i, want->count[g], got->index[a],
             get_at(&got->score, a));
      for (size_t k = 0; k < 4; k++) printf(" %a", get_at(&got->box, 4 * a + k));
      printf("; should be index %d score %a box", want->index[b], get_at(&want->score, b));
      for (size_t k = 0; k < 4; k++) printf(" %a", get_at(&want->box, 4 * b + k));
      printf("\n");
      return false;
    }
  }
  return true;
}

// ---- random numbers -------------------------------------------------------------------------------------------------

Draw draw_begin(int seed) { return (Draw){.key = rng_key((uint64_t)seed, RNG_TEST)}; }
double uniform(Draw *d, double low, double high) { return low + (high - low) * rng_uniform(d->key, d->i++); }
int below(Draw *d, int n) { return (int)(rng_u32(d->key, d->i++) % (uint32_t)n); }
void fill_random(Draw *d, const Tensor *t, double low, double high) {
  for (size_t i = 0; i < tensor_elements(t); i++)
    set_at(t, i, i % (size_t)t->ldc < (size_t)t->c ? uniform(d, low, high) : 0);
}
void fill_normal(Draw *d, const Tensor *t, double scale) {
  for (size_t i = 0; i < tensor_elements(t); i++, d->i += 2) {
    double u = (rng_u32(d->key, d->i) + 0.5) * 0x1p-32, v = rng_u32(d->key, d->i + 1) * 0x1p-32;
    set_at(t, i, i % (size_t)t->ldc < (size_t)t->c ? scale * sqrt(-2 * log(u)) * cos(6.283185307179586 * v) : 0);
  }
}
void random_box(Draw *d, int h, int w, int slack, double box[4]) {
  for (int k = 0; k < 2; k++) {
    int size = (k ? h : w) + 2 * slack, from = below(d, size - 1), to = from + 1 + below(d, size - from - 1);
    box[k] = from - slack;
    box[k + 2] = to - slack;
  }
}
void draw_box(Draw *d, int h, int w, double share, double box[4]) {
  for (int k = 0; k < 2; k++) {
    double size = k ? h : w;
    float side = (float)uniform(d, 1, share * size), from = (float)uniform(d, 0, size - (double)side);
    box[k] = (double)from;
    box[k + 2] = (double)(from + side);
  }
}
