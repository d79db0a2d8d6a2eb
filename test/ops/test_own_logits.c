// Catches logits of objects' own classes, or their gradients, that are not those of a convolution of all classes.
//
// Against the definition in double, with more channels than a warp loads at once, few pixels and many, objects of one
// class, of many, and none; through every combination of what a Dest does. The losses' tests take both forms.
#include "test/harness/loss_fixture.h"
#include "test/harness/op_fixture.h"

typedef struct Case {
  int capacity, count, classes, h, w, c;
} Case;
static const Case cases[] = {{5, 4, 7, 3, 5, 11},   {3, 3, 2, 1, 1, 1},     {3, 3, 3, 7, 9, 256}, {2, 0, 4, 2, 2, 8},
                             {70, 67, 5, 4, 4, 40}, {4, 3, 91, 11, 13, 24}, {2, 2, 5, 3, 5, 520}};

typedef struct Args {
  RoiTargets targets;
  Tensor x, w, bias, dlogits;
} Args;

static Args args_make(Fixture *f, const Case *k, int seed) {
  Draw d = draw_begin(seed);
  Args a = {.targets.objects = {.capacity = k->capacity, .count = fixture_count(f, k->count)},
            .targets.object_label = fixture_ints(f, k->capacity)};
  for (int i = 0; i < k->count; i++) a.targets.object_label[i] = seed % 2 ? k->classes - 1 : below(&d, k->classes);
  a.x = fixture_map(f, k->capacity, k->h, k->w, k->c);
  a.w = fixture_map(f, k->classes, 1, 1, k->c);
  a.bias = fixture_packed(f, 1, k->classes);
  a.dlogits = fixture_single(f, k->capacity, k->h, k->w);
  fill_normal(&d, &a.x, 1);
  fill_normal(&d, &a.w, 0.3);
  fill_random(&d, &a.bias, -1, 1);
  fill_normal(&d, &a.dlogits, 1);
  a.x.count = a.dlogits.count = a.targets.objects.count;
  return a;
}

// A sum of n terms in any order is off by n roundings of their magnitudes.
static double sum_bound(const Fixture *f, int n, double magnitude) {
  return (n + 2) * unit_roundoff(f->dev->real) * magnitude;
}

static void check_logits(Fixture *f, const Args *a, const Case *k) {
  Tensor logits = fixture_single(f, k->capacity, k->h, k->w);
  RUN(f, own_logits, &a->targets, &a->x, &a->w, a->bias.data, &logits, NULL);
  for (int n = 0; n < k->count; n++)
    for (int y = 0; y < k->h; y++)
      for (int x = 0; x < k->w; x++) {
        const int class = a->targets.object_label[n];
        double want = get(&a->bias, 0, 0, 0, class), magnitude = fabs(want);
        for (int c = 0; c < k->c; c++) {
          const double term = get(&a->x, n, y, x, c) * get(&a->w, class, 0, 0, c);
          want += term;
          magnitude += fabs(term);
        }
        EXPECT_NEAR(get(&logits, n, y, x, 0), want, sum_bound(f, k->c, magnitude));
      }
}

static void check_filter(Fixture *f, const Args *a, const Case *k, const FilterGrad *out, const Tensor *db,
                         double before) {
  for (int class = 0; class < k->classes; class ++)
    for (int c = 0; c <= k->c; c++) { // the bias behind the channels
      double want = before, magnitude = fabs(before);
      int terms = 0;
      for (int n = 0; n < k->count; n++)
        for (int i = 0; a->targets.object_label[n] == class && i < k->h * k->w; i++, terms++) {
          const int y = i / k->w, x = i % k->w;
          const double term = get(&a->dlogits, n, y, x, 0) * (c < k->c ? get(&a->x, n, y, x, c) : 1);
          want += term;
          magnitude += fabs(term);
        }
      const double got = c < k->c ? get(&out->dw, class, 0, 0, c) : get(db, 0, 0, 0, class);
      EXPECT_NEAR(got, want, sum_bound(f, terms, magnitude));
    }
}

static void check_gradients(Fixture *f, const Args *a, const Case *k, int flags) {
  const bool accumulate = flags & 1, masked = flags & 2, added = flags & 4, by_x = flags & 8;
  Draw d = draw_begin(flags);
  Tensor dx = fixture_tensor(f, a->x), mask = fixture_tensor(f, a->x), addend = fixture_tensor(f, a->x);
  Tensor dw = fixture_typed(f, f->dev->real, k->classes, 1, 1, k->c), db = fixture_packed(f, 1, k->classes);
  Tensor old = fixture_tensor(f, a->x);
  fill_normal(&d, &mask, 1);
  fill_normal(&d, &addend, 1);
  fill_normal(&d, &old, 1);
  if (accumulate) {
    for (size_t i = 0; i < tensor_elements(&dx); i++) set_at(&dx, i, get_at(&old, i));
    for (size_t i = 0; i < tensor_elements(&dw); i++) set_at(&dw, i, (int)(i % (size_t)dw.ldc) < k->c ? 3 : 0);
    for (int i = 0; i < k->classes; i++) put(&db, 0, 0, 0, i, 3);
  }
  const Tensor *keep = by_x ? &a->x : &mask;
  const Dest to = {.t = dx, .accumulate = accumulate, .mask = masked ? keep : NULL, .addend = added ? &addend : NULL};
  const FilterGrad out = {.dw = dw, .db = db.data, .accumulate = accumulate};
  f->dev->ops->own_logits_backward(f->dev, &a->targets, &a->x, &a->w, &a->dlogits, &to, &out);
  fixture_done(f);
  for (int n = 0; n < k->count; n++)
    for (int y = 0; y < k->h; y++)
      for (int x = 0; x < k->w; x++)
        for (int c = 0; c < k->c; c++) {
          const double product = get(&a->dlogits, n, y, x, 0) * get(&a->w, a->targets.object_label[n], 0, 0, c);
          const double before = accumulate ? get(&old, n, y, x, c) : 0, other = added ? get(&addend, n, y, x, c) : 0;
          const bool kept = !masked || get(keep, n, y, x, c) > 0;
          const double want = kept ? product + before + other : 0;
          const double magnitude = fabs(product) + fabs(before) + fabs(other);
          EXPECT_NEAR(get(&dx, n, y, x, c), want, sum_bound(f, 3, magnitude) + stored_rounding(dx.dtype, want));
        }
  check_filter(f, a, k, &out, &db, accumulate ? 3 : 0);
}

TEST_TYPES(own_logits_equal_definition) {
  for (int i = 0; i < COUNT(cases); i++)
    for (int seed = 0; seed < 2; seed++) {
      const Args a = args_make(f, &cases[i], seed);
      fixture_freeze(f);
      check_logits(f, &a, &cases[i]);
      for (int flags = 0; flags < 16; flags += i ? 5 : 1) {
        fixture_measure(f);
        f->dev->ops->own_logits_backward(f->dev, &a.targets, &a.x, &a.w, &a.dlogits, &(Dest){.t = a.x},
                                         &(FilterGrad){.dw = a.w});
        fixture_ready(f);
        check_gradients(f, &a, &cases[i], flags);
      }
      fixture_clear(f);
    }
}
