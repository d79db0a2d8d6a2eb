// Catches mask arithmetic on runs that differs from the same on pixels.
#include "base/rng.h"
#include "data/coco/spans.h"
#include "test/harness/test.h"

enum { SIDE = 24, FRAME = 16 }; // a mask's at most, and that of the image that it comes to lie in

static bool same_rle(const Rle *a, const Rle *b) {
  return a->h == b->h && a->w == b->w && a->n == b->n && memcmp(a->runs, b->runs, (size_t)a->n * sizeof *a->runs) == 0;
}

// A random mask of random size at a random place, some of it outside of the frame, which holds it as bytes.
static Spans random_spans(uint64_t key, uint8_t frame[FRAME][FRAME]) {
  uint8_t mask[SIDE * SIDE];
  const int h = 1 + (int)(rng_u32(key, 1) % SIDE), w = 1 + (int)(rng_u32(key, 2) % SIDE);
  const int left = (int)(rng_u32(key, 3) % FRAME) - 6, top = (int)(rng_u32(key, 4) % FRAME) - 6;
  const float density = (float)(rng_u32(key, 5) % 5) / 4; // 0 and 1 included
  memset(frame, 0, FRAME * FRAME);
  for (int i = 0; i < h * w; i++) {
    const int y = top + i / w, x = left + i % w;
    mask[i] = rng_uniform(key, 10 + (uint64_t)i) < density;
    if (y >= 0 && y < FRAME && x >= 0 && x < FRAME) frame[y][x] = mask[i];
  }
  Rle r = rle_from_bytes(mask, h, w);
  Spans s = spans_of(&r, left, top);
  rle_free(&r);
  return s;
}

TEST(spans_equal_bytes) {
  for (uint64_t round = 0; round < 1000; round++) {
    const uint64_t key = rng_key(RNG_TEST, round);
    uint8_t a[FRAME][FRAME], b[FRAME][FRAME], either[FRAME][FRAME], part[FRAME * FRAME];
    Spans sa = random_spans(rng_key(key, 1), a), sb = random_spans(rng_key(key, 2), b), su = spans_union(&sa, &sb);
    PixelRect within = {.x1 = (int)(rng_u32(key, 3) % FRAME), .y1 = (int)(rng_u32(key, 4) % FRAME)};
    within.x2 = within.x1 + (int)(rng_u32(key, 5) % (FRAME - (uint32_t)within.x1 + 1)); // empty ones, too
    within.y2 = within.y1 + (int)(rng_u32(key, 6) % (FRAME - (uint32_t)within.y1 + 1));
    int area = 0, both = 0;
    memset(part, 0, sizeof part);
    spans_bytes(&sa, within, part);
    for (int y = 0; y < FRAME; y++)
      for (int x = 0; x < FRAME; x++) {
        either[y][x] = a[y][x] || b[y][x];
        if (x < within.x1 || x >= within.x2 || y < within.y1 || y >= within.y2) continue;
        area += a[y][x];
        both += a[y][x] && b[y][x];
        EXPECT_INT(part[(y - within.y1) * (within.x2 - within.x1) + x - within.x1], a[y][x]);
      }
    EXPECT_INT((long long)spans_area(&sa, within), area);
    EXPECT_INT((long long)spans_common_area(&sa, &sb, within), both);
    Rle got[] = {spans_rle(&sa, FRAME, FRAME), spans_rle(&su, FRAME, FRAME)};
    Rle want[] = {rle_from_bytes(a[0], FRAME, FRAME), rle_from_bytes(either[0], FRAME, FRAME)};
    for (int i = 0; i < COUNT(got); i++) {
      EXPECT(same_rle(&got[i], &want[i]));
      rle_free(&got[i]);
      rle_free(&want[i]);
    }
    spans_free(&sa);
    spans_free(&sb);
    spans_free(&su);
  }
}

TEST(spans_have_an_extent) {
  Spans s = {.n = 3, .items = (Span[]){{2, 5, 7}, {3, 1, 2}, {3, 8, 9}}}, none = {0};
  PixelRect r = spans_extent(&s);
  EXPECT(r.x1 == 2 && r.y1 == 1 && r.x2 == 4 && r.y2 == 9);
  EXPECT(rect_empty(spans_extent(&none)));
  EXPECT(rect_empty(rect_common((PixelRect){0, 0, 4, 4}, (PixelRect){4, 0, 8, 4})));
}

TEST(rle_shrink_equals_counted_pixels) {
  for (uint64_t round = 0; round < 500; round++) {
    const uint64_t key = rng_key(RNG_TEST, round);
    const int h = 1 + (int)(rng_u32(key, 1) % SIDE), w = 1 + (int)(rng_u32(key, 2) % SIDE);
    const int small_h = 1 + (int)(rng_u32(key, 3) % (uint32_t)h), small_w = 1 + (int)(rng_u32(key, 4) % (uint32_t)w);
    uint8_t mask[SIDE * SIDE], want[SIDE * SIDE];
    for (int i = 0; i < h * w; i++) mask[i] = rng_u32(key, 10 + (uint64_t)i) % 2;
    for (int i = 0; i < small_h * small_w; i++) {
      int inside = 0, all = 0;
      for (int y = i / small_w * h / small_h; y < (i / small_w + 1) * h / small_h; y++)
        for (int x = i % small_w * w / small_w; x < (i % small_w + 1) * w / small_w; x++, all++)
          inside += mask[y * w + x];
      want[i] = 2 * inside >= all;
    }
    Rle r = rle_from_bytes(mask, h, w), expected = rle_from_bytes(want, small_h, small_w);
    Rle got = rle_shrink(&r, small_h, small_w);
    if (!EXPECT(same_rle(&got, &expected))) printf("    %d x %d to %d x %d\n", h, w, small_h, small_w);
    rle_free(&r);
    rle_free(&got);
    rle_free(&expected);
  }
}
