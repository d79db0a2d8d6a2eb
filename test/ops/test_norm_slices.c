// Catches norms that read or write past the channels of a slice; and folded batch norm that is not the norm.
#include "test/harness/norm_args.h"

// Channels 8 … 8 + c - 1 of a wider tensor, which `t` is written to where it is given.
static Tensor slice_in(const Tensor *whole, const Tensor *t, int c) {
  Tensor s = tensor_slice(whole, 8, c);
  for (int n = 0; t && n < valid_rows(t); n++)
    for (int y = 0; y < t->h; y++)
      for (int x = 0; x < t->w; x++)
        for (int i = 0; i < c; i++) put(&s, n, y, x, i, get(t, n, y, x, i));
  return s;
}

// The same bits as in tensors of their own, and nothing outside the slice.
static void check_slices(Fixture *f, const NormCase *k, int behind, bool accumulate) {
  NormArgs a = norm_args(f, k, 1), of_slice = a;
  Tensor whole[3]; // of y, of dy, and y's before
  for (int i = 0; i < 3; i++) {
    whole[i] = fixture_map(f, k->n, k->h, k->w, 8 + k->c + behind);
    whole[i].count = a.x.count;
    test_fill(&whole[i], 5, -1, 1);
  }
  Dest y = {.t = fixture_tensor(f, a.x), .relu = true, .accumulate = accumulate}, sliced = y;
  Dest dx = {.t = fixture_tensor(f, a.x)}, dx_of_slice = {.t = fixture_tensor(f, a.x)};
  sliced.t = slice_in(&whole[0], NULL, k->c);
  test_fill(&y.t, 0, 0, 0);
  for (NormElement e = norm_first; norm_next(&a, &e);) put(&y.t, e.n, e.y, e.x, e.c, norm_get(&sliced.t, &e));
  run_op(f->dev, norm_forward, &a, &y);
  run_op(f->dev, norm_forward, &a, &sliced);
  run_op(f->dev, norm_backward, &a, &dx);
  of_slice.dy = slice_in(&whole[1], &a.dy, k->c);
  run_op(f->dev, norm_backward, &of_slice, &dx_of_slice);
  EXPECT(same_bits(&dx.t, &dx_of_slice.t));
  for (int n = 0; n < k->rows; n++)
    for (int row = 0; row < k->h; row++)
      for (int x = 0; x < k->w; x++)
        for (int c = 0; c < whole[0].c; c++) {
          bool own = c >= 8 && c < 8 + k->c;
          EXPECT(get(&whole[0], n, row, x, c) == (own ? get(&y.t, n, row, x, c - 8) : get(&whole[2], n, row, x, c)));
        }
  fixture_clear(f);
}

TEST_TYPES(norm_takes_slices) {
  const NormCase some[] = {
      {2, 9, 11, 16, 4, 2, 0}, {3, 5, 7, 16, 0, 2, 0}, {2, 1, 3, 1032, 0, 2, 0}, {3, 5, 7, 264, 0, 3, 0}};
  for (int i = 0; i < COUNT(some); i++) check_slices(f, &some[i], 8, i % 2);
  check_slices(f, &(NormCase){2, 5, 7, 5, 0, 2, 0}, 0, false); // the last may end within a vector
}

// ---- by given statistics --------------------------------------------------------------------------------------------

static void run_inference(Device *dev, void *context, const Dest *y) {
  const NormArgs *a = context;
  dev->ops->batch_norm_inference(dev, eps, &a->x, a->gamma.data, a->beta.data, a->running_mean.data,
                                 a->running_var.data, a->stats.data, y);
}

// By the statistics that training moves: every destination, and nothing but y and stats is written.
TEST_TYPES(norm_inference_equals_definition) {
  for (int i = 0; i < COUNT(norm_cases); i++) {
    const NormCase *k = &norm_cases[i];
    if (k->groups || (f->dev->gpu && !k->rows)) continue;
    NormArgs a = norm_args(f, k, (uint64_t)i);
    SampleStats *s = fixture_alloc(f, (size_t)k->c * sizeof *s);
    for (int c = 0; c < k->c; c++)
      s[c] = (SampleStats){.mean = get(&a.running_mean, 0, 0, 0, c), .variance = get(&a.running_var, 0, 0, 0, c)};
    Tensor mean = norm_copy(f, &a.running_mean), var = norm_copy(f, &a.running_var);
    Dest y = {.t = fixture_tensor(f, a.x)};
    run_op(f->dev, run_inference, &a, &y);
    const NormExpected of_y = norm_define_forward(f, &a, s, true);
    norm_check(&a, &y.t, &of_y);
    if (f->dev->gpu || tensor_elements(&a.x) < 2000)
      check_dests_within(f->dev, run_inference, &a, &a.x, f->dev->gpu ? &of_y.bound : NULL, (uint64_t)i);
    EXPECT(same_bits(&a.running_mean, &mean) && same_bits(&a.running_var, &var));
    fixture_clear(f);
  }
}

TEST_OP(norm_fold_equals_definition) {
  const int sizes[] = {1, 13, 257, 2048};
  const double u = unit_roundoff(f->type);
  for (int i = 0; i < COUNT(sizes); i++) {
    const int c = sizes[i];
    Tensor t[4]; // gamma, beta, mean, var
    for (int k = 0; k < 4; k++) {
      t[k] = fixture_packed(f, 1, c);
      test_fill(&t[k], (uint64_t)k, k == 3 ? 0.5 : -1, 2);
    }
    fixture_freeze(f);
    Tensor scale = fixture_packed(f, 1, c), shift = fixture_packed(f, 1, c);
    RUN(f, norm_fold, c, eps, t[0].data, t[1].data, t[2].data, t[3].data, scale.data, shift.data);
    for (int k = 0; k < c; k++) {
      double want = get(&t[0], 0, 0, 0, k) / sqrt(get(&t[3], 0, 0, 0, k) + eps);
      double beta = get(&t[1], 0, 0, 0, k), moved = get(&t[2], 0, 0, 0, k) * want;
      EXPECT_NEAR(get(&scale, 0, 0, 0, k), want, 3 * u * fabs(want)); // half an addition's, a root's, a division's
      EXPECT_NEAR(get(&shift, 0, 0, 0, k), beta - moved, 5 * u * (fabs(beta) + fabs(moved)));
    }
    if (f->dev->gpu) { // all three steps are correctly rounded
      Tensor want = fixture_packed(f, 1, c), unused = fixture_packed(f, 1, c);
      REFERENCE(norm_fold, c, eps, t[0].data, t[1].data, t[2].data, t[3].data, want.data, unused.data);
      EXPECT(same_bits(&scale, &want));
    }
    fixture_clear(f);
  }
}
