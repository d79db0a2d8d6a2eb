// Whatever an image's shape, one of the library's canvases holds it.
#include "lib/canvases.h"
#include "test/harness/test.h"

TEST(canvases_hold_every_image) {
  static const int sizes[][2] = {{800, 1333}, {128, 256}, {100, 100}, {600, 1000}};
  for (int s = 0; s < COUNT(sizes); s++)
    for (ResizeRule rule = RESIZE_TORCHVISION; rule <= RESIZE_BENCHMARK; rule++) {
      const Resize r = {.size = sizes[s][0], .max_size = sizes[s][1], .rule = rule};
      Canvas canvas[MAX_CANVASES];
      const int n = canvases_of(&r, canvas);
      EXPECT(n >= 1 && n <= 7);
      for (int h = 1; h < 6000; h += 1 + h / 7)
        for (int w = 1; w < 6000; w += 1 + w / 7) {
          int rh, rw, wide, high;
          const int i = canvases_place(&r, canvas, n, h, w, &rh, &rw);
          if (!EXPECT(i >= 0 && rh >= 1 && rw >= 1 && rh <= canvas[i].h && rw <= canvas[i].w)) return;
          resize_shape(&r, h, w, &high, &wide);
          EXPECT(MAX(high, wide) > r.max_size || (rh == high && rw == wide)); // the model's size, but for the thinnest
        }
    }
}

// An image has its place there as among all of them, unless it needs a longer one.
TEST(canvases_that_end_at_a_longest_side) {
  const Resize r = {.size = 100, .max_size = 400};
  Canvas all[MAX_CANVASES], some[MAX_CANVASES];
  const int n = canvases_of(&r, all), m = canvases_up_to(&r, 200, some);
  EXPECT_INT(m, 5); // of 128 x 128, 160 and 224
  int without = 0;
  for (int h = 1; h < 1000; h += 1 + h / 7)
    for (int w = 1; w < 1000; w += 1 + w / 7) {
      int rh, rw, high, wide;
      const int i = canvases_place(&r, some, m, h, w, &rh, &rw), k = canvases_place(&r, all, n, h, w, &high, &wide);
      EXPECT(rh == high && rw == wide && k >= 0);
      if (!EXPECT((i < 0) == (MAX(rh, rw) > canvases_side(200)))) return;
      if (i >= 0) EXPECT(some[i].h <= all[k].h && some[i].w <= all[k].w);
      without += i < 0;
    }
  EXPECT(without > 0);
}

TEST(canvases_of_the_usual_model) {
  const Resize r = {.size = 800, .max_size = 1333};
  static const int want[][2] = {{800, 800},  {800, 1088}, {800, 1216}, {800, 1344},
                                {1088, 800}, {1216, 800}, {1344, 800}};
  Canvas canvas[MAX_CANVASES];
  int rh, rw;
  if (!EXPECT_INT(canvases_of(&r, canvas), COUNT(want))) return;
  for (int i = 0; i < COUNT(want); i++) EXPECT(canvas[i].h == want[i][0] && canvas[i].w == want[i][1]);
  EXPECT_INT(canvases_place(&r, canvas, COUNT(want), 480, 640, &rh, &rw), 1);
  EXPECT(rh == 800 && rw == 1066);
  EXPECT_INT(canvases_place(&r, canvas, COUNT(want), 1080, 1920, &rh, &rw), 3);
  EXPECT_INT(canvases_place(&r, canvas, 1, 1080, 1920, &rh, &rw), -1); // of 800 × 800
}

// A data set's canvases hold its images where the set has placed them: batches of its loader are batches of a handle.
TEST(canvases_place_images_as_their_data_set_does) {
  enum { N = 200 };
  Size size[N];
  int high[N], wide[N], rh, rw;
  uint8_t place[N];
  Canvas canvas[MAX_CANVASES];
  for (int rule = RESIZE_TORCHVISION; rule <= RESIZE_BENCHMARK; rule++) {
    const Resize r = {.size = 96, .max_size = 160, .rule = (ResizeRule)rule};
    for (int i = 0; i < N; i++) {
      high[i] = 1 + (i * 7919) % 613;
      wide[i] = 1 + (i * 104729) % 419;
      resize_shape(&r, high[i], wide[i], &size[i].h, &size[i].w);
    }
    for (int max = 1; max <= MAX_CANVASES; max++) {
      const int n = canvas_choose(canvas, max, size, N, place);
      for (int i = 0; i < N; i++) {
        EXPECT_INT(canvases_place(&r, canvas, n, high[i], wide[i], &rh, &rw), place[i]);
        EXPECT(rh == size[i].h && rw == size[i].w);
      }
    }
  }
}
