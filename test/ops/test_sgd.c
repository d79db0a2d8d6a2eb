// Catches updates of SGD and gradient norms that are wrong, or weights changed when a gradient is not finite.
//
// Gradient statistics, SGD and the loss scale against their definitions, and on the GPU against the CPU.
#include <float.h>
#include <omp.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/gpu.h"
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
    const UpdatePart part[] = {{.n = 64, .role = PARAM_WEIGHT}, {.first = 64, .n = 64, .role = PARAM_BIAS}};
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

// ---- on the GPU -----------------------------------------------------------------------------------------------------

static Device *device(bool gpu) { return gpu ? gpu_device() : cpu_device(); }

// None, less than a vector, around a vector and a block, and more than the grid takes at once.
static const int gpu_sizes[] = {0, 1, 3, 4, 5, 8, 1023, 1024, 1029, 132 * 8 * 1024 + 7};

typedef struct StatsTwins {
  Twin g, loss, hyper, stats;
} StatsTwins;
static StatsTwins stats_make(int n, int losses, float inv_scale) {
  float hyper[HYPERS] = {[INV_SCALE] = inv_scale};
  Twin random = twin_random(F32, 1, 1, 1, losses, 1, 1);
  StatsTwins s = {.g = twin_random(F32, 1, 1, 1, n, 1, 2), .hyper = twin_packed(1, HYPERS, hyper)};
  s.loss = twin_packed(1, losses, random.cpu.data);
  s.stats = twin_packed(1, 2, NULL);
  twin_free(&random);
  return s;
}
static void gpu_stats_free(StatsTwins *s) {
  Twin *all[] = {&s->g, &s->loss, &s->hyper, &s->stats};
  for (int i = 0; i < COUNT(all); i++) twin_free(all[i]);
}
static void gpu_run_stats(const StatsTwins *s, bool gpu) {
  Device *dev = device(gpu);
  dev->ops->grad_stats(dev, (size_t)s->g.cpu.c, twin_data(&s->g, gpu), s->loss.cpu.c, twin_data(&s->loss, gpu),
                       twin_data(&s->hyper, gpu), twin_data(&s->stats, gpu));
}

TEST(cuda_grad_stats_equal_cpu) {
  if (!gpu_device()) return;
  for (int i = 0; i < COUNT(gpu_sizes); i++) {
    StatsTwins s = stats_make(gpu_sizes[i], 5, 0x1p-4f);
    gpu_run_stats(&s, false);
    gpu_run_stats(&s, true);
    // Both sum in double; the norms may be rounded to neighbouring floats.
    if (!twin_check(&s.stats, NULL, 2.01)) printf("  %d gradients\n", gpu_sizes[i]);
    float *first = gpu_fetch(s.stats.gpu.data, 2 * sizeof(float));
    gpu_run_stats(&s, true);
    float *second = gpu_fetch(s.stats.gpu.data, 2 * sizeof(float));
    EXPECT(!memcmp(first, second, 2 * sizeof(float)));
    free(first);
    free(second);
    twin_check_guards(&s.g, true);
    twin_check_guards(&s.loss, true);
    twin_check_guards(&s.hyper, true);
    twin_check_guards(&s.stats, false);
    gpu_stats_free(&s);
  }
}

static void set(const Twin *t, int i, float value) {
  device_upload(gpu_device(), (float *)t->gpu.data + i, &value, sizeof value);
  device_sync(gpu_device());
}
static float finite_flag(const StatsTwins *s) {
  gpu_run_stats(s, true);
  float *got = gpu_fetch(s->stats.gpu.data, 2 * sizeof *got), flag = got[1];
  free(got);
  return flag;
}

TEST(cuda_grad_stats_find_every_nan_and_infinity) {
  if (!gpu_device()) return;
  const float bad[] = {NAN, INFINITY, -INFINITY};
  enum { N = 5 * 1024 + 3 };
  StatsTwins s = stats_make(N, 5, 1);
  EXPECT(finite_flag(&s) == 1);
  for (int k = 0; k < COUNT(bad); k++) {
    for (int i = 0; i < N; i += i < 9 || i > N - 9 ? 1 : 127) {
      set(&s.g, i, bad[k]);
      if (!EXPECT(finite_flag(&s) == 0)) printf("  %g as gradient %d of %d\n", (double)bad[k], i, N);
      set(&s.g, i, 1);
    }
    for (int i = 0; i < 5; i++) {
      set(&s.loss, i, bad[k]);
      if (!EXPECT(finite_flag(&s) == 0)) printf("  %g as loss %d\n", (double)bad[k], i);
      set(&s.loss, i, 1);
    }
  }
  set(&s.g, 0, FLT_MAX); // large is not infinite
  set(&s.g, 1, -FLT_MAX);
  EXPECT(finite_flag(&s) == 1);
  gpu_stats_free(&s);
}

