// Catches a norm that pools its own output to other bits than both ops give, keeps another pixel than the
// maximum's, or sends its gradient elsewhere.
#include "test/harness/norm_args.h"

typedef struct NormPoolCase {
  NormCase k;
  int pad;
  bool ceil; // windows along an axis are rounded up
} NormPoolCase;

static const NormPoolCase cases[] = {
    {{2, 7, 5, 5, 0, 2, 0}, 1, false},     // odd sizes, padding channels
    {{1, 8, 8, 16, 0, 1, 0}, 1, false},    // even ones
    {{3, 5, 5, 4, 0, 1, 0}, 1, false},     // rows past the count
    {{3, 5, 4, 9, 0, 0, 0}, 1, false},     // nothing valid
    {{2, 12, 13, 9, 0, 2, 0}, 0, true},    // GoogLeNet's: 12 has one window more than rounded down, 13 has not
    {{1, 9, 4, 24, 0, 1, 1000}, 0, false}, // a last row and column in no window; a mean far above the spread
    {{1, 1, 1, 3, 0, 1, 0}, 1, false},     // a pixel alone
    {{2, 2, 3, 8, 0, 2, 0}, 1, true},      // lower than a window
    {{2, 61, 47, 72, 0, 2, 0}, 1, false},  // several bands of rows, the last lower
    {{1, 38, 70, 20, 0, 1, 0}, 0, true},   // the same without padding
    {{1, 3, 2, 1100, 0, 1, 0}, 1, false},  // a pixel wider than a run of the reference
    {{2, 7, 5, 6, 2, 2, 0}, 1, false},     // group norm: images with statistics of their own, groups of 3 channels
    {{1, 1, 1, 3, 1, 1, 0}, 1, false},     // of a pixel alone
    {{3, 12, 13, 64, 8, 3, 0}, 0, true},   // that would stay in a GPU's shared memory
    {{2, 61, 47, 72, 9, 2, 1000}, 1, false}, {{2, 38, 70, 20, 20, 2, 0}, 1, true}, // groups of a channel
};

typedef struct NormPool {
  NormArgs a;
  Pool pool;
  PoolArgmax argmax;
  Tensor moments; // of batch norm: real [1, 3, c]; of group norm a convolution's
  Dest y;
} NormPool;

static NormPool make(Fixture *f, const NormPoolCase *of, uint64_t key) {
  NormPool p = {.pool = {3, 2, of->pad}};
  p.a = norm_args(f, &of->k, key);
  const Tensor *x = &p.a.x;
  Tensor y = tensor(f->type, x->n, pool_extent(&p.pool, x->h, of->ceil), pool_extent(&p.pool, x->w, of->ceil), x->c);
  y.count = x->count;
  p.argmax = (PoolArgmax){fixture_tensor(f, y), fixture_alloc(f, tensor_elements(&y))};
  p.moments = of->k.groups ? norm_moments_of(f, x) : fixture_packed(f, 1, 3 * x->c);
  p.y = (Dest){.t = fixture_tensor(f, y), .relu = true};
  return p;
}
static void pooled_dest(NormPool *p) {
  p->y.pool = &p->pool;
  p->y.argmax = &p->argmax;
}

static void forward_merged(Fixture *f, const NormPool *p, const Dest *y) {
  const NormArgs *a = &p->a;
  if (a->k->groups) {
    RUN(f, group_norm_forward_merged, a->groups, eps, p->moments.data, &a->x, a->gamma.data, a->beta.data,
        a->stats.data, y);
    return;
  }
  RUN(f, batch_norm_moments, &a->x, p->moments.data);
  RUN(f, batch_norm_forward_merged, eps, momentum, 1, p->moments.data, &a->x, a->gamma.data, a->beta.data, NULL, NULL,
      a->stats.data, y);
}

typedef struct Window { // its pixels
  int top, left, first_y, first_x, last_y, last_x;
} Window;
static Window window(const NormPool *p, int oy, int ox) {
  const int top = oy * p->pool.stride - p->pool.pad, left = ox * p->pool.stride - p->pool.pad;
  return (Window){top, left, MAX(top, 0), MAX(left, 0), MIN(top + 3, p->a.x.h), MIN(left + 3, p->a.x.w)};
}
static unsigned tap_of(const NormPool *p, int n, int oy, int ox, int c) {
  return p->argmax.tap[pixel(&p->argmax.x, n, oy, ox) + (size_t)c];
}

// Where the maximum of what was not pooled is: the first in row-major order.
static void check_argmax(const NormPool *p, const Tensor *unpooled) {
  const Tensor *t = &p->argmax.x;
  for (int n = 0; n < valid_rows(t); n++)
    for (int oy = 0; oy < t->h; oy++)
      for (int ox = 0; ox < t->w; ox++)
        for (int c = 0; c < t->c; c++) {
          const Window w = window(p, oy, ox);
          int y = w.first_y, x = w.first_x;
          for (int i = w.first_y; i < w.last_y; i++)
            for (int j = w.first_x; j < w.last_x; j++)
              if (get(unpooled, n, i, j, c) > get(unpooled, n, y, x, c)) {
                y = i;
                x = j;
              }
          EXPECT_INT(tap_of(p, n, oy, ox, c), (y - w.top) * 3 + x - w.left);
          EXPECT(get(t, n, oy, ox, c) == get(&p->a.x, n, y, x, c));
        }
  expect_padding_zero(t);
}

