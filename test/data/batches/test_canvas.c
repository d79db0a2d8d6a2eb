// Catches image sizes that differ from torchvision's, and canvases too small for an image or larger than needed.
#include "base/rng.h"
#include "data/batches/canvas.h"
#include "test/harness/test.h"

// Expected: int(side * min(size / min(h, w), max / max(h, w))) in Python, as torchvision 0.26 and F.interpolate do it.
TEST(resize_shape_equals_torchvision) {
  const struct {
    Resize r;
    int h, w, rh, rw;
  } cases[] = {
      {{800, 1333, RESIZE_TORCHVISION}, 480, 640, 800, 1066},
      {{800, 1333, RESIZE_TORCHVISION}, 640, 480, 1066, 800},
      {{800, 1333, RESIZE_TORCHVISION}, 427, 640, 800, 1199},
      {{800, 1333, RESIZE_TORCHVISION}, 426, 640, 800, 1201},
      {{800, 1333, RESIZE_TORCHVISION}, 500, 375, 1066, 800},
      {{800, 1333, RESIZE_TORCHVISION}, 383, 640, 797, 1333},
      {{800, 1333, RESIZE_TORCHVISION}, 360, 640, 749, 1333},
      {{800, 1333, RESIZE_TORCHVISION}, 612, 612, 800, 800},
      {{800, 1333, RESIZE_TORCHVISION}, 1, 1, 800, 800},
      {{800, 1333, RESIZE_TORCHVISION}, 37, 2000, 24, 1333},
      {{512, 512, RESIZE_TORCHVISION}, 333, 500, 340, 512},
      {{512, 512, RESIZE_TORCHVISION}, 500, 375, 512, 384},
      {{600, 1000, RESIZE_TORCHVISION}, 427, 640, 600, 899},
      {{600, 1000, RESIZE_TORCHVISION}, 359, 640, 560, 1000},
      // 800 / 289 · 289 is one ulp below 800 in double
      {{800, 1333, RESIZE_TORCHVISION}, 289, 290, 799, 802},
      {{800, 1333, RESIZE_TORCHVISION}, 289, 291, 799, 805},
      {{800, 1333, RESIZE_TORCHVISION}, 693, 700, 799, 808},
      // torch refuses an image without rows; here one row is left
      {{800, 1333, RESIZE_TORCHVISION}, 1, 4000, 1, 1333},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    int rh, rw;
    resize_shape(&cases[i].r, cases[i].h, cases[i].w, &rh, &rw);
    EXPECT_INT(rh, cases[i].rh);
    EXPECT_INT(rw, cases[i].rw);
  }
}

TEST(sizes_are_numbers_with_commas) {
  Sizes s;
  Err err;
  if (EXPECT(sizes_parse(&s, "640,672,800,8192,672", &err)) && EXPECT_INT(s.n, 5)) {
    EXPECT(s.side[0] == 640 && s.side[1] == 672 && s.side[4] == 672);
    EXPECT_INT(sizes_largest(&s), 8192);
  }
  EXPECT(sizes_parse(&s, "1", &err) && s.n == 1 && s.side[0] == 1);
  static const char *const wrong[] = {
      "",     ",",    "640,", ",640", "640,,672", "640 672", "640, 672", "640.5",
      "-640", "+640", "0",    "8193", "6x",       "x",       "640,0x",   "99999999999999999999"};
  for (int i = 0; i < COUNT(wrong); i++)
    if (!EXPECT(!sizes_parse(&s, wrong[i], &err) && strstr(err.msg, wrong[i]))) printf("    '%s'\n", wrong[i]);
  char many[4 * (MAX_SIZES + 1) + 1] = "";
  for (int i = 0; i < MAX_SIZES; i++) sprintf(many + 4 * i, "100,");
  many[4 * MAX_SIZES - 1] = '\0';
  EXPECT(sizes_parse(&s, many, &err) && s.n == MAX_SIZES);
  strcat(many, ",100");
  EXPECT(!sizes_parse(&s, many, &err));
  EXPECT_INT(sizes_largest(&(Sizes){0}), 0);
}

TEST(canvas_square_sets_have_one) {
  Size size[40];
  uint8_t canvas_of[40];
  Canvas canvas[MAX_CANVASES];
  for (int i = 0; i < 40; i++) size[i] = (Size){500, 500 - i % 2}; // 499 and 500 share a canvas once rounded up
  if (!EXPECT_INT(canvas_choose(canvas, MAX_CANVASES, size, 40, canvas_of), 1)) return;
  EXPECT_INT(canvas[0].h, 512);
  EXPECT_INT(canvas[0].w, 512);
  EXPECT_INT(canvas[0].images, 40);
  for (int i = 0; i < 40; i++) EXPECT_INT(canvas_of[i], 0);
}

