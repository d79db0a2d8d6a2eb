// Catches group and batch norm, and their gradients, that differ from their definition.
#include <omp.h>
#include "test/harness/gradcheck.h"
#include "test/harness/norm_args.h"

static void check_stats(Fixture *f, const NormArgs *a, const SampleStats *s) {
  const double u = unit_roundoff(f->type), largest = a->largest;
  for (int i = 0; i < norm_samples(a); i++) {
    double inv_std = 1 / sqrt((double)s[i].variance + eps);
    // A block's mean: 64 additions and a division, each off by u · |x|. Its square's sum: as many, and the deviation
    // itself is off by u · |x|; half of that relative error reaches the inverse root.
    double of_mean = 66 * u * largest, of_std = 34 * u * inv_std + 2 * u * largest * inv_std * inv_std;
    if (f->dev->gpu) {
      of_mean = NORM_STEPS * u * largest;
      of_std = NORM_STEPS * u * (inv_std + largest * inv_std * inv_std);
    }
    EXPECT_NEAR(get(&a->stats, i / a->groups, 0, 0, 2 * (i % a->groups)), (double)s[i].mean, of_mean);
    EXPECT_NEAR(get(&a->stats, i / a->groups, 0, 0, 2 * (i % a->groups) + 1), inv_std, of_std);
  }
}

static void check_running(Fixture *f, const NormArgs *a, const SampleStats *s, const Tensor *old_mean,
                          const Tensor *old_var) {
  const double u = unit_roundoff(f->type), largest = a->largest, m = momentum;
  for (int c = 0; c < a->k->c && !a->k->groups; c++) {
    double mean = get(old_mean, 0, 0, 0, c), var = get(old_var, 0, 0, 0, c);
    if (s[c].count > 0) {
      mean = (1 - m) * mean + m * (double)s[c].mean;
      var = (1 - m) * var + m * (s[c].count > 1 ? (double)(s[c].variance * s[c].count / (s[c].count - 1)) : 0);
    }
    double of_mean = 70 * u * MAX(largest, 1), of_var = 70 * u + 4 * u * largest;
    if (f->dev->gpu) { // the deviation's error, twice, times the standard deviation
      of_mean = NORM_STEPS * u * (largest + fabs(mean));
      of_var = NORM_STEPS * u * (var + 2 * largest * sqrt(var));
    }
    EXPECT_NEAR(get(&a->running_mean, 0, 0, 0, c), mean, of_mean);
    EXPECT_NEAR(get(&a->running_var, 0, 0, 0, c), var, of_var);
  }
}

static void check_forward(Fixture *f, const NormCase *k, uint64_t key) {
  NormArgs a = norm_args(f, k, key);
  Tensor old_mean = norm_copy(f, &a.running_mean), old_var = norm_copy(f, &a.running_var);
  Dest y = {.t = fixture_tensor(f, a.x)};
  run_op(f->dev, norm_forward, &a, &y);
  const SampleStats *s = norm_stats(f, &a);
  const NormExpected of_y = norm_define_forward(f, &a, s, false);
  check_stats(f, &a, s);
  check_running(f, &a, s, &old_mean, &old_var);
  norm_check(&a, &y.t, &of_y);
  fixture_clear(f);
}

TEST_TYPES(norm_forward_equals_definition) {
  for (int i = 0; i < COUNT(norm_cases); i++) check_forward(f, &norm_cases[i], (uint64_t)i);
}

// What backward reads is the definition's, so that nothing is off but its own sums.
static void fill_stats(const NormArgs *a, const SampleStats *s) {
  for (int i = 0; i < norm_samples(a); i++) {
    put(&a->stats, i / a->groups, 0, 0, 2 * (i % a->groups), (double)s[i].mean);
    put(&a->stats, i / a->groups, 0, 0, 2 * (i % a->groups) + 1, 1 / sqrt((double)s[i].variance + eps));
  }
}

static void check_gradients(Fixture *f, const NormArgs *a, const Tensor *dx, const Tensor *old_dgamma,
                            const Tensor *old_dbeta) {
  const NormGradients want = norm_define_backward(f, a);
  norm_check(a, dx, &want.dx);
  const double off = (f->dev->gpu ? NORM_STEPS : 70) * unit_roundoff(f->type);
  for (int c = 0; c < a->k->c; c++) {
    double dgamma = a->accumulate ? get(old_dgamma, 0, 0, 0, c) : 0;
    double dbeta = a->accumulate ? get(old_dbeta, 0, 0, 0, c) : 0;
    EXPECT_NEAR(get(&a->dgamma, 0, 0, 0, c), dgamma + want.dgamma[c], off * (fabs(dgamma) + want.of_dgamma[c]));
    EXPECT_NEAR(get(&a->dbeta, 0, 0, 0, c), dbeta + want.dbeta[c], off * (fabs(dbeta) + want.of_dbeta[c]));
  }
}

