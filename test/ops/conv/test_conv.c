// Catches convolutions of the CPU, and their gradients, that differ from their definition.
//
// Compares convolutions with their definition: one sevenfold loop in double precision, over random problems with every
// combination of what a Dest can ask for.
//
// Tolerance: a sum of K terms, in any order, fused or not, is off by at most (K - 1 + e)·u·Σ|term| to first order, with
// u the unit roundoff and e the few further operations of bias, addend, accumulate and scale. The definition itself has
// the same error bound with u = 2^-53. ReLU and mask do not increase the difference.
#include <omp.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "test/harness/test.h"

enum { GUARD = 256, MAX_VARS = 32, MAX_TEST_PAIRS = 3, EXTRA_ROUNDINGS = 8 };

static const unsigned char guard_byte = 0xa5;

typedef struct Var { // a tensor between guards, and what it held when the op began
  Tensor t;
  unsigned char *memory;
  double *before;
} Var;

typedef struct Bench { // what one problem uses
  Device *dev;
  uint64_t key, draws;
  Var vars[MAX_VARS];
  int used;
} Bench;

static uint32_t draw(Bench *b, uint32_t below) { return rng_u32(b->key, b->draws++) % below; }
static double draw_value(Bench *b) { return 2 * rng_uniform(b->key, b->draws++) - 1; }

static double get(const void *data, DType type, size_t i) {
  return type == F64 ? ((const double *)data)[i] : ((const float *)data)[i];
}
static void set(void *data, DType type, size_t i, double v) {
  if (type == F64)
    ((double *)data)[i] = v;
  else
    ((float *)data)[i] = (float)v;
}

static int valid_rows(const Tensor *t) { return t->count ? *t->count : t->n; }
static size_t offset(const Tensor *t, int n, int y, int x) { return (((size_t)n * t->h + y) * t->w + x) * t->ldc; }

typedef enum Fill { RANDOM, POISON } Fill;

// Rows past the count are poisoned whatever the fill, so that reading them shows.
static Var *var(Bench *b, Tensor t, const int *count, Fill fill) {
  CHECK(b->used < MAX_VARS);
  Var *v = &b->vars[b->used++];
  t.count = count;
  size_t bytes = tensor_bytes(&t), elements = tensor_elements(&t);
  v->memory = device_alloc(b->dev, bytes + 2 * GUARD);
  memset(v->memory, guard_byte, bytes + 2 * GUARD);
  t.data = v->memory + GUARD;
  v->t = t;
  v->before = xmalloc(elements * sizeof *v->before);
  size_t valid = offset(&t, valid_rows(&t), 0, 0);
  for (size_t i = 0; i < elements; i++) {
    bool lane = (int)(i % t.ldc) < t.c;
    set(t.data, t.dtype, i, fill == POISON || i >= valid ? NAN : lane ? draw_value(b) : 0);
    v->before[i] = get(t.data, t.dtype, i);
  }
  return v;
}

static Var *vector(Bench *b, int c, Fill fill) { // real [c] with nothing but guards after it
  return var(b, tensor_packed(b->dev->real, 1, c), NULL, fill);
}

// Every guard stands, and every tensor but `written` holds what it held.
static void check_untouched(const Bench *b, const Var *const *written, int count) {
  for (int i = 0; i < b->used; i++) {
    const Var *v = &b->vars[i];
    size_t bytes = tensor_bytes(&v->t), changed = 0;
    for (size_t g = 0; g < GUARD; g++)
      changed += (v->memory[g] != guard_byte) + (v->memory[GUARD + bytes + g] != guard_byte);
    EXPECT_INT(changed, 0);
    bool may_change = false;
    for (int w = 0; w < count; w++) may_change |= written[w] == v;
    if (may_change) continue;
    for (size_t e = 0; e < tensor_elements(&v->t); e++) {
      double now = get(v->t.data, v->t.dtype, e);
      changed += !(now == v->before[e] || (isnan(now) && isnan(v->before[e])));
    }
    EXPECT_INT(changed, 0);
  }
}

