// Catches updates of Adam and AdamW that differ from torch's, or that change weights when a gradient is not finite.
//
// Adam and AdamW against their definitions over several updates; on the GPU against the CPU, and in a recorded program,
// which counts for itself.
#include "base/alloc.h"
#include "test/harness/gpu.h"
#include "test/harness/op_golden.h"
#include "test/harness/update_cases.h"

static const char *const devices[] = {"cpu", "cpu64"};
enum { LR, MOMENTUM, DECAY, LIMIT, INV_SCALE, HYPERS };

typedef struct AdamFixture {
  Adam p;
  int n;
  Tensor hyper, stats, state, w, g, m, v;
  UpdatePart part[64];
} AdamFixture;

static void make(AdamFixture *f, Device *dev, int n, const double hyper[HYPERS], double norm) {
  *f = (AdamFixture){.n = n,
                     .hyper = test_tensor_packed(dev->real, 1, HYPERS),
                     .stats = test_tensor_packed(dev->real, 1, 2),
                     .state = test_tensor_packed(dev->real, 1, 3),
                     .w = test_tensor_packed(dev->real, 1, n)};
  f->g = test_tensor_like(&f->w);
  f->m = test_tensor_like(&f->w);
  f->v = test_tensor_like(&f->w);
  for (int i = 0; i < HYPERS; i++) put(&f->hyper, 0, 0, 0, i, hyper[i]);
  put(&f->stats, 0, 0, 0, 0, norm);
  put(&f->stats, 0, 0, 0, 1, 1);
  test_fill(&f->state, 0, 0, 0);
  test_fill(&f->w, 1, -1, 1);
  test_fill(&f->m, 0, 0, 0);
  test_fill(&f->v, 0, 0, 0);
  f->p =
      (Adam){.hyper = f->hyper.data, .stats = f->stats.data, .state = f->state.data, .beta1 = 0.875, .beta2 = 0.96875};
  f->p.eps = 0x1p-10;
  f->p.factors = (SgdFactors){.rate = {1, 1, 1, 1}, .decay = {1, 1, 1, 1}};
  f->p.part = f->part;
  f->p.parts = update_plain_parts(f->part, n, PARAM_ALIGN, false);
  f->p.shadow = dev->real;
}
static void free_fixture(AdamFixture *f) {
  Tensor *all[] = {&f->hyper, &f->stats, &f->state, &f->w, &f->g, &f->m, &f->v};
  for (int i = 0; i < COUNT(all); i++) test_tensor_free(all[i]);
}
static void update(Device *dev, AdamFixture *f) {
  dev->ops->adam(dev, &f->p, f->w.data, f->g.data, f->m.data, f->v.data);
}

// One update from what is there, in double, by the paper's algorithm 1 (and algorithm 2 of the decoupled decay's).
static void check_update(Device *dev, AdamFixture *f, int t, double clip, double lr, double decay, double rate,
                         double pull) {
  const double u = unit_roundoff(dev->real), b1 = f->p.beta1, b2 = f->p.beta2;
  double *w = xmalloc((size_t)f->n * 3 * sizeof *w), *m = w + f->n, *v = m + f->n;
  for (int i = 0; i < f->n; i++) {
    w[i] = get(&f->w, 0, 0, 0, i);
    m[i] = get(&f->m, 0, 0, 0, i);
    v[i] = get(&f->v, 0, 0, 0, i);
  }
  update(dev, f);
  EXPECT(get(&f->state, 0, 0, 0, 0) == t);
  for (int i = 0; i < f->n; i++) {
    bool second = f->part[i / PARAM_ALIGN].role == PARAM_BIAS;
    double r = lr * (second ? rate : 1), d = decay * (second ? pull : 1), g = get(&f->g, 0, 0, 0, i) * clip;
    double size = fabs(g) + d * fabs(w[i]), shrunk = f->p.decoupled ? w[i] - r * d * w[i] : w[i];
    if (!f->p.decoupled) g += d * w[i];
    double mean = b1 * m[i] + (1 - b1) * g, square = b2 * v[i] + (1 - b2) * g * g;
    double root = sqrt(square / (1 - pow(b2, t))), step = r * mean / (1 - pow(b1, t)) / (root + f->p.eps);
    // g takes at most four roundings (clip, product, decay, sum), the mean four more, the square six; a quotient by the
    // corrections, each off by two, and the root halves what the square is off by.
    double mean_size = fabs(m[i]) + size, square_size = v[i] + size * size;
    EXPECT_NEAR(get(&f->m, 0, 0, 0, i), mean, 8 * u * mean_size);
    EXPECT_NEAR(get(&f->v, 0, 0, 0, i), square, 16 * u * square_size);
    double off_root = 16 * u * square_size / (1 - pow(b2, t)) / fmax(root + f->p.eps, 1e-30) + 4 * u * root;
    double off_step = r / (1 - pow(b1, t)) / (root + f->p.eps) *
                      ((8 + 8) * u * mean_size + fabs(mean) * off_root / (root + f->p.eps));
    EXPECT_NEAR(get(&f->w, 0, 0, 0, i), shrunk - step, 4 * u * (fabs(w[i]) + fabs(step)) + off_step);
  }
  free(w);
}

