// Catches a fast transform that differs from the reference, and a reference that is not a cosine transform.
#include <math.h>
#include "base/rng.h"
#include "data/images/jpeg_idct.h"
#include "test/harness/test.h"

enum { SIDE = 8, PITCH = 11 };

TEST(jpeg_idct_equals_the_reference) {
  for (uint64_t round = 0; round < 3000; round++) {
    int16_t block[SIDE * SIDE];
    uint8_t fast[SIDE * PITCH] = {0}, plain[SIDE * PITCH] = {0};
    const int bits = 1 + (int)(round % 16); // up to absurd coefficients; every seventh is flat
    for (uint64_t i = 0; i < SIDE * SIDE; i++) {
      const uint32_t random = rng_u32(RNG_TEST + round, i);
      block[i] = random % 3 || (round % 7 == 0 && i > 0) ? 0 : (int16_t)((int32_t)random >> (32 - bits));
    }
    jpeg_idct(fast, PITCH, block);
    jpeg_idct_plain(plain, PITCH, block);
    if (!EXPECT(!memcmp(fast, plain, sizeof fast))) break;
  }
}

TEST(jpeg_idct_is_a_cosine_transform) {
  for (uint64_t round = 0; round < 50; round++) {
    int16_t block[SIDE * SIDE];
    uint8_t got[SIDE * SIDE];
    for (uint64_t i = 0; i < SIDE * SIDE; i++)
      block[i] = (int16_t)((int32_t)(rng_u32(round, i) % 41) - 20) * (i < 4 ? 10 : 1);
    jpeg_idct(got, SIDE, block);
    for (int y = 0; y < SIDE; y++)
      for (int x = 0; x < SIDE; x++) {
        double sum = 128;
        for (int v = 0; v < SIDE; v++)
          for (int u = 0; u < SIDE; u++)
            sum += block[SIDE * v + u] * (u ? 0.5 : sqrt(0.125)) * (v ? 0.5 : sqrt(0.125)) *
                   cos(M_PI / 16 * (2 * x + 1) * u) * cos(M_PI / 16 * (2 * y + 1) * v);
        EXPECT_NEAR(got[SIDE * y + x], fmin(fmax(sum, 0), 255), 0.6); // half a level, and what the passes round
      }
  }
}
