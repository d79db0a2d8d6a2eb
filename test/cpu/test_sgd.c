// Catches updates of SGD and gradient norms that are wrong, or weights changed when a gradient is not finite.
//
// Gradient statistics and SGD, held to their definitions.
#include <float.h>
#include <omp.h>
#include "base/rng.h"
#include "test/harness/op.h"
#include "test/harness/update_cases.h"

static const char *const devices[] = {"cpu", "cpu64"};
enum { LR, MOMENTUM, DECAY, LIMIT, INV_SCALE, HYPERS };
static const SgdFactors alike = {.rate = {1, 1, 1, 1}, .decay = {1, 1, 1, 1}};

typedef struct StatsArgs {
  size_t n;
  int losses;
  Tensor g, loss, hyper;
} StatsArgs;
static StatsArgs stats_args(DType type, int n, int losses, double inv_scale) {
  StatsArgs a = {(size_t)n, losses, test_tensor_packed(type, 1, n), test_tensor_packed(type, 1, losses),
                 test_tensor_packed(type, 1, HYPERS)};
  test_fill(&a.g, (uint64_t)n, -1, 1);
  test_fill(&a.loss, 7, 0, 5);
  put(&a.hyper, 0, 0, 0, INV_SCALE, inv_scale);
  return a;
}
static void stats_free(StatsArgs *a) {
  test_tensor_free(&a->g);
  test_tensor_free(&a->loss);
  test_tensor_free(&a->hyper);
}
static void run_stats(Device *dev, void *context, const Dest *stats) {
  const StatsArgs *a = context;
  dev->ops->grad_stats(dev, a->n, a->g.data, a->losses, a->loss.data, a->hyper.data, stats->t.data);
}

// 16384 is the block of the CPU reference.
static const int sizes[] = {0, 1, 15, 16, 17, 1000, 16383, 16384, 16385, 50001};

TEST(grad_stats_equals_definition) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    Dest stats = {.t = test_tensor_packed(dev->real, 1, 2)};
    for (int i = 0; i < COUNT(sizes); i++) {
      StatsArgs a = stats_args(dev->real, sizes[i], 5, 0x1p-4);
      long double squares = 0;
      for (int k = 0; k < sizes[i]; k++) squares += (long double)get(&a.g, 0, 0, 0, k) * get(&a.g, 0, 0, 0, k);
      double norm = (double)sqrtl(squares) * 0x1p-4;
      for (int t = 1; t <= 3; t++) {
        omp_set_num_threads(t);
        run_op(dev, run_stats, &a, &stats);
        // Sums in double: at most 1024 + 20 additions a lane, half of it reaches the root; then one rounding.
        EXPECT_NEAR(get(&stats.t, 0, 0, 0, 0), norm, (unit_roundoff(dev->real) + 530 * 0x1p-53) * norm);
        EXPECT(get(&stats.t, 0, 0, 0, 1) == 1);
      }
      stats_free(&a);
    }
    test_tensor_free(&stats.t);
    device_close(dev);
  }
}

TEST(grad_stats_finds_every_nan_and_infinity) {
  const double bad[] = {NAN, INFINITY, -INFINITY};
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    Dest stats = {.t = test_tensor_packed(dev->real, 1, 2)};
    StatsArgs a = stats_args(dev->real, 16384 + 35, 5, 1);
    for (int k = 0; k < COUNT(bad); k++) {
      for (int i = 0; i < (int)a.n; i += i < 40 || i > 16370 ? 1 : 511) {
        double good = get(&a.g, 0, 0, 0, i);
        put(&a.g, 0, 0, 0, i, bad[k]);
        run_op(dev, run_stats, &a, &stats);
        EXPECT(get(&stats.t, 0, 0, 0, 1) == 0);
        put(&a.g, 0, 0, 0, i, good);
      }
      for (int i = 0; i < a.losses; i++) {
        double good = get(&a.loss, 0, 0, 0, i);
        put(&a.loss, 0, 0, 0, i, bad[k]);
        run_op(dev, run_stats, &a, &stats);
        EXPECT(get(&stats.t, 0, 0, 0, 1) == 0);
        put(&a.loss, 0, 0, 0, i, good);
      }
    }
    put(&a.g, 0, 0, 0, 0, NAN); // two that might cancel, and one in every lane
    put(&a.g, 0, 0, 0, 16, -INFINITY);
    put(&a.g, 0, 0, 0, 32, INFINITY);
    run_op(dev, run_stats, &a, &stats);
    EXPECT(get(&stats.t, 0, 0, 0, 1) == 0);
    test_fill(&a.g, 1, -1, 1);
    put(&a.g, 0, 0, 0, 0, dev->real == F64 ? DBL_MAX : FLT_MAX); // large is not infinite
    put(&a.g, 0, 0, 0, 1, dev->real == F64 ? -DBL_MAX : -FLT_MAX);
    run_op(dev, run_stats, &a, &stats);
    EXPECT(get(&stats.t, 0, 0, 0, 1) == 1);
    stats_free(&a);
    test_tensor_free(&stats.t);
    device_close(dev);
  }
}

