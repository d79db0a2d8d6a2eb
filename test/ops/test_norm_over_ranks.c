// Catches batch norm over several ranks that differs from its definition, or from one device with the whole batch.
#include <omp.h>
#include "test/harness/gradcheck.h"
#include "test/harness/norm_args.h"

// One rank's part of a batch, and what all ranks tell each other.
typedef struct NormPart {
  NormCase k;
  NormArgs a;
  int parts, at;        // at: which of them this is
  Tensor moments, sums; // [parts, 3, c]
  Dest y, dx;
} NormPart;
enum { MAX_PARTS = 4 };

static void *own(const NormPart *p, const Tensor *told) {
  return (char *)told->data + (size_t)p->at * tensor_bytes(told) / (size_t)p->parts;
}
static void run_moments(Device *dev, void *context, const Dest *none) {
  (void)none;
  const NormPart *p = context;
  dev->ops->batch_norm_moments(dev, &p->a.x, own(p, &p->moments));
}
static void run_forward_merged(Device *dev, void *context, const Dest *y) {
  const NormPart *p = context;
  const NormArgs *a = &p->a;
  dev->ops->batch_norm_forward_merged(dev, eps, momentum, p->parts, p->moments.data, &a->x, a->gamma.data, a->beta.data,
                                      a->no_running ? NULL : a->running_mean.data,
                                      a->no_running ? NULL : a->running_var.data, a->stats.data, y);
}
static void run_sums(Device *dev, void *context, const Dest *none) {
  (void)none;
  const NormPart *p = context;
  const NormArgs *a = &p->a;
  dev->ops->batch_norm_sums(dev, &a->x, &a->dy, a->stats.data, own(p, &p->sums),
                            a->no_gradients ? NULL : a->dgamma.data, a->no_gradients ? NULL : a->dbeta.data,
                            a->accumulate);
}
static void run_backward_merged(Device *dev, void *context, const Dest *dx) {
  const NormPart *p = context;
  const NormArgs *a = &p->a;
  dev->ops->batch_norm_backward_merged(dev, p->parts, p->sums.data, &a->x, &a->dy, a->gamma.data, a->stats.data, dx);
}

// The first of so many parts; what the others tell is still NaN.
static void part_make(Fixture *f, NormPart *p, const NormCase *k, int parts, uint64_t key) {
  *p = (NormPart){.k = *k, .parts = parts};
  p->a = norm_args(f, &p->k, key);
  p->moments = fixture_packed(f, parts, 3 * k->c);
  p->sums = fixture_packed(f, parts, 3 * k->c);
  p->y.t = fixture_tensor(f, p->a.x);
  p->dx.t = fixture_tensor(f, p->a.x);
}

// ---- each op by its definition --------------------------------------------------------------------------------------

static double told(const Tensor *t, int part, int which, int c) { return get(t, part, 0, 0, which * (t->c / 3) + c); }
static double steps_of(const Fixture *f) { return (f->dev->gpu ? NORM_STEPS : 70) * unit_roundoff(f->type); }
static bool unchanged(const Tensor *t, const Tensor *before) { return !memcmp(t->data, before->data, tensor_bytes(t)); }

// Part 1 has no values, part 2 has 7 in every channel.
static void tell_others(const Tensor *t, double first, double second) {
  const double of_last[] = {7, first, second};
  for (int i = 0; i < t->c; i++) {
    put(t, 1, 0, 0, i, 0);
    put(t, 2, 0, 0, i, of_last[i / (t->c / 3)]);
  }
}

// Every deviation d is off by u · L with L = max |x|: Σ d² by 2 · Σ |d| of that, and Σ |d| ≤ √(n · Σ d²).
static void check_moments(Fixture *f, NormPart *p) {
  const NormArgs *a = &p->a;
  run_op(f->dev, run_moments, p, NULL);
  const SampleStats *s = norm_stats(f, a);
  for (int c = 0; c < p->k.c; c++) {
    const double n = (double)s[c].count, m2 = (double)s[c].variance * n, off = steps_of(f) * a->largest;
    EXPECT(told(&p->moments, 0, 0, c) == n);
    EXPECT_NEAR(told(&p->moments, 0, 1, c), (double)s[c].mean, off);
    EXPECT_NEAR(told(&p->moments, 0, 2, c), m2, steps_of(f) * m2 + 2 * off * sqrt(n * m2) + n * off * off);
  }
}

