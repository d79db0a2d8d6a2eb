// Catches moving averages that differ from their definition, or that move when a gradient is not finite.
#include "test/harness/op_fixture.h"

static Tensor values(Fixture *f, int n, uint64_t key) {
  Tensor t = fixture_packed(f, 1, n);
  if (n) test_fill(&t, key, -1, 1);
  return t;
}

static void check_ema(Fixture *f, int n, double towards, double finite) {
  const double u = unit_roundoff(f->type);
  Tensor stats = fixture_packed(f, 1, 2), share = fixture_packed(f, 1, 1);
  Tensor w = values(f, n, 1), a = values(f, n, 2);
  Tensor w_before = fixture_tensor(f, w), before = fixture_tensor(f, a);
  memcpy(w_before.data, w.data, tensor_bytes(&w));
  memcpy(before.data, a.data, tensor_bytes(&a));
  put(&stats, 0, 0, 0, 1, finite);
  put(&share, 0, 0, 0, 0, towards);
  RUN(f, ema, (size_t)n, stats.data, share.data, w.data, a.data);
  EXPECT(same_bits(&w, &w_before));
  for (int i = 0; i < n; i++) {
    const double from = get(&before, 0, 0, 0, i), step = get(&share, 0, 0, 0, 0) * (get(&w, 0, 0, 0, i) - from);
    // A difference, a product and a sum, each rounded; a GPU rounds the last two at once.
    if (finite == 1)
      EXPECT_NEAR(get(&a, 0, 0, 0, i), from + step, u * (fabs(from + step) + 3 * fabs(step)));
    else
      EXPECT(get(&a, 0, 0, 0, i) == from);
  }
  fixture_clear(f);
}

TEST_OP(ema_equals_definition) {
  const int n[] = {0, 8, 1016, 1024, 1032};
  const double towards[] = {0, 0x1p-10, 9.0 / 11, 1};
  for (int i = 0; i < COUNT(n); i++)
    for (int k = 0; k < COUNT(towards); k++) check_ema(f, n[i], towards[k], 1);
}

TEST_OP(ema_stays_when_not_finite) {
  check_ema(f, 64, 0.5, 0);
  check_ema(f, 64, 0.5, NAN);
}

// More threadblocks than run at once.
TEST_GPU(cuda_ema_of_many_blocks) { check_ema(f, 132 * 9 * 1024 + 8, 0.25, 1); }
