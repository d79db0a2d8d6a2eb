// GroupNorm, BatchNorm and their folded form, held to their definitions.
#include <omp.h>
#include "test/harness/gradcheck.h"
#include "test/harness/norm_cases.h"

static const char *const devices[] = {"cpu", "cpu64"};

static const float eps = 0x1p-6f, momentum = 0.25f; // exact, so that both sides see the same

// The range of x.
static double lowest(const NormCase *k) { return k->mean - 1; }
static double highest(const NormCase *k) { return k->mean + 1; }

// Everything an op of either kind takes and gives, and what is wanted of it.
typedef struct NormFixture {
  const NormCase *k;
  int groups; // of channels that share statistics
  Tensor x, dy, gamma, beta, stats, dgamma, dbeta, running_mean, running_var;
  bool accumulate;
} NormFixture;

static NormFixture norm_make(const NormCase *k, DType type, uint64_t key) {
  NormFixture a = {.k = k, .groups = k->groups ? k->groups : k->c};
  a.x = test_tensor(type, k->n, k->h, k->w, k->c);
  a.x.count = &k->rows;
  a.dy = test_tensor_like(&a.x);
  Tensor *vectors[] = {&a.gamma, &a.beta, &a.dgamma, &a.dbeta, &a.running_mean, &a.running_var};
  for (int i = 0; i < COUNT(vectors); i++) {
    *vectors[i] = test_tensor_packed(type, 1, k->c);
    test_fill(vectors[i], key * 16 + i, i == 0 ? 0.5 : -1, 1);
  }
  a.stats = test_tensor_packed(type, k->groups ? k->n : 1, 2 * a.groups);
  test_fill(&a.x, key * 16 + 8, lowest(k), highest(k));
  test_fill(&a.dy, key * 16 + 9, -1, 1);
  return a;
}
static void norm_free(NormFixture *a) {
  Tensor *all[] = {&a->x,      &a->dy,    &a->gamma,        &a->beta,       &a->stats,
                   &a->dgamma, &a->dbeta, &a->running_mean, &a->running_var};
  for (int i = 0; i < COUNT(all); i++) test_tensor_free(all[i]);
}

static void run_forward(Device *dev, void *context, const Dest *y) {
  const NormFixture *a = context;
  if (a->k->groups)
    dev->ops->group_norm_forward(dev, a->groups, eps, &a->x, a->gamma.data, a->beta.data, a->stats.data, y);
  else
    dev->ops->batch_norm_forward(dev, eps, momentum, &a->x, a->gamma.data, a->beta.data, a->running_mean.data,
                                 a->running_var.data, a->stats.data, y);
}
static void run_backward(Device *dev, void *context, const Dest *dx) {
  const NormFixture *a = context;
  if (a->k->groups)
    dev->ops->group_norm_backward(dev, a->groups, &a->x, &a->dy, a->gamma.data, a->stats.data, dx, a->dgamma.data,
                                  a->dbeta.data, a->accumulate);
  else
    dev->ops->batch_norm_backward(dev, &a->x, &a->dy, a->gamma.data, a->stats.data, dx, a->dgamma.data, a->dbeta.data,
                                  a->accumulate);
}

// The definition, by two passes in long double over the elements that share statistics.
typedef struct SampleStats {
  long double count, mean, variance;
} SampleStats;
static SampleStats stats_of(const NormFixture *a, int set, int group) {
  int size = a->k->c / a->groups, begin = a->k->groups ? set : 0, end = a->k->groups ? set + 1 : a->k->rows;
  SampleStats s = {0};
  for (int pass = 0; pass < 2; pass++) {
    long double sum = 0;
    s.count = 0;
    for (int n = begin; n < end; n++)
      for (int y = 0; y < a->k->h; y++)
        for (int x = 0; x < a->k->w; x++)
          for (int c = group * size; c < (group + 1) * size; c++, s.count++) {
            long double v = get(&a->x, n, y, x, c);
            sum += pass == 0 ? v : (v - s.mean) * (v - s.mean);
          }
    *(pass == 0 ? &s.mean : &s.variance) = s.count > 0 ? sum / s.count : 0;
  }
  return s;
}
static int sets_of(const NormFixture *a) { return a->k->groups ? a->k->rows : 1; }

static void check_stats(const NormFixture *a, double u, double largest) {
  for (int set = 0; set < sets_of(a); set++)
    for (int g = 0; g < a->groups; g++) {
      SampleStats s = stats_of(a, set, g);
      double inv_std = 1 / sqrt((double)s.variance + eps);
      // A block's mean: 64 additions and a division, each off by u · |x|. Its square's sum: as many, and the deviation
      // itself is off by u · |x|; half of that relative error reaches the inverse root.
      EXPECT_NEAR(get(&a->stats, set, 0, 0, 2 * g), (double)s.mean, 66 * u * largest);
      EXPECT_NEAR(get(&a->stats, set, 0, 0, 2 * g + 1), inv_std,
                  34 * u * inv_std + 2 * u * largest * inv_std * inv_std);
    }
}

