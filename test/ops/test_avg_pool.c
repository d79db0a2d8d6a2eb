// Catches averages over the wrong pixels or with the wrong divisor, and gradients that do not follow them.
//
// Average pooling against its definition, and on the GPU against the CPU. Sums and their order are the same on both, so
// that F32 has to be equal to the bit, and 16 bits to one rounding.
#include "exact/avg_windows.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "test/harness/gpu.h"
#include "test/harness/gradcheck.h"
#include "test/harness/op_golden.h"

// Shapes for both: the reference against its definition, the kernels against the reference.
typedef struct AvgPoolCase {
  int n, h, w, c, rows; // rows: valid
  AvgPool pool;         // size, stride, pad; padding counts
  int out_h, out_w; // by torch's nn.AvgPool2d with ceil_mode where its windows do not fit exactly, AdaptiveAvgPool2d
} AvgPoolCase;

static const AvgPoolCase avg_pool_cases[] = {
    {1, 1, 1, 1, 1, {{1, 1, 0}, true}, 1, 1},         // nothing to choose from
    {2, 7, 5, 5, 2, {{3, 2, 1}, true}, 4, 3},         // odd sizes, padding channels
    {2, 7, 5, 5, 2, {{3, 2, 1}, false}, 4, 3},        // divisors of their own at the edges
    {1, 8, 7, 9, 1, {{3, 2, 1}, true}, 5, 4},         // rounded up: the last window reaches past the padding
    {1, 8, 7, 9, 1, {{3, 2, 1}, false}, 5, 4},        // …
    {2, 6, 9, 16, 2, {{2, 2, 0}, true}, 3, 5},        // … without padding
    {2, 6, 8, 16, 2, {{2, 2, 0}, true}, 3, 4},        // the usual halving
    {1, 9, 4, 3, 1, {{2, 3, 0}, true}, 3, 1},         // pixels in no window
    {1, 3, 3, 2, 1, {{2, 2, 2}, false}, 3, 3},        // windows entirely in the padding
    {1, 3, 3, 2, 1, {{2, 2, 2}, true}, 3, 3},         // …
    {2, 4, 4, 9, 2, {{4, 1, 2}, false}, 5, 5},        // large overlap
    {3, 5, 5, 4, 1, {{3, 2, 1}, true}, 3, 3},         // rows past the count
    {2, 3, 3, 8, 0, {{3, 2, 1}, true}, 2, 2},         // nothing valid
    {2, 7, 7, 24, 2, {{7, 1, 0}, true}, 1, 1},        // global, as a window
    {3, 7, 5, 40, 2, {{0, 0, 0}, true}, 1, 1},        // global
    {1, 3, 19, 8, 1, {{0, 0, 0}, true}, 1, 1},        // … of long rows
    {1, 1, 65535, 1, 1, {{0, 0, 0}, true}, 1, 65534}, // as long as bins are told
    {2, 13, 13, 16, 2, {{0, 0, 0}, true}, 6, 6},      // AlexNet's at 256 pixels: bins overlap
    {1, 7, 7, 8, 1, {{0, 0, 0}, true}, 7, 7},         // VGG's: every pixel its own bin
    {1, 5, 3, 3, 1, {{0, 0, 0}, false}, 7, 6},        // more bins than pixels
    {2, 10, 4, 5, 1, {{0, 0, 0}, true}, 3, 9},        // both at once
    {2, 61, 47, 72, 2, {{3, 2, 1}, false}, 31, 24},   // many threadblocks, the last one partial
    {1, 2, 2, 1100, 1, {{3, 2, 1}, true}, 1, 1},      // a pixel wider than a run of the reference
    {1, 130, 2, 1, 1, {{3, 1, 1}, true}, 130, 2},     // many pixels a run
};

static const char *const devices[] = {"cpu", "cpu64"};

typedef struct AvgArgs {
  const AvgPool *pool;
  const Tensor *x, *dy;
} AvgArgs;
static void run_forward(Device *dev, void *context, const Dest *y) {
  const AvgArgs *a = context;
  dev->ops->avg_pool_forward(dev, a->pool, a->x, y);
}
static void run_backward(Device *dev, void *context, const Dest *dx) {
  const AvgArgs *a = context;
  dev->ops->avg_pool_backward(dev, a->pool, a->dy, dx);
}

