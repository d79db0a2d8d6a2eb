// Catches batch norm over several ranks that differs from that of one device with the whole batch.
//
// Compares BatchNorm over ranks, each with a part of the batch, with one device that has all of it; and the GPU with
// the CPU.
#include "base/alloc.h"
#include "test/harness/gpu_norm.h"
#include "test/harness/gradcheck.h"
#include "test/harness/norm_fixture.h"

static const char *const devices[] = {"cpu", "cpu64"};

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

// What ranks compute together against one device with the whole batch. Both are off the definition by what test_norm.c
// allows, and the ranks by the rounding of what they tell: 4 u more.
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

// ---- on the GPU -----------------------------------------------------------------------------------------------------

static const DType dtypes[] = {F32, BF16, F16};

// A rank's part of the batch, what it tells the others, and what all three tell: this one first, then one without any
// rows, then one with other values.
enum { PARTS = 3, OTHER = PARTS - 1 };
typedef struct NormPart {
  NormTwins a;
  Twin moments, sums;          // [3, c] of this part
  Twin all_moments, all_sums;  // [parts, 3, c]
  float *dgamma_of, *dbeta_of; // bounds of the sums' errors, as backward_bound has them
} NormPart;

static void gpu_run_moments(const NormPart *p, bool gpu) {
  Device *dev = gpu ? gpu_device() : cpu_device();
  dev->ops->batch_norm_moments(dev, twin_side(&p->a.x, gpu), twin_data(&p->moments, gpu));
}
static void gpu_run_forward_merged(Device *dev, bool gpu, void *context, const Dest *y) {
  const NormPart *p = context;
  const NormTwins *a = &p->a;
  dev->ops->batch_norm_forward_merged(
      dev, eps, momentum, PARTS, twin_data(&p->all_moments, gpu), twin_side(&a->x, gpu), twin_data(&a->gamma, gpu),
      twin_data(&a->beta, gpu), a->no_running ? NULL : twin_data(&a->running_mean, gpu),
      a->no_running ? NULL : twin_data(&a->running_var, gpu), twin_data(&a->stats, gpu), y);
}
static void gpu_run_sums(const NormPart *p, bool gpu) {
  Device *dev = gpu ? gpu_device() : cpu_device();
  const NormTwins *a = &p->a;
  bool skip = a->no_gradients && gpu;
  dev->ops->batch_norm_sums(dev, twin_side(&a->x, gpu), twin_side(&a->dy, gpu), twin_data(&a->stats, gpu),
                            twin_data(&p->sums, gpu), skip ? NULL : twin_data(&a->dgamma, gpu),
                            skip ? NULL : twin_data(&a->dbeta, gpu), a->accumulate);
}
static void gpu_run_backward_merged(Device *dev, bool gpu, void *context, const Dest *dx) {
  const NormPart *p = context;
  const NormTwins *a = &p->a;
  dev->ops->batch_norm_backward_merged(dev, PARTS, twin_data(&p->all_sums, gpu), twin_side(&a->x, gpu),
                                       twin_side(&a->dy, gpu), twin_data(&a->gamma, gpu), twin_data(&a->stats, gpu),
                                       dx);
}

// What all tell, from what the reference computed of this part.
static Twin told(const Twin *mine, const float other[3]) {
  int c = mine->cpu.c / 3;
  float *values = xcalloc((size_t)PARTS * 3 * (size_t)c, sizeof *values);
  memcpy(values, mine->cpu.data, 3 * (size_t)c * sizeof *values);
  for (int i = 0; i < 3 * c; i++) values[OTHER * 3 * c + i] = other[i / c];
  Twin t = twin_packed(PARTS, 3 * c, values);
  free(values);
  return t;
}
// How many values is exact.
static void check_counts(const Twin *mine) {
  EXPECT(*(float *)mine->cpu.data >= 0);
  float *got = gpu_fetch(mine->gpu.data, tensor_bytes(&mine->gpu));
  EXPECT(!memcmp(got, mine->cpu.data, (size_t)mine->cpu.c / 3 * sizeof *got));
  free(got);
}

