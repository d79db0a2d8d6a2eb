// Catches overlays that draw outside the image, or leave out a mask or a label.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "data/pictures/draw.h"
#include "data/pictures/draw_masks.h"
#include "data/pictures/font.h"
#include "test/harness/test.h"

static Image gray_image(int h, int w, uint8_t level) {
  Image im = image_alloc(h, w);
  memset(im.rgb, level, (size_t)h * w * 3);
  return im;
}

static int changed_pixels(const Image *im, uint8_t level, int y0, int x0, int y1, int x1) {
  int changed = 0;
  for (int y = y0; y < y1; y++)
    for (int x = x0; x < x1; x++)
      for (int k = 0, seen = 0; k < 3 && !seen; k++) changed += seen = im->rgb[3 * (y * im->w + x) + k] != level;
  return changed;
}

TEST(font_glyphs_all_differ) {
  enum { FIRST = '!', LAST = '~', SIDE = 40 };
  Image drawn[LAST - FIRST + 1];
  for (int c = FIRST; c <= LAST; c++) {
    char text[2] = {(char)c, 0};
    Image *im = &drawn[c - FIRST];
    *im = gray_image(SIDE, SIDE, 0);
    font_draw(im, 4, 26, 18, (Colour){255, 255, 255}, text);
    if (!EXPECT(changed_pixels(im, 0, 0, 0, SIDE, SIDE) > 4)) printf("    %c is blank\n", c);
    // Width says where the ink ends: a pixel more for rounding the pen to whole pixels, one for anti-aliasing.
    int end = 4 + (int)ceilf(font_width(text, 18)) + 2;
    if (!EXPECT_INT(changed_pixels(im, 0, 0, end, SIDE, SIDE), 0)) printf("    %c is wider than it says\n", c);
  }
  for (int i = 0; i <= LAST - FIRST; i++)
    for (int j = 0; j < i; j++) {
      bool same = !memcmp(drawn[i].rgb, drawn[j].rgb, SIDE * SIDE * 3);
      if (!EXPECT(!same)) printf("    %c and %c look alike\n", FIRST + i, FIRST + j);
    }
  for (int i = 0; i <= LAST - FIRST; i++) image_free(&drawn[i]);
}

TEST(font_width_adds_up) {
  EXPECT_NEAR(font_width("", 10), 0, 0);
  float one = font_width("n", 18), two = font_width("nn", 18), three = font_width("nnn", 18);
  EXPECT(one > 0 && two > one);
  EXPECT_NEAR(three - two, two - one, 1e-4); // sums of a few numbers below 64 in single precision
  EXPECT_NEAR(font_width("nnn", 36), 2 * three, 1e-4);
  EXPECT_NEAR(font_width("\xc3\xa9", 18), font_width("?", 18), 0); // one code point, whatever its bytes
}

TEST(font_clips_to_the_image) {
  static const float positions[] = {-1000, -7.5f, -1, 0, 15.5f, 16, 1000};
  for (int i = 0; i < COUNT(positions); i++) {
    for (int j = 0; j < COUNT(positions); j++) {
      Image im = gray_image(16, 16, 9);
      font_draw(&im, positions[i], positions[j], 14, (Colour){200, 0, 0}, "gQ@ \xff|");
      image_free(&im);
    }
  }
  Image im = gray_image(300, 300, 9);
  font_draw(&im, 0, 290, 300, (Colour){200, 0, 0}, "@"); // beyond FONT_MAX: cut, not overrun
  image_free(&im);
  EXPECT(true);
}