static void check_backward(Fixture *f, const NormCase *k, bool accumulate, uint64_t key) {
  if (f->dev->gpu && k->rows == 0) return; // what no element contributes to is not computed there
  NormArgs a = norm_args(f, k, key);
  a.accumulate = accumulate;
  fill_stats(&a, norm_stats(f, &a));
  Tensor old_dgamma = norm_copy(f, &a.dgamma), old_dbeta = norm_copy(f, &a.dbeta), stats = norm_copy(f, &a.stats);
  Dest dx = {.t = fixture_tensor(f, a.x)};
  run_op(f->dev, norm_backward, &a, &dx);
  check_gradients(f, &a, &dx.t, &old_dgamma, &old_dbeta);
  EXPECT(!memcmp(a.stats.data, stats.data, tensor_bytes(&stats)));
  fixture_clear(f);
}

TEST_TYPES(norm_backward_equals_definition) {
  for (int i = 0; i < COUNT(norm_cases); i++) check_backward(f, &norm_cases[i], i % 2, (uint64_t)i);
}

typedef struct NormObjective {
  Device *dev;
  NormArgs *a;
  Dest y;
} NormObjective;
static double objective(void *context) {
  NormObjective *o = context;
  run_op(o->dev, norm_forward, o->a, &o->y);
  return weighted_sum(&o->a->dy, &o->y.t, NULL);
}

TEST_DOUBLE(norm_gradient_check) {
  for (int i = 0; i < COUNT(norm_cases); i++) {
    const NormCase *k = &norm_cases[i];
    if (k->mean > 0) continue;                       // there the differences measure the rounding of x + h
    if (k->n * k->h * k->w * k->c > 30000) continue; // every difference costs a forward pass
    NormArgs a = norm_args(f, k, (uint64_t)i);
    Dest dx = {.t = fixture_tensor(f, a.x)};
    NormObjective o = {f->dev, &a, {.t = fixture_tensor(f, a.x)}};
    objective(&o);
    run_op(f->dev, norm_backward, &a, &dx);
    double magnitude;
    weighted_sum(&a.dy, &o.y.t, &magnitude);
    // Σ r · y is summed in as many steps as it has terms. x̂ as a function of one x bends on the scale of the standard
    // deviation σ ≥ √eps: its third derivative stays below 10 / σ³, and one element moves the others by a sum ≤ 2 more.
    double terms = (double)k->rows * k->h * k->w * k->c, sigma3 = 1;
    const SampleStats *s = norm_stats(f, &a);
    for (int sample = 0; sample < norm_samples(&a); sample++)
      sigma3 = fmin(sigma3, pow((double)s[sample].variance + eps, 1.5));
    gradcheck(objective, &o, &a.x, &dx.t, magnitude, terms, 30 / sigma3, 40);
    gradcheck(objective, &o, &a.gamma, &a.dgamma, magnitude, terms, 0, 40);
    gradcheck(objective, &o, &a.beta, &a.dbeta, magnitude, terms, 0, 40);
    fixture_clear(f);
  }
}

// The third has several pixels for a thread, and is not one of those that stay in a GPU's shared memory.
TEST_TYPES(norm_honours_dest) {
  const NormCase some[] = {{2, 5, 3, 6, 2, 1, 0}, {2, 3, 4, 5, 0, 1, 0},   {3, 9, 40, 8, 0, 2, 0},
                           {1, 1, 1, 8, 4, 1, 0}, {3, 5, 3, 11, 11, 2, 0}, {2, 3, 4, 5, 0, 2, 0}};
  for (int i = 0; i < COUNT(some); i++) {
    if (!f->dev->gpu && some[i].w == 40) continue; // of a GPU's threads
    NormArgs a = norm_args(f, &some[i], (uint64_t)i);
    const SampleStats *s = norm_stats(f, &a);
    const NormExpected of_y = norm_define_forward(f, &a, s, false);
    check_dests_within(f->dev, norm_forward, &a, &a.x, f->dev->gpu ? &of_y.bound : NULL, (uint64_t)i);
    fill_stats(&a, s);
    const NormGradients g = norm_define_backward(f, &a);
    check_dests_within(f->dev, norm_backward, &a, &a.x, f->dev->gpu ? &g.dx.bound : NULL, (uint64_t)i + 9);
    fixture_clear(f);
  }
}

