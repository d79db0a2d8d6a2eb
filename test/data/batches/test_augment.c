// Catches augmentation outside its ranges, or that changes from one run to the next with the same seed.
#include "base/rng.h"
#include "data/batches/augment.h"
#include "test/harness/test.h"

static const double degrees = 180 / 3.14159265358979323846;
enum { SIDE = 28, KEYS = 2000 };

static uint64_t key_of(int i) { return rng_key(RNG_TEST, (uint64_t)i); }

static void drawn(const Augment *a, int i, Size size, Size canvas, float map[6]) {
  augment_map(a, 1, key_of(i), false, size, canvas, map);
}

// A 28 × 28 image on a canvas of its size: map = turned · sheared · zoomed about the middle, then shifted.
typedef struct Parts {
  double rotate, shear, zoom[2], shift[2];
} Parts;

static Parts parts_of(const float m[6]) {
  Parts p;
  const double zoom_x = hypot(m[0], m[3]), cosine = m[0] / zoom_x, sine = m[3] / zoom_x;
  const double across = cosine * m[1] + sine * m[4], down = cosine * m[4] - sine * m[1]; // turned back
  p.rotate = atan2(sine, cosine) * degrees;
  p.shear = atan2(across, down) * degrees;
  p.zoom[0] = 1 / zoom_x - 1;
  p.zoom[1] = 1 / down - 1;
  p.shift[0] = ((double)m[0] * SIDE / 2 + (double)m[1] * SIDE / 2 + (double)m[2]) / SIDE - 0.5;
  p.shift[1] = ((double)m[3] * SIDE / 2 + (double)m[4] * SIDE / 2 + (double)m[5]) / SIDE - 0.5;
  return p;
}

typedef struct Spread {
  double least, most, sum;
} Spread;

static void spread_add(Spread *s, double v) {
  s->least = fmin(s->least, v);
  s->most = fmax(s->most, v);
  s->sum += v;
}

// Evenly over ± range: both ends are come near to, none is passed but for rounding, and the mean is within five of its
// standard deviations of 0.
static void expect_even(const Spread *s, double range, const char *what) {
  const bool even = s->most <= range * (1 + 1e-5) && s->least >= -range * (1 + 1e-5) && s->most > 0.98 * range &&
                    s->least < -0.98 * range && fabs(s->sum / KEYS) < 5 * range / sqrt(3.0 * KEYS);
  if (!EXPECT(even)) printf("  %s: %g to %g, mean %g\n", what, s->least, s->most, s->sum / KEYS);
}

TEST(augment_draws_within_its_ranges) {
  const Augment a = {.rotate = 8, .shift = 0.08f, .shear = 5, .zoom = 0.08f};
  Spread rotate = {0}, shear = {0}, zoom[2] = {{0}}, shift[2] = {{0}};
  const Size size = {SIDE, SIDE};
  float map[6];
  for (int i = 0; i < KEYS; i++) {
    drawn(&a, i, size, size, map);
    const Parts p = parts_of(map);
    spread_add(&rotate, p.rotate);
    spread_add(&shear, p.shear);
    for (int k = 0; k < 2; k++) {
      spread_add(&zoom[k], p.zoom[k]);
      spread_add(&shift[k], p.shift[k]);
    }
  }
  expect_even(&rotate, 8, "rotate");
  expect_even(&shear, 5, "shear");
  for (int k = 0; k < 2; k++) {
    expect_even(&zoom[k], (double)a.zoom, "zoom");
    expect_even(&shift[k], (double)a.shift, "shift");
  }
}

// Each is drawn by itself: the same with the others and without.
TEST(augment_parts_are_independent) {
  const Augment all = {.rotate = 8, .shift = 0.08f, .shear = 5, .zoom = 0.08f};
  const Augment one[] = {{.rotate = 8}, {.shift = 0.08f}, {.shear = 5}, {.zoom = 0.08f}};
  const Size size = {SIDE, SIDE};
  float map[6];
  for (int i = 0; i < 20; i++) {
    drawn(&all, i, size, size, map);
    const Parts want = parts_of(map);
    for (int k = 0; k < COUNT(one); k++) {
      drawn(&one[k], i, size, size, map);
      const Parts got = parts_of(map);
      const double rounding = 1e-5; // of six floats, in degrees
      EXPECT_NEAR(got.rotate, k == 0 ? want.rotate : 0, rounding);
      EXPECT_NEAR(got.shift[0], k == 1 ? want.shift[0] : 0, rounding);
      EXPECT_NEAR(got.shift[1], k == 1 ? want.shift[1] : 0, rounding);
      EXPECT_NEAR(got.shear, k == 2 ? want.shear : 0, rounding);
      EXPECT_NEAR(got.zoom[0], k == 3 ? want.zoom[0] : 0, rounding);
      EXPECT_NEAR(got.zoom[1], k == 3 ? want.zoom[1] : 0, rounding);
    }
  }
}