// The statistics of all parts, by definition, from what they tell.
static SampleStats *merge(Fixture *f, const Tensor *moments) {
  const int c = moments->c / 3;
  SampleStats *s = memset(fixture_alloc(f, (size_t)c * sizeof *s), 0, (size_t)c * sizeof *s);
  for (int i = 0; i < c; i++) {
    for (int part = 0; part < moments->n; part++) {
      s[i].count += told(moments, part, 0, i);
      s[i].mean += (long double)told(moments, part, 0, i) * told(moments, part, 1, i);
    }
    s[i].mean /= s[i].count;
    for (int part = 0; part < moments->n; part++) {
      long double d = told(moments, part, 1, i) - s[i].mean;
      s[i].variance += told(moments, part, 2, i) + told(moments, part, 0, i) * d * d;
    }
    s[i].variance /= s[i].count;
  }
  return s;
}

static SampleStats *written_stats(Fixture *f, const NormArgs *a) {
  SampleStats *s = fixture_alloc(f, (size_t)a->k->c * sizeof *s);
  for (int c = 0; c < a->k->c; c++) {
    const long double inv_std = get(&a->stats, 0, 0, 0, 2 * c + 1);
    s[c] = (SampleStats){.mean = get(&a->stats, 0, 0, 0, 2 * c), .variance = 1 / (inv_std * inv_std) - eps};
  }
  return s;
}

// Parts are merged in double, and the result rounded once; y is by the statistics that are written.
static NormExpected check_forward_merged(Fixture *f, NormPart *p) {
  const NormArgs *a = &p->a;
  const SampleStats *s = merge(f, &p->moments);
  const Tensor mean = norm_copy(f, &a->running_mean), var = norm_copy(f, &a->running_var);
  const Tensor before = norm_copy(f, &p->moments);
  run_op(f->dev, run_forward_merged, p, &p->y);
  const double m = momentum, rounded = 2.01 * unit_roundoff(f->type);
  for (int c = 0; c < p->k.c; c++) {
    double largest = 0;
    for (int part = 0; part < p->parts; part++) largest = fmax(largest, fabs(told(&p->moments, part, 1, c)));
    const double v = (double)s[c].variance, n = (double)s[c].count, inv_std = 1 / sqrt(v + eps);
    // A GPU takes squares about the first part's mean, which is 0 where that has no values.
    const double u = (16 + 2 * p->parts) * 0x1p-53;
    const double of_v = u * (v + largest * (f->dev->gpu ? largest : sqrt(v)));
    double want = (1 - m) * get(&mean, 0, 0, 0, c) + m * (double)s[c].mean;
    EXPECT_NEAR(get(&a->stats, 0, 0, 0, 2 * c), (double)s[c].mean, rounded * fabs((double)s[c].mean) + u * largest);
    EXPECT_NEAR(get(&a->stats, 0, 0, 0, 2 * c + 1), inv_std, (rounded + u + of_v * inv_std * inv_std) * inv_std);
    EXPECT_NEAR(get(&a->running_mean, 0, 0, 0, c), want, rounded * fabs(want) + u * (1 + largest));
    want = (1 - m) * get(&var, 0, 0, 0, c) + m * v * n / (n - 1);
    EXPECT_NEAR(get(&a->running_var, 0, 0, 0, c), want, rounded * want + 2 * of_v + u * want);
  }
  const NormExpected of_y = norm_define_forward(f, a, written_stats(f, a), true);
  norm_check(a, &p->y.t, &of_y);
  EXPECT(unchanged(&p->moments, &before));
  return of_y;
}

static void check_sums(Fixture *f, NormPart *p) {
  const NormArgs *a = &p->a;
  const Tensor dgamma = norm_copy(f, &a->dgamma), dbeta = norm_copy(f, &a->dbeta), stats = norm_copy(f, &a->stats);
  const NormGradients want = norm_define_backward(f, a);
  run_op(f->dev, run_sums, p, NULL);
  for (int c = 0; c < p->k.c; c++) {
    const double of_dbeta = steps_of(f) * want.of_dbeta[c], of_dgamma = steps_of(f) * want.of_dgamma[c];
    double b = a->accumulate ? get(&dbeta, 0, 0, 0, c) : 0, g = a->accumulate ? get(&dgamma, 0, 0, 0, c) : 0;
    EXPECT(told(&p->sums, 0, 0, c) == (double)p->k.rows * p->k.h * p->k.w);
    EXPECT_NEAR(told(&p->sums, 0, 1, c), want.dbeta[c], of_dbeta);
    EXPECT_NEAR(told(&p->sums, 0, 2, c), want.dgamma[c], of_dgamma);
    EXPECT_NEAR(get(&a->dbeta, 0, 0, 0, c), b + want.dbeta[c], of_dbeta + steps_of(f) * fabs(b));
    EXPECT_NEAR(get(&a->dgamma, 0, 0, 0, c), g + want.dgamma[c], of_dgamma + steps_of(f) * fabs(g));
  }
  EXPECT(unchanged(&a->stats, &stats));
}

