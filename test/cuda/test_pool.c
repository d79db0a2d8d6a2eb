// Catches max pooling that takes the wrong pixel, or sends its gradient to another one.
//
// Max pooling and copy on the GPU against the CPU reference. Maxima and the order of the gradient's sums are the same
// on both, so that F32 has to be equal to the bit, and 16 bits to one rounding.
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/gpu.h"
#include "test/harness/pool_cases.h"

static const DType dtypes[] = {F32, BF16, F16};

typedef struct PoolTwins {
  Pool pool;
  Twin x, dy;
  bool no_input; // of copy
} PoolTwins;
static void run_forward(Device *dev, bool gpu, void *context, const Dest *y) {
  PoolTwins *a = context;
  dev->ops->max_pool_forward(dev, &a->pool, twin_side(&a->x, gpu), y);
}
static void run_backward(Device *dev, bool gpu, void *context, const Dest *dx) {
  PoolTwins *a = context;
  dev->ops->max_pool_backward(dev, &a->pool, twin_side(&a->x, gpu), twin_side(&a->dy, gpu), dx);
}
static void run_copy(Device *dev, bool gpu, void *context, const Dest *y) {
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

  twin_run(run_forward, &a, &y);
  twin_run(run_backward, &a, &dx);
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
  twin_run(run_forward, &a, &y);
  twin_run(run_backward, &a, &dx);
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
    twin_check_dests(run_forward, &a, &a.dy, NULL, 0, 10);
    twin_check_dests(run_backward, &a, &a.x, NULL, dtype == F32 ? 0 : 1, 20);
    twin_check_dests(run_copy, &a, &a.x, NULL, 0, 30);
    a.no_input = true;
    twin_check_dests(run_copy, &a, &a.x, NULL, 0, 40);
    twin_check_guards(&a.x, true);
    twin_check_guards(&a.dy, true);
    twin_free(&a.x);
    twin_free(&a.dy);
  }
}
