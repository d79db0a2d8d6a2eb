// Catches max pooling that takes the wrong pixel, or sends its gradient to another one.
//
// Max pooling and copy against their definitions, and on the GPU against the CPU. Maxima and the order of the
// gradient's sums are the same on both, so that F32 has to be equal to the bit, and 16 bits to one rounding.
#include "base/alloc.h"
#include "base/rng.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "test/harness/gpu.h"
#include "test/harness/gradcheck.h"
#include "test/harness/op_golden.h"

// Shapes for both: the reference against its definition, the kernels against the reference.
typedef struct PoolCase {
  int n, h, w, c, rows; // rows: valid
  Pool pool;            // size, stride, pad
  bool ceil;            // windows along an axis are rounded up
} PoolCase;

static const PoolCase pool_cases[] = {
    {1, 1, 1, 1, 1, {1, 1, 0}, false},      // nothing to choose from
    {2, 7, 5, 5, 2, {3, 2, 1}, false},      // odd sizes, padding channels
    {1, 8, 8, 16, 1, {3, 2, 1}, false},     // the stem's
    {3, 5, 6, 8, 3, {1, 2, 0}, false},      // P6: a subsample
    {1, 9, 4, 3, 1, {2, 3, 0}, false},      // pixels in no window
    {2, 4, 4, 9, 2, {4, 1, 2}, false},      // large overlap
    {1, 3, 3, 2, 1, {2, 2, 2}, false},      // windows entirely in the padding
    {3, 5, 5, 4, 1, {3, 2, 1}, false},      // rows past the count
    {2, 3, 3, 8, 0, {3, 2, 1}, false},      // nothing valid
    {2, 61, 47, 72, 2, {3, 2, 1}, false},   // many threadblocks, the last one partial
    {1, 40, 20, 16, 1, {16, 16, 0}, false}, // taps fill a byte
    {1, 2, 2, 1100, 1, {3, 2, 1}, false},   // a pixel wider than a run of the reference
    {1, 130, 2, 1, 1, {3, 1, 1}, false},    // many pixels a run
    {2, 12, 13, 9, 2, {3, 2, 0}, true},     // GoogLeNet's: 12 has one window more than rounded down, 13 has not
    {1, 7, 5, 3, 1, {2, 3, 1}, true},       // a last window that begins behind the input is left out
    {2, 13, 27, 8, 2, {3, 2, 0}, false},    // AlexNet's
    {1, 14, 6, 8, 1, {2, 2, 0}, false},     // VGG's
    {2, 14, 11, 20, 2, {3, 1, 1}, true},    // GoogLeNet's within its blocks
    {1, 6, 37, 7, 1, {3, 1, 0}, false},     // no padding
    {2, 2, 9, 8, 1, {3, 1, 1}, false},      // lower than a window
    {1, 1, 1, 3, 1, {3, 1, 1}, false},      // a pixel alone
    {2, 5, 8, 11, 2, {2, 2, 1}, true},      // even windows with padding
    {1, 9, 6, 8, 1, {2, 2, 0}, true},       // the last window cut
};

// Windows along an axis of `size` positions: torch's pooling_output_shape.
static inline int pool_outputs(const PoolCase *k, int size) {
  const Pool *p = &k->pool;
  int n = (size + 2 * p->pad - p->size + (k->ceil ? p->stride - 1 : 0)) / p->stride + 1;
  return k->ceil && (n - 1) * p->stride >= size + p->pad ? n - 1 : n;
}

static const char *const devices[] = {"cpu", "cpu64"};

static Tensor pooled(const PoolCase *k, const Tensor *x) {
  Tensor y = test_tensor(x->dtype, k->n, pool_outputs(k, k->h), pool_outputs(k, k->w), k->c);
  y.count = x->count;
  return y;
}

typedef struct Maximum {
  int y, x; // -1: the window holds no pixel
} Maximum;
// PyTorch's scan: the first of equal maxima; a NaN takes the place of anything before it.
static Maximum maximum(const Pool *p, const Tensor *x, int n, int oy, int ox, int c) {
  Maximum best = {-1, -1};
  for (int y = oy * p->stride - p->pad; y < oy * p->stride - p->pad + p->size; y++)
    for (int xx = ox * p->stride - p->pad; xx < ox * p->stride - p->pad + p->size; xx++) {
      if (y < 0 || y >= x->h || xx < 0 || xx >= x->w) continue;
      double v = get(x, n, y, xx, c);
      if (best.y < 0 || v > get(x, n, best.y, best.x, c) || isnan(v)) best = (Maximum){y, xx};
    }
  return best;
}