static void bench_end(Bench *b) {
  for (int i = 0; i < b->used; i++) {
    device_free(b->dev, b->vars[i].memory);
    free(b->vars[i].before);
  }
  b->used = 0;
}

typedef enum ConvPass { FORWARD, DGRAD, WGRAD } ConvPass;

typedef struct Sums { // Σ terms, Σ |terms| and their number, by element of the result
  double *sum, *size;
  int *terms;
} Sums;

static Sums sums_new(const Tensor *t) {
  size_t n = tensor_elements(t);
  return (Sums){xcalloc(n, sizeof(double)), xcalloc(n, sizeof(double)), xcalloc(n, sizeof(int))};
}
static void sums_free(Sums s) {
  free(s.sum);
  free(s.size);
  free(s.terms);
}

// The definition.
static void direct(ConvPass pass, const Conv *conv, const Var *x, const Var *w, const Var *y, Sums s) {
  const Tensor *xt = &x->t, *wt = &w->t, *yt = &y->t;
  for (int n = 0; n < valid_rows(pass == DGRAD ? yt : xt); n++)
    for (int oy = 0; oy < yt->h; oy++)
      for (int ox = 0; ox < yt->w; ox++)
        for (int r = 0; r < wt->h; r++)
          for (int q = 0; q < wt->w; q++) {
            int iy = oy * conv->stride + r - conv->pad, ix = ox * conv->stride + q - conv->pad;
            if (iy < 0 || iy >= xt->h || ix < 0 || ix >= xt->w) continue;
            for (int k = 0; k < wt->n; k++)
              for (int c = 0; c < wt->c; c++) {
                size_t at_x = offset(xt, n, iy, ix) + c, at_w = offset(wt, k, r, q) + c,
                       at_y = offset(yt, n, oy, ox) + k;
                size_t to = pass == FORWARD ? at_y : pass == DGRAD ? at_x : at_w;
                double term = (pass == DGRAD ? 1 : x->before[at_x]) * (pass == WGRAD ? 1 : w->before[at_w]) *
                              (pass == FORWARD ? 1 : y->before[at_y]);
                s.sum[to] += term;
                s.size[to] += fabs(term);
                s.terms[to]++;
              }
          }
}

static double tolerance(DType type, int terms, double size) {
  return (terms + EXTRA_ROUNDINGS) * ((type == F64 ? 0x1p-53 : 0x1p-24) + 0x1p-53) * size;
}

// The addend of element (n, y, x, c): the element it was upsampled from, the element itself, or its 2 × 2 block.
static double addend_at(const Var *a, const Tensor *t, int n, int y, int x, int c, double *size) {
  const Tensor *at = &a->t;
  int scale_y = at->h == t->h ? 1 : 2, scale_x = at->w == t->w ? 1 : 2;
  double sum = 0;
  for (int v = 0; v < at->h; v++)
    for (int u = 0; u < at->w; u++) {
      bool ours =
          at->h > t->h || at->w > t->w ? v / scale_y == y && u / scale_x == x : v == y / scale_y && u == x / scale_x;
      double value = a->before[offset(at, n, v, u) + c];
      if (ours) {
        sum += value;
        *size += fabs(value);
      }
    }
  return sum;
}

static void check_dest(const Var *out, const Dest *d, const Var *bias, const Var *addend, const Var *mask, Sums s) {
  const Tensor *t = &out->t;
  for (int n = 0; n < valid_rows(t); n++)
    for (int y = 0; y < t->h; y++)
      for (int x = 0; x < t->w; x++)
        for (int c = 0; c < t->ldc; c++) {
          size_t i = offset(t, n, y, x) + c;
          double got = get(t->data, t->dtype, i), want = s.sum[i], size = s.size[i];
          if (c >= t->c) {
            EXPECT_NEAR(got, 0, 0);
            continue;
          }
          if (bias) {
            want += bias->before[c];
            size += fabs(bias->before[c]);
          }
          if (addend) want += addend_at(addend, t, n, y, x, c, &size);
          if (d->accumulate) {
            want += out->before[i];
            size += fabs(out->before[i]);
          }
          if (d->relu) want = fmax(want, 0);
          if (mask && !(mask->before[i] > 0)) want = size = 0;
          EXPECT_NEAR(got, want, tolerance(t->dtype, s.terms[i], size));
        }
}