static bool check_moments(NormPart *p) {
  const NormTwins *a = &p->a;
  int c = a->k->c;
  gpu_run_moments(p, false);
  gpu_run_moments(p, true);
  check_counts(&p->moments);
  // Σ d² with every deviation d off by 70 u of the largest |x|; Σ |d| ≤ √(n · Σ d²).
  float *bound = xcalloc(3 * (size_t)c, sizeof *bound), *values = p->moments.cpu.data;
  for (int i = 0; i < c; i++) {
    double n = values[i], m2 = values[2 * c + i];
    bound[c + i] = (float)a->largest;
    bound[2 * c + i] = (float)(m2 + 2 * a->largest * sqrt(n * m2));
  }
  bool ok = twin_check(&p->moments, bound, STEPS) || !printf("  moments\n");
  free(bound);
  return ok;
}

// From the same moments both sides merge in double.
static bool check_forward_merged(NormPart *p, float **bound) {
  NormTwins *a = &p->a;
  Twin y = twin_poisoned_like(&a->x);
  twin_run(gpu_run_forward_merged, p, &y);
  *bound = forward_bound(a);
  bool ok = twin_check(&a->stats, NULL, 2.01) || !printf("  statistics\n");
  ok &= twin_check(&a->running_mean, NULL, 2.01) || !printf("  running mean\n");
  ok &= twin_check(&a->running_var, NULL, 2.01) || !printf("  running variance\n");
  ok &= twin_check(&y, *bound, 1) || !printf("  y\n");
  twin_check_guards(&y, false);
  twin_free(&y);
  return ok;
}

static bool check_sums(NormPart *p) {
  const NormTwins *a = &p->a;
  int c = a->k->c;
  gpu_run_sums(p, false);
  gpu_run_sums(p, true);
  check_counts(&p->sums);
  float *bound = xcalloc(3 * (size_t)c, sizeof *bound);
  memcpy(bound + c, p->dbeta_of, (size_t)c * sizeof *bound);
  memcpy(bound + 2 * c, p->dgamma_of, (size_t)c * sizeof *bound);
  bool ok = twin_check(&p->sums, bound, STEPS) || !printf("  sums\n");
  for (int i = c; i < 3 * c; i++) bound[i] += 1; // what was accumulated to
  ok &= twin_check(&a->dbeta, bound + c, STEPS) || !printf("  dbeta\n");
  ok &= twin_check(&a->dgamma, bound + 2 * c, STEPS) || !printf("  dgamma\n");
  free(bound);
  return ok;
}

// Of dx by the sums that are told: the three terms that it is made of.
static float *backward_merged_bound(const NormPart *p) {
  const NormTwins *a = &p->a;
  float *bound = xcalloc(tensor_elements(&a->x.cpu), sizeof *bound);
  const float *x = a->x.cpu.data, *dy = a->dy.cpu.data, *gamma = a->gamma.cpu.data, *stats = a->stats.cpu.data;
  const float *sums = p->all_sums.cpu.data;
  int c = a->k->c;
  for (Element e = before_first; element_next(a, &e);) {
    double values = 0, sum = 0, dot = 0, inv_std = stats[2 * e.channel + 1];
    double normed = (x[e.i] - (double)stats[2 * e.channel]) * inv_std;
    for (int part = 0; part < PARTS; part++) {
      const float *told = sums + part * 3 * c + e.channel;
      values += told[0];
      sum += fabsf(told[c]);
      dot += fabsf(told[2 * c]);
    }
    double error = gamma[e.channel] * inv_std * (fabsf(dy[e.i]) + (sum + fabs(normed) * dot) / values);
    bound[e.i] = widened(a->x.gpu.dtype, error, error);
  }
  return bound;
}

