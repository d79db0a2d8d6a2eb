// Catches max pooling that takes the wrong pixel, or sends its gradient to another one.
//
// Compares max pooling and copy with their definitions. A GPU's results equal the reference's, too: maxima and the
// order of the gradient's sums are the same.
#include "nn/device.h"
#include "nn/ops.h"
#include "test/harness/gradcheck.h"
#include "test/harness/op_fixture.h"
#include "test/harness/op_golden.h"

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
static int pool_outputs(const PoolCase *k, int size) {
  const Pool *p = &k->pool;
  int n = (size + 2 * p->pad - p->size + (k->ceil ? p->stride - 1 : 0)) / p->stride + 1;
  return k->ceil && (n - 1) * p->stride >= size + p->pad ? n - 1 : n;
}

typedef struct Maximum {
  int y, x; // -1: the window holds no pixel
} Maximum;
// PyTorch's scan: the first of equal maxima; a NaN takes the place of anything before it.
static Maximum maximum(const Pool *p, const Tensor *x, int n, int oy, int ox, int c) {
  Maximum best = {-1, -1};
  double most = 0;
  for (int y = oy * p->stride - p->pad; y < oy * p->stride - p->pad + p->size; y++)
    for (int xx = ox * p->stride - p->pad; xx < ox * p->stride - p->pad + p->size; xx++) {
      if (y < 0 || y >= x->h || xx < 0 || xx >= x->w) continue;
      double v = get(x, n, y, xx, c);
      if (best.y >= 0 && !(v > most) && !isnan(v)) continue;
      best = (Maximum){y, xx};
      most = v;
    }
  return best;
}