// Runs the op as the graph does: first the size of its workspace, then, in poisoned workspace, the work.
#define RUN_OP(dev, ...)                                                                                               \
  do {                                                                                                                 \
    (dev)->workspace_bytes = 0;                                                                                        \
    (dev)->measuring = true;                                                                                           \
    __VA_ARGS__;                                                                                                       \
    (dev)->measuring = false;                                                                                          \
    CHECK(device_reserve_workspace(dev, NULL));                                                                        \
    memset((dev)->workspace, 0xff, (dev)->workspace_bytes);                                                            \
    __VA_ARGS__;                                                                                                       \
  } while (0)

typedef struct Problem {
  Conv conv;
  int pairs, n, c, k, r, s;
  int h[MAX_TEST_PAIRS], w[MAX_TEST_PAIRS]; // of x
  int count[MAX_TEST_PAIRS];                // -1: none
} Problem;

static int out_size(int in, int taps, const Conv *conv) { return (in + 2 * conv->pad - taps) / conv->stride + 1; }

static Problem draw_problem(Bench *b) {
  static const int channels[] = {1, 2, 3, 5, 8, 12, 16, 17, 31, 33, 48, 64, 70};
  static const int sizes[] = {1, 1, 2, 3, 3, 3, 7};
  Problem p = {.pairs = 1 + (draw(b, 4) == 0 ? draw(b, MAX_TEST_PAIRS) : 0), .n = 1 + draw(b, 4)};
  p.r = p.s = sizes[draw(b, COUNT(sizes))];
  if (draw(b, 5) == 0) p.s = sizes[draw(b, COUNT(sizes))];
  p.conv = (Conv){.stride = 1 + draw(b, 3), .pad = draw(b, MAX(p.r, p.s) / 2 + 2)};
  p.c = channels[draw(b, COUNT(channels))];
  p.k = p.r * p.s > 9 ? 1 + (int)draw(b, 4) : channels[draw(b, COUNT(channels))];
  for (int i = 0; i < MAX_TEST_PAIRS; i++) {
    p.h[i] = MAX(1, p.r - 2 * p.conv.pad) + draw(b, 6);
    p.w[i] = MAX(1, p.s - 2 * p.conv.pad) + draw(b, 6);
    p.count[i] = draw(b, 4) ? -1 : (int)draw(b, p.n + 1);
  }
  return p;
}

static const int *count_of(const Problem *p, int pair) { return p->count[pair] < 0 ? NULL : &p->count[pair]; }

static Var *x_var(Bench *b, const Problem *p, int i, Fill fill) {
  return var(b, tensor(b->dev->real, p->n, p->h[i], p->w[i], p->c), count_of(p, i), fill);
}
static Var *y_var(Bench *b, const Problem *p, int i, Fill fill) {
  int h = out_size(p->h[i], p->r, &p->conv), w = out_size(p->w[i], p->s, &p->conv);
  return var(b, tensor(b->dev->real, p->n, h, w, p->k), count_of(p, i), fill);
}
static Var *w_var(Bench *b, const Problem *p, Fill fill) {
  return var(b, tensor(b->dev->real, p->k, p->r, p->s, p->c), NULL, fill);
}

static Var *draw_addend(Bench *b, const Tensor *t) {
  int pass = draw(b, 4), h = t->h, w = t->w;
  if (pass == 0) return NULL;
  if (pass == 2) {
    h = (h + 1) / 2;
    w = (w + 1) / 2;
  }
  if (pass == 3) { // an odd size halves to ours, too
    h = 2 * h - draw(b, 2);
    w = 2 * w - draw(b, 2);
  }
  return var(b, tensor(t->dtype, t->n, h, w, t->c), t->count, RANDOM);
}