static bool check_backward_merged(NormPart *p, float **bound) {
  Twin dx = twin_poisoned_like(&p->a.x);
  *bound = backward_merged_bound(p);
  twin_run(gpu_run_backward_merged, p, &dx);
  bool ok = twin_check(&dx, *bound, 1) || !printf("  dx\n");
  twin_check_guards(&dx, false);
  twin_free(&dx);
  return ok;
}

// All four ops in turn; `dests`: and every Dest of the two that take one.
static void check_part(const NormCase *k, DType dtype, bool accumulate, bool dests, uint64_t seed) {
  NormPart p = {.a = norm_twins(k, dtype, seed)};
  NormTwins *a = &p.a;
  float *of_y, *of_dx;
  a->accumulate = accumulate;
  p.dgamma_of = xcalloc((size_t)k->c * 2, sizeof *p.dgamma_of);
  p.dbeta_of = p.dgamma_of + k->c;
  p.moments = twin_packed(1, 3 * k->c, NULL);
  p.sums = twin_packed(1, 3 * k->c, NULL);
  bool ok = check_moments(&p);
  p.all_moments = told(&p.moments, (const float[]){7, 0.5f + (float)k->mean, 3});
  ok &= check_forward_merged(&p, &of_y);
  if (dests) twin_check_dests(gpu_run_forward_merged, &p, &a->x, of_y, 1, seed + 100);
  Twin stats = twin_packed(a->stats.cpu.n, a->stats.cpu.c, a->stats.cpu.data);
  twin_free(&a->stats);
  a->stats = stats;
  free(gpu_backward_bound(a, p.dgamma_of, p.dbeta_of));
  ok &= check_sums(&p);
  p.all_sums = told(&p.sums, (const float[]){7, 2, -3});
  ok &= check_backward_merged(&p, &of_dx);
  if (dests) twin_check_dests(gpu_run_backward_merged, &p, &a->x, of_dx, 1, seed + 200);
  if (!ok)
    printf("  dtype %d, x [%d of %d, %d, %d, %d], mean %g, accumulate %d\n", dtype, k->rows, k->n, k->h, k->w, k->c,
           k->mean, accumulate);
  Twin *all[] = {&p.moments, &p.sums, &p.all_moments, &p.all_sums};
  for (int i = 0; i < COUNT(all); i++) {
    twin_check_guards(all[i], i >= 2);
    twin_free(all[i]);
  }
  free(of_y);
  free(of_dx);
  free(p.dgamma_of);
  norm_twins_free(a);
}

TEST(cuda_norm_over_ranks_equals_cpu) {
  if (!gpu_device()) return;
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(norm_cases); i++)
      if (!norm_cases[i].groups) check_part(&norm_cases[i], dtypes[d], i % 2, false, (uint64_t)i * 16);
}

TEST_TIER(cuda_norm_over_ranks_of_large_tensors, 1) {
  if (!gpu_device()) return;
  const NormCase large = {2, 110, 200, 256, 0, 2, 100};
  check_part(&large, BF16, false, false, 1);
}

TEST(cuda_norm_over_ranks_honours_dest) {
  if (!gpu_device()) return;
  const NormCase some[] = {{2, 3, 4, 5, 0, 2, 0}, {3, 9, 40, 8, 0, 2, 0}}; // several pixels for a thread, too
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(some); i++) check_part(&some[i], dtypes[d], false, true, 3);
}

// ---- many parts -----------------------------------------------------------------------------------------------------

// What a convolution tells: more parts than a threadblock has lanes, and than those have under way.
typedef struct ManyParts {
  NormTwins a;
  int parts;
  Twin moments; // [parts, 3, c]
} ManyParts;

static void run_many_merged(Device *dev, bool gpu, void *context, const Dest *y) {
  const ManyParts *m = context;
  const NormTwins *a = &m->a;
  dev->ops->batch_norm_forward_merged(dev, eps, momentum, m->parts, twin_data(&m->moments, gpu), twin_side(&a->x, gpu),
                                      twin_data(&a->gamma, gpu), twin_data(&a->beta, gpu),
                                      twin_data(&a->running_mean, gpu), twin_data(&a->running_var, gpu),
                                      twin_data(&a->stats, gpu), y);
}