static bool same_number(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

typedef struct PoolArgs {
  const Pool *pool;
  const Tensor *x, *dy;
} PoolArgs;
static void run_forward(Device *dev, void *context, const Dest *y) {
  const PoolArgs *a = context;
  dev->ops->max_pool_forward(dev, a->pool, a->x, y);
}
static void run_backward(Device *dev, void *context, const Dest *dx) {
  const PoolArgs *a = context;
  dev->ops->max_pool_backward(dev, a->pool, a->x, a->dy, dx);
}
static void run_copy(Device *dev, void *context, const Dest *y) {
  const PoolArgs *a = context;
  dev->ops->copy(dev, a->x, y);
}

static void check_forward(Device *dev, const PoolCase *k, const Tensor *x) {
  Dest y = {.t = pooled(k, x)};
  run_op(dev, run_forward, &(PoolArgs){&k->pool, x, NULL}, &y);
  for (int n = 0; n < valid_rows(x); n++)
    for (int oy = 0; oy < y.t.h; oy++)
      for (int ox = 0; ox < y.t.w; ox++)
        for (int c = 0; c < k->c; c++) {
          Maximum best = maximum(&k->pool, x, n, oy, ox, c);
          double want = best.y < 0 ? -INFINITY : get(x, n, best.y, best.x, c);
          EXPECT(same_number(get(&y.t, n, oy, ox, c), want));
        }
  expect_padding_zero(&y.t);
  test_tensor_free(&y.t);
}

static void check_backward(Device *dev, const PoolCase *k, const Tensor *x, uint64_t key) {
  Tensor dy = pooled(k, x), want = test_tensor_like(x), magnitude = test_tensor_like(x);
  Dest dx = {.t = test_tensor_like(x)};
  test_fill(&dy, key, -1, 1);
  test_fill(&want, 0, 0, 0);
  test_fill(&magnitude, 0, 0, 0);
  run_op(dev, run_backward, &(PoolArgs){&k->pool, x, &dy}, &dx);
  for (int n = 0; n < valid_rows(x); n++)
    for (int oy = 0; oy < dy.h; oy++)
      for (int ox = 0; ox < dy.w; ox++)
        for (int c = 0; c < k->c; c++) {
          Maximum best = maximum(&k->pool, x, n, oy, ox, c);
          if (best.y < 0) continue;
          double g = get(&dy, n, oy, ox, c);
          put(&want, n, best.y, best.x, c, get(&want, n, best.y, best.x, c) + g);
          put(&magnitude, n, best.y, best.x, c, get(&magnitude, n, best.y, best.x, c) + fabs(g));
        }
  for (int n = 0; n < valid_rows(x); n++)
    for (int y = 0; y < x->h; y++)
      for (int xx = 0; xx < x->w; xx++)
        for (int c = 0; c < k->c; c++) // the same sum in another order: at most size² additions on either side
          EXPECT_NEAR(get(&dx.t, n, y, xx, c), get(&want, n, y, xx, c),
                      2 * k->pool.size * k->pool.size * unit_roundoff(x->dtype) * get(&magnitude, n, y, xx, c));
  expect_padding_zero(&dx.t);
  test_tensor_free(&dx.t);
  test_tensor_free(&magnitude);
  test_tensor_free(&want);
  test_tensor_free(&dy);
}

TEST(max_pool_equals_definition) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(pool_cases); i++) {
      const PoolCase *k = &pool_cases[i];
      Tensor x = test_tensor(dev->real, k->n, k->h, k->w, k->c);
      x.count = &k->rows;
      test_fill(&x, i, -1, 1);
      check_forward(dev, k, &x);
      check_backward(dev, k, &x, i);
      test_fill_steps(&x, i, -1, 1, 0.5); // ties in nearly every window
      check_forward(dev, k, &x);
      check_backward(dev, k, &x, i);
      test_tensor_free(&x);
    }
    device_close(dev);
  }
}

TEST(max_pool_of_nan_and_infinity) {
  Device *dev = device_open("cpu", NULL);
  const PoolCase k = {2, 8, 7, 5, 2, {3, 2, 1}, false};
  Tensor x = test_tensor(F32, k.n, k.h, k.w, k.c);
  const double special[] = {NAN, INFINITY, -INFINITY};
  for (int trial = 0; trial < 8; trial++) {
    test_fill(&x, trial, -1, 1);
    for (int i = 0; i < 200; i++) {
      uint64_t key = rng_key(trial, i);
      put(&x, rng_u32(key, 0) % 2, rng_u32(key, 1) % 8, rng_u32(key, 2) % 7, rng_u32(key, 3) % 5,
          special[rng_u32(key, 4) % 3]);
    }
    check_forward(dev, &k, &x);
    check_backward(dev, &k, &x, trial);
  }
  test_tensor_free(&x);
  device_close(dev);
}

