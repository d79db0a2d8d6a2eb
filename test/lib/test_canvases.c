// Catches images for which the library has no canvas.
#include "lib/canvases.h"
#include "test/harness/test.h"

TEST(canvases_hold_every_image) {
  static const int sizes[][2] = {{800, 1333}, {128, 256}, {100, 100}, {600, 1000}};
  for (int k = 0; k < COUNT(sizes); k++)
    for (ResizeRule rule = RESIZE_TORCHVISION; rule <= RESIZE_BENCHMARK; rule++) {
      const Resize r = {.size = sizes[k][0], .max_size = sizes[k][1], .rule = rule};
      const CanvasSet s = canvases_of(&r, false);
      EXPECT(s.n >= 1 && s.n <= 7);
      for (int h = 1; h < 6000; h += 1 + h / 7)
        for (int w = 1; w < 6000; w += 1 + w / 7) {
          int rh, rw, wide, high;
          const int i = canvases_fit(&s, h, w, &rh, &rw);
          if (!EXPECT(i >= 0 && rh >= 1 && rw >= 1 && rh <= s.canvas[i].h && rw <= s.canvas[i].w)) return;
          resize_shape(&r, h, w, &high, &wide);
          EXPECT(MAX(high, wide) > r.max_size || (rh == high && rw == wide)); // the model's size, but for the thinnest
        }
    }
}

// An image has its place there as among all of them, unless it needs a longer one.
TEST(canvases_that_end_at_a_longest_side) {
  const Resize r = {.size = 100, .max_size = 400};
  const CanvasSet all = canvases_of(&r, false), some = canvases_of_most(&r, false);
  EXPECT_INT(some.n, 5); // of 128 x 128, 160 and 224
  int without = 0;
  for (int h = 1; h < 1000; h += 1 + h / 7)
    for (int w = 1; w < 1000; w += 1 + w / 7) {
      int rh, rw, high, wide;
      const int i = canvases_fit(&some, h, w, &rh, &rw), k = canvases_fit(&all, h, w, &high, &wide);
      EXPECT(rh == high && rw == wide && k >= 0);
      if (!EXPECT((i < 0) == (MAX(rh, rw) > 224))) return;
      if (i >= 0) EXPECT(some.canvas[i].h <= all.canvas[k].h && some.canvas[i].w <= all.canvas[k].w);
      without += i < 0;
    }
  EXPECT(without > 0);
}

TEST(canvases_of_the_usual_model) {
  const Resize r = {.size = 800, .max_size = 1333};
  static const int want[][2] = {{800, 800},  {800, 1088}, {800, 1216}, {800, 1344},
                                {1088, 800}, {1216, 800}, {1344, 800}};
  CanvasSet s = canvases_of(&r, false);
  int rh, rw;
  if (!EXPECT_INT(s.n, COUNT(want))) return;
  for (int i = 0; i < s.n; i++) EXPECT(s.canvas[i].h == want[i][0] && s.canvas[i].w == want[i][1]);
  EXPECT_INT(canvases_fit(&s, 480, 640, &rh, &rw), 1);
  EXPECT(rh == 800 && rw == 1066);
  EXPECT_INT(canvases_fit(&s, 1080, 1920, &rh, &rw), 3);
  s.n = 1; // of 800 × 800
  EXPECT_INT(canvases_fit(&s, 1080, 1920, &rh, &rw), -1);
  s = canvases_for(&s, 1080, 1920);
  EXPECT(s.n == 1 && s.canvas[0].h == 768 && s.canvas[0].w == 1344);
}

// Whatever its shape, an image fills the one canvas.
TEST(canvases_of_squares) {
  const Resize r = {.size = 28, .max_size = 28};
  const CanvasSet both[] = {canvases_of(&r, true), canvases_of_most(&r, true)};
  for (int i = 0; i < COUNT(both); i++) {
    int rh, rw;
    EXPECT(both[i].n == 1 && both[i].canvas[0].h == 28 && both[i].canvas[0].w == 28);
    EXPECT_INT(canvases_fit(&both[i], 1, 5000, &rh, &rw), 0);
    EXPECT(rh == 28 && rw == 28);
  }
}

// A data set's canvases hold its images where the set has placed them: batches of its loader are batches of a handle.
TEST(canvases_fit_images_as_their_data_set_does) {
  enum { N = 200 };
  Size size[N];
  int high[N], wide[N], rh, rw;
  uint8_t canvas_of[N];
  Canvas canvas[MAX_CANVASES];
  for (int rule = RESIZE_TORCHVISION; rule <= RESIZE_BENCHMARK; rule++) {
    const Resize r = {.size = 96, .max_size = 160, .rule = (ResizeRule)rule};
    for (int i = 0; i < N; i++) {
      high[i] = 1 + (i * 7919) % 613;
      wide[i] = 1 + (i * 104729) % 419;
      resize_shape(&r, high[i], wide[i], &size[i].h, &size[i].w);
    }
    for (int max = 1; max <= MAX_CANVASES; max++) {
      const int n = canvas_choose(canvas, max, size, N, canvas_of);
      const CanvasSet s = canvases_given(&r, false, canvas, n);
      for (int i = 0; i < N; i++) {
        EXPECT_INT(canvases_fit(&s, high[i], wide[i], &rh, &rw), canvas_of[i]);
        EXPECT(rh == size[i].h && rw == size[i].w);
      }
    }
  }
}
