// Catches JPEG output that decodes to another image.
#include "base/rng.h"
#include "data/images/jpeg_write.h"
#include "test/harness/test.h"

typedef uint8_t Pattern(int y, int x, int c);

static uint8_t smooth(int y, int x, int c) {
  return (uint8_t)(128 + 100 * sin(0.05 * y + 0.03 * c) * cos(0.07 * x - 0.02 * c));
}
static uint8_t noise(int y, int x, int c) { return (uint8_t)rng_u32(RNG_TEST, (uint64_t)(c + 3 * (x + 1000 * y))); }

// Writes, reads, and returns the root of the mean squared error; the size of the file goes to *size.
static double error_of(int h, int w, Pattern *pattern, int quality, size_t *size) {
  Image im = image_alloc(h, w), back;
  Err err;
  for (int i = 0; i < h * w * 3; i++) im.rgb[i] = pattern(i / 3 / w, i / 3 % w, i % 3);
  uint8_t *bytes = jpeg_encode(&im, quality, size);
  double sum = 0;
  if (!EXPECT(image_decode(&back, bytes, *size, "encoded", &err))) {
    printf("  %s\n", err.msg);
  } else if (EXPECT_INT(back.h, h) && EXPECT_INT(back.w, w)) {
    for (int i = 0; i < h * w * 3; i++) sum += (im.rgb[i] - back.rgb[i]) * (double)(im.rgb[i] - back.rgb[i]);
  }
  free(bytes);
  image_free(&im);
  image_free(&back);
  return sqrt(sum / (h * w * 3));
}

// Quality 100 quantises to 1, so that only rounding is left. Each coefficient's error has a variance of 1/12 and so,
// the transform being orthonormal, has each of Y, Cb and Cr; blue takes 1.772 of Cb, the most: (1 + 1.772²) / 12 =
// 0.59². The decoder rounds Y, Cb, Cr and RGB to integers again, as much and once more. 1.5 leaves room for that, not
// for a mistake.
TEST(jpeg_write_keeps_the_picture) {
  static const int sides[][2] = {{1, 1}, {8, 8}, {7, 640}, {17, 33}, {64, 48}};
  size_t size;
  for (int i = 0; i < COUNT(sides); i++) {
    EXPECT(error_of(sides[i][0], sides[i][1], smooth, 100, &size) < 1.5);
    EXPECT(error_of(sides[i][0], sides[i][1], noise, 100, &size) < 1.5);
  }
}

TEST(jpeg_write_saves_room_by_quality) {
  size_t good, fair, poor;
  double best = error_of(240, 320, noise, 90, &good), middle = error_of(240, 320, noise, 75, &fair);
  double worst = error_of(240, 320, noise, 10, &poor);
  EXPECT(best < middle && middle < worst);
  EXPECT(good > fair && fair > poor);
  error_of(240, 320, smooth, 80, &good);
  EXPECT(good < 320 * 240 / 8); // a bit for a pixel of 24
}