TEST(max_pool_honours_count) {
  Device *dev = device_open("cpu", NULL);
  const PoolCase k = {3, 5, 5, 4, 3, {3, 2, 1}, false};
  for (int count = 0; count <= 3; count++) {
    Tensor x = test_tensor(F32, k.n, k.h, k.w, k.c);
    x.count = &count;
    test_fill(&x, 1, -1, 1);
    check_forward(dev, &k, &x);
    check_backward(dev, &k, &x, 2);
    EXPECT_INT(valid_rows(&x), count);
    test_tensor_free(&x);
  }
  device_close(dev);
}

typedef struct PoolObjective {
  Device *dev;
  PoolArgs args;
  Dest y;
} PoolObjective;
static double pool_objective(void *context) {
  PoolObjective *o = context;
  run_op(o->dev, run_forward, &o->args, &o->y);
  return weighted_sum(o->args.dy, &o->y.t, NULL);
}

TEST(max_pool_gradient_check) {
  Device *dev = device_open("cpu64", NULL);
  const PoolCase k = {1, 5, 6, 3, 1, {3, 2, 1}, false};
  Tensor x = test_tensor(F64, k.n, k.h, k.w, k.c), dy = pooled(&k, &x);
  // All different by far more than the check's step, so that no maximum changes.
  for (int y = 0; y < k.h; y++)
    for (int xx = 0; xx < k.w; xx++)
      for (int c = 0; c < x.ldc; c++) put(&x, 0, y, xx, c, c < k.c ? 0x1p-6 * ((y * k.w + xx) * 7 % 31) : 0);
  test_fill(&dy, 1, -1, 1);
  PoolObjective o = {dev, {&k.pool, &x, &dy}, {.t = pooled(&k, &x)}};
  Dest dx = {.t = test_tensor_like(&x)};
  run_op(dev, run_backward, &o.args, &dx);
  double magnitude;
  pool_objective(&o);
  weighted_sum(&dy, &o.y.t, &magnitude);
  gradcheck(pool_objective, &o, &x, &dx.t, magnitude, dy.h * dy.w * k.c, 0, 1000); // a sum of dy.h · dy.w · c products
  test_tensor_free(&o.y.t);
  test_tensor_free(&dx.t);
  test_tensor_free(&dy);
  test_tensor_free(&x);
  device_close(dev);
}

TEST(pool_and_copy_honour_dest) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    const PoolCase some[] = {
        {2, 7, 5, 5, 2, {3, 2, 1}, false}, {1, 1, 1, 8, 1, {1, 1, 0}, false}, {3, 6, 6, 12, 3, {1, 2, 0}, false}};
    for (int i = 0; i < COUNT(some); i++) {
      const PoolCase *k = &some[i];
      int count = MAX(k->n - 1, 1);
      Tensor x = test_tensor(dev->real, k->n, k->h, k->w, k->c);
      x.count = &count;
      Tensor dy = pooled(k, &x);
      test_fill(&x, i, -1, 1);
      test_fill(&dy, i + 10, -1, 1);
      PoolArgs args = {&k->pool, &x, &dy};
      check_dests(dev, run_forward, &args, &dy, i);
      check_dests(dev, run_backward, &args, &x, i);
      check_dests(dev, run_copy, &args, &x, i);

      Dest y = {.t = test_tensor_like(&x)};
      run_op(dev, run_copy, &args, &y);
      EXPECT(same_bits(&y.t, &x));
      test_tensor_free(&y.t);
      test_tensor_free(&dy);
      test_tensor_free(&x);
    }
    // A row that takes several runs, and a pixel that does.
    const Tensor wide[] = {test_tensor(dev->real, 1, 1, 160, 7), test_tensor(dev->real, 1, 1, 2, 1030)};
    for (int i = 0; i < COUNT(wide); i++) {
      Tensor x = wide[i];
      test_fill(&x, i, -1, 1);
      check_dests(dev, run_copy, &(PoolArgs){NULL, &x, NULL}, &x, i);
      test_tensor_free(&x);
    }
    device_close(dev);
  }
}