static void expect_map(const float got[6], const double want[6]) {
  for (int i = 0; i < 6; i++) EXPECT_NEAR((double)got[i], want[i], 1e-6 * (1 + fabs(want[i])));
}

TEST(augment_views) {
  const Augment none = {0};
  float map[6], other[6];
  augment_map(NULL, 1, 7, false, (Size){28, 28}, (Size){28, 28}, map);
  EXPECT(!memcmp(map, (float[]){1, 0, 0, 0, 1, 0}, sizeof map)); // exactly: pixels stay as they are
  augment_map(&none, 1, 7, false, (Size){28, 28}, (Size){28, 28}, map);
  EXPECT(!memcmp(map, (float[]){1, 0, 0, 0, 1, 0}, sizeof map));
  augment_map(NULL, 1, 7, true, (Size){28, 28}, (Size){28, 28}, map);
  EXPECT(map[0] == -1 && map[1] == 0 && map[2] == 28 && map[3] == 0 && map[4] == 1 && map[5] == 0);
  // Resized so that 300 become 256 and the middle 224 cut out: 262.5 pixels of each side of 500 × 300.
  augment_map(NULL, 0.875f, 7, false, (Size){300, 500}, (Size){224, 224}, map);
  expect_map(map, (double[]){262.5 / 224, 0, (500 - 262.5) / 2, 0, 262.5 / 224, (300 - 262.5) / 2});
  // A canvas twice as wide as high shows the middle half of a square.
  augment_map(NULL, 1, 7, false, (Size){60, 60}, (Size){16, 32}, map);
  expect_map(map, (double[]){60.0 / 32, 0, 0, 0, 60.0 / 32, 15});
  // A mirrored canvas shows at x what is otherwise at its width - x, but for how it is turned.
  augment_map(NULL, 0.875f, 7, true, (Size){300, 500}, (Size){224, 224}, other);
  augment_map(NULL, 0.875f, 7, false, (Size){300, 500}, (Size){224, 224}, map);
  for (int x = 0; x <= 224; x += 56)
    EXPECT_NEAR((double)other[0] * x + (double)other[2], (double)map[0] * (224 - x) + (double)map[2], 1e-3);
}

TEST(augment_crops) {
  const Augment a = {.crop = 0.08f};
  const Size size = {300, 500}, canvas = {224, 224};
  double least = 1, most = 0;
  for (int i = 0; i < KEYS; i++) {
    float m[6];
    drawn(&a, i, size, canvas, m);
    EXPECT(m[1] == 0 && m[3] == 0);
    const double w = (double)m[0] * canvas.w, h = (double)m[4] * canvas.h, share = w * h / (300 * 500);
    least = fmin(least, share);
    most = fmax(most, share);
    EXPECT((double)m[2] > -1e-3 && (double)m[2] + w < 500 + 1e-3 && (double)m[5] > -1e-3 &&
           (double)m[5] + h < 300 + 1e-3);
    EXPECT((w + 0.5) / (h - 0.5) > 0.75 && (w - 0.5) / (h + 0.5) < 4.0 / 3); // sides are rounded
  }
  EXPECT(least > 0.078 && least < 0.1 && most > 0.75);
  // Nothing of such an aspect and size fits: the middle, as wide or high as the aspect allows.
  float m[6];
  const Augment whole = {.crop = 0.99f};
  drawn(&whole, 1, (Size){20, 200}, canvas, m);
  EXPECT_NEAR((double)m[0] * 224, 27, 1e-4);
  EXPECT_NEAR((double)m[2], (200 - 27) / 2.0, 1e-4);
  drawn(&whole, 1, (Size){200, 20}, canvas, m);
  EXPECT_NEAR((double)m[4] * 224, 27, 1e-4);
}

TEST(augment_is_a_function_of_the_key) {
  const Augment a = {.rotate = 8, .shift = 0.08f, .zoom = 0.08f, .crop = 0.5f};
  float first[6], second[6];
  int same = 0;
  for (int i = 0; i < 100; i++) {
    drawn(&a, i, (Size){40, 50}, (Size){32, 32}, first);
    drawn(&a, i, (Size){40, 50}, (Size){32, 32}, second);
    EXPECT(!memcmp(first, second, sizeof first));
    drawn(&a, i + 1, (Size){40, 50}, (Size){32, 32}, second);
    same += !memcmp(first, second, sizeof first);
  }
  EXPECT_INT(same, 0);
}