// A square of mask, which fills its box: that is not drawn.
TEST(overlay_fills_mask_and_leaves_the_rest) {
  enum { SIDE = 480, A = 160, B = 320 };
  uint8_t *bytes = xcalloc(SIDE, SIDE);
  for (int y = A; y < B; y++) memset(bytes + y * SIDE + A, 1, B - A);
  Rle mask = rle_from_bytes(bytes, SIDE, SIDE);
  Image im = gray_image(SIDE, SIDE, 100);
  DrawItem item = {A, A, B, B, NULL, -1, &mask, 0};
  draw_overlay(&im, &item, 1);
  EXPECT_INT(im.h, SIDE);
  EXPECT_INT(changed_pixels(&im, 100, A, A, B, B), (B - A) * (B - A));
  int all = changed_pixels(&im, 100, 0, 0, SIDE, SIDE);
  EXPECT(all <= (B - A + 2) * (B - A + 2)); // one pixel around takes its share of the line
  const uint8_t *edge = im.rgb + 3 * (A * SIDE + SIDE / 2), *middle = im.rgb + 3 * (SIDE / 2 * SIDE + SIDE / 2);
  EXPECT(abs(edge[0] - 100) > abs(middle[0] - 100) && middle[0] != 100);
  free(bytes);
  rle_free(&mask);
  image_free(&im);
}

// In a large picture lines are several pixels wide, which would hide a small object.
TEST(overlay_lines_leave_small_objects_visible) {
  enum { SIDE = 1440, A = 700, SMALL = 24, LARGE = 400 };
  for (int with_mask = 0; with_mask < 2; with_mask++)
    for (int size = SMALL; size <= LARGE; size += LARGE - SMALL) {
      uint8_t *bytes = xcalloc(SIDE, SIDE);
      for (int y = A; y < A + size; y++) memset(bytes + y * SIDE + A, 1, (size_t)size);
      Rle mask = rle_from_bytes(bytes, SIDE, SIDE);
      Image im = gray_image(SIDE, SIDE, 100);
      const float end = A + (float)size;
      DrawItem item = {A, A, end, end, NULL, -1, with_mask ? &mask : NULL, 0};
      draw_overlay(&im, &item, 1);
      int line = 0;
      const uint8_t *row = im.rgb + 3 * ((A + size / 2) * SIDE + A), *middle = row + 3 * (size / 2);
      while (line < size / 2 && memcmp(row + 3 * line, middle, 3) != 0) line++;
      EXPECT(size == SMALL ? line >= 1 && line <= 3 : line >= 4);
      free(bytes);
      rle_free(&mask);
      image_free(&im);
    }
}

TEST(overlay_label_changes_pixels_inside_only) {
  Image plain = gray_image(480, 480, 50), labelled = gray_image(480, 480, 50);
  DrawItem item = {470, 0, 480, 8, "fire hydrant", 0.875f, NULL, 0}; // in the corner, where a label fits only by moving
  draw_overlay(&labelled, &item, 1);
  item.label = NULL;
  draw_overlay(&plain, &item, 1);
  int more = changed_pixels(&labelled, 50, 0, 0, 480, 480) - changed_pixels(&plain, 50, 0, 0, 480, 480);
  EXPECT(more > 500);
  image_free(&plain);
  image_free(&labelled);
}

TEST(overlay_has_the_pictures_size) {
  Image im = gray_image(128, 96, 77);
  DrawItem item = {40, 40, 60, 60, "x", 0.5f, NULL, 0};
  draw_overlay(&im, &item, 1);
  EXPECT(im.h == 128 && im.w == 96);
  EXPECT(changed_pixels(&im, 77, 0, 0, im.h, im.w) > 0);
  image_free(&im);
}

// The pixels of a box's right side, which the mask does not reach.
static int side_drawn(int mask_width, const char *label, int number) {
  enum { SIDE = 200 };
  uint8_t bytes[SIDE * SIDE] = {0};
  for (int y = 50; y < 150; y++) memset(bytes + y * SIDE + 50, 1, (size_t)mask_width);
  Rle mask = rle_from_bytes(bytes, SIDE, SIDE);
  Image im = gray_image(SIDE, SIDE, 90);
  DrawItem item = {50, 50, 150, 150, label, -1, &mask, number};
  draw_overlay(&im, &item, 1);
  const int changed = changed_pixels(&im, 90, 60, 149, 140, 150);
  rle_free(&mask);
  image_free(&im);
  return changed;
}

TEST(overlay_draws_a_box_unless_its_mask_fills_it) {
  EXPECT_INT(side_drawn(45, NULL, 0), 80);
  EXPECT_INT(side_drawn(55, NULL, 0), 0);
}

