// Catches max pooling that takes the wrong pixel, or sends its gradient to another one.
//
// Max pooling and copy, held to their definitions.
#include "base/rng.h"
#include "test/harness/gradcheck.h"
#include "test/harness/op_golden.h"
#include "test/harness/pool_cases.h"

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
