// Catches updates of SGD that are wrong, or weights changed when a gradient is not finite.
//
// Compares SGD and the loss scale with their definitions; test_sgd_stats.c tests the gradients' statistics.
#include "test/harness/update_cases.h"

typedef struct SgdArgs {
  Sgd p;
  int n;
  Tensor hyper, stats, w, g, v;
} SgdArgs;

static SgdArgs make(Fixture *f, int n, const double hyper[HYPERS], double norm, UpdateParts parts) {
  SgdArgs a = {.n = n,
               .hyper = update_vector(f, HYPERS, hyper),
               .stats = update_vector(f, 2, (const double[]){norm, 1}),
               .w = update_random(f, n, 1, 1),
               .g = update_random(f, n, 3, 1 / hyper[INV_SCALE]),
               .v = update_random(f, n, 2, 1)};
  a.p = (Sgd){.hyper = a.hyper.data,
              .stats = a.stats.data,
              .part = parts.part,
              .parts = parts.count,
              .shadow = f->type,
              .factors = update_factors};
  return a;
}
static void update(Fixture *f, const SgdArgs *a) { RUN(f, sgd, &a->p, a->w.data, a->g.data, a->v.data); }

// One update from what is there.
static void check_update(Fixture *f, SgdArgs *a, const double hyper[HYPERS], double norm) {
  const double u = unit_roundoff(f->type), clip = update_clip(hyper, norm);
  Tensor w = update_copy(f, &a->w), v = update_copy(f, &a->v);
  UpdateInputs inputs = update_inputs(f, &a->g, &a->hyper, &a->stats, a->p.part, a->p.parts);
  update(f, a);
  update_expect_inputs(&inputs);
  for (int k = 0; k < a->p.parts; k++)
    for (int i = (int)a->p.part[k].first, end = i + a->p.part[k].n; i < end; i++) {
      const ParamRole role = a->p.part[k].role;
      const double lr = hyper[LR] * (double)a->p.factors.rate[role];
      const double decay = hyper[DECAY] * (double)a->p.factors.decay[role];
      double weight = get(&w, 0, 0, 0, i), grad = get(&a->g, 0, 0, 0, i), velocity = get(&v, 0, 0, 0, i);
      double pull = hyper[MOMENTUM] * fabs(velocity) + fabs(grad * clip) + decay * fabs(weight);
      velocity = hyper[MOMENTUM] * velocity + (grad * clip + decay * weight);
      // Three products, two sums and the three roundings of clip; then a product and a difference.
      EXPECT_NEAR(get(&a->v, 0, 0, 0, i), velocity, 8 * u * pull);
      EXPECT_NEAR(get(&a->w, 0, 0, 0, i), weight - lr * velocity, 2 * u * fabs(weight) + 11 * u * lr * pull);
    }
}

// Parts of `piece` elements; small ones are of some role each, and learn and decay by their factors.
static void check_sgd(Fixture *f, int n, double limit, double norm, double inv_scale, int piece) {
  const double hyper[HYPERS] = {0x1p-5, 0.875, 0x1p-7, limit, inv_scale};
  SgdArgs a = make(f, n, hyper, norm, update_plain_parts(f, n, piece, piece == PARAM_ALIGN));
  check_update(f, &a, hyper, norm);
  fixture_clear(f);
}

TEST_OP(sgd_equals_definition) {
  // None, less than a warp's vectors, around a threadblock's turn and a part.
  const int n[] = {0, 8, 24, 56, 64, 1016, 1024, 1032, UPDATE_PART, UPDATE_PART + 8};
  for (int i = 0; i < COUNT(n); i++) {
    check_sgd(f, n[i], 1, 50, 1, UPDATE_PART); // clipped
    check_sgd(f, n[i], 1, 50, 1, PARAM_ALIGN);
    check_sgd(f, n[i], 10, 7, 0x1p-10, UPDATE_PART); // within the limit
    if (n[i] == 1016 || n[i] == 1024) continue;
    check_sgd(f, n[i], 0, 50, 1, UPDATE_PART);
    check_sgd(f, n[i], 0, 50, 0x1p-10, UPDATE_PART);
    check_sgd(f, n[i], 10, 0, 1, UPDATE_PART);
    if (f->type == F32) check_sgd(f, n[i], 1, INFINITY, 1, UPDATE_PART); // a norm too large for float
  }
}