// Forward or dgrad through random destinations.
static void check_activations(Bench *b, ConvPass pass, Problem p) {
  Var *w = w_var(b, &p, RANDOM), *in[MAX_TEST_PAIRS], *out[MAX_TEST_PAIRS], *addend[MAX_TEST_PAIRS];
  Var *bias[MAX_TEST_PAIRS], *mask[MAX_TEST_PAIRS];
  Tensor inputs[MAX_TEST_PAIRS];
  Dest dests[MAX_TEST_PAIRS];
  for (int i = 0; i < p.pairs; i++) {
    bool accumulate = draw(b, 3) == 0;
    Fill fill = accumulate ? RANDOM : POISON;
    in[i] = pass == FORWARD ? x_var(b, &p, i, RANDOM) : y_var(b, &p, i, RANDOM);
    out[i] = pass == FORWARD ? y_var(b, &p, i, fill) : x_var(b, &p, i, fill);
    const Tensor *t = &out[i]->t;
    addend[i] = draw_addend(b, t);
    mask[i] = draw(b, 3) ? NULL : var(b, *t, t->count, RANDOM);
    bias[i] = draw(b, 2) ? NULL : vector(b, t->c, RANDOM);
    inputs[i] = in[i]->t;
    dests[i] = (Dest){.t = *t,
                      .accumulate = accumulate,
                      .relu = draw(b, 3) == 0,
                      .bias = bias[i] ? bias[i]->t.data : NULL,
                      .addend = addend[i] ? &addend[i]->t : NULL,
                      .mask = mask[i] ? &mask[i]->t : NULL};
  }
  if (pass == FORWARD)
    RUN_OP(b->dev, b->dev->ops->conv_forward(b->dev, &p.conv, p.pairs, inputs, &w->t, dests));
  else
    RUN_OP(b->dev, b->dev->ops->conv_dgrad(b->dev, &p.conv, p.pairs, inputs, &w->t, dests));
  for (int i = 0; i < p.pairs; i++) {
    Sums s = sums_new(&out[i]->t);
    direct(pass, &p.conv, pass == FORWARD ? in[i] : out[i], w, pass == FORWARD ? out[i] : in[i], s);
    check_dest(out[i], &dests[i], bias[i], addend[i], mask[i], s);
    sums_free(s);
  }
  check_untouched(b, (const Var *const *)out, p.pairs);
}

static void check_filter_gradient(Bench *b, Problem p) {
  bool accumulate = draw(b, 2), biased = draw(b, 3);
  Fill fill = accumulate ? RANDOM : POISON;
  Var *dw = w_var(b, &p, fill), *db = biased ? vector(b, p.k, fill) : NULL;
  Var *scale = draw(b, 2) ? vector(b, p.k, RANDOM) : NULL;
  Var *x[MAX_TEST_PAIRS], *dy[MAX_TEST_PAIRS];
  Tensor xs[MAX_TEST_PAIRS], dys[MAX_TEST_PAIRS];
  for (int i = 0; i < p.pairs; i++) {
    x[i] = x_var(b, &p, i, RANDOM);
    dy[i] = y_var(b, &p, i, RANDOM);
    xs[i] = x[i]->t;
    dys[i] = dy[i]->t;
  }
  FilterGrad out = {.dw = dw->t, .accumulate = accumulate};
  out.db = db ? db->t.data : NULL;
  out.scale = scale ? scale->t.data : NULL;
  RUN_OP(b->dev, b->dev->ops->conv_wgrad(b->dev, &p.conv, p.pairs, xs, dys, &out));
  check_untouched(b, (const Var *const[]){dw, db}, 2);

  Sums s = sums_new(&dw->t);
  for (int i = 0; i < p.pairs; i++) direct(WGRAD, &p.conv, x[i], dw, dy[i], s);
  for (size_t i = 0; i < tensor_elements(&dw->t); i++) {
    double factor = scale ? scale->before[i / ((size_t)p.r * p.s * dw->t.ldc)] : 1;
    double old = accumulate ? dw->before[i] : 0, size = s.size[i] * fabs(factor) + fabs(old);
    double want = (int)(i % dw->t.ldc) < p.c ? s.sum[i] * factor + old : 0;
    EXPECT_NEAR(get(dw->t.data, dw->t.dtype, i), want, tolerance(dw->t.dtype, s.terms[i], size));
  }
  sums_free(s);
  for (int k = 0; db && k < p.k; k++) {
    double old = accumulate ? db->before[k] : 0, want = old, size = fabs(old);
    int terms = 0;
    for (int i = 0; i < p.pairs; i++)
      for (size_t at_y = k; at_y < offset(&dy[i]->t, valid_rows(&dy[i]->t), 0, 0); at_y += dy[i]->t.ldc, terms++) {
        want += dy[i]->before[at_y];
        size += fabs(dy[i]->before[at_y]);
      }
    EXPECT_NEAR(get(db->t.data, db->t.dtype, k), want, tolerance(db->t.dtype, terms, size));
  }
}