TEST(max_pool_equals_torch) {
  const PoolCase golden[] = {{1, 12, 13, 3, 1, {3, 2, 0}, true}, {1, 12, 13, 3, 1, {3, 2, 1}, false}};
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    Tensor x = test_tensor(dev->real, 1, 12, 13, 3);
    test_fill(&x, 1, -1, 1);
    for (int i = 0; i < COUNT(golden); i++) {
      Dest y = {.t = pooled(&golden[i], &x)}, dx = {.t = test_tensor_like(&x)};
      Tensor dy = test_tensor_like(&y.t);
      test_fill(&dy, 2, -1, 1);
      PoolArgs a = {&golden[i].pool, &x, &dy};
      run_op(dev, run_forward, &a, &y);
      run_op(dev, run_backward, &a, &dx);
      expect_op_golden(i ? "max.floor.y" : "max.ceil.y", &y.t, 1); // the inputs are floats
      expect_op_golden(i ? "max.floor.dx" : "max.ceil.dx", &dx.t, 4);
      Tensor *all[] = {&dy, &y.t, &dx.t};
      for (int t = 0; t < COUNT(all); t++) test_tensor_free(all[t]);
    }
    test_tensor_free(&x);
    device_close(dev);
  }
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

static const DType dtypes[] = {F32, BF16, F16};

typedef struct PoolTwins {
  Pool pool;
  Twin x, dy;
  bool no_input; // of copy
} PoolTwins;
static void gpu_run_forward(Device *dev, bool gpu, void *context, const Dest *y) {
  PoolTwins *a = context;
  dev->ops->max_pool_forward(dev, &a->pool, twin_side(&a->x, gpu), y);
}
static void gpu_run_backward(Device *dev, bool gpu, void *context, const Dest *dx) {
  PoolTwins *a = context;
  dev->ops->max_pool_backward(dev, &a->pool, twin_side(&a->x, gpu), twin_side(&a->dy, gpu), dx);
}
static void gpu_run_copy(Device *dev, bool gpu, void *context, const Dest *y) {
  PoolTwins *a = context;
  dev->ops->copy(dev, a->no_input ? NULL : twin_side(&a->x, gpu), y);
}

static void set_rows(Twin *t, const PoolCase *k) {
  if (k->rows < k->n) twin_rows(t, k->rows);
}

static void check_pool(const PoolCase *k, Twin x, uint64_t seed) {
  DType dtype = x.gpu.dtype;
  PoolTwins a = {.pool = k->pool, .x = x};
  int h = pool_outputs(k, k->h), w = pool_outputs(k, k->w);
  a.dy = twin_random(dtype, k->n, h, w, k->c, 1, seed + 1);
  Twin y = twin_poisoned(dtype, k->n, h, w, k->c), dx = twin_poisoned_like(&x);
  Twin *all[] = {&a.x, &a.dy, &y, &dx};
  for (int i = 0; i < COUNT(all); i++) set_rows(all[i], k);

  twin_run(gpu_run_forward, &a, &y);
  twin_run(gpu_run_backward, &a, &dx);
  bool ok = twin_check(&y, NULL, 0);
  ok &= twin_check(&dx, NULL, dtype == F32 ? 0 : 1);
  if (!ok)
    printf("  dtype %d, x [%d of %d, %d, %d, %d], window %d, stride %d, pad %d\n", dtype, k->rows, k->n, k->h, k->w,
           k->c, k->pool.size, k->pool.stride, k->pool.pad);
  for (int i = 0; i < COUNT(all); i++) {
    twin_check_guards(all[i], i < 2);
    twin_free(all[i]);
  }
}

TEST(cuda_max_pool_equals_cpu) {
  if (!gpu_device()) return;
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(pool_cases); i++) {
      const PoolCase *k = &pool_cases[i];
      uint64_t seed = (uint64_t)i * 100;
      check_pool(k, twin_random(dtypes[d], k->n, k->h, k->w, k->c, 1, seed), seed);
      size_t elements = (size_t)k->n * k->h * k->w * k->c;
      float *steps = xmalloc(elements * sizeof *steps);
      for (size_t e = 0; e < elements; e++) steps[e] = (float)(rng_u32(seed, e) % 3); // ties in nearly every window
      check_pool(k, twin_values(dtypes[d], k->n, k->h, k->w, k->c, steps), seed);
      free(steps);
    }
}

