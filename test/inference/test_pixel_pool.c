// Catches decoded images that keep more memory than allowed.
#include <stdlib.h>
#include "base/error.h"
#include "inference/pixel_pool.h"
#include "test/harness/allocations.h"
#include "test/harness/test.h"

static uint8_t *take(PixelPool *p, size_t bytes, size_t *room) {
  uint8_t *rgb = pixel_pool_take(p, bytes, room);
  CHECK(rgb);
  rgb[*room - 1] = 1; // a sanitizer sees that the room is there
  return rgb;
}

// The tightest spare that is larger by an eighth at most is used again; otherwise memory is fresh, as large as asked
// for.
TEST(pixel_pool_gives_the_tightest_spare) {
  PixelPool p = {0};
  size_t room;
  uint8_t *const wide = take(&p, 900, &room), *const tight = take(&p, 850, &room);
  for (int tight_first = 0; tight_first < 2; tight_first++) {
    if (tight_first) pixel_pool_give(&p, tight, 850);
    pixel_pool_give(&p, wide, 900);
    if (!tight_first) pixel_pool_give(&p, tight, 850);
    pixel_pool_give(&p, NULL, 0);
    EXPECT(p.n == 2 && p.bytes == 1750);
    EXPECT(take(&p, 800, &room) == tight);
    EXPECT_INT(room, 850);
    EXPECT(take(&p, 800, &room) == wide); // an eighth larger
    EXPECT_INT(room, 900);
    EXPECT(p.n == 0 && p.bytes == 0);
  }
  pixel_pool_give(&p, wide, 900);
  uint8_t *const small = take(&p, 799, &room), *const large = take(&p, 901, &room);
  EXPECT(small != wide && large != wide && room == 901);
  free(small);
  free(large);
  free(tight);
  pixel_pool_shrink(&p, 0);
  EXPECT(p.n == 0 && p.bytes == 0);
}

TEST(pixel_pool_shrinks_from_the_oldest) {
  PixelPool p = {0};
  size_t room;
  for (int i = 0; i < COUNT(p.spare) + 2; i++) {
    uint8_t *rgb = malloc(100);
    CHECK(rgb);
    rgb[0] = (uint8_t)i;
    pixel_pool_give(&p, rgb, 100);
  }
  EXPECT(p.n == COUNT(p.spare) && p.bytes == 100 * COUNT(p.spare));
  EXPECT_INT(p.spare[0].rgb[0], 2);
  pixel_pool_shrink(&p, 250);
  EXPECT(p.n == 2 && p.bytes == 200);
  uint8_t *rgb = take(&p, 100, &room);
  EXPECT_INT(rgb[0], COUNT(p.spare));
  free(rgb);
  pixel_pool_shrink(&p, 0);
}

// Spares do not keep memory from an image that needs it.
TEST(pixel_pool_gives_way_where_memory_is_out) {
  if (!allocations_counted()) {
    test_skip("a sanitizer has an allocator of its own");
    return;
  }
  PixelPool p = {0};
  size_t room;
  for (int i = 0; i < 3; i++) pixel_pool_give(&p, malloc(100), 100);
  allocations_fail(1);
  uint8_t *rgb = take(&p, 200, &room);
  EXPECT(room == 200 && p.n == 0 && p.bytes == 0);
  free(rgb);
}
