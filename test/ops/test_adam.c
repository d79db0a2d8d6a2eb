// Catches updates of Adam and AdamW that differ from torch's, or that change weights when a gradient is not finite.
//
// Against their definitions, update by update; on a GPU also in a recorded program, which counts for itself.
#include "test/harness/op_golden.h"
#include "test/harness/update_cases.h"

typedef struct AdamArgs {
  Adam p;
  int n;
  Tensor hyper, stats, state, w, g, m, v;
} AdamArgs;

// Without parts; gradients are for the caller to fill.
static AdamArgs make(Fixture *f, int n, const double hyper[HYPERS], double norm) {
  AdamArgs a = {.n = n,
                .hyper = update_vector(f, HYPERS, hyper),
                .stats = update_vector(f, 2, (const double[]){norm, 1}),
                .state = update_vector(f, 3, (const double[]){0, 0, 0}),
                .w = update_random(f, n, 1, 1),
                .g = update_random(f, n, 0, 0),
                .m = update_random(f, n, 0, 0),
                .v = update_random(f, n, 0, 0)};
  a.p = (Adam){.hyper = a.hyper.data,
               .stats = a.stats.data,
               .state = a.state.data,
               .shadow = f->type,
               .factors = update_factors,
               .beta1 = 0.875,
               .beta2 = 0.96875,
               .eps = 0x1p-10};
  return a;
}
static void set_parts(AdamArgs *a, UpdateParts parts) {
  a->p.part = parts.part;
  a->p.parts = parts.count;
}
static void update(Fixture *f, const AdamArgs *a) { RUN(f, adam, &a->p, a->w.data, a->g.data, a->m.data, a->v.data); }

// One update from what is there, in double, by the paper's algorithm 1 (and algorithm 2 of the decoupled decay's).
static void check_update(Fixture *f, AdamArgs *a, int t, const double hyper[HYPERS], double norm) {
  const double u = unit_roundoff(f->type), b1 = a->p.beta1, b2 = a->p.beta2, clip = update_clip(hyper, norm);
  const double first = 1 - pow(b1, t), second = 1 - pow(b2, t), eps = a->p.eps;
  Tensor w = update_copy(f, &a->w), m = update_copy(f, &a->m), v = update_copy(f, &a->v);
  UpdateInputs inputs = update_inputs(f, &a->g, &a->hyper, &a->stats, a->p.part, a->p.parts);
  update(f, a);
  update_expect_inputs(&inputs);
  EXPECT(get(&a->state, 0, 0, 0, 0) == t);
  EXPECT_NEAR(get(&a->state, 0, 0, 0, 1), first, 2 * u * first);
  EXPECT_NEAR(get(&a->state, 0, 0, 0, 2), second, 2 * u * second);
  for (int k = 0; k < a->p.parts; k++)
    for (int i = (int)a->p.part[k].first, end = i + a->p.part[k].n; i < end; i++) {
      const ParamRole role = a->p.part[k].role;
      const double rate = hyper[LR] * (double)a->p.factors.rate[role], weight = get(&w, 0, 0, 0, i);
      const double decay = hyper[DECAY] * (double)a->p.factors.decay[role];
      double g = get(&a->g, 0, 0, 0, i) * clip, size = fabs(g) + decay * fabs(weight);
      double shrunk = a->p.decoupled ? weight - rate * decay * weight : weight;
      if (!a->p.decoupled) g += decay * weight;
      double mean = b1 * get(&m, 0, 0, 0, i) + (1 - b1) * g, square = b2 * get(&v, 0, 0, 0, i) + (1 - b2) * g * g;
      double root = sqrt(square / second), step = rate * mean / first / (root + eps);
      // g takes at most four roundings (clip, product, decay, sum), the mean four more, the square six; a quotient by
      // the corrections, each off by two, and the root halves what the square is off by. A GPU takes the same steps, of
      // which some round once for two.
      double mean_size = fabs(get(&m, 0, 0, 0, i)) + size, square_size = get(&v, 0, 0, 0, i) + size * size;
      EXPECT_NEAR(get(&a->m, 0, 0, 0, i), mean, 8 * u * mean_size);
      EXPECT_NEAR(get(&a->v, 0, 0, 0, i), square, 16 * u * square_size);
      double off_root = 16 * u * square_size / second / fmax(root + eps, 1e-30) + 4 * u * root;
      double off_step = rate / first / (root + eps) * (16 * u * mean_size + fabs(mean) * off_root / (root + eps));
      EXPECT_NEAR(get(&a->w, 0, 0, 0, i), shrunk - step, 4 * u * (fabs(weight) + fabs(step)) + off_step);
    }
}

static void check_adam(Fixture *f, int n, double limit, double norm, double inv_scale, bool decoupled) {
  const double hyper[HYPERS] = {0x1p-6, NAN, 0x1p-4, limit, inv_scale};
  AdamArgs a = make(f, n, hyper, norm);
  set_parts(&a, update_plain_parts(f, n, PARAM_ALIGN, true));
  a.p.decoupled = decoupled;
  for (int t = 1; t <= 4; t++) {
    test_fill(&a.g, (uint64_t)t + 10, -1 / inv_scale, 1 / inv_scale);
    check_update(f, &a, t, hyper, norm);
  }
  fixture_clear(f);
}

