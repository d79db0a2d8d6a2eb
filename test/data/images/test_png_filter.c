// Catches filters of PNG rows that differ from the reference, or write beyond a row.
#include <string.h>
#include "base/rng.h"
#include "data/images/png_filter.h"
#include "test/harness/test.h"

// Few different values, so that Paeth's ties occur; also rows of fewer pixels than a vector has.
TEST(png_filter_equals_the_reference) {
  enum { MOST = 40, BPP = 8, BEHIND = 8 };
  for (uint64_t round = 0; round < 2000; round++) {
    const size_t bpp = 1 + round % BPP, size = bpp * (round / BPP % MOST);
    const int filter = (int)(round / 3 % PNG_FILTERS);
    uint8_t fast[MOST * BPP + BEHIND], plain[sizeof fast], up[sizeof fast];
    for (uint64_t i = 0; i < sizeof fast; i++) {
      const uint32_t random = rng_u32(RNG_TEST + round, i);
      fast[i] = plain[i] = (uint8_t)(round % 2 ? random : random % 3);
      up[i] = (uint8_t)((round % 2 ? random : random % 3 * 255) >> 8);
    }
    png_unfilter(filter, fast, up, size, bpp);
    png_unfilter_plain(filter, plain, up, size, bpp);
    if (!EXPECT(!memcmp(fast, plain, sizeof fast))) break;
  }
}
