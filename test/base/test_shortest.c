// Catches numbers printed with more digits than they need, or with too few to read back as the same number.
#include "test/harness/test.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/basics.h"
#include "base/rng.h"
#include "base/shortest.h"

static int tried(double value, char text[32]) {
  int digits = 6;
  for (;; digits++) {
    snprintf(text, 32, "%.*g", digits, value);
    if (strtod(text, NULL) == value || digits == 17) return digits;
  }
}

static bool same = true; // so far

// Returns how many digits it takes; 0: it is not the function's.
static int check(double value) {
  char want[32], got[32] = "";
  if (!shortest_decimal(value, got)) {
    EXPECT(!*got);
    return 0;
  }
  const int digits = tried(value, want);
  same &= EXPECT_STR(got, want);
  return digits;
}

TEST(shortest_decimal_of_numbers_that_results_have) {
  const uint64_t key = rng_key(7, RNG_TEST);
  int of[18] = {0};
  for (uint32_t i = 0; i < 1500 && same; i++) {
    const float a = (float)rng_u32(key, 2 * i) * 0x1p-22f, b = (float)rng_u32(key, 2 * i + 1) * 0x1p-23f;
    of[check(a)]++;
    of[check((double)a - b)]++; // a width
    of[check((double)a * b)]++;
    of[check(ldexp(b, -(int)(i % 20)))]++;
    of[check((double)(rng_u32(key, i) % 1000000) / (i % 2 ? 1000 : 100))]++;
    of[check(nextafter((double)(i % 5000), 1e6))]++;
  }
  EXPECT(of[6] > 200 && of[15] + of[16] > 200 && of[17] > 200);
}

TEST(shortest_decimal_at_the_ends) {
  static const double some[] = {0.001,    0.01,      0.1,         1,       10,
                                999999,   999999.25, 999999.4375, 0.5,     0.75,
                                1.0e-3,   1.25e-3,   512,         1024,    65536,
                                1 / 3.0,  2 / 3.0,   0.3,         -0.3,    -1.5,
                                -1234.56, 99999.995, 9.995,       0.09999, 0x1.fffffffffffffp-1};
  for (int i = 0; i < COUNT(some); i++) {
    check(some[i]);
    check(nextafter(some[i], 0));
    check(nextafter(some[i], 1e7));
  }
  static const double others[] = {0, -0.0, 1e6, 999999.5, 1e300, 5e-324, 0.00099, INFINITY, -INFINITY, NAN};
  char text[32] = "as it was";
  for (int i = 0; i < COUNT(others); i++) EXPECT(!shortest_decimal(others[i], text));
  EXPECT_STR(text, "as it was");
}