// All outputs of forward and backward, with one, two and three threads; and parameter gradients by +=.
TEST_TYPES(norm_same_bits_for_any_threads) {
  const NormCase some[] = {{3, 30, 25, 16, 4, 3, 0}, {3, 30, 25, 16, 0, 3, 0}};
  int threads = omp_get_max_threads();
  for (int i = 0; i < COUNT(some); i++) {
    enum { OUTPUTS = 7 };
    Tensor first[OUTPUTS];
    for (int t = 1; t <= 3; t++) {
      NormArgs a = norm_args(f, &some[i], 1);
      Dest y = {.t = fixture_tensor(f, a.x)}, dx = {.t = fixture_tensor(f, a.x)};
      omp_set_num_threads(t);
      run_op(f->dev, norm_forward, &a, &y);
      run_op(f->dev, norm_backward, &a, &dx);
      const Tensor all[OUTPUTS] = {y.t, dx.t, a.stats, a.dgamma, a.dbeta, a.running_mean, a.running_var};
      for (int k = 0; k < OUTPUTS; k++) {
        if (t == 1) first[k] = norm_copy(f, &all[k]);
        EXPECT(same_bits(&all[k], &first[k]));
      }
      const Tensor dgamma = first[3], dbeta = first[4];
      a.accumulate = true;
      run_op(f->dev, norm_backward, &a, &dx);
      for (int c = 0; c < a.k->c; c++) {
        double g = 2 * get(&dgamma, 0, 0, 0, c), b = 2 * get(&dbeta, 0, 0, 0, c);
        // Twice the same number; what is added was not rounded to float yet.
        EXPECT_NEAR(get(&a.dgamma, 0, 0, 0, c), g, 2 * unit_roundoff(f->type) * fabs(g));
        EXPECT_NEAR(get(&a.dbeta, 0, 0, 0, c), b, 2 * unit_roundoff(f->type) * fabs(b));
      }
    }
  }
  omp_set_num_threads(threads);
}

// Without running statistics or gradients of parameters: the rest has the same bits, and nothing else is written.
TEST_TYPES(norm_leaves_out_what_is_not_wanted) {
  const NormCase k = {2, 3, 3, 16, 0, 2, 0};
  NormArgs a = norm_args(f, &k, 1), without = a;
  Dest y[2] = {{.t = fixture_tensor(f, a.x)}, {.t = fixture_tensor(f, a.x)}};
  without.no_running = without.no_gradients = true;
  without.stats = norm_copy(f, &a.stats);
  Tensor *untouched[] = {&without.running_mean, &without.running_var, &without.dgamma, &without.dbeta};
  Tensor before[COUNT(untouched)];
  for (int i = 0; i < COUNT(untouched); i++) {
    before[i] = norm_copy(f, untouched[i]);
    *untouched[i] = norm_copy(f, untouched[i]);
  }
  for (int backward = 0; backward < 2; backward++) {
    run_op(f->dev, backward ? norm_backward : norm_forward, &a, &y[0]);
    run_op(f->dev, backward ? norm_backward : norm_forward, &without, &y[1]);
    EXPECT(same_bits(&y[0].t, &y[1].t) && same_bits(&a.stats, &without.stats));
  }
  for (int i = 0; i < COUNT(untouched); i++) EXPECT(same_bits(untouched[i], &before[i]));
}

// ---- by a convolution's moments -------------------------------------------------------------------------------------

typedef struct ToldNorm {
  NormArgs a;
  Tensor moments; // [parts, 3, c]
} ToldNorm;
static void forward_told(Device *dev, void *context, const Dest *y) {
  const ToldNorm *t = context;
  dev->ops->group_norm_forward_merged(dev, t->a.groups, eps, t->moments.data, &t->a.x, t->a.gamma.data, t->a.beta.data,
                                      t->a.stats.data, y);
}