static void check_forward(Device *dev, const NormCase *k, uint64_t key) {
  NormFixture a = norm_make(k, dev->real, key);
  Dest y = {.t = test_tensor_like(&a.x)};
  Tensor old_mean = a.running_mean, old_var = a.running_var;
  a.running_mean = test_tensor_like(&old_mean);
  a.running_var = test_tensor_like(&old_var);
  memcpy(a.running_mean.data, old_mean.data, tensor_bytes(&old_mean));
  memcpy(a.running_var.data, old_var.data, tensor_bytes(&old_var));
  run_op(dev, run_forward, &a, &y);

  double u = unit_roundoff(dev->real), largest = MAX(fabs(lowest(k)), fabs(highest(k)));
  check_stats(&a, u, largest);
  for (int n = 0; n < k->rows; n++)
    for (int c = 0; c < k->c; c++) {
      SampleStats s = stats_of(&a, k->groups ? n : 0, c / (k->c / a.groups));
      double gamma = get(&a.gamma, 0, 0, 0, c), beta = get(&a.beta, 0, 0, 0, c);
      double scale = gamma / sqrt((double)s.variance + eps);
      for (int row = 0; row < k->h; row++)
        for (int x = 0; x < k->w; x++) {
          double centred = get(&a.x, n, row, x, c) - (double)s.mean;
          // The error of the mean and of the subtraction, times the scale; the relative error of the scale; the sum's.
          double bound = 68 * u * largest * scale +
                         (40 * u + 2 * u * largest / sqrt((double)s.variance + eps)) * fabs(centred * scale) +
                         2 * u * fabs(beta);
          EXPECT_NEAR(get(&y.t, n, row, x, c), centred * scale + beta, bound);
        }
    }
  expect_padding_zero(&y.t);

  for (int c = 0; c < k->c && !k->groups; c++) {
    double mean = get(&old_mean, 0, 0, 0, c), var = get(&old_var, 0, 0, 0, c);
    SampleStats s = stats_of(&a, 0, c);
    if (s.count > 0) {
      mean = (1 - momentum) * mean + momentum * (double)s.mean;
      var = (1 - momentum) * var + momentum * (s.count > 1 ? (double)(s.variance * s.count / (s.count - 1)) : 0);
    }
    EXPECT_NEAR(get(&a.running_mean, 0, 0, 0, c), mean, 70 * u * MAX(largest, 1));
    EXPECT_NEAR(get(&a.running_var, 0, 0, 0, c), var, 70 * u + 4 * u * largest);
  }
  test_tensor_free(&old_mean);
  test_tensor_free(&old_var);
  test_tensor_free(&y.t);
  norm_free(&a);
}

TEST(norm_forward_equals_definition) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(norm_cases); i++) check_forward(dev, &norm_cases[i], (uint64_t)i);
    device_close(dev);
  }
}

static void run_inference(Device *dev, void *context, const Dest *y) {
  const NormFixture *a = context;
  dev->ops->batch_norm_inference(dev, eps, &a->x, a->gamma.data, a->beta.data, a->running_mean.data,
                                 a->running_var.data, a->stats.data, y);
}

// Nothing is summed: each of a few steps is off by u of its size.
static void check_inference(Device *dev, const NormCase *k, uint64_t key) {
  NormFixture a = norm_make(k, dev->real, key);
  test_fill(&a.running_var, key, 0.25, 2);
  Dest y = {.t = test_tensor_like(&a.x)};
  run_op(dev, run_inference, &a, &y);
  const double u = unit_roundoff(dev->real);
  for (int n = 0; n < k->rows; n++)
    for (int c = 0; c < k->c; c++) {
      double mean = get(&a.running_mean, 0, 0, 0, c), beta = get(&a.beta, 0, 0, 0, c);
      double scale = get(&a.gamma, 0, 0, 0, c) / sqrt(get(&a.running_var, 0, 0, 0, c) + eps);
      for (int row = 0; row < k->h; row++)
        for (int x = 0; x < k->w; x++) {
          double v = get(&a.x, n, row, x, c);
          EXPECT_NEAR(get(&y.t, n, row, x, c), (v - mean) * scale + beta,
                      8 * u * ((fabs(v) + fabs(mean)) * fabs(scale) + fabs(beta)));
        }
    }
  expect_padding_zero(&y.t);
  test_tensor_free(&y.t);
  norm_free(&a);
}

