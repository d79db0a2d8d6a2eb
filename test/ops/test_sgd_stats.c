// Catches gradient norms that are wrong, and a NaN or an infinity among gradients and losses that is not found.
#include <float.h>
#include <omp.h>
#include "test/harness/update_cases.h"

typedef struct StatsArgs {
  int n, losses;
  Tensor g, loss, hyper, stats;
  GradSum *sums;
} StatsArgs;
static StatsArgs make(Fixture *f, int n, double largest, double inv_scale) {
  StatsArgs a = {.n = n, .losses = 5, .g = update_random(f, n, (uint64_t)n, largest)};
  a.loss = update_random(f, a.losses, 7, 5);
  a.hyper = update_vector(f, HYPERS, (const double[]){NAN, NAN, NAN, NAN, inv_scale});
  fixture_freeze(f);
  a.stats = fixture_packed(f, 1, 2);
  a.sums = fixture_alloc(f, (size_t)(n / GRAD_PART + 1) * sizeof *a.sums);
  return a;
}
static void run_stats(Fixture *f, const StatsArgs *a) {
  put(&a->stats, 0, 0, 0, 0, NAN);
  put(&a->stats, 0, 0, 0, 1, NAN);
  const int parts = (a->n + GRAD_PART - 1) / GRAD_PART, first = parts / 2;
  RUN(f, grad_sums, (size_t)a->n, a->g.data, first, parts, a->sums); // in any order
  RUN(f, grad_sums, (size_t)a->n, a->g.data, 0, first, a->sums);
  RUN(f, grad_stats, parts, a->sums, a->losses, a->loss.data, a->hyper.data, a->stats.data);
}

// With one to three threads, for the same bits.
static void check_norm(Fixture *f, int n, double largest, double inv_scale) {
  StatsArgs a = make(f, n, largest, inv_scale);
  long double squares = 0;
  for (int i = 0; i < n; i++) squares += (long double)get(&a.g, 0, 0, 0, i) * get(&a.g, 0, 0, 0, i);
  double norm = (double)sqrtl(squares) * inv_scale;
  int threads = omp_get_max_threads();
  double first = NAN;
  for (int t = 1; t <= 3; t++) {
    omp_set_num_threads(t);
    run_stats(f, &a);
    double got = get(&a.stats, 0, 0, 0, 0);
    if (t == 1) first = got;
    EXPECT(got == first);
    // Sums in double: at most 1024 + 20 additions a lane, half of it reaches the root; then one rounding.
    EXPECT_NEAR(got, norm, (unit_roundoff(f->type) + 530 * 0x1p-53) * norm);
    EXPECT(get(&a.stats, 0, 0, 0, 1) == 1);
  }
  omp_set_num_threads(threads);
  fixture_clear(f);
}

TEST_OP(grad_stats_equals_definition) {
  // None, around a vector and a threadblock, and around the reference's block of 16384.
  const int n[] = {0, 1, 3, 4, 5, 15, 16, 17, 1000, 1023, 1024, 1029, 16383, 16384, 16385, 50001};
  for (int i = 0; i < COUNT(n); i++) check_norm(f, n[i], 1, 0x1p-4);
  check_norm(f, 1000, 1e30, 1); // squares of what fits a float need not
  check_norm(f, 1000, 1e-30, 1);
}

// More parts than one threadblock adds up at once.
TEST_GPU(cuda_grad_stats_of_many_gradients) { check_norm(f, 257 * GRAD_PART + 7, 1, 0x1p-4); }

static bool is_finite(Fixture *f, const StatsArgs *a) {
  run_stats(f, a);
  double flag = get(&a->stats, 0, 0, 0, 1);
  return EXPECT(flag == 0 || flag == 1) && flag == 1;
}
static void check_one(Fixture *f, const StatsArgs *a, const Tensor *t, int i, double bad) {
  double good = get(t, 0, 0, 0, i);
  put(t, 0, 0, 0, i, bad);
  if (!EXPECT(!is_finite(f, a))) printf("  %g as number %d of %d\n", bad, i, t->c);
  put(t, 0, 0, 0, i, good);
}

// In the middle every 511th, around the reference's block and a threadblock's last vectors each.
TEST_OP(grad_stats_finds_every_nan_and_infinity) {
  const double bad[] = {NAN, INFINITY, -INFINITY};
  StatsArgs a = make(f, 16384 + 35, 1, 1);
  EXPECT(is_finite(f, &a));
  for (int k = 0; k < COUNT(bad); k++) {
    for (int i = 0; i < a.n; i += i < 40 || i > 16370 ? 1 : 511) check_one(f, &a, &a.g, i, bad[k]);
    for (int i = 0; i < a.losses; i++) check_one(f, &a, &a.loss, i, bad[k]);
  }
  const double several[] = {NAN, -INFINITY, INFINITY}, largest = f->type == F64 ? DBL_MAX : (double)FLT_MAX;
  Tensor before = update_copy(f, &a.g);
  for (int i = 0; i < 3; i++) put(&a.g, 0, 0, 0, 16 * i, several[i]); // might cancel, and are in one lane
  EXPECT(!is_finite(f, &a));
  memcpy(a.g.data, before.data, tensor_bytes(&before));
  put(&a.g, 0, 0, 0, 0, largest); // large is not infinite
  put(&a.g, 0, 0, 0, 1, -largest);
  EXPECT(is_finite(f, &a));
  memcpy(a.g.data, before.data, tensor_bytes(&before)); // as it was frozen
}
