// Guarded tensors and the definition of Dest, element by element in double.
#include "test/harness/op.h"
#include <omp.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/addends.h"
#include "test/harness/gpu.h"

enum { GUARD = 256, GUARD_BYTE = 0x5a };

static Device *home; // of tensors

void test_memory(Device *dev) { home = dev; }

double unit_roundoff(DType type) { return type == F64 ? 0x1p-53 : 0x1p-24; }
double stored_rounding(DType type, double value) {
  // F16 has subnormal numbers that matter: half their step. 1 % for what the value itself is off by.
  return type == BF16 ? 1.01 * 0x1p-8 * fabs(value) + 1e-30 : type == F16 ? 1.01 * 0x1p-11 * fabs(value) + 0x1p-25 : 0;
}

static Tensor guarded(Tensor t) {
  size_t bytes = tensor_bytes(&t);
  char *p = home ? device_host_alloc(home, bytes + 2 * GUARD) : xmalloc(bytes + 2 * GUARD);
  CHECK(p);
  memset(p, GUARD_BYTE, bytes + 2 * GUARD);
  t.data = memset(p + GUARD, 0xff, bytes); // all bits set is a NaN
  return t;
}

Tensor test_tensor(DType type, int n, int h, int w, int c) { return guarded(tensor(type, n, h, w, c)); }
Tensor test_tensor_packed(DType type, int n, int c) { return guarded(tensor_packed(type, n, c)); }
Tensor test_tensor_like(const Tensor *t) { return guarded(*t); }

void test_tensor_free(Tensor *t) {
  char *p = (char *)t->data - GUARD;
  bool intact = true;
  for (int i = 0; i < GUARD; i++) intact &= p[i] == GUARD_BYTE && p[GUARD + tensor_bytes(t) + i] == GUARD_BYTE;
  EXPECT(intact);
  if (home)
    device_host_free(home, p);
  else
    free(p);
}

static size_t element(const Tensor *t, int n, int y, int x, int c) {
  return (((size_t)n * t->h + y) * t->w + x) * t->ldc + c;
}
double get(const Tensor *t, int n, int y, int x, int c) {
  size_t i = element(t, n, y, x, c);
  return t->dtype == F64 ? ((double *)t->data)[i] : t->dtype == F32 ? ((float *)t->data)[i] : float_at(t, i);
}
void put(const Tensor *t, int n, int y, int x, int c, double value) {
  size_t i = element(t, n, y, x, c);
  if (t->dtype == F64)
    ((double *)t->data)[i] = value;
  else if (t->dtype == F32)
    ((float *)t->data)[i] = (float)value;
  else
    float_set(t, i, (float)value);
}

int valid_rows(const Tensor *t) { return t->count ? *t->count : t->n; }

void test_fill_steps(const Tensor *t, uint64_t key, double low, double high, double step) {
  for (int n = 0; n < t->n; n++)
    for (int y = 0; y < t->h; y++)
      for (int x = 0; x < t->w; x++)
        for (int c = 0; c < t->ldc; c++) {
          double v = low + (high - low) * rng_uniform(rng_key(key, RNG_TEST), element(t, n, y, x, c));
          if (step > 0) v = floor(v / step) * step;
          put(t, n, y, x, c, n >= valid_rows(t) ? NAN : c < t->c ? v : 0);
        }
}
void test_fill(const Tensor *t, uint64_t key, double low, double high) { test_fill_steps(t, key, low, high, 0); }

void expect_padding_zero(const Tensor *t) {
  bool zero = true;
  for (int n = 0; n < valid_rows(t); n++)
    for (int y = 0; y < t->h; y++)
      for (int x = 0; x < t->w; x++)
        for (int c = t->c; c < t->ldc; c++) zero &= get(t, n, y, x, c) == 0;
  EXPECT(zero);
}

bool same_bits(const Tensor *a, const Tensor *b) {
  size_t row = (size_t)a->h * a->w * a->ldc * dtype_size(a->dtype);
  return memcmp(a->data, b->data, row * (size_t)valid_rows(a)) == 0;
}

bool expect_rounded(const Tensor *got, const Tensor *want) {
  size_t n = tensor_elements(got) / (size_t)MAX(got->n, 1) * (size_t)valid_rows(got);
  for (size_t i = 0; i < n; i++) {
    float g = float_at(got, i), w = ((const float *)want->data)[i];
    if (g == w || (isnan(g) && isnan(w))) continue;
    if (EXPECT_NEAR(g, w, stored_rounding(got->dtype, w))) continue;
    printf("  element %zu of %zu; the reference has %a\n", i, n, (double)w);
    return false;
  }
  return true;
}

size_t op_measure(Device *dev) {
  size_t reserved = dev->workspace_bytes;
  if (dev->gpu) dev->workspace_bytes = 0; // the GPU's stays open: no more than this op asks for
  dev->measuring = true;
  return reserved;
}

void op_ready(Device *dev, size_t reserved) {
  dev->measuring = false;
  if (dev->gpu)
    CHECK(dev->workspace_bytes <= reserved);
  else
    CHECK(device_reserve_workspace(dev, NULL));
  if (dev->workspace_bytes == 0) return;
  void *ones = memset(xmalloc(dev->workspace_bytes), 0xff, dev->workspace_bytes);
  device_upload(dev, dev->workspace, ones, dev->workspace_bytes);
  device_sync(dev);
  free(ones);
}