TEST(norm_inference_equals_definition) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(norm_cases); i++)
      if (!norm_cases[i].groups) check_inference(dev, &norm_cases[i], (uint64_t)i);
    device_close(dev);
  }
}

TEST(batch_norm_without_running_statistics) {
  Device *dev = device_open("cpu", NULL);
  const NormCase k = {2, 3, 3, 4, 0, 2, 0};
  NormFixture a = norm_make(&k, F32, 1);
  Tensor stats = test_tensor_like(&a.stats);
  Dest y = {.t = test_tensor_like(&a.x)}, z = {.t = test_tensor_like(&a.x)};
  run_op(dev, run_forward, &a, &y);
  memcpy(stats.data, a.stats.data, tensor_bytes(&stats));
  NormFixture without = a;
  without.running_mean.data = without.running_var.data = NULL;
  run_op(dev, run_forward, &without, &z);
  EXPECT(same_bits(&y.t, &z.t));
  EXPECT(same_bits(&stats, &a.stats));
  test_tensor_free(&stats);
  test_tensor_free(&y.t);
  test_tensor_free(&z.t);
  norm_free(&a);
  device_close(dev);
}

// Of any element of dx. It is made of dy, mean(dy) and x̂ · mean(dy · x̂), each ≤ 1 times powers of the spread that
// bounds |x̂|, over the standard deviation; sums over 64 elements and a few more steps are off by 70 u of that. x̂
// itself is off by 70 u of max |x| in standard deviations, as in the forward pass, and enters twice.
static double backward_bound(const NormFixture *a, double u) {
  double bound = 0, largest = fmax(fabs(lowest(a->k)), fabs(highest(a->k)));
  for (int set = 0; set < sets_of(a); set++)
    for (int g = 0; g < a->groups; g++) {
      double inv_std = 1 / sqrt((double)stats_of(a, set, g).variance + eps);
      double spread = (highest(a->k) - lowest(a->k)) * inv_std;
      bound = fmax(bound, 70 * u * inv_std * (2 + spread * spread + 2 * largest * inv_std * spread));
    }
  return bound;
}

static void check_float_backward(Device *dev, Device *dev64, const NormCase *k, uint64_t key) {
  NormFixture a = norm_make(k, F32, key), b = norm_make(k, F64, key);
  for (int n = 0; n < k->rows; n++) // what rounding to float has changed
    for (int y = 0; y < k->h; y++)
      for (int x = 0; x < k->w; x++)
        for (int c = 0; c < k->c; c++) {
          put(&b.x, n, y, x, c, get(&a.x, n, y, x, c));
          put(&b.dy, n, y, x, c, get(&a.dy, n, y, x, c));
        }
  for (int c = 0; c < k->c; c++) put(&b.gamma, 0, 0, 0, c, get(&a.gamma, 0, 0, 0, c));
  Dest dx = {.t = test_tensor_like(&a.x)}, want = {.t = test_tensor_like(&b.x)};
  run_op(dev, run_forward, &a, &dx);
  run_op(dev64, run_forward, &b, &want);
  run_op(dev, run_backward, &a, &dx);
  run_op(dev64, run_backward, &b, &want);
  double bound = backward_bound(&a, unit_roundoff(F32));
  double terms = (double)k->rows * k->h * k->w;
  for (int c = 0; c < k->c; c++) {
    EXPECT_NEAR(get(&a.dgamma, 0, 0, 0, c), get(&b.dgamma, 0, 0, 0, c), terms * bound);
    EXPECT_NEAR(get(&a.dbeta, 0, 0, 0, c), get(&b.dbeta, 0, 0, 0, c), terms * 66 * unit_roundoff(F32));
    for (int n = 0; n < k->rows; n++)
      for (int y = 0; y < k->h; y++)
        for (int x = 0; x < k->w; x++) EXPECT_NEAR(get(&dx.t, n, y, x, c), get(&want.t, n, y, x, c), bound);
  }
  test_tensor_free(&dx.t);
  test_tensor_free(&want.t);
  norm_free(&a);
  norm_free(&b);
}

TEST(norm_backward_in_float_equals_double) {
  Device *dev = device_open("cpu", NULL), *dev64 = device_open("cpu64", NULL);
  for (int i = 0; i < COUNT(norm_cases); i++) check_float_backward(dev, dev64, &norm_cases[i], (uint64_t)i);
  device_close(dev);
  device_close(dev64);
}

typedef struct NormObjective {
  Device *dev;
  NormFixture *a;
  Dest y;
} NormObjective;
static double objective(void *context) {
  NormObjective *o = context;
  run_op(o->dev, run_forward, o->a, &o->y);
  return weighted_sum(&o->a->dy, &o->y.t, NULL);
}