static Tensor pooled(const AvgPoolCase *k, const Tensor *x) {
  Tensor y = test_tensor(x->dtype, k->n, k->out_h, k->out_w, k->c);
  y.count = x->count;
  return y;
}

// A window along one axis: the pixels [first, last) and its part of the divisor.
typedef struct Window {
  int first, last;
  double divisor;
} Window;
static Window window_of(const AvgPool *p, int out, int outputs, int size) {
  if (!p->window.size) {
    double begin = floor((double)out * size / outputs), end = ceil((double)(out + 1) * size / outputs);
    return (Window){(int)begin, (int)end, end - begin};
  }
  Window w = {0};
  for (int i = 0, first = out * p->window.stride - p->window.pad; i < p->window.size; i++) {
    bool inside = first + i >= 0 && first + i < size;
    if (inside && w.last == 0) w.first = first + i;
    if (inside) w.last = first + i + 1;
    w.divisor += inside || (p->count_pad && first + i < size + p->window.pad);
  }
  return w;
}

// y of x, or, where dx is not NULL, dx and Σ |terms| of dy.
static void define(const AvgPoolCase *k, const Tensor *x, const Tensor *y, const Tensor *dx, const Tensor *magnitude) {
  for (int n = 0; n < valid_rows(y); n++)
    for (int oy = 0; oy < k->out_h; oy++)
      for (int ox = 0; ox < k->out_w; ox++)
        for (int c = 0; c < k->c; c++) {
          Window ys = window_of(&k->pool, oy, k->out_h, k->h), xs = window_of(&k->pool, ox, k->out_w, k->w);
          double sum = 0, absolute = 0, divisor = ys.divisor * xs.divisor;
          for (int iy = ys.first; iy < ys.last; iy++)
            for (int ix = xs.first; ix < xs.last; ix++) {
              if (dx) {
                double share = get(y, n, oy, ox, c) / divisor;
                put(dx, n, iy, ix, c, get(dx, n, iy, ix, c) + share);
                put(magnitude, n, iy, ix, c, get(magnitude, n, iy, ix, c) + fabs(share));
                continue;
              }
              sum += get(x, n, iy, ix, c);
              absolute += fabs(get(x, n, iy, ix, c));
            }
          if (dx) continue;
          put(y, n, oy, ox, c, sum == 0 ? 0 : sum / divisor);
          put(magnitude, n, oy, ox, c, absolute == 0 ? 0 : absolute / divisor);
        }
}

// Sums of at most size² terms and a division, in any order.
static void expect_near(const AvgPoolCase *k, const Tensor *got, const Tensor *want, const Tensor *magnitude) {
  int terms = k->h * k->w + k->out_h * k->out_w;
  for (int n = 0; n < valid_rows(got); n++)
    for (int y = 0; y < got->h; y++)
      for (int x = 0; x < got->w; x++)
        for (int c = 0; c < k->c; c++)
          EXPECT_NEAR(get(got, n, y, x, c), get(want, n, y, x, c),
                      (terms + 1) * unit_roundoff(got->dtype) * get(magnitude, n, y, x, c));
  expect_padding_zero(got);
}

TEST(avg_pool_equals_definition) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(avg_pool_cases); i++) {
      const AvgPoolCase *k = &avg_pool_cases[i];
      Tensor x = test_tensor(dev->real, k->n, k->h, k->w, k->c);
      x.count = &k->rows;
      Tensor dy = pooled(k, &x);
      test_fill(&x, (uint64_t)i, -1, 1);
      test_fill(&dy, (uint64_t)i + 100, -1, 1);
      Dest y = {.t = pooled(k, &x)}, dx = {.t = test_tensor_like(&x)};
      AvgArgs a = {&k->pool, &x, &dy};
      run_op(dev, run_forward, &a, &y);
      run_op(dev, run_backward, &a, &dx);
      Tensor want = test_tensor(F64, k->n, k->out_h, k->out_w, k->c), size = test_tensor_like(&want);
      want.count = &k->rows;
      define(k, &x, &want, NULL, &size);
      expect_near(k, &y.t, &want, &size);
      Tensor want_dx = test_tensor(F64, k->n, k->h, k->w, k->c), size_dx = test_tensor_like(&want_dx);
      test_fill(&want_dx, 0, 0, 0);
      test_fill(&size_dx, 0, 0, 0);
      define(k, NULL, &dy, &want_dx, &size_dx);
      expect_near(k, &dx.t, &want_dx, &size_dx);
      Tensor *all[] = {&x, &dy, &y.t, &dx.t, &want, &size, &want_dx, &size_dx};
      for (int t = 0; t < COUNT(all); t++) test_tensor_free(all[t]);
    }
    device_close(dev);
  }
}