// More parts than run at once.
TEST_GPU(cuda_sgd_of_many_parts) {
  const int n = 132 * 9 * 1024 + 8;
  check_sgd(f, n, 0, 50, 0x1p-10, UPDATE_PART);
  check_sgd(f, n, 1, 50, 1, UPDATE_PART);
  check_sgd(f, n, 1, 50, 1, PARAM_ALIGN);
}

TEST_TYPES(sgd_writes_nothing_when_not_finite) {
  const double flags[] = {0, NAN};
  const UpdateShadows s = update_shadows(f);
  SgdArgs a = make(f, update_segments_size(), (const double[HYPERS]){.5, .75, .875, 1, 1}, NAN, s.parts);
  const Tensor *const all[] = {&a.w, &a.v, &s.shadow};
  Tensor before[COUNT(all)];
  for (int t = 0; t < COUNT(all); t++) before[t] = update_copy(f, all[t]);
  for (int i = 0; i < COUNT(flags); i++) {
    put(&a.stats, 0, 0, 0, 1, flags[i]);
    update(f, &a);
    for (int t = 0; t < COUNT(all); t++) EXPECT(same_bits(all[t], &before[t]));
  }
}

// Two parameters of 64 elements: the second learns twice as fast and does not decay. All exact.
TEST_OP(sgd_factors_by_hand) {
  UpdateParts parts = update_plain_parts(f, 128, 64, false);
  parts.part[1].role = PARAM_BIAS;
  SgdArgs a = make(f, 128, (const double[HYPERS]){.25, .5, .125, 0, 1}, 1, parts);
  test_fill(&a.w, 0, 8, 8);
  test_fill(&a.g, 0, 3, 3);
  test_fill(&a.v, 0, 2, 2);
  update(f, &a);
  for (int i = 0; i < 128; i++) { // v = 0.5 · 2 + 3 + 0.125 · 8, or without the last; w = 8 - rate · v
    EXPECT_NEAR(get(&a.v, 0, 0, 0, i), i < 64 ? 5 : 4, 0);
    EXPECT_NEAR(get(&a.w, 0, 0, 0, i), i < 64 ? 8 - .25 * 5 : 8 - .5 * 4, 0);
  }
}

// Shadows are of the weights after the update; what no part covers is left alone.
TEST_TYPES(sgd_writes_shadows) {
  const double hyper[HYPERS] = {.25, .5, .125, 1, 1};
  const UpdateShadows s = update_shadows(f);
  SgdArgs a = make(f, update_segments_size(), hyper, 50, s.parts);
  Tensor w = update_copy(f, &a.w), v = update_copy(f, &a.v);
  check_update(f, &a, hyper, 50);
  update_expect_gaps(&a.w, &w);
  update_expect_gaps(&a.v, &v);
  update_expect_shadows(f, &s, &a.w);
}

// Three clean steps in a row double the scale, any other halves it and is counted; the schedule's numbers stay.
TEST_OP(loss_scale_doubles_and_halves) {
  const double finite[] = {1, 1, 1, 0, 1, 1, NAN, 0, 1, 1, 1, 1, 1, 1};
  double scale = 1024, clean = 0, skipped = 0;
  Tensor hyper = fixture_packed(f, 1, HYPERS), state = update_vector(f, 3, (const double[]){scale, clean, skipped});
  for (int i = 0; i < COUNT(finite); i++) {
    Tensor stats = update_vector(f, 2, (const double[]){1, finite[i]}), before = update_copy(f, &stats);
    RUN(f, loss_scale_update, 3, stats.data, state.data, hyper.data);
    clean = finite[i] == 1 ? clean + 1 : 0;
    skipped += finite[i] != 1;
    scale *= finite[i] != 1 ? 0.5 : clean == 3 ? 2 : 1;
    if (clean == 3) clean = 0;
    EXPECT_NEAR(get(&state, 0, 0, 0, 0), scale, 0);
    EXPECT_NEAR(get(&state, 0, 0, 0, 1), clean, 0);
    EXPECT_NEAR(get(&state, 0, 0, 0, 2), skipped, 0);
    EXPECT_NEAR(get(&hyper, 0, 0, 0, INV_SCALE), 1 / scale, 0);
    for (int k = 0; k < INV_SCALE; k++) EXPECT(isnan(get(&hyper, 0, 0, 0, k)));
    EXPECT(same_bits(&stats, &before));
  }
}
