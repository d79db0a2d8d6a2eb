// Adam and AdamW on the GPU against the CPU reference, over several updates; and in a recorded program, which counts
// for itself.
#include "base/rng.h"
#include "test/harness/gpu.h"

enum { LR, MOMENTUM, DECAY, LIMIT, INV_SCALE, HYPERS };
#define EPS 0.25f // large, so that what a mean is off by is not magnified beside it

static const int sizes[] = {0, 1, 3, 4, 5, 8, 1023, 1024, 1029, 132 * 8 * 1024 + 7};

typedef struct AdamTwins {
  bool decoupled;
  TwinArray kind;
  Twin hyper, stats, state, w, g, m, v;
} AdamTwins;

static AdamTwins make(int n, const float hyper[HYPERS], const float stats[2], bool decoupled) {
  size_t blocks = (size_t)n / PARAM_ALIGN + 1, bytes = (size_t)n + 1;
  uint8_t *values = xmalloc(blocks);
  float *zeros = xcalloc(bytes, sizeof *zeros);
  for (size_t b = 0; b < blocks; b++) values[b] = (uint8_t)(rng_u32(4, b) % PARAM_KINDS);
  AdamTwins a = {.decoupled = decoupled,
                 .kind = twin_array(blocks, 1, values),
                 .hyper = twin_packed(1, HYPERS, hyper),
                 .stats = twin_packed(1, 2, stats),
                 .state = twin_packed(1, 3, zeros),
                 .w = twin_random(F32, 1, 1, 1, n, 1, 1),
                 .g = twin_random(F32, 1, 1, 1, n, 1 / (double)hyper[INV_SCALE], 2),
                 .m = twin_values(F32, 1, 1, 1, n, zeros),
                 .v = twin_values(F32, 1, 1, 1, n, zeros)};
  free(values);
  free(zeros);
  return a;
}
static void update(const AdamTwins *a, bool gpu) {
  Device *dev = gpu ? gpu_device() : cpu_device();
  Adam p = {.hyper = twin_data(&a->hyper, gpu),
            .stats = twin_data(&a->stats, gpu),
            .state = twin_data(&a->state, gpu),
            .kind = twin_array_data(&a->kind, gpu),
            .factors = {.rate = {1, 2, 1, .5f}, .decay = {1, 0, 2, .25f}},
            .beta1 = 0.9,
            .beta2 = 0.999,
            .eps = EPS,
            .decoupled = a->decoupled};
  dev->ops->adam(dev, &p, (size_t)a->w.cpu.c, twin_data(&a->w, gpu), twin_data(&a->g, gpu), twin_data(&a->m, gpu),
                 twin_data(&a->v, gpu));
}
static void free_twins(AdamTwins *a) {
  twin_array_check_equal(&a->kind, a->kind.n);
  twin_array_free(&a->kind);
  Twin *all[] = {&a->hyper, &a->stats, &a->g, &a->state, &a->w, &a->m, &a->v};
  for (int i = 0; i < COUNT(all); i++) {
    twin_check_guards(all[i], i < 3);
    twin_free(all[i]);
  }
}

static void check_adam(int n, float limit, float norm, float inv_scale, bool decoupled) {
  enum { UPDATES = 3 };
  const float hyper[HYPERS] = {0x1p-6f, NAN, 0x1p-4f, limit, inv_scale}, stats[] = {norm, 1};
  AdamTwins a = make(n, hyper, stats, decoupled);
  for (int t = 0; t < UPDATES; t++) {
    update(&a, false);
    update(&a, true);
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
  // Eight roundings of m and sixteen of v an update, on either side; then what is in the step.
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
      check_adam(sizes[i], 0, 50, 0x1p-10f, decoupled);
      check_adam(sizes[i], 1, 50, 1, decoupled); // clipped
    }
}

TEST(cuda_adam_writes_nothing_when_not_finite) {
  if (!gpu_device()) return;
  const float hyper[HYPERS] = {1, 0.5f, 0.5f, 1, 1}, flags[] = {0, NAN};
  for (int i = 0; i < COUNT(flags); i++) {
    AdamTwins a = make(1029, hyper, (const float[]){1, flags[i]}, false);
    update(&a, true);
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
  AdamTwins recorded = make(1029, hyper, stats, true), alone = make(1029, hyper, stats, true);
  CHECK(device_record(gpu));
  update(&recorded, true);
  void *program = device_record_end(gpu);
  for (int t = 0; t < 3; t++) {
    device_replay(gpu, program);
    update(&alone, true);
  }
  float *a = gpu_fetch_floats(&recorded.w.gpu), *b = gpu_fetch_floats(&alone.w.gpu);
  EXPECT(!memcmp(a, b, tensor_bytes(&alone.w.cpu)));
  free(a);
  free(b);
  device_forget(gpu, program);
  free_twins(&recorded);
  free_twins(&alone);
}