// Where bins begin is told by products of sides, in 32 bits; windows are told otherwise.
TEST(avg_pool_refuses_bins_of_longer_sides) {
  const AvgPool adaptive = {.count_pad = true}, pairs = {{2, 2, 0}, true};
  EXPECT(avg_pool_fits(&adaptive, 65535, 65535));
  EXPECT(!avg_pool_fits(&adaptive, 65536, 1) && !avg_pool_fits(&adaptive, 1, 65536));
  EXPECT(avg_pool_fits(&pairs, 1 << 17, 1 << 16));
}

TEST(avg_pool_honours_dest) {
  const AvgPoolCase some[] = {{2, 7, 5, 5, 2, {{3, 2, 1}, false}, 4, 3}, {3, 5, 6, 12, 2, {{0, 0, 0}, true}, 2, 4}};
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(some); i++) {
      const AvgPoolCase *k = &some[i];
      Tensor x = test_tensor(dev->real, k->n, k->h, k->w, k->c);
      x.count = &k->rows;
      Tensor dy = pooled(k, &x);
      test_fill(&x, 1, -1, 1);
      test_fill(&dy, 2, -1, 1);
      AvgArgs a = {&k->pool, &x, &dy};
      check_dests(dev, run_forward, &a, &dy, (uint64_t)i);
      check_dests(dev, run_backward, &a, &x, (uint64_t)i);
      test_tensor_free(&x);
      test_tensor_free(&dy);
    }
    device_close(dev);
  }
}

typedef struct AvgObjective {
  Device *dev;
  AvgArgs args;
  Dest y;
} AvgObjective;
static double objective(void *context) {
  AvgObjective *o = context;
  run_op(o->dev, run_forward, &o->args, &o->y);
  return weighted_sum(o->args.dy, &o->y.t, NULL);
}

TEST(avg_pool_gradient_check) {
  Device *dev = device_open("cpu64", NULL);
  const AvgPoolCase some[] = {{1, 5, 6, 3, 1, {{3, 2, 1}, false}, 3, 4},
                              {1, 5, 6, 3, 1, {{3, 2, 1}, true}, 3, 4},
                              {1, 5, 6, 3, 1, {{0, 0, 0}, true}, 3, 4}};
  for (int i = 0; i < COUNT(some); i++) {
    const AvgPoolCase *k = &some[i];
    Tensor x = test_tensor(F64, k->n, k->h, k->w, k->c), dy = pooled(k, &x);
    test_fill(&x, 1, -1, 1);
    test_fill(&dy, 2, -1, 1);
    AvgObjective o = {dev, {&k->pool, &x, &dy}, {.t = pooled(k, &x)}};
    Dest dx = {.t = test_tensor_like(&x)};
    run_op(dev, run_backward, &o.args, &dx);
    double magnitude;
    objective(&o);
    weighted_sum(&dy, &o.y.t, &magnitude);
    gradcheck(objective, &o, &x, &dx.t, magnitude + 1, k->h * k->w * k->c, 0, 1000); // linear: no truncation
    Tensor *all[] = {&x, &dy, &o.y.t, &dx.t};
    for (int t = 0; t < COUNT(all); t++) test_tensor_free(all[t]);
  }
  device_close(dev);
}