static void check_sgd(Device *dev, int n, double limit, double norm, double inv_scale) {
  const double lr = 0x1p-5, momentum = 0.875, decay = 0x1p-7;
  Tensor hyper = test_tensor_packed(dev->real, 1, HYPERS), stats = test_tensor_packed(dev->real, 1, 2);
  const double values[] = {lr, momentum, decay, limit, inv_scale};
  for (int i = 0; i < HYPERS; i++) put(&hyper, 0, 0, 0, i, values[i]);
  put(&stats, 0, 0, 0, 0, norm);
  put(&stats, 0, 0, 0, 1, 1);
  Tensor w = test_tensor_packed(dev->real, 1, n), g = test_tensor_like(&w), v = test_tensor_like(&w);
  Tensor old_w = test_tensor_like(&w), old_v = test_tensor_like(&w);
  test_fill(&w, 1, -1, 1);
  test_fill(&v, 2, -1, 1);
  test_fill(&g, 3, -1 / inv_scale, 1 / inv_scale);
  memcpy(old_w.data, w.data, tensor_bytes(&w));
  memcpy(old_v.data, v.data, tensor_bytes(&v));
  UpdatePart part[2];
  const int parts = update_plain_parts(part, n, UPDATE_PART, false);
  Sgd sgd = {
      .hyper = hyper.data, .stats = stats.data, .part = part, .parts = parts, .shadow = dev->real, .factors = alike};
  dev->ops->sgd(dev, &sgd, w.data, g.data, v.data);
  double u = unit_roundoff(dev->real), clip = (limit > 0 ? fmin(1, limit / (norm + 1e-6)) : 1) * inv_scale;
  for (int i = 0; i < n; i++) {
    double weight = get(&old_w, 0, 0, 0, i), grad = get(&g, 0, 0, 0, i), velocity = get(&old_v, 0, 0, 0, i);
    double pull = momentum * fabs(velocity) + fabs(grad * clip) + decay * fabs(weight);
    velocity = momentum * velocity + (grad * clip + decay * weight);
    // Three products, two sums and the three roundings of clip; then a product and a difference.
    EXPECT_NEAR(get(&v, 0, 0, 0, i), velocity, 8 * u * pull);
    EXPECT_NEAR(get(&w, 0, 0, 0, i), weight - lr * velocity, 2 * u * fabs(weight) + 11 * u * lr * pull);
  }
  Tensor *all[] = {&hyper, &stats, &w, &g, &v, &old_w, &old_v};
  for (int i = 0; i < COUNT(all); i++) test_tensor_free(all[i]);
}

TEST(sgd_equals_definition) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    const int n[] = {0, 8, 24, UPDATE_PART, UPDATE_PART + 8};
    for (int i = 0; i < COUNT(n); i++) {
      check_sgd(dev, n[i], 0, 50, 1);
      check_sgd(dev, n[i], 0, 50, 0x1p-10);
      check_sgd(dev, n[i], 1, 50, 1);       // clipped
      check_sgd(dev, n[i], 10, 7, 0x1p-10); // within the limit
      check_sgd(dev, n[i], 10, 0, 1);
      if (dev->real == F32) check_sgd(dev, n[i], 1, INFINITY, 1); // a norm too large for float
    }
    device_close(dev);
  }
}

TEST(sgd_writes_nothing_when_not_finite) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    Tensor hyper = test_tensor_packed(dev->real, 1, HYPERS), stats = test_tensor_packed(dev->real, 1, 2);
    test_fill(&hyper, 1, 0.5, 1);
    put(&stats, 0, 0, 0, 0, NAN);
    const UpdatePart part = {.n = 40};
    Tensor w = test_tensor_packed(dev->real, 1, 40), v = test_tensor_like(&w), g = test_tensor_like(&w);
    Tensor old = test_tensor_like(&w);
    test_fill(&w, 1, -1, 1);
    test_fill(&v, 1, -1, 1);
    test_fill(&old, 1, -1, 1);
    const double flags[] = {0, NAN};
    for (int i = 0; i < COUNT(flags); i++) {
      put(&stats, 0, 0, 0, 1, flags[i]);
      Sgd sgd = {.hyper = hyper.data, .stats = stats.data, .part = &part, .parts = 1, .shadow = dev->real};
      dev->ops->sgd(dev, &sgd, w.data, g.data, v.data);
      EXPECT(same_bits(&w, &old) && same_bits(&v, &old));
    }
    Tensor *all[] = {&hyper, &stats, &w, &g, &v, &old};
    for (int i = 0; i < COUNT(all); i++) test_tensor_free(all[i]);
    device_close(dev);
  }
}