static void check_bias_gradient(Bench *b, Problem p) {
  bool accumulate = draw(b, 2);
  Var *dy = y_var(b, &p, 0, RANDOM), *db = vector(b, p.k, accumulate ? RANDOM : POISON);
  RUN_OP(b->dev, b->dev->ops->bias_grad(b->dev, &dy->t, db->t.data, accumulate));
  check_untouched(b, (const Var *const[]){db}, 1);
  for (int k = 0; k < p.k; k++) {
    double old = accumulate ? db->before[k] : 0, want = old, size = fabs(old);
    int terms = 0;
    for (size_t i = k; i < offset(&dy->t, valid_rows(&dy->t), 0, 0); i += dy->t.ldc, terms++) {
      want += dy->before[i];
      size += fabs(dy->before[i]);
    }
    EXPECT_NEAR(get(db->t.data, db->t.dtype, k), want, tolerance(db->t.dtype, terms, size));
  }
}

static void check_shadow(Bench *b, Problem p) {
  Var *master = w_var(b, &p, RANDOM), *scale = draw(b, 2) ? vector(b, p.k, RANDOM) : NULL,
      *shadow = w_var(b, &p, POISON);
  RUN_OP(b->dev, b->dev->ops->filter_shadow(b->dev, &master->t, scale ? scale->t.data : NULL, &shadow->t));
  check_untouched(b, (const Var *const[]){shadow}, 1);
  for (size_t i = 0; i < tensor_elements(&shadow->t); i++) {
    double want = master->before[i] * (scale ? scale->before[i / ((size_t)p.r * p.s * shadow->t.ldc)] : 1);
    EXPECT_NEAR(get(shadow->t.data, shadow->t.dtype, i), want, tolerance(shadow->t.dtype, 0, fabs(want)));
  }
}

static void check_all(Bench *b, Problem p) {
  check_activations(b, FORWARD, p);
  bench_end(b);
  check_activations(b, DGRAD, p);
  bench_end(b);
  check_filter_gradient(b, p);
  bench_end(b);
  check_bias_gradient(b, p);
  bench_end(b);
  check_shadow(b, p);
  bench_end(b);
}

// Sizes at which the blocks of the implementation end and forms that it treats apart: random problems seldom reach
// them. Each is run with several random destinations.
static const Problem chosen_problems[] = {
    {.conv = {1, 1}, .pairs = 1, .n = 2, .h = {9}, .w = {11}, .c = 70, .k = 33, .r = 3, .s = 3, .count = {-1}},
    {.conv = {1, 0}, .pairs = 1, .n = 3, .h = {2}, .w = {3}, .c = 530, .k = 540, .r = 1, .s = 1, .count = {-1}},
    {.conv = {1, 1}, .pairs = 2, .n = 2, .h = {37, 9}, .w = {29, 5}, .c = 5, .k = 3, .r = 3, .s = 3, .count = {-1, 1}},
    {.conv = {2, 3}, .pairs = 1, .n = 3, .h = {41}, .w = {38}, .c = 3, .k = 4, .r = 7, .s = 7, .count = {-1}},
    {.conv = {1, 0}, .pairs = 1, .n = 20, .h = {7}, .w = {7}, .c = 16, .k = 24, .r = 7, .s = 7, .count = {17}},
    {.conv = {1, 0}, .pairs = 1, .n = 4, .h = {2}, .w = {3}, .c = 8, .k = 5, .r = 2, .s = 3, .count = {-1}},
    {.conv = {2, 0}, .pairs = 1, .n = 3, .h = {14}, .w = {14}, .c = 48, .k = 64, .r = 2, .s = 2, .count = {2}},
};