// Merging (A, B) of one image each into 64 × 128 pads 4096, (A, C) or (B, C) far more.
TEST(canvas_merges_the_cheapest_pair) {
  const Size size[] = {{64, 64}, {640, 64}, {64, 128}};
  uint8_t canvas_of[3];
  Canvas canvas[2];
  if (!EXPECT_INT(canvas_choose(canvas, 2, size, 3, canvas_of), 2)) return;
  EXPECT(canvas[0].h == 64 && canvas[0].w == 128 && canvas[0].images == 2);
  EXPECT(canvas[1].h == 640 && canvas[1].w == 64 && canvas[1].images == 1);
  EXPECT(canvas_of[0] == 0 && canvas_of[1] == 1 && canvas_of[2] == 0);
}

// The weight matters: padding 100 images by 32 columns costs more than padding one by 64.
TEST(canvas_weighs_by_images) {
  Size size[102];
  uint8_t canvas_of[102];
  Canvas canvas[2];
  for (int i = 0; i < 100; i++) size[i] = (Size){32, 96};
  size[100] = (Size){32, 128};
  size[101] = (Size){32, 32};
  if (!EXPECT_INT(canvas_choose(canvas, 2, size, 102, canvas_of), 2)) return;
  EXPECT(canvas[0].w == 96 && canvas[0].images == 101);
  EXPECT(canvas[1].w == 128 && canvas[1].images == 1);
}

// COCO's sizes: landscape and portrait, two canvases suffice to keep them apart.
TEST(canvas_choice_holds_every_image_and_ignores_order) {
  enum { N = 500 };
  const Resize resize = {.size = 800, .max_size = 1333};
  Size size[N], reversed[N];
  uint8_t canvas_of[N], canvas_of_reversed[N];
  for (int i = 0; i < N; i++) {
    int side = 400 + (int)(rng_u32(RNG_TEST, i) % 240), h = i % 3 ? side : 640, w = i % 3 ? 640 : side;
    resize_shape(&resize, h, w, &size[i].h, &size[i].w);
    reversed[N - 1 - i] = size[i];
  }
  for (int max = 1; max <= MAX_CANVASES; max++) {
    Canvas canvas[MAX_CANVASES], again[MAX_CANVASES];
    int count = canvas_choose(canvas, max, size, N, canvas_of), images = 0;
    EXPECT(count >= 1 && count <= max);
    EXPECT_INT(canvas_choose(again, max, reversed, N, canvas_of_reversed), count);
    for (int c = 0; c < count; c++) {
      EXPECT(canvas[c].h % CANVAS_MULTIPLE == 0 && canvas[c].w % CANVAS_MULTIPLE == 0);
      EXPECT(canvas[c].h == again[c].h && canvas[c].w == again[c].w && canvas[c].images == again[c].images);
      images += canvas[c].images;
    }
    EXPECT_INT(images, N);
    for (int i = 0; i < N; i++) {
      EXPECT(canvas[canvas_of[i]].h >= size[i].h && canvas[canvas_of[i]].w >= size[i].w);
      EXPECT_INT(canvas_of[i], canvas_of_reversed[N - 1 - i]);
    }
    if (max != 2) continue;
    EXPECT(canvas[0].h == 800 && canvas[0].w <= 1344);
    EXPECT(canvas[1].h <= 1344 && canvas[1].w == 800);
  }
}

// detectron2: 800 / 480 · 640 = 1066.67 rounds up; 800 / 383 · 640 = 1336.8 is above 1333, so both sides shrink again,
// to 797.7 and 1333. maskrcnn-benchmark: round(1333 · 383 / 640) = 798, then 798 · 640 / 383 = 1333.5 cut down.
TEST(resize_shape_of_conventions) {
  const struct {
    int h, w, detectron2[2], benchmark[2];
  } cases[] = {{480, 640, {800, 1067}, {800, 1066}}, {640, 480, {1067, 800}, {1066, 800}},
               {383, 640, {798, 1333}, {798, 1333}}, {640, 383, {1333, 798}, {1333, 798}},
               {612, 612, {800, 800}, {800, 800}},   {427, 640, {800, 1199}, {800, 1199}},
               {37, 2000, {25, 1333}, {25, 1351}}};
  for (int i = 0; i < COUNT(cases); i++) {
    int rh, rw;
    resize_shape(&(Resize){800, 1333, RESIZE_DETECTRON2}, cases[i].h, cases[i].w, &rh, &rw);
    EXPECT(rh == cases[i].detectron2[0] && rw == cases[i].detectron2[1]);
    resize_shape(&(Resize){800, 1333, RESIZE_BENCHMARK}, cases[i].h, cases[i].w, &rh, &rw);
    EXPECT(rh == cases[i].benchmark[0] && rw == cases[i].benchmark[1]);
  }
}