// The moments are those of another tensor, so that it shows which of them are looked at: x is normalised by statistics
// of the other's pixels where a part is whole and of one image, and of its own elsewhere.
TEST_TYPES(group_norm_takes_a_convolutions_moments) {
  const NormCase cases[] = {{1, 1, 1, 8, 4, 1, 0},   {2, 9, 11, 64, 32, 2, 0}, {3, 8, 8, 16, 4, 3, 0},
                            {5, 3, 3, 6, 2, 5, 0},   {2, 16, 20, 24, 3, 2, 0}, {3, 25, 19, 72, 9, 3, 1000},
                            {2, 13, 17, 6, 1, 2, 0}, {1, 16, 8, 128, 2, 1, 0}, {2, 21, 67, 256, 32, 2, 0}};
  for (int i = 0; i < COUNT(cases); i++) {
    const NormCase *k = &cases[i];
    const int image = k->h * k->w, parts = (k->n * image + CONV_MOMENTS_PIXELS - 1) / CONV_MOMENTS_PIXELS;
    ToldNorm t = {norm_args(f, k, (uint64_t)i), fixture_packed(f, parts, 3 * k->c)};
    NormArgs other = t.a;
    other.x = norm_copy(f, &t.a.x);
    for (int p = 0; p < k->n * image; p++) {
      const int n = p / image, part = p / CONV_MOMENTS_PIXELS * CONV_MOMENTS_PIXELS;
      if (part < n * image || part + CONV_MOMENTS_PIXELS > (n + 1) * image) continue;
      for (int c = 0; c < k->c; c++)
        put(&other.x, n, p / k->w % k->h, p % k->w, c, get(&other.x, n, p / k->w % k->h, p % k->w, c) + 1);
    }
    norm_fill_moments(&other.x, &t.moments);
    t.a.largest += 2;
    Dest y = {.t = fixture_tensor(f, t.a.x)};
    run_op(f->dev, forward_told, &t, &y);
    const SampleStats *s = norm_stats(f, &other);
    const NormExpected of_y = norm_define_forward(f, &t.a, s, false);
    check_stats(f, &t.a, s);
    norm_check(&t.a, &y.t, &of_y);
    if (i < 4) check_dests_within(f->dev, forward_told, &t, &t.a.x, f->dev->gpu ? &of_y.bound : NULL, (uint64_t)i);
    fixture_clear(f);
  }
}

// ---- pairs ----------------------------------------------------------------------------------------------------------

typedef struct NormPair {
  NormArgs of[2];
  Tensor y, dx[2], moments; // moments: of the second, or none
} NormPair;
static PairedNorm paired(const NormPair *p, int i) {
  const NormArgs *a = &p->of[i];
  return (PairedNorm){.x = a->x,
                      .gamma = a->gamma.data,
                      .beta = a->beta.data,
                      .running_mean = a->running_mean.data,
                      .running_var = a->running_var.data,
                      .stats = a->stats.data,
                      .parts = i ? p->moments.n : 0,
                      .moments = i ? p->moments.data : NULL};
}
static void pair_forward(Device *dev, void *context, const Dest *none) {
  const NormPair *p = context;
  const PairedNorm in[2] = {paired(p, 0), paired(p, 1)};
  (void)none;
  dev->ops->norm_pair_forward(dev, p->of[0].k->groups, eps, momentum, in, &p->y);
}
static void pair_backward(Device *dev, void *context, const Dest *first) {
  const NormPair *p = context;
  const PairedNorm in[2] = {paired(p, 0), paired(p, 1)};
  PairedNormGrad to[2];
  for (int i = 0; i < 2; i++)
    to[i] = (PairedNormGrad){.dx = i ? (Dest){.t = p->dx[1]} : *first,
                             .dgamma = p->of[i].no_gradients ? NULL : p->of[i].dgamma.data,
                             .dbeta = p->of[i].no_gradients ? NULL : p->of[i].dbeta.data,
                             .accumulate = p->of[i].accumulate};
  dev->ops->norm_pair_backward(dev, p->of[0].k->groups, in, &p->of[0].dy, to);
}

