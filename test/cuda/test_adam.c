// Catches updates of Adam and AdamW that differ from torch's, or that change weights when a gradient is not finite.
//
// Adam and AdamW on the GPU against the CPU reference, over several updates; and in a recorded program, which counts
// for itself.
#include "base/alloc.h"
#include "test/harness/gpu.h"
#include "test/harness/update_cases.h"

enum { LR, MOMENTUM, DECAY, LIMIT, INV_SCALE, HYPERS };
#define EPS 0.25f // large, so that what a mean is off by is not magnified beside it

static const int sizes[] = {0, 8, 56, 64, 1016, 1024, 1032, UPDATE_PART, UPDATE_PART + 8, 132 * 9 * 1024 + 8};

typedef struct AdamTwins {
  bool decoupled;
  DType shadow;
  TwinArray parts;
  Twin hyper, stats, state, w, g, m, v;
} AdamTwins;

static AdamTwins make(int n, const float hyper[HYPERS], const float stats[2], bool decoupled) {
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
static void update(const AdamTwins *a, bool gpu) {
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
    AdamTwins a = make(n, hyper, stats, true);
    Twin scale = twin_random(F32, 1, 1, 1, rows, 1, 4);
    Twin shadow = twin_values(t, 1, 1, 1, n, sevens), want = twin_values(t, 1, 1, 1, n, sevens);
    UpdatePart part[UPDATE_CASE_PARTS];
    int parts = update_case_parts(part, shadow.gpu.data, dtype_size(t), scale.gpu.data, sizeof(float));
    twin_array_free(&a.parts);
    a.parts = twin_array((size_t)parts, sizeof *part, part);
    a.shadow = t;
    update(&a, true);
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
    AdamTwins a = make(1032, hyper, (const float[]){1, flags[i]}, false);
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
  AdamTwins recorded = make(1032, hyper, stats, true), alone = make(1032, hyper, stats, true);
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