// dx = gamma / std · (dy - Σ dy / n - x̂ · Σ dy · x̂ / n), the sums and n being those of all parts.
static NormExpected check_backward_merged(Fixture *f, NormPart *p) {
  const NormArgs *a = &p->a;
  const Tensor before = norm_copy(f, &p->sums);
  NormExpected of = norm_expected(f, &a->x);
  for (NormElement e = norm_first; norm_next(a, &e);) {
    double n = 0, sum = 0, dot = 0, of_sum = 0, of_dot = 0, inv_std = norm_given(a, &e, 1);
    double normed = (norm_get(&a->x, &e) - norm_given(a, &e, 0)) * inv_std, dy = norm_get(&a->dy, &e);
    for (int part = 0; part < p->parts; part++) {
      n += told(&p->sums, part, 0, e.c);
      sum += told(&p->sums, part, 1, e.c);
      dot += told(&p->sums, part, 2, e.c);
      of_sum += fabs(told(&p->sums, part, 1, e.c));
      of_dot += fabs(told(&p->sums, part, 2, e.c));
    }
    const double scale = get(&a->gamma, 0, 0, 0, e.c) * inv_std;
    norm_expect(&of, &e, f->type, scale * (dy - sum / n - normed * dot / n),
                steps_of(f) * scale * (fabs(dy) + (of_sum + fabs(normed) * of_dot) / n));
  }
  run_op(f->dev, run_backward_merged, p, &p->dx);
  norm_check(a, &p->dx.t, &of);
  EXPECT(unchanged(&p->sums, &before));
  return of;
}

// All four ops in turn; `dests`: and every Dest of the two that take one.
static void check_part(Fixture *f, const NormCase *k, bool accumulate, bool dests, uint64_t key) {
  NormPart p;
  part_make(f, &p, k, 3, key);
  p.a.accumulate = accumulate;
  check_moments(f, &p);
  tell_others(&p.moments, 0.5 + k->mean, 3);
  const NormExpected of_y = check_forward_merged(f, &p);
  check_sums(f, &p);
  tell_others(&p.sums, 2, -3);
  const NormExpected of_dx = check_backward_merged(f, &p);
  if (dests) {
    check_dests_within(f->dev, run_forward_merged, &p, &p.a.x, f->dev->gpu ? &of_y.bound : NULL, key + 1);
    check_dests_within(f->dev, run_backward_merged, &p, &p.a.x, f->dev->gpu ? &of_dx.bound : NULL, key + 2);
  }
  fixture_clear(f);
}

TEST_TYPES(norm_over_ranks_equals_definition) {
  for (int i = 0; i < COUNT(norm_cases); i++)
    if (!norm_cases[i].groups) check_part(f, &norm_cases[i], i % 2, false, (uint64_t)i);
}

TEST_GPU_TIER(cuda_norm_over_ranks_of_large_tensors, 1) {
  f->type = BF16;
  check_part(f, &(NormCase){2, 110, 200, 256, 0, 2, 100}, false, false, 1);
}

TEST_TYPES(norm_over_ranks_honours_dest) {
  check_part(f, &(NormCase){2, 3, 4, 5, 0, 2, 0}, false, true, 3);
  check_part(f, &(NormCase){3, 3, 4, 5, 0, 2, 0}, false, true, 3);
  if (f->dev->gpu) check_part(f, &(NormCase){3, 9, 40, 8, 0, 2, 0}, false, true, 3); // several pixels for a thread, too
}