// Squares of what fits a float need not.
TEST(cuda_grad_stats_of_large_and_small_gradients) {
  if (!gpu_device()) return;
  for (int large = 0; large < 2; large++) {
    StatsTwins s = stats_make(1000, 5, 1);
    twin_free(&s.g);
    s.g = twin_random(F32, 1, 1, 1, 1000, large ? 1e30 : 1e-30, 1);
    gpu_run_stats(&s, false);
    gpu_run_stats(&s, true);
    twin_check(&s.stats, NULL, 2.01);
    EXPECT(finite_flag(&s) == 1);
    gpu_stats_free(&s);
  }
}

typedef struct UpdateTwins {
  Twin hyper, stats, w, g, v;
} UpdateTwins;
static UpdateTwins update_make(int n, const float hyper[HYPERS], float norm, float finite) {
  const float stats[] = {norm, finite};
  return (UpdateTwins){.hyper = twin_packed(1, HYPERS, hyper),
                       .stats = twin_packed(1, 2, stats),
                       .w = twin_random(F32, 1, 1, 1, n, 1, 1),
                       .g = twin_random(F32, 1, 1, 1, n, 1 / (double)hyper[INV_SCALE], 2),
                       .v = twin_random(F32, 1, 1, 1, n, 1, 3)};
}
// The parts hold no pointer: one array for both.
static TwinArray plain_parts(int n, int piece, bool roles) {
  UpdatePart *part = xmalloc((size_t)(n / piece + 1) * sizeof *part);
  TwinArray parts = twin_array((size_t)update_plain_parts(part, n, piece, roles), sizeof *part, part);
  free(part);
  return parts;
}
static void update_run(const UpdateTwins *u, bool gpu, const TwinArray *parts, DType shadow) {
  Device *dev = device(gpu);
  Sgd sgd = {.hyper = twin_data(&u->hyper, gpu),
             .stats = twin_data(&u->stats, gpu),
             .part = twin_array_data(parts, gpu),
             .parts = (int)parts->n,
             .shadow = gpu ? shadow : F32,
             .factors = {.rate = {1, 2, 1, .5f}, .decay = {1, 0, 2, .25f}}};
  dev->ops->sgd(dev, &sgd, twin_data(&u->w, gpu), twin_data(&u->g, gpu), twin_data(&u->v, gpu));
}
static void update_free(UpdateTwins *u) {
  Twin *all[] = {&u->hyper, &u->stats, &u->g, &u->w, &u->v};
  for (int i = 0; i < COUNT(all); i++) {
    twin_check_guards(all[i], i < 3);
    twin_free(all[i]);
  }
}

// What is added up in v and w, in absolute values.
static void sgd_bounds(const UpdateTwins *u, const float hyper[HYPERS], float norm, float *of_v, float *of_w) {
  const float clip = (hyper[LIMIT] > 0 ? fminf(1, hyper[LIMIT] / (norm + 1e-6f)) : 1) * hyper[INV_SCALE];
  const float *w = u->w.cpu.data, *v = u->v.cpu.data, *g = u->g.cpu.data;
  for (int i = 0; i < u->w.cpu.c; i++) {
    of_v[i] = hyper[MOMENTUM] * fabsf(v[i]) + fabsf(g[i] * clip) + 2 * hyper[DECAY] * fabsf(w[i]);
    of_w[i] = fabsf(w[i]) + 2 * hyper[LR] * of_v[i]; // the largest factors
  }
}
// Three products, two sums and three roundings of clip on either side; then a product and a difference.
enum { ROUNDINGS_V = 16, ROUNDINGS_W = 22 };