TEST(norm_gradient_check) {
  Device *dev = device_open("cpu64", NULL);
  for (int i = 0; i < COUNT(norm_cases); i++) {
    const NormCase *k = &norm_cases[i];
    if (k->mean > 0) continue;                       // there the differences measure the rounding of x + h
    if (k->n * k->h * k->w * k->c > 30000) continue; // every difference costs a forward pass
    NormFixture a = norm_make(k, F64, (uint64_t)i);
    Dest dx = {.t = test_tensor_like(&a.x)};
    NormObjective o = {dev, &a, {.t = test_tensor_like(&a.x)}};
    objective(&o);
    run_op(dev, run_backward, &a, &dx);
    double magnitude;
    weighted_sum(&a.dy, &o.y.t, &magnitude);
    // Σ r · y is summed in as many steps as it has terms. x̂ as a function of one x bends on the scale of the standard
    // deviation σ ≥ √eps: its third derivative stays below 10 / σ³, and one element moves the others by a sum ≤ 2 more.
    double terms = (double)k->rows * k->h * k->w * k->c, sigma3 = 1;
    for (int set = 0; set < sets_of(&a); set++)
      for (int g = 0; g < a.groups; g++) sigma3 = fmin(sigma3, pow((double)stats_of(&a, set, g).variance + eps, 1.5));
    gradcheck(objective, &o, &a.x, &dx.t, magnitude, terms, 30 / sigma3, 40);
    gradcheck(objective, &o, &a.gamma, &a.dgamma, magnitude, terms, 0, 40);
    gradcheck(objective, &o, &a.beta, &a.dbeta, magnitude, terms, 0, 40);
    test_tensor_free(&o.y.t);
    test_tensor_free(&dx.t);
    norm_free(&a);
  }
  device_close(dev);
}

TEST(norm_honours_dest) {
  const NormCase some[] = {{2, 5, 3, 6, 2, 1, 0}, {2, 3, 4, 5, 0, 1, 0}, {1, 1, 1, 8, 4, 1, 0}};
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(some); i++) {
      NormFixture a = norm_make(&some[i], dev->real, (uint64_t)i);
      check_dests(dev, run_forward, &a, &a.x, (uint64_t)i);
      check_dests(dev, run_backward, &a, &a.x, (uint64_t)i + 9);
      norm_free(&a);
    }
    device_close(dev);
  }
}

// All outputs of forward and backward, with one, two and three threads; and parameter gradients by +=.
// Channels 8 … 8 + c - 1 of a wider tensor, which `t` is written to where it is given.
static Tensor slice_in(const Tensor *whole, const Tensor *t, int c) {
  Tensor s = tensor_slice(whole, 8, c);
  for (int n = 0; t && n < t->n; n++)
    for (int y = 0; y < t->h; y++)
      for (int x = 0; x < t->w; x++)
        for (int i = 0; i < c; i++) put(&s, n, y, x, i, get(t, n, y, x, i));
  return s;
}

// The same bits as in tensors of their own, and nothing beside them.
static void check_slices(Device *dev, const NormCase *k, int behind, bool accumulate) {
  NormFixture a = norm_make(k, dev->real, 1);
  Tensor whole[3]; // of y, of dy, and y's before
  for (int i = 0; i < 3; i++) {
    whole[i] = test_tensor(dev->real, k->n, k->h, k->w, 8 + k->c + behind);
    whole[i].count = &k->rows;
    test_fill(&whole[i], 5, -1, 1);
  }
  Dest y = {.t = test_tensor_like(&a.x), .relu = true, .accumulate = accumulate}, sliced = y;
  Dest dx = {.t = test_tensor_like(&a.x)}, dx_of_slice = {.t = test_tensor_like(&a.x)};
  sliced.t = slice_in(&whole[0], NULL, k->c);
  for (int n = 0; n < k->rows; n++)
    for (int row = 0; row < k->h; row++)
      for (int x = 0; x < k->w; x++)
        for (int c = 0; c < y.t.ldc; c++) put(&y.t, n, row, x, c, c < k->c ? get(&sliced.t, n, row, x, c) : 0);
  run_op(dev, run_forward, &a, &y);
  run_op(dev, run_forward, &a, &sliced);
  run_op(dev, run_backward, &a, &dx);
  NormFixture of_slice = a;
  of_slice.dy = slice_in(&whole[1], &a.dy, k->c);
  run_op(dev, run_backward, &of_slice, &dx_of_slice);
  EXPECT(same_bits(&dx.t, &dx_of_slice.t));
  for (int n = 0; n < k->rows; n++)
    for (int row = 0; row < k->h; row++)
      for (int x = 0; x < k->w; x++)
        for (int c = 0; c < whole[0].c; c++) {
          bool own = c >= 8 && c < 8 + k->c;
          EXPECT(get(&whole[0], n, row, x, c) == (own ? get(&y.t, n, row, x, c - 8) : get(&whole[2], n, row, x, c)));
        }
  Tensor *all[] = {&y.t, &dx.t, &dx_of_slice.t, &whole[0], &whole[1], &whole[2]};
  for (int i = 0; i < COUNT(all); i++) test_tensor_free(all[i]);
  norm_free(&a);
}

