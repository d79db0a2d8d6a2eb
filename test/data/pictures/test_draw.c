// Catches overlays that draw outside the image, or leave out a mask or a label.
#include "base/file.h"
#include "base/text.h"
#include "data/pictures/draw.h"
#include "data/pictures/font.h"
#include "test/harness/command.h"
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

// A square of mask in the middle of a large image, so that nothing is enlarged.
TEST(overlay_fills_mask_and_leaves_the_rest) {
  enum { SIDE = 480, A = 160, B = 320 };
  uint8_t *bytes = xcalloc(SIDE, SIDE);
  for (int y = A; y < B; y++) memset(bytes + y * SIDE + A, 1, B - A);
  Rle mask = rle_from_bytes(bytes, SIDE, SIDE);
  Image im = gray_image(SIDE, SIDE, 100);
  DrawItem item = {A, A, B, B, NULL, -1, &mask};
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

TEST(overlay_label_changes_pixels_inside_only) {
  Image plain = gray_image(480, 480, 50), labelled = gray_image(480, 480, 50);
  DrawItem item = {470, 0, 480, 8, "fire hydrant", 0.875f, NULL}; // in the corner, where a label fits only by moving
  draw_overlay(&labelled, &item, 1);
  item.label = NULL;
  draw_overlay(&plain, &item, 1);
  int more = changed_pixels(&labelled, 50, 0, 0, 480, 480) - changed_pixels(&plain, 50, 0, 0, 480, 480);
  EXPECT(more > 500);
  image_free(&plain);
  image_free(&labelled);
}

TEST(overlay_enlarges_small_images) {
  Image im = gray_image(128, 96, 77);
  draw_overlay(&im, NULL, 0);
  EXPECT_INT(im.h, 5 * 128);
  EXPECT_INT(im.w, 5 * 96);
  EXPECT_INT(changed_pixels(&im, 77, 0, 0, im.h, im.w), 0); // a constant stays constant: weights sum to one
  image_free(&im);
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
        {NAN, NAN, NAN, NAN, "nan", NAN, &empty},
        {-1e30f, -1e30f, 1e30f, 1e30f, "huge", 1, &full},
        {INFINITY, 0, -INFINITY, 3, "inf", 2, NULL},
        {5, 5, 2, 2, "turned", 0.5f, &full},
        {0, 0, 0, 0, "", 0, NULL},
        {0, 0, 1, 1, NULL, -1, &full},
    };
    Image im = gray_image(h, w, 10);
    draw_overlay(&im, items, COUNT(items));
    EXPECT(im.h >= h && im.w >= w);
    image_free(&im);
    rle_free(&empty);
    rle_free(&full);
    free(bytes);
  }
}