// Both norms by their definitions; one read of dy for both. The second's statistics come by moments in turn.
TEST_TYPES(norm_pair_equals_definition) {
  const NormCase cases[] = {{2, 9, 11, 64, 8, 2, 0},  {3, 5, 7, 256, 32, 3, 0},  {1, 1, 1, 2048, 32, 1, 0},
                            {2, 31, 33, 72, 3, 2, 0}, {2, 8, 8, 48, 6, 2, 1000}, {1, 1, 1, 2048, 0, 1, 0},
                            {2, 31, 33, 72, 0, 2, 0}, {3, 5, 7, 256, 0, 3, 0},   {7, 14, 14, 264, 0, 7, 0},
                            {2, 8, 8, 48, 0, 2, 1000}};
  for (int i = 0; i < COUNT(cases); i++) {
    const NormCase *k = &cases[i];
    NormPair p = {.of = {norm_inputs(f, k, (uint64_t)i), norm_inputs(f, k, (uint64_t)i + 50)}};
    p.of[1].dy = p.of[0].dy;
    fixture_freeze(f);
    for (int j = 0; j < 2; j++) norm_outputs(f, &p.of[j], (uint64_t)i + 50 * (uint64_t)j);
    if (i % 2) p.moments = norm_moments_of(f, &p.of[1].x);
    Tensor old_mean[2], old_var[2];
    for (int j = 0; j < 2; j++) {
      old_mean[j] = norm_copy(f, &p.of[j].running_mean);
      old_var[j] = norm_copy(f, &p.of[j].running_var);
    }
    p.y = fixture_tensor(f, p.of[0].x);
    run_op(f->dev, pair_forward, &p, NULL);
    NormExpected of_y[2];
    for (int j = 0; j < 2; j++) {
      const SampleStats *s = norm_stats(f, &p.of[j]);
      of_y[j] = norm_define_forward(f, &p.of[j], s, false);
      check_stats(f, &p.of[j], s);
      check_running(f, &p.of[j], s, &old_mean[j], &old_var[j]);
      fill_stats(&p.of[j], s);
    }
    for (NormElement e = norm_first; norm_next(&p.of[0], &e);) {
      const double sum = norm_get(&of_y[0].want, &e) + norm_get(&of_y[1].want, &e);
      const double off = norm_get(&of_y[0].bound, &e) + norm_get(&of_y[1].bound, &e);
      put(&of_y[0].want, e.n, e.y, e.x, e.c, fmax(sum, 0));
      put(&of_y[0].bound, e.n, e.y, e.x, e.c, off + stored_rounding(f->type, sum));
    }
    norm_check(&p.of[0], &p.y, &of_y[0]);

    Tensor old_dgamma[2], old_dbeta[2];
    for (int j = 0; j < 2; j++) {
      p.of[j].accumulate = (i + j) % 2;
      old_dgamma[j] = norm_copy(f, &p.of[j].dgamma);
      old_dbeta[j] = norm_copy(f, &p.of[j].dbeta);
      p.dx[j] = fixture_tensor(f, p.of[j].x);
    }
    const Dest first = {.t = p.dx[0]};
    run_op(f->dev, pair_backward, &p, &first);
    for (int j = 0; j < 2; j++) check_gradients(f, &p.of[j], &p.dx[j], &old_dgamma[j], &old_dbeta[j]);
    const NormGradients g = norm_define_backward(f, &p.of[0]);
    p.of[0].no_gradients = p.of[1].no_gradients = true;
    if (k->c == 48) check_dests_within(f->dev, pair_backward, &p, &p.of[0].x, f->dev->gpu ? &g.dx.bound : NULL, 1);
    fixture_clear(f);
  }
}

// ---- shapes of a GPU's threads --------------------------------------------------------------------------------------

// Enough that a thread gets more than its least number of pixels, and statistics more than a block's worth of chunks.
TEST_GPU_TIER(cuda_norm_of_large_tensors, 1) {
  const NormCase large[] = {{2, 110, 200, 256, 32, 2, 0}, {2, 110, 200, 256, 0, 2, 100}};
  f->type = BF16;
  for (int i = 0; i < COUNT(large); i++) {
    check_forward(f, &large[i], 1);
    check_backward(f, &large[i], false, 1);
  }
}

// Batch norm of tensors that stay in shared memory: clusters of one threadblock and of eight, of which the last has
// fewer pixels, slices of 16 to 64 channels, of which the last is nearly empty.
TEST_GPU_TYPES(cuda_norm_of_resident_tensors) {
  const NormCase cases[] = {{8, 14, 14, 520, 0, 8, 0},  {3, 7, 7, 4096, 0, 3, 0},    {1, 61, 67, 24, 0, 1, 0},
                            {2, 3, 5, 130, 0, 2, 1000}, {64, 7, 7, 40, 0, 64, 1000}, {7, 1, 1, 512, 0, 7, 0}};
  for (int i = 0; i < COUNT(cases); i++) {
    check_forward(f, &cases[i], (uint64_t)i);
    check_backward(f, &cases[i], i % 2, (uint64_t)i);
  }
}