TEST(norm_takes_slices) {
  const NormCase some[] = {{2, 9, 11, 16, 4, 2, 0}, {3, 5, 7, 16, 0, 2, 0}, {2, 1, 3, 1032, 0, 2, 0}};
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(some); i++) check_slices(dev, &some[i], 8, i % 2);
    check_slices(dev, &(NormCase){2, 5, 7, 5, 0, 2, 0}, 0, false); // the last may end within a vector
    device_close(dev);
  }
}

TEST(norm_same_bits_for_any_threads) {
  Device *dev = device_open("cpu", NULL);
  int threads = omp_get_max_threads();
  const NormCase some[] = {{3, 30, 25, 16, 4, 3, 0}, {3, 30, 25, 16, 0, 3, 0}};
  for (int i = 0; i < COUNT(some); i++) {
    NormFixture first = norm_make(&some[i], F32, 1);
    Dest dx = {.t = test_tensor_like(&first.x)};
    omp_set_num_threads(1);
    run_op(dev, run_forward, &first, &dx);
    run_op(dev, run_backward, &first, &dx);
    for (int t = 2; t <= 3; t++) {
      NormFixture a = norm_make(&some[i], F32, 1);
      Dest other = {.t = test_tensor_like(&a.x)};
      omp_set_num_threads(t);
      run_op(dev, run_forward, &a, &other);
      run_op(dev, run_backward, &a, &other);
      EXPECT(same_bits(&dx.t, &other.t));
      EXPECT(same_bits(&first.stats, &a.stats));
      EXPECT(same_bits(&first.dgamma, &a.dgamma));
      EXPECT(same_bits(&first.dbeta, &a.dbeta));
      EXPECT(same_bits(&first.running_mean, &a.running_mean));
      EXPECT(same_bits(&first.running_var, &a.running_var));

      a.accumulate = true;
      run_op(dev, run_backward, &a, &other);
      for (int c = 0; c < a.k->c; c++) {
        double g = get(&first.dgamma, 0, 0, 0, c), b = get(&first.dbeta, 0, 0, 0, c);
        // Twice the same number; what is added was not rounded to float yet.
        EXPECT_NEAR(get(&a.dgamma, 0, 0, 0, c), 2 * g, 2 * unit_roundoff(F32) * fabs(2 * g));
        EXPECT_NEAR(get(&a.dbeta, 0, 0, 0, c), 2 * b, 2 * unit_roundoff(F32) * fabs(2 * b));
      }
      test_tensor_free(&other.t);
      norm_free(&a);
    }
    omp_set_num_threads(threads);
    test_tensor_free(&dx.t);
    norm_free(&first);
  }
  device_close(dev);
}

// ---- over ranks -----------------------------------------------------------------------------------------------------

// A batch cut into the parts of so many ranks, each with rows of its own in memory of its own, a row past the count
// included; and what ranks tell each other.
enum { MAX_PARTS = 4 };
typedef struct NormParts {
  int count;
  NormCase k[MAX_PARTS];
  NormFixture part[MAX_PARTS];
  Dest y[MAX_PARTS], dx[MAX_PARTS];
  Tensor moments, sums; // [parts, 3, c]
  int at;               // the part at hand
} NormParts;

static void copy_rows(const Tensor *to, const Tensor *from, int first) {
  size_t row = tensor_bytes(from) / (size_t)from->n;
  memcpy(to->data, (const char *)from->data + (size_t)first * row, (size_t)valid_rows(to) * row);
}
static void copy_all(const Tensor *to, const Tensor *from) { memcpy(to->data, from->data, tensor_bytes(to)); }

