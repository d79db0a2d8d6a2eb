// Catches shrunken images with wrong averages.
#include "data/images/shrink.h"
#include "test/harness/test.h"

TEST(shrink_means) {
  const uint8_t rgb[] = {1, 0, 10, 2, 0, 20, 9, 9, 9, 4, 1, 30, 4, 0, 41, 9, 9, 9, 7, 7, 7, 7, 7, 7, 7, 7, 7}; // 3 × 3
  uint8_t to[3];
  shrink(rgb, 3, 3, 2, to);
  EXPECT(to[0] == 3 && to[1] == 0 && to[2] == 25); // 11/4 and 101/4; 1/4
  EXPECT_INT(shrink_factor(895, 4000, 448), 1);
  EXPECT_INT(shrink_factor(896, 4000, 448), 2);
  EXPECT_INT(shrink_factor(10, 10, 448), 1);
  EXPECT_INT(shrink_factor(16384, 16384, 1), 255);
}