// Parts of 1 to 64 values, and of none, the first among these.
static Twin many_moments(int parts, int c, double mean) {
  Twin noise = twin_random(F32, 1, 1, 1, 2 * parts * c, 1, (uint64_t)parts);
  float *values = xcalloc((size_t)parts * 3 * (size_t)c, sizeof *values), *normal = noise.cpu.data;
  for (int i = 0; i < parts; i++)
    for (int k = 0; k < c; k++) {
      const float n = (float)(i % 7 ? 1 + i % 64 : 0), *two = normal + 2 * (i * c + k);
      values[(3 * i + 0) * c + k] = n;
      values[(3 * i + 1) * c + k] = (float)mean + two[0];
      values[(3 * i + 2) * c + k] = n * two[1] * two[1];
    }
  Twin t = twin_packed(parts, 3 * c, values);
  free(values);
  twin_free(&noise);
  return t;
}

TEST(cuda_norm_merges_thousands_of_parts) {
  if (!gpu_device()) return;
  const int parts[] = {2, 127, 128, 129, 1024, 1025, 2500};
  for (int i = 0; i < COUNT(parts); i++) {
    const NormCase k = {2, 3, 5, 5 + 17 * i, 0, 2, i % 2 ? 100 : 0};
    ManyParts m = {.a = norm_twins(&k, BF16, (uint64_t)i), .parts = parts[i]};
    m.moments = many_moments(parts[i], k.c, k.mean);
    Twin y = twin_poisoned_like(&m.a.x);
    twin_run(run_many_merged, &m, &y);
    float *bound = forward_bound(&m.a);
    bool ok = twin_check(&m.a.stats, NULL, 2.01) && twin_check(&m.a.running_mean, NULL, 2.01) &&
              twin_check(&m.a.running_var, NULL, 2.01) && twin_check(&y, bound, 1);
    if (!ok) printf("  %d parts, %d channels\n", parts[i], k.c);
    twin_check_guards(&m.moments, true);
    twin_check_guards(&y, false);
    twin_free(&m.moments);
    twin_free(&y);
    free(bound);
    norm_twins_free(&m.a);
  }
}

// ---- the same bits --------------------------------------------------------------------------------------------------

// What is told, bit for bit, for the ranks' statistics follow from it.
TEST(cuda_norm_over_ranks_same_bits_twice) {
  if (!gpu_device()) return;
  const NormCase k = {3, 30, 25, 16, 0, 3, 0};
  NormPart p = {.a = norm_twins(&k, BF16, 1)};
  void *bits[2][2];
  size_t bytes = 3 * (size_t)k.c * sizeof(float);
  p.a.no_gradients = true;
  p.moments = twin_packed(1, 3 * k.c, NULL);
  p.sums = twin_packed(1, 3 * k.c, NULL);
  Twin y = twin_poisoned_like(&p.a.x);
  gpu_run_forward(gpu_device(), true, &p.a, &(Dest){.t = y.gpu}); // for the statistics
  for (int run = 0; run < 2; run++) {
    gpu_run_moments(&p, true);
    gpu_run_sums(&p, true);
    bits[run][0] = gpu_fetch(p.moments.gpu.data, bytes);
    bits[run][1] = gpu_fetch(p.sums.gpu.data, bytes);
  }
  for (int i = 0; i < 2; i++) {
    EXPECT(!memcmp(bits[0][i], bits[1][i], bytes));
    free(bits[0][i]);
    free(bits[1][i]);
  }
  twin_check_guards(&p.a.dgamma, true); // not wanted
  twin_check_guards(&p.a.dbeta, true);
  Twin *all[] = {&y, &p.moments, &p.sums};
  for (int i = 0; i < COUNT(all); i++) twin_free(all[i]);
  norm_twins_free(&p.a);
}