// Two parameters of 64 elements: the second learns twice as fast and does not decay.
TEST(sgd_factors) {
  const char *names[] = {"cpu", "cpu64"};
  for (int d = 0; d < COUNT(names); d++) {
    Device *dev = device_open(names[d], NULL);
    const double values[HYPERS] = {.25, .5, .125, 0, 1};
    Tensor hyper = test_tensor_packed(dev->real, 1, HYPERS), stats = test_tensor_packed(dev->real, 1, 2);
    Tensor w = test_tensor_packed(dev->real, 1, 128), g = test_tensor_like(&w), v = test_tensor_like(&w);
    for (int i = 0; i < HYPERS; i++) put(&hyper, 0, 0, 0, i, values[i]);
    put(&stats, 0, 0, 0, 0, 1);
    put(&stats, 0, 0, 0, 1, 1);
    for (int i = 0; i < 128; i++) {
      put(&w, 0, 0, 0, i, 8);
      put(&g, 0, 0, 0, i, 3);
      put(&v, 0, 0, 0, i, 2);
    }
    const UpdatePart part[] = {{.n = 64, .kind = PARAM_WEIGHT}, {.first = 64, .n = 64, .kind = PARAM_BIAS}};
    Sgd sgd = {.hyper = hyper.data,
               .stats = stats.data,
               .part = part,
               .parts = COUNT(part),
               .shadow = dev->real,
               .factors = {.rate = {[PARAM_WEIGHT] = 1, [PARAM_BIAS] = 2}, .decay = {[PARAM_WEIGHT] = 1}}};
    dev->ops->sgd(dev, &sgd, w.data, g.data, v.data);
    for (int i = 0; i < 128; i++) { // v = 0.5 · 2 + 3 + 0.125 · 8, or without the last; w = 8 - rate · v
      EXPECT_NEAR(get(&v, 0, 0, 0, i), i < 64 ? 5 : 4, 0);
      EXPECT_NEAR(get(&w, 0, 0, 0, i), i < 64 ? 8 - .25 * 5 : 8 - .5 * 4, 0);
    }
    Tensor *all[] = {&hyper, &stats, &w, &g, &v};
    for (int i = 0; i < COUNT(all); i++) test_tensor_free(all[i]);
    device_close(dev);
  }
}

// Shadows are what filter_shadow makes of the weights after the update; what no part covers is left alone.
TEST(sgd_writes_shadows) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    const int n = update_segment_first(UPDATE_SEGMENTS), rows = update_segment_scale(UPDATE_SEGMENTS);
    const double values[HYPERS] = {.25, .5, .125, 0, 1};
    Tensor hyper = test_tensor_packed(dev->real, 1, HYPERS), stats = test_tensor_packed(dev->real, 1, 2);
    Tensor w = test_tensor_packed(dev->real, 1, n), g = test_tensor_like(&w), v = test_tensor_like(&w);
    Tensor shadow = test_tensor_like(&w), want = test_tensor_like(&w), scale = test_tensor_packed(dev->real, 1, rows);
    for (int i = 0; i < HYPERS; i++) put(&hyper, 0, 0, 0, i, values[i]);
    put(&stats, 0, 0, 0, 0, 1);
    put(&stats, 0, 0, 0, 1, 1);
    Tensor *const drawn[] = {&w, &g, &v, &scale};
    for (int i = 0; i < COUNT(drawn); i++) test_fill(drawn[i], (uint64_t)i, -1, 1);
    test_fill(&shadow, 0, 7, 7);
    test_fill(&want, 0, 7, 7);
    UpdatePart part[UPDATE_CASE_PARTS];
    const int parts = update_case_parts(part, shadow.data, dtype_size(dev->real), scale.data, dtype_size(dev->real));
    Sgd sgd = {
        .hyper = hyper.data, .stats = stats.data, .part = part, .parts = parts, .shadow = dev->real, .factors = alike};
    dev->ops->sgd(dev, &sgd, w.data, g.data, v.data);
    for (int s = 0; s < UPDATE_SEGMENTS; s++) {
      const UpdateSegment *u = &update_segments[s];
      for (int i = 0; u->shadow && i < u->rows * u->row; i++) {
        const int at = update_segment_first(s) + i;
        const double factor = u->scaled ? get(&scale, 0, 0, 0, update_segment_scale(s) + i / u->row) : 1;
        put(&want, 0, 0, 0, at, factor * get(&w, 0, 0, 0, at)); // put rounds
      }
    }
    EXPECT(same_bits(&shadow, &want));
    Tensor *all[] = {&hyper, &stats, &w, &g, &v, &shadow, &want, &scale};
    for (int i = 0; i < COUNT(all); i++) test_tensor_free(all[i]);
    device_close(dev);
  }
}