static bool same_number(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

typedef struct PoolArgs {
  const Pool *pool;
  Tensor x, dy;
  bool no_input; // of copy
} PoolArgs;
static void run_forward(Device *dev, void *context, const Dest *y) {
  const PoolArgs *a = context;
  dev->ops->max_pool_forward(dev, a->pool, &a->x, y);
}
static void run_backward(Device *dev, void *context, const Dest *dx) {
  const PoolArgs *a = context;
  dev->ops->max_pool_backward(dev, a->pool, &a->x, &a->dy, dx);
}
static void run_copy(Device *dev, void *context, const Dest *y) {
  const PoolArgs *a = context;
  dev->ops->copy(dev, a->no_input ? NULL : &a->x, y);
}

// x and dy; x is for the caller to fill.
static PoolArgs make(Fixture *f, const PoolCase *k, uint64_t key) {
  PoolArgs a = {.pool = &k->pool, .x = fixture_map(f, k->n, k->h, k->w, k->c)};
  a.dy = fixture_map(f, k->n, pool_outputs(k, k->h), pool_outputs(k, k->w), k->c);
  a.x.count = a.dy.count = fixture_count(f, k->rows);
  test_fill(&a.dy, key, -1, 1);
  return a;
}

static void check_forward(const PoolCase *k, const PoolArgs *a, const Tensor *y) {
  for (int n = 0; n < valid_rows(y); n++)
    for (int oy = 0; oy < y->h; oy++)
      for (int ox = 0; ox < y->w; ox++)
        for (int c = 0; c < k->c; c++) {
          Maximum best = maximum(&k->pool, &a->x, n, oy, ox, c);
          double want = best.y < 0 ? -INFINITY : get(&a->x, n, best.y, best.x, c);
          EXPECT(same_number(get(y, n, oy, ox, c), want));
        }
  expect_padding_zero(y);
}

static void add(const Tensor *t, int n, int y, int x, int c, double value) {
  put(t, n, y, x, c, get(t, n, y, x, c) + value);
}
static void check_backward(Fixture *f, const PoolCase *k, const PoolArgs *a, const Tensor *dx) {
  Tensor want = fixture_tensor(f, tensor(F64, k->n, k->h, k->w, k->c)), magnitude = fixture_tensor(f, want);
  test_fill(&want, 0, 0, 0);
  test_fill(&magnitude, 0, 0, 0);
  for (int n = 0; n < valid_rows(dx); n++)
    for (int oy = 0; oy < a->dy.h; oy++)
      for (int ox = 0; ox < a->dy.w; ox++)
        for (int c = 0; c < k->c; c++) {
          Maximum best = maximum(&k->pool, &a->x, n, oy, ox, c);
          if (best.y < 0) continue;
          double g = get(&a->dy, n, oy, ox, c);
          add(&want, n, best.y, best.x, c, g);
          add(&magnitude, n, best.y, best.x, c, fabs(g));
        }
  for (int n = 0; n < valid_rows(dx); n++)
    for (int y = 0; y < k->h; y++)
      for (int x = 0; x < k->w; x++)
        for (int c = 0; c < k->c; c++) { // at most size² additions
          double g = get(&want, n, y, x, c), sum = get(&magnitude, n, y, x, c);
          EXPECT_NEAR(get(dx, n, y, x, c), g,
                      k->pool.size * k->pool.size * unit_roundoff(dx->dtype) * sum + stored_rounding(dx->dtype, g));
        }
  expect_padding_zero(dx);
}

static void check_reference(Fixture *f, const PoolArgs *a, const Tensor *y, const Tensor *dx) {
  if (!f->dev->gpu) return;
  PoolArgs floats = {.pool = a->pool, .x = fixture_floats(f, &a->x), .dy = fixture_floats(f, &a->dy)};
  expect_reference(f, run_forward, &floats, y);
  expect_reference(f, run_backward, &floats, dx);
}

static void check_pool(Fixture *f, const PoolCase *k, PoolArgs *a) {
  Dest y = {.t = fixture_tensor(f, a->dy)}, dx = {.t = fixture_tensor(f, a->x)};
  run_op(f->dev, run_forward, a, &y);
  run_op(f->dev, run_backward, a, &dx);
  check_forward(k, a, &y.t);
  check_backward(f, k, a, &dx.t);
  check_reference(f, a, &y.t, &dx.t);
}

TEST_TYPES(max_pool_equals_definition) {
  for (int i = 0; i < 2 * COUNT(pool_cases); i++) {
    const PoolCase *k = &pool_cases[i / 2];
    PoolArgs a = make(f, k, (uint64_t)i);
    test_fill_steps(&a.x, (uint64_t)i, -1, 1, i % 2 ? 0.5 : 0); // ties in nearly every window
    fixture_freeze(f);
    check_pool(f, k, &a);
    fixture_clear(f);
  }
}

TEST_TYPES(max_pool_of_nan_and_infinity) {
  const Pool pools[] = {{3, 2, 1}, {3, 2, 0}, {3, 1, 1}, {2, 2, 0}, {2, 2, 1}, {4, 1, 2}};
  const double special[] = {NAN, INFINITY, -INFINITY, -INFINITY, 0, -0.};
  for (int i = 0; i < 8 * COUNT(pools); i++) {
    const uint64_t trial = (uint64_t)i % 8;
    const PoolCase k = {2, 8, 7, 13, 2, pools[i / 8], false};
    PoolArgs a = make(f, &k, trial);
    for (int e = 0; e < k.n * k.h * k.w * k.c; e++) { // whole numbers, which every type has
      uint32_t r = rng_u32(trial, (uint64_t)e);
      double v = trial == 0 ? -INFINITY : r % 3 == 0 ? special[r / 3 % COUNT(special)] : r / 32 % 5;
      put(&a.x, e / k.c / k.w / k.h, e / k.c / k.w % k.h, e / k.c % k.w, e % k.c, v);
    }
    for (int p = k.c; p < a.x.ldc; p++)
      for (int e = 0; e < k.n * k.h * k.w; e++) put(&a.x, e / k.w / k.h, e / k.w % k.h, e % k.w, p, 0);
    test_fill_steps(&a.dy, trial, -7, 8, 1);
    fixture_freeze(f);
    check_pool(f, &k, &a);
    fixture_clear(f);
  }
}

TEST_TYPES(max_pool_honours_count) {
  for (int count = 0; count <= 3; count++) {
    const PoolCase k = {3, 5, 5, 4, count, {3, 2, 1}, false};
    PoolArgs a = make(f, &k, 2);
    test_fill(&a.x, 1, -1, 1);
    fixture_freeze(f);
    check_pool(f, &k, &a);
    EXPECT_INT(*a.x.count, count);
  }
}

typedef struct PoolObjective {
  Device *dev;
  PoolArgs args;
  Dest y;
} PoolObjective;
static double pool_objective(void *context) {
  PoolObjective *o = context;
  run_op(o->dev, run_forward, &o->args, &o->y);
  return weighted_sum(&o->args.dy, &o->y.t, NULL);
}

TEST_DOUBLE(max_pool_gradient_check) {
  const PoolCase k = {1, 5, 6, 3, 1, {3, 2, 1}, false};
  PoolObjective o = {.dev = f->dev, .args = make(f, &k, 1)};
  PoolArgs *a = &o.args;
  // All different by far more than the check's step, so that no maximum changes.
  test_fill(&a->x, 0, 0, 0);
  for (int i = 0; i < k.h * k.w * k.c; i++)
    put(&a->x, 0, i / k.c / k.w, i / k.c % k.w, i % k.c, 0x1p-6 * (i / k.c * 7 % 31));
  o.y.t = fixture_tensor(f, a->dy);
  Dest dx = {.t = fixture_tensor(f, a->x)};
  run_op(f->dev, run_backward, a, &dx);
  double magnitude;
  pool_objective(&o);
  weighted_sum(&a->dy, &o.y.t, &magnitude);
  gradcheck(pool_objective, &o, &a->x, &dx.t, magnitude, a->dy.h * a->dy.w * k.c, 0, 1000); // as many products
}

TEST_TYPES(max_pool_honours_dest) {
  const PoolCase some[] = {{2, 7, 5, 5, 1, {3, 2, 1}, false},
                           {1, 1, 1, 8, 1, {1, 1, 0}, false},
                           {3, 5, 4, 11, 2, {3, 2, 1}, false},
                           {2, 4, 5, 9, 2, {3, 1, 1}, false},
                           {2, 4, 5, 9, 1, {2, 2, 0}, true}};
  for (int i = 0; i < COUNT(some); i++) {
    PoolArgs a = make(f, &some[i], (uint64_t)i + 10);
    test_fill(&a.x, (uint64_t)i, -1, 1);
    fixture_freeze(f);
    check_dests(f->dev, run_forward, &a, &a.dy, (uint64_t)i);
    check_dests(f->dev, run_backward, &a, &a.x, (uint64_t)i);
    fixture_clear(f);
  }
}

// A row that takes several runs, and a pixel that does, among them.
TEST_TYPES(copy_copies_through_every_dest) {
  const int some[][5] = {{2, 7, 5, 5, 1}, {1, 1, 1, 8, 1}, {3, 6, 6, 12, 2}, {1, 1, 160, 7, 1}, {1, 1, 2, 1030, 1}};
  for (int i = 0; i < COUNT(some); i++) {
    PoolArgs a = {.x = fixture_map(f, some[i][0], some[i][1], some[i][2], some[i][3])};
    a.x.count = fixture_count(f, some[i][4]);
    test_fill(&a.x, (uint64_t)i, -1, 1);
    fixture_freeze(f);
    Dest y = {.t = fixture_tensor(f, a.x)};
    run_op(f->dev, run_copy, &a, &y);
    EXPECT(same_bits(&y.t, &a.x));
    check_dests(f->dev, run_copy, &a, &a.x, (uint64_t)i);
    fixture_clear(f);
  }
}

TEST_TYPES(copy_of_nothing_is_zero) {
  PoolArgs a = {.x = fixture_map(f, 3, 5, 4, 11), .no_input = true};
  a.x.count = fixture_count(f, 2);
  Dest y = {.t = fixture_tensor(f, a.x)};
  run_op(f->dev, run_copy, &a, &y);
  test_fill(&a.x, 0, 0, 0);
  EXPECT(same_bits(&y.t, &a.x));
  check_dests(f->dev, run_copy, &a, &a.x, 1);
}

TEST_OP(max_pool_equals_torch) {
  const PoolCase golden[] = {{1, 12, 13, 3, 1, {3, 2, 0}, true}, {1, 12, 13, 3, 1, {3, 2, 1}, false}};
  for (int i = 0; i < COUNT(golden); i++) {
    PoolArgs a = make(f, &golden[i], 2);
    test_fill(&a.x, 1, -1, 1);
    Dest y = {.t = fixture_tensor(f, a.dy)}, dx = {.t = fixture_tensor(f, a.x)};
    run_op(f->dev, run_forward, &a, &y);
    run_op(f->dev, run_backward, &a, &dx);
    expect_op_golden(i ? "max.floor.y" : "max.ceil.y", &y.t, 1); // the inputs are floats
    expect_op_golden(i ? "max.floor.dx" : "max.ceil.dx", &dx.t, 4);
  }
}

// Tensors so wide that the gradient's threads have bands of many rows, the last of them lower than the others.
TEST_GPU(cuda_max_pool_of_wide_tensors) {
  const PoolCase cases[] = {{3, 17, 41, 800, 3, {3, 1, 1}, false},
                            {3, 37, 83, 800, 2, {3, 2, 1}, false},
                            {3, 35, 82, 800, 3, {2, 2, 0}, false}};
  f->type = BF16;
  for (int i = 0; i < COUNT(cases); i++) {
    PoolArgs a = make(f, &cases[i], (uint64_t)i + 1);
    test_fill(&a.x, (uint64_t)i, -1, 1);
    fixture_freeze(f);
    Dest y = {.t = fixture_tensor(f, a.dy)}, dx = {.t = fixture_tensor(f, a.x)};
    run_op(f->dev, run_forward, &a, &y);
    run_op(f->dev, run_backward, &a, &dx);
    check_reference(f, &a, &y.t, &dx.t);
    fixture_clear(f);
  }
}