// rows: of each part.
static NormParts *parts_make(const NormFixture *whole, int count, const int rows[]) {
  NormParts *p = xcalloc(1, sizeof *p);
  int first = 0, c = whole->k->c;
  DType type = whole->x.dtype;
  p->count = count;
  p->moments = test_tensor_packed(type, count, 3 * c);
  p->sums = test_tensor_packed(type, count, 3 * c);
  for (int i = 0; i < count; first += rows[i++]) {
    p->k[i] = *whole->k;
    p->k[i].rows = rows[i];
    p->k[i].n = rows[i] + 1;
    NormFixture *a = &p->part[i];
    *a = norm_make(&p->k[i], type, 1);
    copy_rows(&a->x, &whole->x, first);
    copy_rows(&a->dy, &whole->dy, first);
    const Tensor *from[] = {&whole->gamma, &whole->beta, &whole->running_mean, &whole->running_var};
    const Tensor *to[] = {&a->gamma, &a->beta, &a->running_mean, &a->running_var};
    for (int t = 0; t < COUNT(from); t++) copy_all(to[t], from[t]);
    p->y[i] = (Dest){.t = test_tensor_like(&a->x)};
    p->dx[i] = (Dest){.t = test_tensor_like(&a->x)};
  }
  CHECK(first == whole->k->rows);
  return p;
}
static void parts_free(NormParts *p) {
  for (int i = 0; i < p->count; i++) {
    test_tensor_free(&p->y[i].t);
    test_tensor_free(&p->dx[i].t);
    norm_free(&p->part[i]);
  }
  test_tensor_free(&p->moments);
  test_tensor_free(&p->sums);
  free(p);
}

static void *of_part(const NormParts *p, const Tensor *t) {
  return (char *)t->data + (size_t)p->at * tensor_bytes(t) / (size_t)p->count;
}
static void run_moments(Device *dev, void *context, const Dest *none) {
  (void)none;
  const NormParts *p = context;
  dev->ops->batch_norm_moments(dev, &p->part[p->at].x, of_part(p, &p->moments));
}
static void run_forward_merged(Device *dev, void *context, const Dest *y) {
  const NormParts *p = context;
  const NormFixture *a = &p->part[p->at];
  dev->ops->batch_norm_forward_merged(dev, eps, momentum, p->count, p->moments.data, &a->x, a->gamma.data, a->beta.data,
                                      a->running_mean.data, a->running_var.data, a->stats.data, y);
}
static void run_sums(Device *dev, void *context, const Dest *none) {
  (void)none;
  const NormParts *p = context;
  const NormFixture *a = &p->part[p->at];
  dev->ops->batch_norm_sums(dev, &a->x, &a->dy, a->stats.data, of_part(p, &p->sums), a->dgamma.data, a->dbeta.data,
                            a->accumulate);
}
static void run_backward_merged(Device *dev, void *context, const Dest *dx) {
  const NormParts *p = context;
  const NormFixture *a = &p->part[p->at];
  dev->ops->batch_norm_backward_merged(dev, p->count, p->sums.data, &a->x, &a->dy, a->gamma.data, a->stats.data, dx);
}

// An op by every rank.
static void by_all(Device *dev, TestOp *op, NormParts *p, Dest *d) {
  for (p->at = 0; p->at < p->count; p->at++) run_op(dev, op, p, d ? &d[p->at] : NULL);
  p->at = 0;
}
static void parts_forward(Device *dev, NormParts *p) {
  by_all(dev, run_moments, p, NULL);
  by_all(dev, run_forward_merged, p, p->y);
}
static void parts_backward(Device *dev, NormParts *p) {
  by_all(dev, run_sums, p, NULL);
  by_all(dev, run_backward_merged, p, p->dx);
}

static void expect_rows_near(const Tensor *part, const Tensor *whole, int first, double bound) {
  for (int n = 0; n < valid_rows(part); n++)
    for (int y = 0; y < part->h; y++)
      for (int x = 0; x < part->w; x++)
        for (int c = 0; c < part->c; c++) EXPECT_NEAR(get(part, n, y, x, c), get(whole, first + n, y, x, c), bound);
}
static void expect_near(const Tensor *t, const Tensor *want, double bound) {
  for (int c = 0; c < want->c; c++) EXPECT_NEAR(get(t, 0, 0, 0, c), get(want, 0, 0, 0, c), bound);
}