static void fill_colour(int number, uint8_t rgb[3]) {
  enum { SIDE = 60 };
  uint8_t bytes[SIDE * SIDE];
  memset(bytes, 1, sizeof bytes);
  Rle mask = rle_from_bytes(bytes, SIDE, SIDE);
  Image im = gray_image(SIDE, SIDE, 0);
  DrawItem item = {0, 0, SIDE, SIDE, NULL, -1, &mask, number};
  draw_overlay(&im, &item, 1);
  memcpy(rgb, im.rgb + 3 * (SIDE / 2 * SIDE + SIDE / 2), 3);
  rle_free(&mask);
  image_free(&im);
}

// As many as COCO has classes: each has a colour of its own, and the same wherever it is drawn.
TEST(overlay_colours_go_by_number) {
  enum { CLASSES = 80 };
  uint8_t rgb[CLASSES][3], again[3];
  for (int i = 0; i < CLASSES; i++) fill_colour(i, rgb[i]);
  for (int i = 0; i < CLASSES; i++)
    for (int k = 0; k < i; k++)
      if (!EXPECT(memcmp(rgb[i], rgb[k], 3) != 0)) printf("    %d and %d\n", i, k);
  fill_colour(5, again);
  EXPECT(!memcmp(rgb[5], again, 3));
}

// Rows are drawn in bands by several threads: a mask looks the same wherever they cut it.
TEST(overlay_masks_do_not_depend_on_bands) {
  enum { H = 400, W = 70, TALL = 120, SHIFT = 75 };
  uint8_t *bytes[2] = {xcalloc(H, W), xcalloc(H, W)};
  uint64_t key = rng_key(3, RNG_TEST);
  for (int y = 0; y < TALL; y++)
    for (int x = 0; x < W; x++) {
      const bool set = hypot(y - 60, x - 35) < 34 && rng_u32(key, (uint32_t)(y / 9 * W + x / 7)) % 4;
      for (int k = 0; k < 2; k++) bytes[k][(20 + k * SHIFT + y) * W + x] = set;
    }
  Image im[2];
  for (int k = 0; k < 2; k++) {
    im[k] = gray_image(H, W, 120);
    const Rle mask = rle_from_bytes(bytes[k], H, W);
    DrawMask m = {spans_of(&mask, 0, 0), {250, 20, 90}, 6.5f};
    draw_masks(&im[k], &m, 1);
    spans_free(&m.spans);
    rle_free((Rle *)&mask);
  }
  EXPECT(!memcmp(im[0].rgb, im[1].rgb + 3 * SHIFT * W, 3 * (H - SHIFT) * W));
  EXPECT(changed_pixels(&im[0], 120, 0, 0, H, W) > 1000);
  for (int k = 0; k < 2; k++) {
    image_free(&im[k]);
    free(bytes[k]);
  }
}

TEST(overlay_survives_odd_items) {
  static const int sizes[][2] = {{1, 1}, {1, 700}, {37, 2}, {500, 480}};
  for (int s = 0; s < COUNT(sizes); s++) {
    int h = sizes[s][0], w = sizes[s][1];
    uint8_t *bytes = xcalloc((size_t)h, (size_t)w);
    Rle empty = rle_from_bytes(bytes, h, w);
    memset(bytes, 1, (size_t)h * w);
    Rle full = rle_from_bytes(bytes, h, w);
    DrawItem items[] = {
        {NAN, NAN, NAN, NAN, "nan", NAN, &empty, 3},
        {-1e30f, -1e30f, 1e30f, 1e30f, "huge", 1, &full, 3},
        {INFINITY, 0, -INFINITY, 3, "inf", 2, NULL, 3},
        {5, 5, 2, 2, "turned", 0.5f, &full, 3},
        {0, 0, 0, 0, "", 0, NULL, 3},
        {0, 0, 1, 1, NULL, -1, &full, 3},
    };
    Image im = gray_image(h, w, 10);
    draw_overlay(&im, items, COUNT(items));
    EXPECT(im.h == h && im.w == w);
    image_free(&im);
    rle_free(&empty);
    rle_free(&full);
    free(bytes);
  }
}