// On one thread, for the problems are small and a busy machine is slow to gather more; that more give the same bits is
// tested below.
static void check_device(const char *name, int problems) {
  int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  Bench b = {.dev = device_open(name, NULL), .key = rng_key(RNG_TEST, 1)};
  for (int i = 0; i < problems; i++) check_all(&b, draw_problem(&b));
  for (int i = 0; i < 4 * COUNT(chosen_problems); i++) check_all(&b, chosen_problems[i % COUNT(chosen_problems)]);
  device_close(b.dev);
  omp_set_num_threads(threads);
}

// Dense layers of a classifier, an image a row.
TEST(conv_of_dense_layers) {
  const int rows[] = {1, 2, 7, 64, 128};
  Bench b = {.dev = device_open("cpu", NULL), .key = rng_key(RNG_TEST, 2)};
  Problem p = {.conv = {1, 0}, .pairs = 1, .h = {1}, .w = {1}, .c = 512, .k = 512, .r = 1, .s = 1, .count = {-1}};
  for (int i = 0; i < COUNT(rows); i++) {
    p.n = rows[i];
    check_all(&b, p);
  }
  p.k = 10;
  check_all(&b, p);
  device_close(b.dev);
}

TEST(conv_random_float) { check_device("cpu", 120); }
TEST(conv_random_double) { check_device("cpu64", 120); }
// Those that "cpu" does not take here.
TEST(conv_at_other_levels) {
  const Ops *best = ops_of_cpu();
  for (int level = 2; level <= MAX_CPU_LEVEL; level++) {
    char name[16];
    snprintf(name, sizeof name, "cpu-v%d", level);
    Device *dev = ops_cpu_levels[level] == best ? NULL : device_open(name, NULL);
    if (dev) check_device(name, 40);
    device_close(dev);
  }
}

static double dot(const Tensor *a, const Tensor *b) {
  double sum = 0;
  for (size_t i = 0; i < tensor_elements(a); i++) sum += get(a->data, a->dtype, i) * get(b->data, b->dtype, i);
  return sum;
}

// conv is linear in x and in w, so ⟨dy, conv(x, w)⟩ = ⟨dgrad(dy, w), x⟩ = ⟨wgrad(x, dy), w⟩ in double: the three ops
// are each other's gradients, whatever they compute.
TEST(conv_gradients_are_adjoint) {
  Bench b = {.dev = device_open("cpu64", NULL), .key = rng_key(RNG_TEST, 2)};
  for (int i = 0; i < 50; i++, bench_end(&b)) {
    Problem p = draw_problem(&b);
    p.pairs = 1;
    p.count[0] = -1;
    Var *x = x_var(&b, &p, 0, RANDOM), *w = w_var(&b, &p, RANDOM), *dy = y_var(&b, &p, 0, RANDOM);
    Var *y = y_var(&b, &p, 0, POISON), *dx = x_var(&b, &p, 0, POISON), *dw = w_var(&b, &p, POISON);
    Dest to_y = {.t = y->t}, to_dx = {.t = dx->t};
    FilterGrad to_dw = {.dw = dw->t};
    RUN_OP(b.dev, b.dev->ops->conv_forward(b.dev, &p.conv, 1, &x->t, &w->t, &to_y));
    RUN_OP(b.dev, b.dev->ops->conv_dgrad(b.dev, &p.conv, 1, &dy->t, &w->t, &to_dx));
    RUN_OP(b.dev, b.dev->ops->conv_wgrad(b.dev, &p.conv, 1, &x->t, &dy->t, &to_dw));
    // Each product sums, in some nesting, the same `terms` terms; all are below 1.
    double terms = (double)tensor_pixels(&dy->t) * p.k * p.r * p.s * p.c, want = dot(&dy->t, &y->t);
    double longest = (double)p.r * p.s * (p.c + p.k) + tensor_elements(&x->t) + tensor_elements(&y->t);
    double within = 2 * (longest + tensor_elements(&w->t)) * 0x1p-53 * terms;
    EXPECT_NEAR(dot(&dx->t, &x->t), want, within);
    EXPECT_NEAR(dot(&dw->t, &w->t), want, within);
  }
  device_close(b.dev);
}