void op_done(Device *dev, size_t reserved) {
  device_sync(dev);
  if (dev->gpu) dev->workspace_bytes = reserved;
}

void run_op(Device *dev, TestOp *op, void *context, const Dest *d) {
  size_t reserved = op_measure(dev);
  op(dev, context, d);
  op_ready(dev, reserved);
  op(dev, context, d);
  op_done(dev, reserved);
}

// ---- Dest -----------------------------------------------------------------------------------------------------------

// Whether position i of the destination and position j of the addend belong together along one axis.
static bool meet(int i, int size, int j, int addend_size) {
  return addend_size > size ? j / 2 == i : addend_size < size ? j == i / 2 : j == i;
}
// What the addend contributes; *magnitude receives the sum of absolute values.
static double addend_value(const Dest *d, const Tensor *a, int n, int y, int x, int c, double *magnitude) {
  double sum = 0;
  for (int ay = y / 2; ay < MIN(2 * y + 2, a->h); ay++)
    for (int ax = x / 2; ax < MIN(2 * x + 2, a->w) && meet(y, d->t.h, ay, a->h); ax++)
      if (meet(x, d->t.w, ax, a->w)) {
        sum += get(a, n, ay, ax, c);
        *magnitude += fabs(get(a, n, ay, ax, c));
      }
  return sum;
}

// `before` holds what stood in the destination, for accumulate and for an addend that is the destination itself.
static void expect_dest(const Dest *d, const Tensor *plain, const Tensor *off, const Tensor *before) {
  const Tensor *addend = d->addend == &d->t ? before : d->addend;
  for (int n = 0; n < valid_rows(plain); n++)
    for (int y = 0; y < plain->h; y++)
      for (int x = 0; x < plain->w; x++)
        for (int c = 0; c < plain->c; c++) {
          double v = get(plain, n, y, x, c), magnitude = fabs(v), of_plain = stored_rounding(plain->dtype, v);
          if (off) of_plain += get(off, n, y, x, c);
          if (addend) v += addend_value(d, addend, n, y, x, c, &magnitude);
          if (d->accumulate) {
            v += get(before, n, y, x, c);
            magnitude += fabs(get(before, n, y, x, c));
          }
          if (d->relu && v < 0) v = 0;
          if (d->mask && !(get(d->mask, n, y, x, c) > 0)) v = 0;
          // Six terms at most, so five additions, each off by a unit roundoff of a partial sum ≤ magnitude. In 16 bits
          // the plain result was rounded when it was stored, and so is this one. `off` is what the op allows.
          EXPECT_NEAR(get(&d->t, n, y, x, c), v,
                      5 * unit_roundoff(plain->dtype) * magnitude + of_plain + stored_rounding(plain->dtype, v));
        }
  expect_padding_zero(&d->t);
}

static void check_dest(Device *dev, TestOp *op, void *context, const Tensor *plain, const Tensor *off, AddendType type,
                       int flags, uint64_t key) {
  const Tensor *p = plain;
  Dest d = {.t = test_tensor_like(p), .accumulate = flags & 1, .relu = flags & 2};
  Tensor before = test_tensor_like(p), first = test_tensor_like(p), mask = test_tensor_like(p);
  Tensor addend = test_tensor(p->dtype, p->n, addend_size(type, p->h), addend_size(type, p->w), p->c);
  addend.count = p->count;
  test_fill(&addend, rng_key(key, 1), -1, 1);
  test_fill(&mask, rng_key(key, 2), -1, 1);
  if (d.accumulate || type == ITSELF) test_fill(&before, rng_key(key, 3), -1, 1); // otherwise NaN
  if (flags & 4) d.mask = &mask;
  if (type != NO_ADDEND) d.addend = type == ITSELF ? &d.t : &addend;

  int threads = omp_get_max_threads();
  int most = dev->gpu ? 2 : type == HALF && flags == 7 ? 3 : 1; // teams take long to start
  for (int t = 1; t <= most; t++) {
    omp_set_num_threads(t);
    memcpy(d.t.data, before.data, tensor_bytes(p));
    run_op(dev, op, context, &d);
    if (t == 1) memcpy(first.data, d.t.data, tensor_bytes(p));
    EXPECT(same_bits(&d.t, &first));
  }
  omp_set_num_threads(threads);
  expect_dest(&d, p, off, &before);
  test_tensor_free(&addend);
  test_tensor_free(&mask);
  test_tensor_free(&first);
  test_tensor_free(&before);
  test_tensor_free(&d.t);
}

void check_dests(Device *dev, TestOp *op, void *context, const Tensor *shape, uint64_t key) {
  check_dests_within(dev, op, context, shape, NULL, key);
}
void check_dests_within(Device *dev, TestOp *op, void *context, const Tensor *shape, const Tensor *off, uint64_t key) {
  Dest plain = {.t = test_tensor_like(shape)};
  run_op(dev, op, context, &plain);
  expect_padding_zero(&plain.t);
  for (AddendType type = NO_ADDEND; type < ADDEND_TYPES; type++)
    for (int flags = 0; flags < 8; flags++)
      if (type != ITSELF || !(flags & 1))
        check_dest(dev, op, context, &plain.t, off, type, flags, rng_key(key, type * 8 + flags));
  test_tensor_free(&plain.t);
}