// kinds: parts of PARAM_ALIGN elements, each of some kind; otherwise whole ones of weights.
static void gpu_check_sgd(int n, float limit, float norm, float inv_scale, bool roles) {
  const float hyper[HYPERS] = {0x1p-5f, 0.875f, 0x1p-7f, limit, inv_scale};
  UpdateTwins u = update_make(n, hyper, norm, 1);
  TwinArray parts = plain_parts(n, roles ? PARAM_ALIGN : UPDATE_PART, roles);
  float *of_v = xcalloc(tensor_elements(&u.v.cpu), sizeof *of_v);
  float *of_w = xcalloc(tensor_elements(&u.w.cpu), sizeof *of_w);
  sgd_bounds(&u, hyper, norm, of_v, of_w);
  update_run(&u, false, &parts, F32);
  update_run(&u, true, &parts, F32);
  bool ok = twin_check(&u.v, of_v, ROUNDINGS_V);
  ok &= twin_check(&u.w, of_w, ROUNDINGS_W);
  if (!ok)
    printf("  %d elements, limit %g, norm %g, 1 / scale %g\n", n, (double)limit, (double)norm, (double)inv_scale);
  free(of_v);
  free(of_w);
  twin_array_check_equal(&parts, parts.n);
  twin_array_free(&parts);
  update_free(&u);
}

// None, less than a warp's vectors, around a threadblock's turn and a part, and more parts than run at once.
static const int updated[] = {0, 8, 56, 64, 1016, 1024, 1032, UPDATE_PART, UPDATE_PART + 8, 132 * 9 * 1024 + 8};

TEST(cuda_sgd_equals_cpu) {
  if (!gpu_device()) return;
  for (int i = 0; i < COUNT(updated); i++) {
    gpu_check_sgd(updated[i], 0, 50, 0x1p-10f, false);
    gpu_check_sgd(updated[i], 1, 50, 1, false); // clipped
    if (updated[i] > 2000) continue;
    gpu_check_sgd(updated[i], 10, 7, 0x1p-10f, false); // within the limit
    gpu_check_sgd(updated[i], 10, 0, 1, false);
    gpu_check_sgd(updated[i], 1, INFINITY, 1, false); // a norm too large for float
  }
}

TEST(cuda_sgd_factors) {
  if (!gpu_device()) return;
  for (int i = 0; i < COUNT(updated); i++) gpu_check_sgd(updated[i], 1, 50, 1, true);
}

// Weights, gradients and shadows of update_segments; shadows are 7 until they are written.
typedef struct ShadowTwins {
  UpdateTwins u;
  Twin scale, shadow, want;
  TwinArray parts;
  float *of_v, *of_w, *of_shadow;
} ShadowTwins;
static const float shadow_hyper[HYPERS] = {0x1p-5f, 0.875f, 0x1p-7f, 1, 1};

static ShadowTwins shadow_make(DType t, float finite) {
  const int n = update_segment_first(UPDATE_SEGMENTS), rows = update_segment_scale(UPDATE_SEGMENTS);
  Twin random = twin_random(F32, 1, 1, 1, rows, 1, 4);
  ShadowTwins s = {.u = update_make(n, shadow_hyper, 50, finite), .scale = twin_packed(1, rows, random.cpu.data)};
  twin_free(&random);
  float *sevens = xmalloc((size_t)n * sizeof *sevens);
  for (int i = 0; i < n; i++) sevens[i] = 7;
  s.shadow = twin_values(t, 1, 1, 1, n, sevens);
  s.want = twin_values(t, 1, 1, 1, n, sevens);
  free(sevens);
  UpdatePart part[UPDATE_CASE_PARTS];
  int parts = update_case_parts(part, s.shadow.gpu.data, dtype_size(t), s.scale.gpu.data, sizeof(float));
  s.parts = twin_array((size_t)parts, sizeof *part, part);
  CHECK(update_case_parts(s.parts.cpu, s.shadow.cpu.data, sizeof(float), s.scale.cpu.data, sizeof(float)) == parts);
  s.of_v = xcalloc((size_t)n * 3, sizeof *s.of_v);
  s.of_w = s.of_v + n;
  s.of_shadow = s.of_w + n;
  sgd_bounds(&s.u, shadow_hyper, 50, s.of_v, s.of_w);
  for (int k = 0; k < parts; k++) {
    const UpdatePart *p = (const UpdatePart *)s.parts.cpu + k;
    for (int i = 0; i < p->n; i++)
      s.of_shadow[p->first + (size_t)i] =
          s.of_w[p->first + (size_t)i] * (p->scale ? fabsf(((const float *)p->scale)[(p->at + i) / p->row]) : 1);
  }
  return s;
}
static void shadow_free(ShadowTwins *s) {
  twin_check_guards(&s->scale, true);
  twin_check_guards(&s->shadow, false);
  twin_free(&s->scale);
  twin_free(&s->shadow);
  twin_free(&s->want);
  twin_array_free(&s->parts);
  free(s->of_v);
  update_free(&s->u);
}