TEST_OP(adam_equals_definition) {
  const int n[] = {0, 8, 24, 56, 64, 1016, 1024, 1032};
  for (int i = 0; i < COUNT(n); i++)
    for (int decoupled = 0; decoupled < 2; decoupled++) {
      check_adam(f, n[i], 0, 50, 1, decoupled);
      check_adam(f, n[i], 1, 50, 0x1p-10, decoupled); // clipped
      check_adam(f, n[i], 10, 7, 0x1p-10, decoupled); // within the limit
    }
}

// More parts than run at once.
TEST_GPU(cuda_adam_of_many_parts) {
  const int n[] = {UPDATE_PART, UPDATE_PART + 8, 132 * 9 * 1024 + 8};
  for (int i = 0; i < COUNT(n); i++)
    for (int decoupled = 0; decoupled < 2; decoupled++) check_adam(f, n[i], 1, 50, 0x1p-10, decoupled);
}

// Not even the updates are counted: a step that is left out changes nothing of those that follow.
TEST_TYPES(adam_writes_nothing_when_not_finite) {
  const double hyper[HYPERS] = {0.5, 0, 0.5, 0, 1}, flags[] = {0, NAN};
  AdamArgs a = make(f, update_segments_size(), hyper, 1);
  const UpdateShadows s = update_shadows(f);
  set_parts(&a, s.parts);
  test_fill(&a.g, 3, -1, 1);
  const Tensor *const all[] = {&a.w, &a.m, &a.v, &a.state, &s.shadow};
  Tensor before[COUNT(all)];
  for (int t = 0; t < COUNT(all); t++) before[t] = update_copy(f, all[t]);
  for (int i = 0; i < COUNT(flags); i++) {
    put(&a.stats, 0, 0, 0, 1, flags[i]);
    update(f, &a);
    for (int t = 0; t < COUNT(all); t++) EXPECT(same_bits(all[t], &before[t]));
  }
  put(&a.stats, 0, 0, 0, 1, 1);
  check_update(f, &a, 1, hyper, 1);
}

// Padding channels have neither weight nor gradient, and stay zero.
TEST_OP(adam_leaves_zeros) {
  AdamArgs a = make(f, 64, (const double[]){0.5, 0, 0.5, 0, 1}, 1);
  set_parts(&a, update_plain_parts(f, 64, PARAM_ALIGN, false));
  test_fill(&a.w, 0, 0, 0);
  for (int t = 0; t < 3; t++) update(f, &a);
  for (int i = 0; i < 64; i++) EXPECT(get(&a.w, 0, 0, 0, i) == 0);
}

TEST_OP(adam_equals_torch) {
  const char *const names[] = {"plain", "adam", "adamw"};
  for (int i = 0; i < COUNT(names); i++) {
    AdamArgs a = make(f, 72, (const double[]){0.01, 0, i ? 0.125 : 0, 0, 1}, 1);
    set_parts(&a, update_plain_parts(f, 72, PARAM_ALIGN, false));
    a.p.beta1 = 0.9;
    a.p.beta2 = 0.999;
    a.p.eps = 1e-8;
    a.p.decoupled = i == 2;
    for (int t = 0; t < 5; t++) {
      test_fill(&a.g, (uint64_t)t + 10, -1, 1);
      update(f, &a);
    }
    Tensor got[] = {a.w, a.m, a.v};
    for (int k = 0; k < COUNT(got); k++) {
      char name[32];
      snprintf(name, sizeof name, "adam.%s.%c", names[i], "wmv"[k]);
      got[k].c = 70; // of torch's
      // Five updates of at most forty roundings; in float the betas and the rate are rounded, too, which second
      // corrections of 1 - 0.999 magnify a thousandfold in a step of 0.01.
      expect_op_golden(name, &got[k], f->type == F64 ? 200 : 200 + 5 * 10);
    }
  }
}

// Shadows are of the weights after the update; what no part covers is left alone.
TEST_TYPES(adam_writes_shadows) {
  const double hyper[HYPERS] = {0.5, 0, 0.125, 0, 1};
  AdamArgs a = make(f, update_segments_size(), hyper, 1);
  const UpdateShadows s = update_shadows(f);
  set_parts(&a, s.parts);
  test_fill(&a.g, 3, -1, 1);
  Tensor before = update_copy(f, &a.w);
  check_update(f, &a, 1, hyper, 1);
  update_expect_gaps(&a.w, &before);
  update_expect_shadows(f, &s, &a.w);
}

// Three replays are three updates, bit for bit.
TEST_GPU(cuda_adam_replays) {
  AdamArgs a[2];
  for (int i = 0; i < 2; i++) {
    a[i] = make(f, 1032, (const double[]){0x1p-6, 0, 0x1p-4, 0, 1}, 1);
    set_parts(&a[i], update_plain_parts(f, 1032, PARAM_ALIGN, true));
    test_fill(&a[i].g, 3, -1, 1);
  }
  CHECK(device_record(f->dev));
  f->dev->ops->adam(f->dev, &a[0].p, a[0].w.data, a[0].g.data, a[0].m.data, a[0].v.data);
  void *program = device_record_end(f->dev);
  for (int t = 0; t < 3; t++) {
    device_replay(f->dev, program);
    update(f, &a[1]);
  }
  EXPECT(same_bits(&a[0].w, &a[1].w) && same_bits(&a[0].state, &a[1].state));
  device_forget(f->dev, program);
}