static void check_adam(Device *dev, int n, double limit, double norm, double inv_scale, bool decoupled, bool roles) {
  const double lr = 0x1p-6, decay = 0x1p-4;
  AdamFixture f;
  make(&f, dev, n, (const double[]){lr, NAN, decay, limit, inv_scale}, norm);
  f.p.decoupled = decoupled;
  if (roles) {
    for (int i = 0; i < COUNT(f.part); i++) f.part[i].role = i % 2 ? PARAM_BIAS : PARAM_WEIGHT;
    f.p.factors = (SgdFactors){.rate = {1, 2}, .decay = {1, 0.5f}};
  }
  double clip = (limit > 0 ? fmin(1, limit / (norm + 1e-6)) : 1) * inv_scale;
  for (int t = 1; t <= 4; t++) {
    test_fill(&f.g, (uint64_t)t + 10, -1 / inv_scale, 1 / inv_scale);
    check_update(dev, &f, t, clip, lr, decay, 2, 0.5);
  }
  free_fixture(&f);
}

TEST(adam_equals_definition) {
  const int n[] = {0, 8, 24, 3000};
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(n); i++)
      for (int decoupled = 0; decoupled < 2; decoupled++) {
        check_adam(dev, n[i], 0, 50, 1, decoupled, false);
        check_adam(dev, n[i], 1, 50, 0x1p-10, decoupled, true); // clipped
        check_adam(dev, n[i], 10, 7, 0x1p-10, decoupled, true); // within the limit
      }
    device_close(dev);
  }
}

// Not even the updates are counted: a step that is left out changes nothing of those that follow.
TEST(adam_writes_nothing_when_not_finite) {
  const double flags[] = {0, NAN};
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    AdamFixture f, before;
    const double hyper[HYPERS] = {0.5, 0, 0.5, 0, 1};
    make(&f, dev, 40, hyper, 1);
    make(&before, dev, 40, hyper, 1);
    test_fill(&f.g, 3, -1, 1);
    test_fill(&before.g, 3, -1, 1);
    for (int i = 0; i < COUNT(flags); i++) {
      put(&f.stats, 0, 0, 0, 1, flags[i]);
      update(dev, &f);
      EXPECT(same_bits(&f.w, &before.w) && same_bits(&f.m, &before.m) && same_bits(&f.v, &before.v));
      EXPECT(same_bits(&f.state, &before.state));
    }
    put(&f.stats, 0, 0, 0, 1, 1);
    update(dev, &f);
    update(dev, &before);
    EXPECT(same_bits(&f.w, &before.w) && same_bits(&f.state, &before.state));
    free_fixture(&f);
    free_fixture(&before);
    device_close(dev);
  }
}

// Padding channels have neither weight nor gradient, and stay zero.
TEST(adam_leaves_zeros) {
  Device *dev = device_open("cpu", NULL);
  AdamFixture f;
  make(&f, dev, 64, (const double[]){0.5, 0, 0.5, 0, 1}, 1);
  test_fill(&f.w, 0, 0, 0);
  test_fill(&f.g, 0, 0, 0);
  for (int t = 0; t < 3; t++) update(dev, &f);
  for (int i = 0; i < 64; i++) EXPECT(get(&f.w, 0, 0, 0, i) == 0);
  free_fixture(&f);
  device_close(dev);
}