// Runs all three ops of a problem and returns a hash of their bits.
static uint64_t result_bits(const char *device, Problem p, int threads) {
  Bench b = {.dev = device_open(device, NULL), .key = rng_key(RNG_TEST, 3)};
  omp_set_num_threads(threads);
  Var *w = w_var(&b, &p, RANDOM), *dw = w_var(&b, &p, POISON), *db = vector(&b, p.k, POISON);
  Tensor x[MAX_TEST_PAIRS], dy[MAX_TEST_PAIRS];
  Dest to_y[MAX_TEST_PAIRS], to_dx[MAX_TEST_PAIRS];
  for (int i = 0; i < p.pairs; i++) {
    x[i] = x_var(&b, &p, i, RANDOM)->t;
    dy[i] = y_var(&b, &p, i, RANDOM)->t;
    to_y[i] = (Dest){.t = y_var(&b, &p, i, POISON)->t};
    to_dx[i] = (Dest){.t = x_var(&b, &p, i, POISON)->t};
  }
  FilterGrad to_dw = {.dw = dw->t, .db = db->t.data};
  RUN_OP(b.dev, b.dev->ops->conv_forward(b.dev, &p.conv, p.pairs, x, &w->t, to_y));
  RUN_OP(b.dev, b.dev->ops->conv_dgrad(b.dev, &p.conv, p.pairs, dy, &w->t, to_dx));
  RUN_OP(b.dev, b.dev->ops->conv_wgrad(b.dev, &p.conv, p.pairs, x, dy, &to_dw));
  uint64_t hash = 0;
  for (int i = 0; i < b.used; i++)
    for (size_t byte = 0; byte < tensor_bytes(&b.vars[i].t); byte += sizeof(float)) {
      uint32_t word;
      memcpy(&word, (const char *)b.vars[i].t.data + byte, sizeof word);
      hash = rng_key(hash, word);
    }
  bench_end(&b);
  device_close(b.dev);
  return hash;
}

// Where there is fused multiply-add: x86-64-v3 and later. The last problem is cut into slices, tiles of both heights.
TEST(conv_bits_do_not_depend_on_level) {
  const Problem sliced = {
      .conv = {1, 1}, .pairs = 1, .n = 2, .h = {64}, .w = {64}, .c = 72, .k = 48, .r = 3, .s = 3, .count = {-1}};
  Device *v4 = device_open("cpu-v4", NULL);
  if (!v4) test_skip("this CPU or build has no x86-64-v4");
  device_close(v4);
  int threads = omp_get_max_threads();
  for (int i = 0; i <= COUNT(chosen_problems); i++) {
    const Problem *p = i < COUNT(chosen_problems) ? &chosen_problems[i] : &sliced;
    EXPECT(result_bits("cpu-v3", *p, 1) == result_bits("cpu-v4", *p, 1));
  }
  omp_set_num_threads(threads);
}

TEST(conv_bits_do_not_depend_on_threads) {
  int threads = omp_get_max_threads();
  for (int i = 0; i < COUNT(chosen_problems); i++) {
    for (int d = 0; d < 2; d++) {
      const char *device = d ? "cpu64" : "cpu";
      uint64_t one = result_bits(device, chosen_problems[i], 1);
      for (int t = 2; t <= 5; t++) EXPECT(result_bits(device, chosen_problems[i], t) == one);
    }
  }
  omp_set_num_threads(threads);
}
