// Gradient statistics, SGD and the loss scale on the GPU against the CPU reference.
#include <float.h>
#include "base/rng.h"
#include "test/harness/gpu.h"

enum { LR, MOMENTUM, DECAY, LIMIT, INV_SCALE, HYPERS };

static Device *device(bool gpu) { return gpu ? gpu_device() : cpu_device(); }

// None, less than a vector, around a vector and a block, and more than the grid takes at once.
static const int sizes[] = {0, 1, 3, 4, 5, 8, 1023, 1024, 1029, 132 * 8 * 1024 + 7};

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
static void stats_free(StatsTwins *s) {
  Twin *all[] = {&s->g, &s->loss, &s->hyper, &s->stats};
  for (int i = 0; i < COUNT(all); i++) twin_free(all[i]);
}
static void run_stats(const StatsTwins *s, bool gpu) {
  Device *dev = device(gpu);
  dev->ops->grad_stats(dev, (size_t)s->g.cpu.c, twin_data(&s->g, gpu), s->loss.cpu.c, twin_data(&s->loss, gpu),
                       twin_data(&s->hyper, gpu), twin_data(&s->stats, gpu));
}

TEST(cuda_grad_stats_equal_cpu) {
  if (!gpu_device()) return;
  for (int i = 0; i < COUNT(sizes); i++) {
    StatsTwins s = stats_make(sizes[i], 5, 0x1p-4f);
    run_stats(&s, false);
    run_stats(&s, true);
    // Both sum in double; the norms may be rounded to neighbouring floats.
    if (!twin_check(&s.stats, NULL, 2.01)) printf("  %d gradients\n", sizes[i]);
    float *first = gpu_fetch(s.stats.gpu.data, 2 * sizeof(float));
    run_stats(&s, true);
    float *second = gpu_fetch(s.stats.gpu.data, 2 * sizeof(float));
    EXPECT(!memcmp(first, second, 2 * sizeof(float)));
    free(first);
    free(second);
    twin_check_guards(&s.g, true);
    twin_check_guards(&s.loss, true);
    twin_check_guards(&s.hyper, true);
    twin_check_guards(&s.stats, false);
    stats_free(&s);
  }
}

static void set(const Twin *t, int i, float value) {
  device_upload(gpu_device(), (float *)t->gpu.data + i, &value, sizeof value);
  device_sync(gpu_device());
}
static float finite_flag(const StatsTwins *s) {
  run_stats(s, true);
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
  stats_free(&s);
}

// Squares of what fits a float need not.
TEST(cuda_grad_stats_of_large_and_small_gradients) {
  if (!gpu_device()) return;
  for (int large = 0; large < 2; large++) {
    StatsTwins s = stats_make(1000, 5, 1);
    twin_free(&s.g);
    s.g = twin_random(F32, 1, 1, 1, 1000, large ? 1e30 : 1e-30, 1);
    run_stats(&s, false);
    run_stats(&s, true);
    twin_check(&s.stats, NULL, 2.01);
    EXPECT(finite_flag(&s) == 1);
    stats_free(&s);
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
static void update_run(const UpdateTwins *u, bool gpu, const TwinArray *kind) {
  Device *dev = device(gpu);
  Sgd sgd = {.hyper = twin_data(&u->hyper, gpu), .stats = twin_data(&u->stats, gpu)};
  if (kind) sgd.kind = gpu ? kind->gpu : kind->cpu;
  if (kind) sgd.factors = (SgdFactors){.rate = {1, 2, 1, .5f}, .decay = {1, 0, 2, .25f}};
  dev->ops->sgd(dev, &sgd, (size_t)u->w.cpu.c, twin_data(&u->w, gpu), twin_data(&u->g, gpu), twin_data(&u->v, gpu));
}
static void update_free(UpdateTwins *u) {
  Twin *all[] = {&u->hyper, &u->stats, &u->g, &u->w, &u->v};
  for (int i = 0; i < COUNT(all); i++) {
    twin_check_guards(all[i], i < 3);
    twin_free(all[i]);
  }
}

// kind: NULL, or of every PARAM_ALIGN elements.
static void check_sgd(int n, float limit, float norm, float inv_scale, const TwinArray *kind) {
  const float hyper[HYPERS] = {0x1p-5f, 0.875f, 0x1p-7f, limit, inv_scale};
  UpdateTwins u = update_make(n, hyper, norm, 1);
  float *of_v = xcalloc(tensor_elements(&u.v.cpu), sizeof *of_v);
  float *of_w = xcalloc(tensor_elements(&u.w.cpu), sizeof *of_w);
  float clip = (limit > 0 ? fminf(1, limit / (norm + 1e-6f)) : 1) * inv_scale;
  const float *w = u.w.cpu.data, *v = u.v.cpu.data, *g = u.g.cpu.data;
  for (int i = 0; i < n; i++) {
    of_v[i] = hyper[MOMENTUM] * fabsf(v[i]) + fabsf(g[i] * clip) + 2 * hyper[DECAY] * fabsf(w[i]);
    of_w[i] = fabsf(w[i]) + 2 * hyper[LR] * of_v[i]; // the largest factors
  }
  update_run(&u, false, kind);
  update_run(&u, true, kind);
  // Three products, two sums and three roundings of clip on either side; then a product and a difference.
  bool ok = twin_check(&u.v, of_v, 16);
  ok &= twin_check(&u.w, of_w, 22);
  if (!ok)
    printf("  %d elements, limit %g, norm %g, 1 / scale %g\n", n, (double)limit, (double)norm, (double)inv_scale);
  free(of_v);
  free(of_w);
  update_free(&u);
}

TEST(cuda_sgd_equals_cpu) {
  if (!gpu_device()) return;
  for (int i = 0; i < COUNT(sizes); i++) {
    check_sgd(sizes[i], 0, 50, 0x1p-10f, NULL);
    check_sgd(sizes[i], 1, 50, 1, NULL); // clipped
    if (sizes[i] > 2000) continue;
    check_sgd(sizes[i], 10, 7, 0x1p-10f, NULL); // within the limit
    check_sgd(sizes[i], 10, 0, 1, NULL);
    check_sgd(sizes[i], 1, INFINITY, 1, NULL); // a norm too large for float
  }
}

TEST(cuda_sgd_factors) {
  if (!gpu_device()) return;
  for (int i = 0; i < COUNT(sizes); i++) {
    size_t blocks = (size_t)sizes[i] / PARAM_ALIGN + 1;
    uint8_t *values = xmalloc(blocks);
    for (size_t b = 0; b < blocks; b++) values[b] = (uint8_t)(rng_u32(4, b) % PARAM_KINDS);
    TwinArray kind = twin_array(blocks, 1, values);
    check_sgd(sizes[i], 1, 50, 1, &kind);
    twin_array_check_equal(&kind, blocks);
    twin_array_free(&kind);
    free(values);
  }
}

TEST(cuda_sgd_writes_nothing_when_not_finite) {
  if (!gpu_device()) return;
  const float hyper[HYPERS] = {1, 0.5f, 0.5f, 1, 1}, flags[] = {0, NAN};
  for (int i = 0; i < COUNT(flags); i++) {
    UpdateTwins u = update_make(1029, hyper, NAN, flags[i]);
    update_run(&u, true, NULL);
    twin_check_guards(&u.w, true);
    twin_check_guards(&u.v, true);
    update_free(&u);
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