TEST(adam_equals_torch) {
  const char *const names[] = {"plain", "adam", "adamw"};
  for (int d = 0; d < COUNT(devices); d++)
    for (int i = 0; i < COUNT(names); i++) {
      Device *dev = device_open(devices[d], NULL);
      AdamFixture f;
      make(&f, dev, 70, (const double[]){0.01, 0, i ? 0.125 : 0, 0, 1}, 1);
      f.p.beta1 = 0.9;
      f.p.beta2 = 0.999;
      f.p.eps = 1e-8;
      f.p.decoupled = i == 2;
      for (int t = 0; t < 5; t++) {
        test_fill(&f.g, (uint64_t)t + 10, -1, 1);
        update(dev, &f);
      }
      const Tensor *got[] = {&f.w, &f.m, &f.v};
      for (int k = 0; k < COUNT(got); k++) {
        char name[32];
        snprintf(name, sizeof name, "adam.%s.%c", names[i], "wmv"[k]);
        // Five updates of at most forty roundings; in float the betas and the rate are rounded, too, which second
        // corrections of 1 - 0.999 magnify a thousandfold in a step of 0.01.
        expect_op_golden(name, got[k], dev->real == F64 ? 200 : 200 + 5 * 10);
      }
      free_fixture(&f);
      device_close(dev);
    }
}

// Shadows are of the weights after the update; what no part covers is left alone. sgd_writes_shadows has the cases.
TEST(adam_writes_shadows) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    const size_t real = dtype_size(dev->real);
    AdamFixture f;
    make(&f, dev, 192, (const double[]){0.5, 0, 0, 0, 1}, 1);
    test_fill(&f.g, 3, -1, 1);
    Tensor shadow = test_tensor_like(&f.w), scale = test_tensor_packed(dev->real, 1, 9);
    test_fill(&shadow, 0, 7, 7);
    test_fill(&scale, 5, -1, 1);
    // A plain one; and rows of 16, two of which stand before the part.
    f.part[1].shadow = (char *)shadow.data + 64 * real;
    f.part[2].shadow = (char *)shadow.data + 128 * real;
    f.part[2].scale = scale.data;
    f.part[2].row = 16;
    f.part[2].at = 32;
    update(dev, &f);
    Tensor want = test_tensor_like(&f.w);
    for (int i = 0; i < 192; i++) {
      const double factor = i < 128 ? 1 : get(&scale, 0, 0, 0, (i - 128 + 32) / 16);
      put(&want, 0, 0, 0, i, i < 64 ? 7 : factor * get(&f.w, 0, 0, 0, i)); // put rounds
    }
    EXPECT(same_bits(&shadow, &want));
    test_tensor_free(&shadow);
    test_tensor_free(&scale);
    test_tensor_free(&want);
    free_fixture(&f);
    device_close(dev);
  }
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

#define EPS 0.25f // large, so that what a mean is off by is not magnified beside it

static const int sizes[] = {0, 8, 56, 64, 1016, 1024, 1032, UPDATE_PART, UPDATE_PART + 8, 132 * 9 * 1024 + 8};

typedef struct AdamTwins {
  bool decoupled;
  DType shadow;
  TwinArray parts;
  Twin hyper, stats, state, w, g, m, v;
} AdamTwins;

