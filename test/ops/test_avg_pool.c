// Catches averages over the wrong pixels or with the wrong divisor, and gradients that do not match them.
//
// Compares average pooling with its definition. A GPU's results equal the reference's, too: sums and their order are
// the same.
#include "exact/avg_windows.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "test/harness/gradcheck.h"
#include "test/harness/op_fixture.h"
#include "test/harness/op_golden.h"

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

typedef struct AvgArgs {
  const AvgPool *pool;
  Tensor x, dy;
} AvgArgs;
static void run_forward(Device *dev, void *context, const Dest *y) {
  const AvgArgs *a = context;
  dev->ops->avg_pool_forward(dev, a->pool, &a->x, y);
}
static void run_backward(Device *dev, void *context, const Dest *dx) {
  const AvgArgs *a = context;
  dev->ops->avg_pool_backward(dev, a->pool, &a->dy, dx);
}

static AvgArgs make(Fixture *f, const AvgPoolCase *k, uint64_t key) {
  AvgArgs a = {&k->pool, fixture_map(f, k->n, k->h, k->w, k->c), fixture_map(f, k->n, k->out_h, k->out_w, k->c)};
  a.x.count = a.dy.count = fixture_count(f, k->rows);
  test_fill(&a.x, key, -1, 1);
  test_fill(&a.dy, key + 100, -1, 1);
  return a;
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

// What an element should be, and the sum of its terms' absolute values.
typedef struct Expected {
  Tensor want, magnitude;
} Expected;
static Expected expected(Fixture *f, const Tensor *like) {
  Expected e = {.want = tensor(F64, like->n, like->h, like->w, like->c)};
  e.want.count = like->count;
  e.want = fixture_tensor(f, e.want);
  e.magnitude = fixture_tensor(f, e.want);
  test_fill(&e.want, 0, 0, 0);
  test_fill(&e.magnitude, 0, 0, 0);
  return e;
}
static void add(const Expected *e, int n, int y, int x, int c, double term) {
  put(&e->want, n, y, x, c, get(&e->want, n, y, x, c) + term);
  put(&e->magnitude, n, y, x, c, get(&e->magnitude, n, y, x, c) + fabs(term));
}
// y of x and dx of dy: each pixel of each window, and its share.
static void define(const AvgPoolCase *k, const AvgArgs *a, const Expected *y, const Expected *dx) {
  for (int oy = 0; oy < k->out_h; oy++)
    for (int ox = 0; ox < k->out_w; ox++) {
      Window ys = window_of(&k->pool, oy, k->out_h, k->h), xs = window_of(&k->pool, ox, k->out_w, k->w);
      double divisor = ys.divisor * xs.divisor;
      for (int n = 0; n < k->rows; n++)
        for (int iy = ys.first; iy < ys.last; iy++)
          for (int ix = xs.first; ix < xs.last; ix++)
            for (int c = 0; c < k->c; c++) {
              add(y, n, oy, ox, c, get(&a->x, n, iy, ix, c) / divisor);
              add(dx, n, iy, ix, c, get(&a->dy, n, oy, ox, c) / divisor);
            }
    }
}

// Sums of at most so many terms and a division, in any order.
static void expect_near(const Tensor *got, const Expected *e, int terms) {
  for (int n = 0; n < valid_rows(got); n++)
    for (int y = 0; y < got->h; y++)
      for (int x = 0; x < got->w; x++)
        for (int c = 0; c < got->c; c++) {
          double want = get(&e->want, n, y, x, c);
          EXPECT_NEAR(get(got, n, y, x, c), want,
                      (terms + 1) * unit_roundoff(got->dtype) * get(&e->magnitude, n, y, x, c) +
                          stored_rounding(got->dtype, want));
        }
  expect_padding_zero(got);
}

TEST_TYPES(avg_pool_equals_definition) {
  for (int i = 0; i < COUNT(avg_pool_cases); i++) {
    const AvgPoolCase *k = &avg_pool_cases[i];
    AvgArgs a = make(f, k, (uint64_t)i);
    fixture_freeze(f);
    Dest y = {.t = fixture_tensor(f, a.dy)}, dx = {.t = fixture_tensor(f, a.x)};
    run_op(f->dev, run_forward, &a, &y);
    run_op(f->dev, run_backward, &a, &dx);
    Expected of_y = expected(f, &a.dy), of_dx = expected(f, &a.x);
    define(k, &a, &of_y, &of_dx);
    expect_near(&y.t, &of_y, k->h * k->w + k->out_h * k->out_w);
    expect_near(&dx.t, &of_dx, k->h * k->w + k->out_h * k->out_w);
    if (f->dev->gpu) {
      AvgArgs floats = {&k->pool, fixture_floats(f, &a.x), fixture_floats(f, &a.dy)};
      expect_reference(f, run_forward, &floats, &y.t);
      expect_reference(f, run_backward, &floats, &dx.t);
    }
    fixture_clear(f);
  }
}

// Where bins begin is told by products of sides, in 32 bits; windows are told otherwise.
TEST(avg_pool_refuses_bins_of_longer_sides) {
  const AvgPool adaptive = {.count_pad = true}, pairs = {{2, 2, 0}, true};
  EXPECT(avg_pool_fits(&adaptive, 65535, 65535));
  EXPECT(!avg_pool_fits(&adaptive, 65536, 1) && !avg_pool_fits(&adaptive, 1, 65536));
  EXPECT(avg_pool_fits(&pairs, 1 << 17, 1 << 16));
}

TEST_TYPES(avg_pool_honours_dest) {
  const AvgPoolCase some[] = {{2, 7, 5, 5, 2, {{3, 2, 1}, false}, 4, 3},
                              {3, 5, 6, 12, 2, {{0, 0, 0}, true}, 2, 4},
                              {3, 5, 4, 11, 2, {{3, 2, 1}, false}, 3, 2},
                              {3, 5, 4, 11, 2, {{0, 0, 0}, true}, 3, 3}};
  for (int i = 0; i < COUNT(some); i++) {
    AvgArgs a = make(f, &some[i], (uint64_t)i);
    fixture_freeze(f);
    check_dests(f->dev, run_forward, &a, &a.dy, (uint64_t)i);
    check_dests(f->dev, run_backward, &a, &a.x, (uint64_t)i);
    fixture_clear(f);
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
  return weighted_sum(&o->args.dy, &o->y.t, NULL);
}

TEST_DOUBLE(avg_pool_gradient_check) {
  const AvgPoolCase some[] = {{1, 5, 6, 3, 1, {{3, 2, 1}, false}, 3, 4},
                              {1, 5, 6, 3, 1, {{3, 2, 1}, true}, 3, 4},
                              {1, 5, 6, 3, 1, {{0, 0, 0}, true}, 3, 4}};
  for (int i = 0; i < COUNT(some); i++) {
    const AvgPoolCase *k = &some[i];
    AvgObjective o = {.dev = f->dev, .args = make(f, k, 1)};
    AvgArgs *a = &o.args;
    o.y.t = fixture_tensor(f, a->dy);
    Dest dx = {.t = fixture_tensor(f, a->x)};
    run_op(f->dev, run_backward, a, &dx);
    double magnitude;
    objective(&o);
    weighted_sum(&a->dy, &o.y.t, &magnitude);
    gradcheck(objective, &o, &a->x, &dx.t, magnitude + 1, k->h * k->w * k->c, 0, 1000); // linear: no truncation
  }
}

TEST_OP(avg_pool_equals_torch) {
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
  for (int i = 0; i < COUNT(golden); i++) {
    AvgArgs a = {&golden[i].pool, fixture_map(f, 1, 12, 13, 3), fixture_map(f, 1, golden[i].h, golden[i].w, 3)};
    test_fill(&a.x, 1, -1, 1);
    test_fill(&a.dy, 2, -1, 1);
    Dest y = {.t = fixture_tensor(f, a.dy)}, dx = {.t = fixture_tensor(f, a.x)};
    run_op(f->dev, run_forward, &a, &y);
    run_op(f->dev, run_backward, &a, &dx);
    char name[64];
    snprintf(name, sizeof name, "%s.y", golden[i].name);
    expect_op_golden(name, &y.t, 12 * 13 + 1); // additions and a division
    snprintf(name, sizeof name, "%s.dx", golden[i].name);
    expect_op_golden(name, &dx.t, 4 * 4); // no pixel lies in more than four windows
  }
}
