// Catches quantiles that differ from those of numpy.quantile.
#include <stddef.h>
#include "base/basics.h"
#include "base/latency.h"
#include "test/harness/test.h"

TEST(latency_of_some) {
  double samples[] = {5, 1, 4, 2, 3};
  Latency l = latency_summary(samples, COUNT(samples));
  EXPECT_INT(l.n, 5);
  EXPECT(l.min == 1 && l.median == 3 && l.max == 5 && l.mean == 3);
  EXPECT_NEAR(l.p90, 4.6, 4 * 0x1p-52 * 4.6); // 4 + (5 - 4) · 0.6, where 0.6 = 0.9 · 4 - 3 is rounded twice
  EXPECT_NEAR(l.p95, 4.8, 4 * 0x1p-52 * 4.8);
  EXPECT_NEAR(l.p99, 4.96, 4 * 0x1p-52 * 4.96);
  EXPECT_NEAR(l.standard_error, sqrt(0.5), 4 * 0x1p-52); // squares 4 + 1 + 0 + 1 + 4, over 5 - 1, over 5
  double even[] = {2, 1};
  EXPECT_NEAR(latency_summary(even, 2).median, 1.5, 0);
}

TEST(latency_of_one_or_none) {
  double one = 7;
  Latency l = latency_summary(&one, 1);
  EXPECT(l.min == 7 && l.p99 == 7 && l.max == 7 && l.mean == 7);
  EXPECT(isnan(l.standard_error));
  l = latency_summary(NULL, 0);
  EXPECT(l.n == 0 && isnan(l.median) && isnan(l.mean));
}
