// Merges parts from one value up to all of them, in sequence and as a tree, and compares with two passes over the
// values. Values are near 1e8 and differ by at most 1, so that Σ x² - n · mean² has no correct digit.
#include <math.h>
#include "base/rng.h"
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/exercises.h"

enum { VALUES = 1000 };
static double value[VALUES];

static PartMoments two_passes(int first, int last) {
  PartMoments m = {last - first, 0, 0};
  for (int i = first; i < last; i++) m.mean += (value[i] - 1e8) / m.n; // near 0, where rounding errors are smallest
  for (int i = first; i < last; i++) m.m2 += (value[i] - 1e8 - m.mean) * (value[i] - 1e8 - m.mean);
  if (m.n > 0) m.mean += 1e8;
  return m;
}

// The mean is rounded by 1e8 · 2^-53 per merge, 1.2e-5 in 1000 merges; m2, of values at most 1 apart, by 2 · 1.2e-5 per
// value.
static void compare(const char *what, PartMoments got, PartMoments want) {
  if (got.n != want.n) difference("%s: n is %g, not %g", what, got.n, want.n);
  if (!(fabs(got.mean - want.mean) <= 1.2e-5)) difference("%s: the mean is %.9g, not %.9g", what, got.mean, want.mean);
  if (!(fabs(got.m2 - want.m2) <= 2.4e-5 * want.n)) difference("%s: m2 is %.9g, not %.9g", what, got.m2, want.m2);
}

static PartMoments as_tree(int first, int last) {
  if (last - first < 2) return two_passes(first, last);
  const int middle = first + (last - first + 2) / 3; // of unequal sizes
  return moments_merge(as_tree(first, middle), as_tree(middle, last));
}

int main(void) {
  const PartMoments none = {0};
  PartMoments in_turn = none;
  for (int i = 0; i < VALUES; i++) value[i] = 1e8 + rng_uniform(1, (uint64_t)i);
  compare("1 and 1 value", moments_merge(two_passes(0, 1), two_passes(1, 2)), two_passes(0, 2));
  compare("1 and 9 values", moments_merge(two_passes(0, 1), two_passes(1, 10)), two_passes(0, 10));
  compare("9 and 1 value", moments_merge(two_passes(0, 9), two_passes(9, 10)), two_passes(0, 10));
  compare("nothing and 9 values", moments_merge(none, two_passes(0, 9)), two_passes(0, 9));
  compare("9 values and nothing", moments_merge(two_passes(0, 9), none), two_passes(0, 9));
  compare("nothing and nothing", moments_merge(none, none), none);
  for (int i = 0; i < VALUES; i++) in_turn = moments_merge(in_turn, two_passes(i, i + 1));
  compare("1000 values, one after the other", in_turn, two_passes(0, VALUES));
  compare("1000 values, as a tree", as_tree(0, VALUES), two_passes(0, VALUES));
  return solved();
}