// By statistics that are told, the bits of the norm and of the pool behind it.
TEST_TYPES(norm_pool_equals_both_ops) {
  for (int i = 0; i < COUNT(cases); i++) {
    NormPool p = make(f, &cases[i], (uint64_t)i);
    Dest y = {.t = fixture_tensor(f, p.a.x), .relu = true}, pooled = p.y;
    pooled.t = fixture_tensor(f, p.y.t);
    pooled.relu = false;
    forward_merged(f, &p, &y);
    RUN(f, max_pool_forward, &p.pool, &y.t, &pooled);
    pooled_dest(&p);
    forward_merged(f, &p, &p.y);
    EXPECT(same_bits(&p.y.t, &pooled.t));
    expect_padding_zero(&p.y.t);
    check_argmax(&p, &y.t);
    fixture_clear(f);
  }
}

// Of a definition that is exact but for what each pixel's value may be off.
TEST_TYPES(norm_pool_forward_equals_definition) {
  for (int i = 0; i < COUNT(cases); i++) {
    NormPool p = make(f, &cases[i], (uint64_t)i + 20);
    const NormArgs *a = &p.a;
    pooled_dest(&p);
    run_op(f->dev, norm_forward, &p.a, &p.y);
    const NormExpected of = norm_define_forward(f, a, norm_stats(f, a), false);
    for (int n = 0; n < valid_rows(&p.y.t); n++)
      for (int oy = 0; oy < p.y.t.h; oy++)
        for (int ox = 0; ox < p.y.t.w; ox++)
          for (int c = 0; c < a->x.c; c++) {
            const Window w = window(&p, oy, ox);
            double want = 0, bound = 0;
            for (int y = w.first_y; y < w.last_y; y++)
              for (int x = w.first_x; x < w.last_x; x++) {
                want = fmax(want, get(&of.want, n, y, x, c));
                bound = fmax(bound, get(&of.bound, n, y, x, c));
              }
            EXPECT_NEAR(get(&p.y.t, n, oy, ox, c), want, bound);
          }
    fixture_clear(f);
  }
}

static void run_backward(Device *dev, void *context, const Dest *dx) {
  const NormPool *p = context;
  const NormArgs *a = &p->a;
  dev->ops->norm_pool_backward(dev, a->k->groups, &p->pool, &a->x, &p->argmax, &a->dy, a->gamma.data, a->stats.data, dx,
                               a->no_gradients ? NULL : a->dgamma.data, a->no_gradients ? NULL : a->dbeta.data,
                               a->accumulate);
}

// dy, masked as by the reader of a ReLU's maxima, and what it is at each pixel. Of one sign in a channel: bounds are
// relative to a pixel's dy, which is the sum of its windows'.
static Tensor scatter(Fixture *f, NormPool *p, uint64_t key) {
  const Tensor *x = &p->a.x;
  Tensor shape = tensor(F64, x->n, x->h, x->w, x->c);
  shape.count = x->count;
  Tensor dy = fixture_tensor(f, shape);
  test_fill(&dy, 0, 0, 0);
  p->a.dy = fixture_tensor(f, p->y.t);
  test_fill(&p->a.dy, key, 0.25, 1);
  for (int n = 0; n < valid_rows(&p->y.t); n++)
    for (int oy = 0; oy < p->y.t.h; oy++)
      for (int ox = 0; ox < p->y.t.w; ox++)
        for (int c = 0; c < x->c; c++) {
          const double g = get(&p->y.t, n, oy, ox, c) > 0 ? get(&p->a.dy, n, oy, ox, c) : 0;
          put(&p->a.dy, n, oy, ox, c, c % 2 ? -g : g);
          const Window w = window(p, oy, ox);
          const int tap = (int)tap_of(p, n, oy, ox, c), yy = w.top + tap / 3, xx = w.left + tap % 3;
          put(&dy, n, yy, xx, c, get(&dy, n, yy, xx, c) + get(&p->a.dy, n, oy, ox, c));
        }
  return dy;
}

TEST_TYPES(norm_pool_backward_equals_definition) {
  for (int i = 0; i < COUNT(cases); i++) {
    const NormCase *k = &cases[i].k;
    if (f->dev->gpu && k->rows == 0) continue; // what no element contributes to is not computed there
    NormPool p = make(f, &cases[i], (uint64_t)i + 40);
    pooled_dest(&p);
    forward_merged(f, &p, &p.y);
    NormArgs whole = p.a;
    whole.dy = scatter(f, &p, (uint64_t)i);
    p.a.accumulate = i % 2;
    Tensor old_dgamma = norm_copy(f, &p.a.dgamma), old_dbeta = norm_copy(f, &p.a.dbeta);
    Dest dx = {.t = fixture_tensor(f, p.a.x)}, again = {.t = fixture_tensor(f, p.a.x)};
    run_op(f->dev, run_backward, &p, &dx);
    const NormGradients want = norm_define_backward(f, &whole);
    norm_check(&whole, &dx.t, &want.dx);
    const double off = (f->dev->gpu ? NORM_STEPS : 70) * unit_roundoff(f->type);
    for (int c = 0; c < k->c; c++) {
      double dgamma = i % 2 ? get(&old_dgamma, 0, 0, 0, c) : 0, dbeta = i % 2 ? get(&old_dbeta, 0, 0, 0, c) : 0;
      EXPECT_NEAR(get(&p.a.dgamma, 0, 0, 0, c), dgamma + want.dgamma[c], off * (fabs(dgamma) + want.of_dgamma[c]));
      EXPECT_NEAR(get(&p.a.dbeta, 0, 0, 0, c), dbeta + want.dbeta[c], off * (fabs(dbeta) + want.of_dbeta[c]));
    }
    p.a.no_gradients = true;
    run_op(f->dev, run_backward, &p, &again);
    EXPECT(same_bits(&dx.t, &again.t));
    p.a.no_gradients = false;
    if (i < 3 || k->groups == 2)
      check_dests_within(f->dev, run_backward, &p, &p.a.x, f->dev->gpu ? &want.dx.bound : NULL, (uint64_t)i);
    fixture_clear(f);
  }
}