// What ranks compute together against one device with the whole batch. Both are off the definition by what the tests
// above allow, and the ranks by the rounding of what they tell: 4 u more.
static void check_parts(Device *dev, const NormCase *k, int count, const int rows[], uint64_t key) {
  NormFixture a = norm_make(k, dev->real, key);
  NormParts *p = parts_make(&a, count, rows);
  Dest y = {.t = test_tensor_like(&a.x)}, dx = {.t = test_tensor_like(&a.x)};
  run_op(dev, run_forward, &a, &y);
  run_op(dev, run_backward, &a, &dx);
  parts_forward(dev, p);
  parts_backward(dev, p);

  double u = unit_roundoff(dev->real), largest = fmax(fabs(lowest(k)), fabs(highest(k))), steepest = 0;
  for (int c = 0; c < k->c; c++) steepest = fmax(steepest, get(&a.stats, 0, 0, 0, 2 * c + 1));
  double of_dx = 2 * backward_bound(&a, 1.1 * u), terms = (double)k->rows * k->h * k->w;
  double of_stats = 2 * (70 * u * fmax(largest, steepest) + 3 * u * largest * steepest * steepest);
  // gamma ≤ 1, a deviation ≤ 2
  double of_y = 2 * (72 * u * largest * steepest + (44 * u + 2 * u * largest * steepest) * 2 * steepest + 2 * u);
  int first = 0;
  for (int i = 0; i < count; first += rows[i++]) {
    const NormFixture *q = &p->part[i];
    expect_near(&q->stats, &a.stats, of_stats);
    expect_near(&q->running_mean, &a.running_mean, 2 * 74 * u * fmax(largest, 1));
    expect_near(&q->running_var, &a.running_var, 2 * (74 * u + 4 * u * largest));
    expect_rows_near(&p->y[i].t, &y.t, first, of_y);
    expect_rows_near(&p->dx[i].t, &dx.t, first, of_dx);
    EXPECT(same_bits(&q->stats, &p->part[0].stats));
    EXPECT(same_bits(&q->running_mean, &p->part[0].running_mean));
    EXPECT(same_bits(&q->running_var, &p->part[0].running_var));
    expect_padding_zero(&p->y[i].t);
  }
  for (int c = 0; c < k->c; c++) {
    double dgamma = 0, dbeta = 0;
    for (int i = 0; i < count; i++) {
      dgamma += get(&p->part[i].dgamma, 0, 0, 0, c);
      dbeta += get(&p->part[i].dbeta, 0, 0, 0, c);
    }
    EXPECT_NEAR(dgamma, get(&a.dgamma, 0, 0, 0, c), terms * of_dx);
    EXPECT_NEAR(dbeta, get(&a.dbeta, 0, 0, 0, c), terms * 2 * 70 * u);
  }
  test_tensor_free(&y.t);
  test_tensor_free(&dx.t);
  parts_free(p);
  norm_free(&a);
}

// One rank with all; as many as rows; uneven ones, with none on the first, on one between and on the last.
TEST(norm_over_ranks_equals_one_device) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(norm_cases); i++) {
      const NormCase *k = &norm_cases[i];
      if (k->groups) continue;
      int rows = k->rows, few = rows / 2;
      check_parts(dev, k, 1, (int[]){rows}, (uint64_t)i);
      check_parts(dev, k, 2, (int[]){few, rows - few}, (uint64_t)i);
      check_parts(dev, k, 4, (int[]){0, rows - few, 0, few}, (uint64_t)i);
      check_parts(dev, k, 3, (int[]){few, rows - few, 0}, (uint64_t)i);
    }
    device_close(dev);
  }
}

// What one rank tells is what it computes alone, so that a run of one rank has one device's bits where all is double.
TEST(norm_over_one_rank_has_the_bits_of_one_device) {
  Device *dev = device_open("cpu64", NULL);
  const NormCase k = {3, 30, 25, 16, 0, 2, 0};
  NormFixture a = norm_make(&k, F64, 1);
  NormParts *p = parts_make(&a, 1, (int[]){2});
  Dest y = {.t = test_tensor_like(&a.x)}, dx = {.t = test_tensor_like(&a.x)};
  run_op(dev, run_forward, &a, &y);
  run_op(dev, run_backward, &a, &dx);
  parts_forward(dev, p);
  parts_backward(dev, p);
  const NormFixture *q = &p->part[0];
  EXPECT(same_bits(&p->y[0].t, &y.t) && same_bits(&p->dx[0].t, &dx.t));
  EXPECT(same_bits(&q->stats, &a.stats) && same_bits(&q->dgamma, &a.dgamma) && same_bits(&q->dbeta, &a.dbeta));
  EXPECT(same_bits(&q->running_mean, &a.running_mean) && same_bits(&q->running_var, &a.running_var));
  test_tensor_free(&y.t);
  test_tensor_free(&dx.t);
  parts_free(p);
  norm_free(&a);
  device_close(dev);
}

// Σ r · y over all ranks.
typedef struct PartsObjective {
  Device *dev;
  NormParts *parts;
} PartsObjective;
static double parts_objective(void *context) {
  const PartsObjective *o = context;
  parts_forward(o->dev, o->parts);
  double sum = 0;
  for (int i = 0; i < o->parts->count; i++) sum += weighted_sum(&o->parts->part[i].dy, &o->parts->y[i].t, NULL);
  return sum;
}