static AdamTwins gpu_make(int n, const float hyper[HYPERS], const float stats[2], bool decoupled) {
  UpdatePart *part = xmalloc((size_t)(n / PARAM_ALIGN + 1) * sizeof *part);
  float *zeros = xcalloc((size_t)n + 1, sizeof *zeros);
  const int parts = update_plain_parts(part, n, PARAM_ALIGN, true);
  AdamTwins a = {.decoupled = decoupled,
                 .shadow = F32,
                 .parts = twin_array((size_t)parts, sizeof *part, part),
                 .hyper = twin_packed(1, HYPERS, hyper),
                 .stats = twin_packed(1, 2, stats),
                 .state = twin_packed(1, 3, zeros),
                 .w = twin_random(F32, 1, 1, 1, n, 1, 1),
                 .g = twin_random(F32, 1, 1, 1, n, 1 / (double)hyper[INV_SCALE], 2),
                 .m = twin_values(F32, 1, 1, 1, n, zeros),
                 .v = twin_values(F32, 1, 1, 1, n, zeros)};
  free(part);
  free(zeros);
  return a;
}
static void gpu_update(const AdamTwins *a, bool gpu) {
  Device *dev = gpu ? gpu_device() : cpu_device();
  Adam p = {.hyper = twin_data(&a->hyper, gpu),
            .stats = twin_data(&a->stats, gpu),
            .state = twin_data(&a->state, gpu),
            .part = twin_array_data(&a->parts, gpu),
            .parts = (int)a->parts.n,
            .shadow = gpu ? a->shadow : F32,
            .factors = {.rate = {1, 2, 1, .5f}, .decay = {1, 0, 2, .25f}},
            .beta1 = 0.9,
            .beta2 = 0.999,
            .eps = EPS,
            .decoupled = a->decoupled};
  dev->ops->adam(dev, &p, twin_data(&a->w, gpu), twin_data(&a->g, gpu), twin_data(&a->m, gpu), twin_data(&a->v, gpu));
}
static void free_twins(AdamTwins *a) {
  twin_array_free(&a->parts);
  Twin *all[] = {&a->hyper, &a->stats, &a->g, &a->state, &a->w, &a->m, &a->v};
  for (int i = 0; i < COUNT(all); i++) {
    twin_check_guards(all[i], i < 3);
    twin_free(all[i]);
  }
}

static void gpu_check_adam(int n, float limit, float norm, float inv_scale, bool decoupled) {
  enum { UPDATES = 3 };
  const float hyper[HYPERS] = {0x1p-6f, NAN, 0x1p-4f, limit, inv_scale}, stats[] = {norm, 1};
  AdamTwins a = gpu_make(n, hyper, stats, decoupled);
  for (int t = 0; t < UPDATES; t++) {
    gpu_update(&a, false);
    gpu_update(&a, true);
  }
  size_t elements = tensor_elements(&a.w.cpu);
  float *of_m = xcalloc(elements, sizeof *of_m), *of_v = xcalloc(elements, sizeof *of_v);
  float *of_w = xcalloc(elements, sizeof *of_w);
  float clip = (limit > 0 ? fminf(1, limit / (norm + 1e-6f)) : 1) * inv_scale;
  for (int i = 0; i < n; i++) {
    float size = fabsf(((float *)a.g.cpu.data)[i] * clip) + 0x1p-3f * (fabsf(((float *)a.w.cpu.data)[i]) + 1);
    of_m[i] = size;
    of_v[i] = size * size;
    // A step is at most 2 · lr · size / eps long, with the factor 2, and off by as much, relatively, as the mean.
    of_w[i] = fabsf(((float *)a.w.cpu.data)[i]) + 2 * hyper[LR] * UPDATES * (1 + size / EPS);
  }
  // Eight roundings of m and sixteen of v an gpu_update, on either side; then what is in the step.
  bool ok = twin_check(&a.m, of_m, 2 * 8 * UPDATES);
  ok &= twin_check(&a.v, of_v, 2 * 16 * UPDATES);
  ok &= twin_check(&a.w, of_w, 2 * 40 * UPDATES);
  ok &= twin_check(&a.state, NULL, 2);
  if (!ok) printf("  %d elements, limit %g, decoupled %d\n", n, (double)limit, decoupled);
  free(of_m);
  free(of_v);
  free(of_w);
  free_twins(&a);
}

TEST(cuda_adam_equals_cpu) {
  if (!gpu_device()) return;
  for (int i = 0; i < COUNT(sizes); i++)
    for (int decoupled = 0; decoupled < 2; decoupled++) {
      gpu_check_adam(sizes[i], 0, 50, 0x1p-10f, decoupled);
      gpu_check_adam(sizes[i], 1, 50, 1, decoupled); // clipped
    }
}

