// Catches mask bits in the wrong place after packing or cropping.
#include "base/alloc.h"
#include "base/rng.h"
#include "data/batches/bitmap.h"
#include "test/harness/test.h"

static bool bit(const Bitmap *b, const uint32_t *bits, int y, int x) {
  y -= b->y;
  x -= b->x;
  if (y < 0 || y >= b->h || x < 0 || x >= b->w) return false;
  return bits[(int64_t)y * ((b->w + 31) / 32) + x / 32] >> (x % 32) & 1;
}

// Packs a mask and compares every pixel; the words start as ones and must not be written past their number.
static void check_mask(const uint8_t *mask, int h, int w) {
  const uint32_t guard = 0xdeadbeef;
  Rle r = rle_from_bytes(mask, h, w);
  Bitmap b = bitmap_window(&r);
  int64_t words = bitmap_words(b.h, b.w), set = 0;
  uint32_t *bits = xmalloc((size_t)(words + 1) * sizeof *bits);
  memset(bits, 0xff, (size_t)words * sizeof *bits);
  bits[words] = guard;
  bitmap_pack(&r, &b, bits);
  EXPECT(bits[words] == guard);
  for (int y = 0; y < h; y++)
    for (int x = 0; x < w; x++) EXPECT_INT(bit(&b, bits, y, x), mask[(size_t)y * w + x] != 0);
  for (int64_t i = 0; i < words; i++) set += __builtin_popcount(bits[i]); // nothing beyond the width either
  EXPECT_INT(set, (long long)rle_area(&r));
  free(bits);
  rle_free(&r);
}

TEST(bitmap_equals_mask) {
  enum { SIDE = 80 };
  static uint8_t mask[SIDE * SIDE];
  for (int trial = 0; trial < 60; trial++) {
    uint64_t key = rng_key(RNG_TEST, (uint64_t)trial);
    int h = 1 + (int)(rng_u32(key, 0) % SIDE), w = 1 + (int)(rng_u32(key, 1) % SIDE);
    uint32_t density = trial % 4 * 85; // of 255: from nothing to everything
    for (int i = 0; i < h * w; i++) mask[i] = rng_u32(key, 2 + (uint64_t)i) % 255 < density;
    check_mask(mask, h, w);
  }
}

TEST(bitmap_crops_to_the_mask) {
  enum { H = 50, W = 70 };
  static uint8_t mask[H * W];
  for (int y = 10; y < 14; y++)
    for (int x = 31; x < 65; x++) mask[y * W + x] = 1;
  check_mask(mask, H, W);
  Rle r = rle_from_bytes(mask, H, W);
  Bitmap b = bitmap_window(&r);
  EXPECT(b.x == 31 && b.y == 10 && b.w == 34 && b.h == 4);
  EXPECT_INT(bitmap_words(b.h, b.w), 8);
  rle_free(&r);
}

// Runs of length zero, as hand-written annotations have them, cover nothing.
TEST(bitmap_of_empty_runs) {
  uint32_t runs[] = {0, 0, 7, 0, 0, 3, 2};
  Rle r = {.h = 4, .w = 3, .n = COUNT(runs), .runs = runs};
  Bitmap b = bitmap_window(&r);
  uint32_t bits[4];
  bitmap_pack(&r, &b, bits);
  for (int i = 0; i < 12; i++) EXPECT_INT(bit(&b, bits, i % 4, i / 4), i >= 7 && i < 10);
  uint32_t nothing[] = {12};
  Rle empty = {.h = 4, .w = 3, .n = 1, .runs = nothing};
  b = bitmap_window(&empty);
  EXPECT_INT(bitmap_words(b.h, b.w), 0);
}