// What a convolution tells: more parts than a threadblock has lanes, and than those load ahead. Parts of 1 to 64
// values, and of none, the first among these.
TEST_TYPES(norm_merges_thousands_of_parts) {
  const int parts[] = {2, 127, 128, 129, 1024, 1025, 2500};
  for (int i = 0; i < COUNT(parts); i++) {
    const NormCase k = {2, 3, 5, 5 + 17 * i, 0, 2, i % 2 ? 100 : 0};
    NormPart p;
    part_make(f, &p, &k, parts[i], (uint64_t)i);
    Draw d = draw_begin(i);
    Tensor normal = fixture_packed(f, parts[i], 2 * k.c);
    fill_normal(&d, &normal, 1);
    for (int part = 0; part < parts[i]; part++)
      for (int c = 0; c < k.c; c++) {
        const double n = part % 7 ? 1 + part % 64 : 0, v = get(&normal, part, 0, 0, 2 * c + 1);
        put(&p.moments, part, 0, 0, c, n);
        put(&p.moments, part, 0, 0, k.c + c, k.mean + get(&normal, part, 0, 0, 2 * c));
        put(&p.moments, part, 0, 0, 2 * k.c + c, n * v * v);
      }
    check_forward_merged(f, &p);
    fixture_clear(f);
  }
}

// What is told, bit for bit, for the ranks' statistics follow from it; and the parts' gradients.
TEST_TYPES(norm_over_ranks_same_bits_for_any_threads) {
  NormPart p;
  part_make(f, &p, &(NormCase){3, 30, 25, 16, 0, 3, 0}, 1, 1);
  const Tensor *all[] = {&p.moments, &p.a.stats, &p.sums, &p.a.dgamma, &p.a.dbeta};
  Tensor first[COUNT(all)];
  int threads = omp_get_max_threads();
  for (int t = 1; t <= 3; t++) {
    omp_set_num_threads(t);
    run_op(f->dev, run_moments, &p, NULL);
    run_op(f->dev, run_forward_merged, &p, &p.y);
    run_op(f->dev, run_sums, &p, NULL);
    for (int i = 0; i < COUNT(all); i++) {
      if (t == 1) first[i] = norm_copy(f, all[i]);
      EXPECT(same_bits(all[i], &first[i]));
    }
  }
  omp_set_num_threads(threads);
}

// Without running statistics or gradients of parameters: the rest has the same bits, and nothing else is written.
TEST_TYPES(norm_over_ranks_leaves_out_what_is_not_wanted) {
  NormPart p;
  part_make(f, &p, &(NormCase){2, 3, 3, 16, 0, 2, 0}, 1, 1);
  run_op(f->dev, run_moments, &p, NULL);
  run_op(f->dev, run_forward_merged, &p, &p.y);
  run_op(f->dev, run_sums, &p, NULL);
  Tensor *kept[] = {&p.y.t, &p.a.stats, &p.sums, &p.a.running_mean, &p.a.running_var, &p.a.dgamma, &p.a.dbeta};
  Tensor before[COUNT(kept)];
  for (int i = 0; i < COUNT(kept); i++) before[i] = norm_copy(f, kept[i]);
  p.a.no_running = p.a.no_gradients = true;
  for (int i = 0; i < 3; i++) memset(kept[i]->data, 0xff, tensor_bytes(kept[i]));
  run_op(f->dev, run_forward_merged, &p, &p.y);
  run_op(f->dev, run_sums, &p, NULL);
  for (int i = 0; i < COUNT(kept); i++) EXPECT(same_bits(kept[i], &before[i]));
  const NormArgs *a = &p.a; // dgamma alone
  RUN(f, batch_norm_sums, &a->x, &a->dy, a->stats.data, p.sums.data, a->dgamma.data, NULL, true);
  EXPECT(same_bits(&a->dbeta, &before[6]));
  for (int c = 0; c < a->k->c; c++) {
    double once = get(&before[5], 0, 0, 0, c);
    EXPECT_NEAR(get(&a->dgamma, 0, 0, 0, c), 2 * once, 4 * unit_roundoff(f->type) * fabs(once));
  }
}

// ---- all ranks together ---------------------------------------------------------------------------------------------

static void copy_rows(const Tensor *to, const Tensor *from, int first) {
  size_t row = tensor_bytes(from) / (size_t)from->n;
  memcpy(to->data, (const char *)from->data + (size_t)first * row, (size_t)valid_rows(to) * row);
}