// What filter_shadow makes of the GPU's weights, to the bit.
static void check_as_filter_shadow(const ShadowTwins *s) {
  Device *gpu = gpu_device();
  const DType t = s->want.gpu.dtype;
  for (int i = 0; i < UPDATE_SEGMENTS; i++) {
    const UpdateSegment *u = &update_segments[i];
    if (!u->shadow) continue;
    Tensor w = tensor(F32, u->rows, 1, 1, u->row), to = tensor(t, u->rows, 1, 1, u->row);
    w.data = (float *)s->u.w.gpu.data + update_segment_first(i);
    to.data = (char *)s->want.gpu.data + (size_t)update_segment_first(i) * dtype_size(t);
    float *scale = u->scaled ? (float *)s->scale.gpu.data + update_segment_scale(i) : NULL;
    gpu->ops->filter_shadow(gpu, &w, scale, &to);
  }
  void *got = gpu_fetch(s->shadow.gpu.data, tensor_bytes(&s->shadow.gpu));
  void *want = gpu_fetch(s->want.gpu.data, tensor_bytes(&s->want.gpu));
  EXPECT(!memcmp(got, want, tensor_bytes(&s->want.gpu)));
  free(got);
  free(want);
}

TEST(cuda_sgd_writes_shadows) {
  if (!gpu_device()) return;
  for (DType t = F32; t < DTYPES; t++) {
    if (t == F64) continue;
    ShadowTwins s = shadow_make(t, 1);
    update_run(&s.u, false, &s.parts, t);
    update_run(&s.u, true, &s.parts, t);
    bool ok = twin_check(&s.u.v, s.of_v, ROUNDINGS_V);
    ok &= twin_check(&s.u.w, s.of_w, ROUNDINGS_W);
    // The scale's product is one more rounding on either side, and then that to t.
    ok &= twin_check(&s.shadow, s.of_shadow, 1 + (ROUNDINGS_W + 2) * twin_f32_unit(t));
    if (!ok) printf("  dtype %d\n", t);
    check_as_filter_shadow(&s);
    shadow_free(&s);
  }
}

TEST(cuda_sgd_writes_nothing_when_not_finite) {
  if (!gpu_device()) return;
  const float flags[] = {0, NAN};
  for (int i = 0; i < COUNT(flags); i++) {
    ShadowTwins s = shadow_make(BF16, flags[i]);
    update_run(&s.u, true, &s.parts, BF16);
    twin_check_guards(&s.u.w, true);
    twin_check_guards(&s.u.v, true);
    twin_check_guards(&s.shadow, true);
    shadow_free(&s);
  }
}

TEST(cuda_loss_scale_equals_cpu) {
  if (!gpu_device()) return;
  const float finite[] = {1, 1, 1, 0, 1, 1, NAN, 0, 1, 1, 1, 1, 1, 1};
  Twin state = twin_packed(1, 3, (const float[]){1024, 0, 0}), hyper = twin_packed(1, HYPERS, NULL);
  for (int i = 0; i < COUNT(finite); i++) {
    Twin stats = twin_packed(1, 2, (const float[]){1, finite[i]});
    for (int gpu = 0; gpu < 2; gpu++)
      device(gpu)->ops->loss_scale_update(device(gpu), 3, twin_data(&stats, gpu), twin_data(&state, gpu),
                                          twin_data(&hyper, gpu));
    float *got = gpu_fetch(hyper.gpu.data, HYPERS * sizeof *got);
    if (!twin_check(&state, NULL, 0) || !EXPECT(got[INV_SCALE] == ((float *)hyper.cpu.data)[INV_SCALE]))
      printf("  after step %d\n", i);
    for (int k = 0; k < INV_SCALE; k++) EXPECT(isnan(got[k])); // the schedule's
    free(got);
    twin_check_guards(&stats, true);
    twin_free(&stats);
  }
  twin_check_guards(&state, false);
  twin_check_guards(&hyper, false);
  twin_free(&state);
  twin_free(&hyper);
}
