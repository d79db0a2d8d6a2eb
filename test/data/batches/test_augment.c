// Catches augmentation outside its ranges, or that changes from one run to the next with the same seed.
#include <string.h>
#include "base/rng.h"
#include "data/batches/augment.h"
#include "test/harness/test.h"

static const double degrees = 180 / 3.14159265358979323846;
enum { SIDE = 28, KEYS = 2000 };

static uint64_t key_of(int i) { return rng_key(RNG_TEST, (uint64_t)i); }

static void drawn(const Augment *a, int i, Size size, Size canvas, float map[6]) {
  memcpy(map, augment_classifier(a, 1, key_of(i), size, canvas).map, 6 * sizeof *map);
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

static void view(const Augment *a, float view, Size size, Size canvas, float map[6]) {
  memcpy(map, augment_classifier(a, view, 7, size, canvas).map, 6 * sizeof *map);
}

TEST(augment_views) {
  const Augment none = {0}, mirror = {.flip = 1};
  float map[6], other[6];
  view(NULL, 1, (Size){28, 28}, (Size){28, 28}, map);
  EXPECT(!memcmp(map, (float[]){1, 0, 0, 0, 1, 0}, sizeof map)); // exactly: pixels stay as they are
  view(&none, 1, (Size){28, 28}, (Size){28, 28}, map);
  EXPECT(!memcmp(map, (float[]){1, 0, 0, 0, 1, 0}, sizeof map));
  view(&mirror, 1, (Size){28, 28}, (Size){28, 28}, map);
  EXPECT(map[0] == -1 && map[1] == 0 && map[2] == 28 && map[3] == 0 && map[4] == 1 && map[5] == 0);
  // Resized so that 300 become 256 and the middle 224 cut out: 262.5 pixels of each side of 500 × 300.
  view(NULL, 0.875f, (Size){300, 500}, (Size){224, 224}, map);
  expect_map(map, (double[]){262.5 / 224, 0, (500 - 262.5) / 2, 0, 262.5 / 224, (300 - 262.5) / 2});
  // A canvas twice as wide as high shows the middle half of a square.
  view(NULL, 1, (Size){60, 60}, (Size){16, 32}, map);
  expect_map(map, (double[]){60.0 / 32, 0, 0, 0, 60.0 / 32, 15});
  // A mirrored canvas shows at x what is otherwise at its width - x, but for how it is turned.
  view(&mirror, 0.875f, (Size){300, 500}, (Size){224, 224}, other);
  view(NULL, 0.875f, (Size){300, 500}, (Size){224, 224}, map);
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

// ---- detectors ------------------------------------------------------------------------------------------------------

static void through(const float m[6], double x, double y, double at[2]) {
  at[0] = (double)m[0] * x + (double)m[1] * y + (double)m[2];
  at[1] = (double)m[3] * x + (double)m[4] * y + (double)m[5];
}

static bool within(const double at[2], Size size, double slack) {
  return at[0] > -slack && at[0] < size.w + slack && at[1] > -slack && at[1] < size.h + slack;
}

static const Size photo = {480, 640}, shown = {300, 400};

TEST(augment_mirrors_a_detectors_image_without_moving_it) {
  const Augment none = {0}, half = {.flip = 0.5f};
  int flips = 0;
  for (int i = 0; i < KEYS; i++) {
    const AugmentMap plain = augment_detector(&none, key_of(i), photo, shown);
    const AugmentMap mirrored = augment_detector(&half, key_of(i), photo, shown);
    EXPECT(!plain.moved && !plain.flip && !mirrored.moved);
    flips += mirrored.flip;
  }
  EXPECT(abs(flips - KEYS / 2) < 5 * (int)sqrt(KEYS / 4.0));
}

// All eight ways to lay a picture down, equally often; of each the whole picture is on the canvas, as large as fits.
TEST(augment_turns_and_flips) {
  const Augment a = {.flip = 0.5f, .flip_vertical = 0.5f, .turn = 1};
  int ways[2][2][2] = {{{0}}};
  for (int i = 0; i < KEYS; i++) {
    const AugmentMap of = augment_detector(&a, key_of(i), photo, shown);
    const float *m = of.map;
    const bool turned = fabsf(m[0]) < fabsf(m[1]);
    EXPECT(of.moved || (!turned && m[4] > 0));
    const double scale = turned ? 640.0 / 300 : 640.0 / 400; // image pixels per canvas pixel
    const float across = turned ? m[1] : m[0], down = turned ? m[3] : m[4], rest = turned ? m[0] : m[1];
    EXPECT_NEAR(fabs((double)across), scale, 1e-5);
    EXPECT_NEAR(fabs((double)down), scale, 1e-5);
    EXPECT_NEAR((double)rest, 0, 1e-6);
    ways[turned][across > 0][down > 0]++;
    double at[2]; // the middle stays
    through(m, 200, 150, at);
    EXPECT_NEAR(at[0], 320, 1e-3);
    EXPECT_NEAR(at[1], 240, 1e-3);
  }
  for (int i = 0; i < 8; i++) EXPECT(abs(ways[i / 4][i / 2 % 2][i % 2] - KEYS / 8) < 5 * (int)sqrt(KEYS / 8.0));
}

// Uniformly between its ends; smaller, all of the image is on the canvas; larger, the canvas is full.
TEST(augment_scale_jitter) {
  const Augment a = {.scale_down = 0.3f, .scale_up = 0.5f};
  double least = 9, most = 0, sum = 0, left = 0, right = 0;
  for (int i = 0; i < KEYS; i++) {
    const AugmentMap of = augment_detector(&a, key_of(i), photo, shown);
    const double scale = 1.6 / (double)of.map[0];
    double corner[2][2];
    EXPECT(of.moved && of.map[1] == 0 && of.map[3] == 0);
    EXPECT_NEAR(1.6 / (double)of.map[4], scale, 1e-5);
    least = fmin(least, scale);
    most = fmax(most, scale);
    sum += scale / KEYS;
    through(of.map, 0, 0, corner[0]);
    through(of.map, shown.w, shown.h, corner[1]);
    if (scale < 1) {
      EXPECT(corner[0][0] < 1e-3 && corner[0][1] < 1e-3 && corner[1][0] > 640 - 1e-3 && corner[1][1] > 480 - 1e-3);
    } else {
      EXPECT(within(corner[0], photo, 1e-3) && within(corner[1], photo, 1e-3));
      left = fmax(left, corner[0][0] / 640);
      right = fmax(right, 1 - corner[1][0] / 640);
    }
  }
  EXPECT(least > 0.7 - 1e-5 && least < 0.702 && most < 1.5 + 1e-5 && most > 1.498);
  EXPECT_NEAR(sum, 1.1, 5 * 0.8 / sqrt(12.0 * KEYS));
  EXPECT(left > 0.3 && right > 0.3); // of a third at most
}

// Every operation moves the image by itself, and draws the same with others beside it.
TEST(augment_operations_are_drawn_by_themselves) {
  const Augment turned = {.turn = 1, .flip = 0.5f}, scaled = {.turn = 1, .flip = 0.5f, .scale_down = 0.5f, .rotate = 5};
  const Augment moves[] = {{.flip_vertical = 1}, {.turn = 1},   {.rotate = 5},  {.shear = 5}, {.scale_down = 0.1f},
                           {.scale_up = 1},      {.zoom = .1f}, {.shift = .1f}, {.crop = .5f}};
  for (int i = 0; i < COUNT(moves); i++) {
    int moved = 0;
    for (int k = 0; k < 20; k++) moved += augment_detector(&moves[i], key_of(k), photo, shown).moved;
    EXPECT(i == 1 ? moved > 5 && moved < 20 : moved == 20); // a turn may be by nothing
  }
  for (int i = 0; i < 100; i++) {
    const AugmentMap a = augment_detector(&turned, key_of(i), photo, photo);
    const AugmentMap b = augment_detector(&scaled, key_of(i), photo, photo);
    EXPECT(a.flip == b.flip);
    EXPECT((fabsf(a.map[0]) < fabsf(a.map[1])) == (fabsf(b.map[0]) < fabsf(b.map[1])));
  }
}

TEST(augment_colours_are_drawn_evenly) {
  const Augment a = {.brightness = 0.2f, .contrast = 0.3f, .saturation = 0.4f}, none = {.flip = 1},
                one = {.contrast = 1};
  const uint8_t rgb[] = {10, 20, 30, 255, 0, 0};
  Spread of[3] = {{0}};
  for (int i = 0; i < KEYS; i++) {
    ImageView v = {0};
    augment_colours(&a, key_of(i), rgb, (Size){1, 2}, &v);
    EXPECT(v.coloured);
    EXPECT_NEAR((double)v.mean, (0.2989 * 265 + 0.587 * 20 + 0.114 * 30) / 2, 1e-5);
    spread_add(&of[0], (double)v.brightness - 1);
    spread_add(&of[1], (double)v.contrast - 1);
    spread_add(&of[2], (double)v.saturation - 1);
  }
  expect_even(&of[0], (double)a.brightness, "brightness");
  expect_even(&of[1], (double)a.contrast, "contrast");
  expect_even(&of[2], (double)a.saturation, "saturation");
  ImageView v = {0};
  augment_colours(&none, 1, rgb, (Size){1, 2}, &v);
  EXPECT(!v.coloured);
  augment_colours(&one, 1, rgb, (Size){1, 2}, &v);
  EXPECT(v.coloured && v.brightness == 1 && v.saturation == 1 && v.contrast != 1);
}

// No preset is empty but none, and each asks for what its name says.
TEST(augment_presets) {
  for (AugmentFor f = 0; f < AUGMENT_LEARNERS; f++) {
    for (AugmentPreset p = AUGMENT_NONE; augment_presets[p]; p++)
      EXPECT(augment_any(augment_preset(f, p)) == (p != AUGMENT_NONE));
    EXPECT(augment_preset(f, AUGMENT_MIRROR)->flip == 0.5f && augment_preset(f, AUGMENT_ANY_ORIENTATION)->turn == 1);
  }
}