// One device with all and so many ranks with `rows` of it each, and one more past their count.
typedef struct NormRanks {
  Device *dev;
  NormArgs whole;
  Dest y, dx; // of the whole
  int count;
  NormPart part[MAX_PARTS];
} NormRanks;
static void ranks_make(Fixture *f, NormRanks *r, const NormCase *k, int count, const int rows[], uint64_t key) {
  int first = 0;
  *r = (NormRanks){.dev = f->dev, .whole = norm_inputs(f, k, key), .count = count};
  for (int i = 0; i < count; first += rows[i++]) {
    NormPart *p = &r->part[i];
    *p = (NormPart){.k = *k, .parts = count, .at = i};
    p->k.rows = rows[i];
    p->k.n = rows[i] + 1;
    p->a = norm_inputs(f, &p->k, key);
    copy_rows(&p->a.x, &r->whole.x, first);
    copy_rows(&p->a.dy, &r->whole.dy, first);
  }
  CHECK(first == k->rows);
  fixture_freeze(f);
  norm_outputs(f, &r->whole, key);
  r->y.t = fixture_tensor(f, r->whole.x);
  r->dx.t = fixture_tensor(f, r->whole.x);
  const Tensor moments = fixture_packed(f, count, 3 * k->c), sums = fixture_packed(f, count, 3 * k->c);
  for (int i = 0; i < count; i++) {
    NormPart *p = &r->part[i];
    norm_outputs(f, &p->a, key);
    p->moments = moments;
    p->sums = sums;
    p->y.t = fixture_tensor(f, p->a.x);
    p->dx.t = fixture_tensor(f, p->a.x);
  }
}
static void ranks_forward(NormRanks *r) {
  for (int i = 0; i < r->count; i++) run_op(r->dev, run_moments, &r->part[i], NULL);
  for (int i = 0; i < r->count; i++) run_op(r->dev, run_forward_merged, &r->part[i], &r->part[i].y);
}
static void ranks_backward(NormRanks *r) {
  for (int i = 0; i < r->count; i++) run_op(r->dev, run_sums, &r->part[i], NULL);
  for (int i = 0; i < r->count; i++) run_op(r->dev, run_backward_merged, &r->part[i], &r->part[i].dx);
}
static void run_both(NormRanks *r) {
  run_op(r->dev, norm_forward, &r->whole, &r->y);
  run_op(r->dev, norm_backward, &r->whole, &r->dx);
  ranks_forward(r);
  ranks_backward(r);
}

// Of any element of dx. It is made of dy, mean(dy) and x̂ · mean(dy · x̂), each ≤ 1 times powers of the spread that
// bounds |x̂|, over the standard deviation; sums are off by some u of that. x̂ itself is off by as many u of max |x| in
// standard deviations, as in the forward pass, and enters twice.
static double backward_bound(const NormArgs *a, double steepest, double off) {
  double spread = 2 * (1 + a->largest - fabs(a->k->mean)) * steepest;
  return off * steepest * (2 + spread * spread + 2 * a->largest * steepest * spread);
}
static void expect_near(const Tensor *t, const Tensor *want, double bound) {
  for (int c = 0; c < want->c; c++) EXPECT_NEAR(get(t, 0, 0, 0, c), get(want, 0, 0, 0, c), bound);
}
static void expect_rows_near(const NormArgs *a, const Tensor *part, const Tensor *whole, int first, double bound) {
  for (NormElement e = norm_first; norm_next(a, &e);) {
    double want = get(whole, first + e.n, e.y, e.x, e.c);
    EXPECT_NEAR(norm_get(part, &e), want, bound + 2 * stored_rounding(part->dtype, want));
  }
  expect_padding_zero(part);
}

// What ranks compute together against one device with the whole batch. Both are off the definition by what test_norm.c
// allows, and the ranks by the rounding of what they tell: 4 u more.
static void check_ranks(Fixture *f, const NormCase *k, int count, const int rows[], uint64_t key) {
  NormRanks r;
  ranks_make(f, &r, k, count, rows, key);
  run_both(&r);
  const NormArgs *a = &r.whole;
  double u = steps_of(f) / 70, largest = a->largest, steepest = 0, terms = (double)k->rows * k->h * k->w;
  for (int c = 0; c < k->c; c++) steepest = fmax(steepest, get(&a->stats, 0, 0, 0, 2 * c + 1));
  double of_dx = 2 * backward_bound(a, steepest, 77 * u);
  double of_stats = 2 * (70 * u * fmax(largest, steepest) + 3 * u * largest * steepest * steepest);
  // gamma ≤ 1, a deviation ≤ 2
  double of_y = 2 * (72 * u * largest * steepest + (44 * u + 2 * u * largest * steepest) * 2 * steepest + 2 * u);
  int first = 0;
  for (int i = 0; i < count; first += rows[i++]) {
    const NormPart *p = &r.part[i], *of_first = &r.part[0];
    expect_near(&p->a.stats, &a->stats, of_stats);
    expect_near(&p->a.running_mean, &a->running_mean, 2 * 74 * u * fmax(largest, 1));
    expect_near(&p->a.running_var, &a->running_var, 2 * (2 * 74 * u + 4 * u * largest));
    expect_rows_near(&p->a, &p->y.t, &r.y.t, first, of_y);
    expect_rows_near(&p->a, &p->dx.t, &r.dx.t, first, of_dx);
    EXPECT(same_bits(&p->a.stats, &of_first->a.stats));
    EXPECT(same_bits(&p->a.running_mean, &of_first->a.running_mean));
    EXPECT(same_bits(&p->a.running_var, &of_first->a.running_var));
  }
  for (int c = 0; c < k->c; c++) {
    double dgamma = 0, dbeta = 0;
    for (int i = 0; i < count; i++) {
      dgamma += get(&r.part[i].a.dgamma, 0, 0, 0, c);
      dbeta += get(&r.part[i].a.dbeta, 0, 0, 0, c);
    }
    EXPECT_NEAR(dgamma, get(&a->dgamma, 0, 0, 0, c), terms * of_dx);
    EXPECT_NEAR(dbeta, get(&a->dbeta, 0, 0, 0, c), terms * 2 * 70 * u);
  }
  fixture_clear(f);
}