// Every rank's dx is that of the sum over ranks; the bounds are those of norm_gradient_check.
TEST(norm_over_ranks_gradient_check) {
  Device *dev = device_open("cpu64", NULL);
  for (int i = 0; i < COUNT(norm_cases); i++) {
    const NormCase *k = &norm_cases[i];
    if (k->groups || k->mean > 0 || k->rows < 2 || k->n * k->h * k->w * k->c > 30000) continue;
    NormFixture a = norm_make(k, F64, (uint64_t)i);
    NormParts *p = parts_make(&a, 3, (int[]){k->rows - 1, 0, 1});
    PartsObjective o = {dev, p};
    parts_objective(&o);
    parts_backward(dev, p);
    double magnitude = 0, terms = (double)k->rows * k->h * k->w * k->c, sigma3 = 1;
    for (int part = 0; part < p->count; part++) {
      double of_part;
      weighted_sum(&p->part[part].dy, &p->y[part].t, &of_part);
      magnitude += of_part;
    }
    for (int g = 0; g < a.groups; g++) sigma3 = fmin(sigma3, pow((double)stats_of(&a, 0, g).variance + eps, 1.5));
    for (int part = 0; part < p->count; part++)
      gradcheck(parts_objective, &o, &p->part[part].x, &p->dx[part].t, magnitude, terms, 30 / sigma3, 40);
    parts_free(p);
    norm_free(&a);
  }
  device_close(dev);
}

TEST(norm_over_ranks_honours_dest) {
  const NormCase k = {3, 3, 4, 5, 0, 3, 0};
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    NormFixture a = norm_make(&k, dev->real, 7);
    NormParts *p = parts_make(&a, 2, (int[]){2, 1});
    parts_forward(dev, p);
    parts_backward(dev, p);
    check_dests(dev, run_forward_merged, p, &p->part[0].x, 1);
    check_dests(dev, run_backward_merged, p, &p->part[0].x, 2);
    parts_free(p);
    norm_free(&a);
    device_close(dev);
  }
}

TEST(norm_over_ranks_without_running_statistics_and_accumulating) {
  Device *dev = device_open("cpu64", NULL);
  const NormCase k = {2, 3, 3, 4, 0, 2, 0};
  NormFixture a = norm_make(&k, F64, 1);
  NormParts *p = parts_make(&a, 1, (int[]){2});
  NormFixture *q = &p->part[0], kept = *q;
  Tensor stats = test_tensor_like(&q->stats), dgamma = test_tensor_like(&q->dgamma);
  parts_forward(dev, p);
  copy_all(&stats, &q->stats);
  q->running_mean.data = q->running_var.data = NULL;
  parts_forward(dev, p);
  EXPECT(same_bits(&stats, &q->stats));
  q->running_mean = kept.running_mean;
  q->running_var = kept.running_var;

  parts_backward(dev, p);
  copy_all(&dgamma, &q->dgamma);
  EXPECT(get(&p->sums, 0, 0, 0, 0) == k.rows * k.h * k.w);
  q->accumulate = true;
  dev->ops->batch_norm_sums(dev, &q->x, &q->dy, q->stats.data, p->sums.data, q->dgamma.data, NULL, true);
  for (int c = 0; c < k.c; c++) {
    double once = get(&dgamma, 0, 0, 0, c);
    EXPECT_NEAR(get(&q->dgamma, 0, 0, 0, c), 2 * once, 4 * unit_roundoff(F64) * fabs(once));
  }
  test_tensor_free(&stats);
  test_tensor_free(&dgamma);
  parts_free(p);
  norm_free(&a);
  device_close(dev);
}

// ---- folded ---------------------------------------------------------------------------------------------------------

TEST(norm_fold_equals_definition) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    enum { C = 13 };
    Tensor t[6]; // gamma, beta, mean, var, scale, shift
    for (int i = 0; i < 6; i++) {
      t[i] = test_tensor_packed(dev->real, 1, C);
      if (i < 4) test_fill(&t[i], (uint64_t)i, i == 3 ? 0.5 : -1, 2);
    }
    dev->ops->norm_fold(dev, C, eps, t[0].data, t[1].data, t[2].data, t[3].data, t[4].data, t[5].data);
    double u = unit_roundoff(dev->real);
    for (int c = 0; c < C; c++) {
      double scale = get(&t[0], 0, 0, 0, c) / sqrt(get(&t[3], 0, 0, 0, c) + eps);
      double mean = get(&t[2], 0, 0, 0, c), beta = get(&t[1], 0, 0, 0, c);
      EXPECT_NEAR(get(&t[4], 0, 0, 0, c), scale, 3 * u * fabs(scale)); // half an addition's, a root's, a division's
      EXPECT_NEAR(get(&t[5], 0, 0, 0, c), beta - mean * scale, 5 * u * (fabs(beta) + fabs(mean * scale)));
    }
    for (int i = 0; i < 6; i++) test_tensor_free(&t[i]);
    device_close(dev);
  }
}