// A tensor so wide that the gradient's threads have bands of many rows, the last of them lower than the others.
TEST(cuda_max_pool_of_wide_tensors) {
  if (!gpu_device()) return;
  const PoolCase cases[] = {{3, 17, 41, 800, 3, {3, 1, 1}, false},
                            {3, 37, 83, 800, 2, {3, 2, 1}, false},
                            {3, 35, 82, 800, 3, {2, 2, 0}, false}};
  for (int i = 0; i < COUNT(cases); i++) {
    const PoolCase *k = &cases[i];
    check_pool(k, twin_random(BF16, k->n, k->h, k->w, k->c, 1, (uint64_t)i), (uint64_t)i);
  }
}

// Compared without the twins' tolerance, which no NaN satisfies: numbers that every type has.
static void expect_same_numbers(const Twin *t, const char *what) {
  float *got = gpu_fetch_floats(&t->gpu), *want = t->cpu.data;
  for (size_t i = 0; i < tensor_elements(&t->cpu); i++)
    if (!EXPECT(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])))) {
      printf("  %s: first difference at element %zu: got %g, want %g\n", what, i, (double)got[i], (double)want[i]);
      break;
    }
  free(got);
}

static void check_special(Pool pool, DType dtype, uint64_t trial) {
  enum { N = 2, H = 8, W = 7, C = 13 };
  const float special[] = {NAN, INFINITY, -INFINITY, -INFINITY, 0, -0.f};
  const PoolCase k = {N, H, W, C, N, pool, false};
  const int h = pool_outputs(&k, H), w = pool_outputs(&k, W);
  float values[N * H * W * C], grads[N * (H + 1) * (W + 1) * C];
  CHECK(h <= H + 1 && w <= W + 1);
  for (int i = 0; i < COUNT(values); i++) {
    uint32_t r = rng_u32(trial, (uint64_t)i);
    values[i] = trial == 0 ? -INFINITY : r % 3 == 0 ? special[r / 3 % COUNT(special)] : (float)(r / 32 % 5);
  }
  for (int i = 0; i < N * h * w * C; i++) grads[i] = (float)(rng_u32(trial + 100, (uint64_t)i) % 15) - 7;
  PoolTwins a = {
      .pool = pool, .x = twin_values(dtype, N, H, W, C, values), .dy = twin_values(dtype, N, h, w, C, grads)};
  Twin y = twin_poisoned_like(&a.dy), dx = twin_poisoned_like(&a.x);
  twin_run(gpu_run_forward, &a, &y);
  twin_run(gpu_run_backward, &a, &dx);
  expect_same_numbers(&y, "forward");
  expect_same_numbers(&dx, "backward");
  Twin *all[] = {&a.x, &a.dy, &y, &dx};
  for (int i = 0; i < COUNT(all); i++) twin_free(all[i]);
}

TEST(cuda_max_pool_of_nan_and_infinity) {
  if (!gpu_device()) return;
  const Pool pools[] = {{3, 2, 1}, {3, 2, 0}, {3, 1, 1}, {2, 2, 0}, {2, 2, 1}, {4, 1, 2}};
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(pools); i++)
      for (uint64_t trial = 0; trial < 8; trial++) check_special(pools[i], dtypes[d], trial);
}

TEST(cuda_pool_and_copy_honour_dest) {
  if (!gpu_device()) return;
  const PoolCase cases[] = {
      {3, 5, 4, 11, 2, {3, 2, 1}, false}, {2, 4, 5, 9, 2, {3, 1, 1}, false}, {2, 4, 5, 9, 1, {2, 2, 0}, true}};
  for (int i = 0; i < COUNT(dtypes) * COUNT(cases); i++) {
    const PoolCase k = cases[i / COUNT(dtypes)];
    DType dtype = dtypes[i % COUNT(dtypes)];
    PoolTwins a = {.pool = k.pool, .x = twin_random(dtype, k.n, k.h, k.w, k.c, 1, 1)};
    a.dy = twin_random(dtype, k.n, pool_outputs(&k, k.h), pool_outputs(&k, k.w), k.c, 1, 2);
    set_rows(&a.x, &k);
    set_rows(&a.dy, &k);
    twin_check_dests(gpu_run_forward, &a, &a.dy, NULL, 0, 10);
    twin_check_dests(gpu_run_backward, &a, &a.x, NULL, dtype == F32 ? 0 : 1, 20);
    twin_check_dests(gpu_run_copy, &a, &a.x, NULL, 0, 30);
    a.no_input = true;
    twin_check_dests(gpu_run_copy, &a, &a.x, NULL, 0, 40);
    twin_check_guards(&a.x, true);
    twin_check_guards(&a.dy, true);
    twin_free(&a.x);
    twin_free(&a.dy);
  }
}