// To the bit what filter_shadow makes of the GPU's weights; shadows are 7 until they are written.
TEST(cuda_adam_writes_shadows) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  const float hyper[HYPERS] = {0x1p-6f, NAN, 0x1p-4f, 0, 1}, stats[] = {1, 1};
  const int n = update_segment_first(UPDATE_SEGMENTS), rows = update_segment_scale(UPDATE_SEGMENTS);
  float *sevens = xmalloc((size_t)n * sizeof *sevens);
  for (int i = 0; i < n; i++) sevens[i] = 7;
  for (DType t = F32; t < DTYPES; t++) {
    if (t == F64) continue;
    AdamTwins a = gpu_make(n, hyper, stats, true);
    Twin scale = twin_random(F32, 1, 1, 1, rows, 1, 4);
    Twin shadow = twin_values(t, 1, 1, 1, n, sevens), want = twin_values(t, 1, 1, 1, n, sevens);
    UpdatePart part[UPDATE_CASE_PARTS];
    int parts = update_case_parts(part, shadow.gpu.data, dtype_size(t), scale.gpu.data, sizeof(float));
    twin_array_free(&a.parts);
    a.parts = twin_array((size_t)parts, sizeof *part, part);
    a.shadow = t;
    gpu_update(&a, true);
    for (int i = 0; i < UPDATE_SEGMENTS; i++) {
      const UpdateSegment *u = &update_segments[i];
      if (!u->shadow) continue;
      Tensor w = tensor(F32, u->rows, 1, 1, u->row), to = tensor(t, u->rows, 1, 1, u->row);
      w.data = (float *)a.w.gpu.data + update_segment_first(i);
      to.data = (char *)want.gpu.data + (size_t)update_segment_first(i) * dtype_size(t);
      float *of_rows = u->scaled ? (float *)scale.gpu.data + update_segment_scale(i) : NULL;
      gpu->ops->filter_shadow(gpu, &w, of_rows, &to);
    }
    void *x = gpu_fetch(shadow.gpu.data, tensor_bytes(&shadow.gpu));
    void *y = gpu_fetch(want.gpu.data, tensor_bytes(&want.gpu));
    if (!EXPECT(!memcmp(x, y, tensor_bytes(&want.gpu)))) printf("  dtype %d\n", t);
    free(x);
    free(y);
    twin_check_guards(&scale, true);
    twin_check_guards(&shadow, false);
    twin_free(&scale);
    twin_free(&shadow);
    twin_free(&want);
    free_twins(&a);
  }
  free(sevens);
}

TEST(cuda_adam_writes_nothing_when_not_finite) {
  if (!gpu_device()) return;
  const float hyper[HYPERS] = {1, 0.5f, 0.5f, 1, 1}, flags[] = {0, NAN};
  for (int i = 0; i < COUNT(flags); i++) {
    AdamTwins a = gpu_make(1032, hyper, (const float[]){1, flags[i]}, false);
    gpu_update(&a, true);
    Twin *all[] = {&a.w, &a.m, &a.v, &a.state};
    for (int t = 0; t < COUNT(all); t++) twin_check_guards(all[t], true);
    free_twins(&a);
  }
}

// Three replays are three updates, bit for bit.
TEST(cuda_adam_replays) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  const float hyper[HYPERS] = {0x1p-6f, 0, 0x1p-4f, 0, 1}, stats[] = {1, 1};
  AdamTwins recorded = gpu_make(1032, hyper, stats, true), alone = gpu_make(1032, hyper, stats, true);
  CHECK(device_record(gpu));
  gpu_update(&recorded, true);
  void *program = device_record_end(gpu);
  for (int t = 0; t < 3; t++) {
    device_replay(gpu, program);
    gpu_update(&alone, true);
  }
  float *a = gpu_fetch_floats(&recorded.w.gpu), *b = gpu_fetch_floats(&alone.w.gpu);
  EXPECT(!memcmp(a, b, tensor_bytes(&alone.w.cpu)));
  free(a);
  free(b);
  device_forget(gpu, program);
  free_twins(&recorded);
  free_twins(&alone);
}
