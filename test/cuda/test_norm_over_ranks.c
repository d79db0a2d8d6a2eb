// Catches batch norm over several ranks that differs from that of one device with the whole batch.
//
// BatchNorm over ranks on the GPU against the CPU reference.
#include "test/harness/gpu_norm.h"

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

static void run_moments(const NormPart *p, bool gpu) {
  Device *dev = gpu ? gpu_device() : cpu_device();
  dev->ops->batch_norm_moments(dev, twin_side(&p->a.x, gpu), twin_data(&p->moments, gpu));
}
static void run_forward_merged(Device *dev, bool gpu, void *context, const Dest *y) {
  const NormPart *p = context;
  const NormTwins *a = &p->a;
  dev->ops->batch_norm_forward_merged(
      dev, eps, momentum, PARTS, twin_data(&p->all_moments, gpu), twin_side(&a->x, gpu), twin_data(&a->gamma, gpu),
      twin_data(&a->beta, gpu), a->no_running ? NULL : twin_data(&a->running_mean, gpu),
      a->no_running ? NULL : twin_data(&a->running_var, gpu), twin_data(&a->stats, gpu), y);
}
static void run_sums(const NormPart *p, bool gpu) {
  Device *dev = gpu ? gpu_device() : cpu_device();
  const NormTwins *a = &p->a;
  bool skip = a->no_gradients && gpu;
  dev->ops->batch_norm_sums(dev, twin_side(&a->x, gpu), twin_side(&a->dy, gpu), twin_data(&a->stats, gpu),
                            twin_data(&p->sums, gpu), skip ? NULL : twin_data(&a->dgamma, gpu),
                            skip ? NULL : twin_data(&a->dbeta, gpu), a->accumulate);
}
static void run_backward_merged(Device *dev, bool gpu, void *context, const Dest *dx) {
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
  run_moments(p, false);
  run_moments(p, true);
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
  twin_run(run_forward_merged, p, &y);
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
  run_sums(p, false);
  run_sums(p, true);
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
  twin_run(run_backward_merged, p, &dx);
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
  if (dests) twin_check_dests(run_forward_merged, &p, &a->x, of_y, 1, seed + 100);
  Twin stats = twin_packed(a->stats.cpu.n, a->stats.cpu.c, a->stats.cpu.data);
  twin_free(&a->stats);
  a->stats = stats;
  free(backward_bound(a, p.dgamma_of, p.dbeta_of));
  ok &= check_sums(&p);
  p.all_sums = told(&p.sums, (const float[]){7, 2, -3});
  ok &= check_backward_merged(&p, &of_dx);
  if (dests) twin_check_dests(run_backward_merged, &p, &a->x, of_dx, 1, seed + 200);
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
  run_forward(gpu_device(), true, &p.a, &(Dest){.t = y.gpu}); // for the statistics
  for (int run = 0; run < 2; run++) {
    run_moments(&p, true);
    run_sums(&p, true);
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