TEST(avg_pool_equals_torch) {
  const struct {
    const char *name;
    AvgPool pool;
    int h, w;
  } golden[] = {
      {"avg.floor.inside", {{3, 2, 1}, false}, 6, 7}, {"avg.floor.padded", {{3, 2, 1}, true}, 6, 7},
      {"avg.ceil.inside", {{3, 2, 1}, false}, 7, 7},  {"avg.ceil.padded", {{3, 2, 1}, true}, 7, 7},
      {"adaptive.1.1", {{0, 0, 0}, false}, 1, 1},     {"adaptive.6.7", {{0, 0, 0}, false}, 6, 7},
      {"adaptive.12.13", {{0, 0, 0}, false}, 12, 13}, {"adaptive.14.5", {{0, 0, 0}, false}, 14, 5},
  };
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    Tensor x = test_tensor(dev->real, 1, 12, 13, 3);
    test_fill(&x, 1, -1, 1);
    for (int i = 0; i < COUNT(golden); i++) {
      Tensor dy = test_tensor(dev->real, 1, golden[i].h, golden[i].w, 3);
      test_fill(&dy, 2, -1, 1);
      AvgArgs a = {&golden[i].pool, &x, &dy};
      Dest y = {.t = test_tensor_like(&dy)}, dx = {.t = test_tensor_like(&x)};
      run_op(dev, run_forward, &a, &y);
      run_op(dev, run_backward, &a, &dx);
      char name[64];
      snprintf(name, sizeof name, "%s.y", golden[i].name);
      expect_op_golden(name, &y.t, 12 * 13 + 1); // additions and a division
      snprintf(name, sizeof name, "%s.dx", golden[i].name);
      expect_op_golden(name, &dx.t, 4 * 4); // no pixel lies in more than four windows
      Tensor *all[] = {&dy, &y.t, &dx.t};
      for (int t = 0; t < COUNT(all); t++) test_tensor_free(all[t]);
    }
    test_tensor_free(&x);
    device_close(dev);
  }
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

static const DType dtypes[] = {F32, BF16, F16};

typedef struct AvgTwins {
  AvgPool pool;
  Twin x, dy;
} AvgTwins;
static void gpu_run_forward(Device *dev, bool gpu, void *context, const Dest *y) {
  AvgTwins *a = context;
  dev->ops->avg_pool_forward(dev, &a->pool, twin_side(&a->x, gpu), y);
}
static void gpu_run_backward(Device *dev, bool gpu, void *context, const Dest *dx) {
  AvgTwins *a = context;
  dev->ops->avg_pool_backward(dev, &a->pool, twin_side(&a->dy, gpu), dx);
}

static AvgTwins make(const AvgPoolCase *k, DType dtype, uint64_t seed) {
  AvgTwins a = {.pool = k->pool,
                .x = twin_random(dtype, k->n, k->h, k->w, k->c, 1, seed),
                .dy = twin_random(dtype, k->n, k->out_h, k->out_w, k->c, 1, seed + 1)};
  if (k->rows < k->n) twin_rows(&a.x, k->rows);
  if (k->rows < k->n) twin_rows(&a.dy, k->rows);
  return a;
}
static void free_twins(AvgTwins *a) {
  twin_check_guards(&a->x, true);
  twin_check_guards(&a->dy, true);
  twin_free(&a->x);
  twin_free(&a->dy);
}

TEST(cuda_avg_pool_equals_cpu) {
  if (!gpu_device()) return;
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(avg_pool_cases); i++) {
      AvgTwins a = make(&avg_pool_cases[i], dtypes[d], (uint64_t)i * 100);
      Twin y = twin_poisoned_like(&a.dy), dx = twin_poisoned_like(&a.x);
      twin_run(gpu_run_forward, &a, &y);
      twin_run(gpu_run_backward, &a, &dx);
      bool ok = twin_check(&y, NULL, dtypes[d] == F32 ? 0 : 1);
      ok &= twin_check(&dx, NULL, dtypes[d] == F32 ? 0 : 1);
      if (!ok) printf("  dtype %d, case %d\n", dtypes[d], i);
      twin_check_guards(&y, false);
      twin_check_guards(&dx, false);
      twin_free(&y);
      twin_free(&dx);
      free_twins(&a);
    }
}

TEST(cuda_avg_pool_honours_dest) {
  if (!gpu_device()) return;
  const AvgPoolCase some[] = {{3, 5, 4, 11, 2, {{3, 2, 1}, false}, 3, 2}, {3, 5, 4, 11, 2, {{0, 0, 0}, true}, 3, 3}};
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(some); i++) {
      AvgTwins a = make(&some[i], dtypes[d], 1);
      twin_check_dests(gpu_run_forward, &a, &a.dy, NULL, dtypes[d] == F32 ? 0 : 1, 10);
      twin_check_dests(gpu_run_backward, &a, &a.x, NULL, dtypes[d] == F32 ? 0 : 1, 20);
      free_twins(&a);
    }
}