// Group norm of images whose slices stay in shared memory: of one pixel and of many, whose last threadblock has few;
// more slices than run at once, of which the last is nearly empty; groups from a channel to a slice's; and such as no
// slice holds, which do not stay.
static const NormCase resident[] = {
    {1, 1, 1, 2048, 32, 1, 0},  {2, 25, 38, 2048, 32, 2, 0}, {3, 31, 67, 72, 9, 3, 0},      {2, 67, 129, 264, 33, 2, 0},
    {150, 2, 3, 16, 2, 150, 0}, {7, 9, 11, 520, 520, 7, 0},  {1, 129, 131, 36, 2, 1, 1000}, {2, 61, 67, 40, 1, 2, 0},
    {2, 5, 7, 160, 32, 2, 0},   {2, 13, 17, 1024, 8, 2, 0},  {64, 7, 7, 40, 5, 64, 1000},
};
TEST_GPU_TYPES(cuda_group_norm_of_resident_images) {
  for (int i = 0; i < COUNT(resident); i++) {
    check_forward(f, &resident[i], (uint64_t)i);
    check_backward(f, &resident[i], i % 2, (uint64_t)i);
  }
}

// Images of more pixels than stay.
TEST_GPU_TIER(cuda_group_norm_of_large_images, 1) {
  const NormCase large[] = {{2, 100, 152, 128, 32, 2, 0}, {1, 200, 304, 64, 32, 1, 0}};
  f->type = BF16;
  for (int i = 0; i < COUNT(large); i++) {
    check_forward(f, &large[i], 1);
    check_backward(f, &large[i], true, 1);
  }
}

enum { RUN_OUTPUTS = 5 };
typedef struct NormRun {
  Tensor out[RUN_OUTPUTS];
} NormRun;
static NormRun run_both(Fixture *f, NormArgs *a) {
  Dest y = {.t = fixture_tensor(f, a->x), .relu = true}, dx = {.t = fixture_tensor(f, a->x)};
  run_op(f->dev, norm_forward, a, &y);
  run_op(f->dev, norm_backward, a, &dx);
  NormRun r = {{y.t, dx.t, norm_copy(f, &a->stats), norm_copy(f, &a->dgamma), norm_copy(f, &a->dbeta)}};
  return r;
}

// Also for any number of multiprocessors granted.
TEST_GPU_TYPES(cuda_group_norm_of_resident_images_same_bits) {
  const NormCase k = {5, 61, 67, 136, 17, 5, 0};
  NormArgs a = norm_args(f, &k, 1);
  const NormRun first = run_both(f, &a);
  const int granted[] = {f->dev->multiprocessors, 1, 24, 108};
  for (int i = 0; i < COUNT(granted); i++) {
    f->dev->granted = granted[i];
    const NormRun again = run_both(f, &a);
    for (int j = 0; j < RUN_OUTPUTS; j++) EXPECT(same_bits(&again.out[j], &first.out[j]));
  }
  f->dev->granted = f->dev->multiprocessors;
}

// A value that is not finite makes its group of its image NaN, and nothing else.
TEST_GPU_TYPES(cuda_group_norm_of_resident_images_keeps_nan_in_its_group) {
  const NormCase k = {3, 21, 67, 72, 9, 3, 0};
  NormArgs without = norm_inputs(f, &k, 1), a = norm_inputs(f, &k, 1);
  put(&a.x, 1, 20, 66, 70, (double)NAN);
  put(&a.x, 2, 0, 0, 3, (double)INFINITY);
  fixture_freeze(f);
  norm_outputs(f, &without, 1);
  norm_outputs(f, &a, 1);
  const NormRun clean = run_both(f, &without);
  Dest y = {.t = fixture_tensor(f, a.x)}, dx = {.t = fixture_tensor(f, a.x)};
  run_op(f->dev, norm_forward, &a, &y);
  run_op(f->dev, norm_backward, &a, &dx);
  for (NormElement e = norm_first; norm_next(&a, &e);) {
    const bool lost = (e.n == 1 && e.c / 8 == 8) || (e.n == 2 && e.c / 8 == 0);
    const double of_y = norm_get(&y.t, &e), of_dx = norm_get(&dx.t, &e);
    if (lost) {
      if (!EXPECT(isnan(of_y) && isnan(of_dx))) break;
    } else if (!EXPECT(fmax(of_y, 0) == norm_get(&clean.out[0], &e) && of_dx == norm_get(&clean.out[1], &e))) {
      break;
    }
  }
}
