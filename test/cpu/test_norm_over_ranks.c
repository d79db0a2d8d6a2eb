// Catches batch norm over several ranks that differs from that of one device with the whole batch.
//
// BatchNorm over ranks, each with a part of the batch, held to one device with all of it.
#include "base/alloc.h"
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