// One rank with all; as many as rows; uneven ones, with none on the first, on one between and on the last.
TEST_TYPES(norm_over_ranks_equals_one_device) {
  for (int i = 0; i < COUNT(norm_cases); i++) {
    const NormCase *k = &norm_cases[i];
    if (k->groups || (f->dev->gpu && !k->rows)) continue; // where one device need not compute anything
    int rows = k->rows, few = rows / 2;
    check_ranks(f, k, 1, (int[]){rows}, (uint64_t)i);
    check_ranks(f, k, 2, (int[]){few, rows - few}, (uint64_t)i);
    check_ranks(f, k, 4, (int[]){0, rows - few, 0, few}, (uint64_t)i);
    check_ranks(f, k, 3, (int[]){few, rows - few, 0}, (uint64_t)i);
  }
}

// What one rank tells is what it computes alone, so that a run of one rank has one device's bits where all is double.
TEST_DOUBLE(norm_over_one_rank_has_the_bits_of_one_device) {
  NormRanks r;
  ranks_make(f, &r, &(NormCase){3, 30, 25, 16, 0, 2, 0}, 1, (int[]){2}, 1);
  run_both(&r);
  const NormPart *p = &r.part[0];
  const NormArgs *q = &p->a, *a = &r.whole;
  EXPECT(same_bits(&p->y.t, &r.y.t) && same_bits(&p->dx.t, &r.dx.t));
  EXPECT(same_bits(&q->stats, &a->stats) && same_bits(&q->dgamma, &a->dgamma) && same_bits(&q->dbeta, &a->dbeta));
  EXPECT(same_bits(&q->running_mean, &a->running_mean) && same_bits(&q->running_var, &a->running_var));
}

// Σ r · y over all ranks.
static double objective(void *context) {
  NormRanks *r = context;
  ranks_forward(r);
  double sum = 0;
  for (int i = 0; i < r->count; i++) sum += weighted_sum(&r->part[i].a.dy, &r->part[i].y.t, NULL);
  return sum;
}

// Every rank's dx is that of the sum over ranks; the bounds are those of norm_gradient_check.
TEST_DOUBLE(norm_over_ranks_gradient_check) {
  for (int i = 0; i < COUNT(norm_cases); i++) {
    const NormCase *k = &norm_cases[i];
    if (k->groups || k->mean > 0 || k->rows < 2 || k->n * k->h * k->w * k->c > 30000) continue;
    NormRanks r;
    ranks_make(f, &r, k, 3, (int[]){k->rows - 1, 0, 1}, (uint64_t)i);
    const SampleStats *s = norm_stats(f, &r.whole);
    objective(&r);
    ranks_backward(&r);
    double magnitude = 0, terms = (double)k->rows * k->h * k->w * k->c, sigma3 = 1;
    for (int part = 0; part < r.count; part++) {
      double of_part;
      weighted_sum(&r.part[part].a.dy, &r.part[part].y.t, &of_part);
      magnitude += of_part;
    }
    for (int c = 0; c < k->c; c++) sigma3 = fmin(sigma3, pow((double)s[c].variance + eps, 1.5));
    for (int part = 0; part < r.count; part++)
      gradcheck(objective, &r, &r.part[part].a.x, &r.part[part].dx.t, magnitude, terms, 30 / sigma3, 40);
    fixture_clear(f);
  }
}
