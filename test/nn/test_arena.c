// Catches values that share memory while both are needed.
#include "base/basics.h"
#include "base/rng.h"
#include "nn/arena.h"
#include "test/harness/test.h"

enum { ALIGN = 256, MAX_BLOCKS = 80 };

static size_t padded(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static uint32_t draw(uint64_t round, int i, int what) {
  return rng_u32(rng_key(rng_key(RNG_TEST, round), (uint64_t)i), (uint64_t)what);
}

static int random_blocks(ArenaBlock *blocks, uint64_t round) {
  int n = (int)(draw(round, 0, 0) % (MAX_BLOCKS + 1)), steps = 1 + (int)(draw(round, 0, 1) % 40);
  for (int i = 0; i < n; i++) {
    int first = (int)(draw(round, i, 2) % (uint32_t)steps);
    // Few different sizes, so that there are ties; some are multiples of the alignment, some empty.
    size_t bytes = draw(round, i, 3) % 12 * 128 + draw(round, i, 4) % 2;
    blocks[i] = (ArenaBlock){.name = "block",
                             .bytes = bytes,
                             .first = first,
                             .last = first + (int)(draw(round, i, 5) % (uint32_t)(steps - first)),
                             .offset = draw(round, i, 6)}; // whatever stood there
    if (blocks[i].last - first < 3 || draw(round, i, 7) % 4) continue;
    blocks[i].idle_after = first + (int)(draw(round, i, 8) % 2);
    blocks[i].idle_before = blocks[i].last - (int)(draw(round, i, 9) % 2);
  }
  return n;
}

static bool alive(const ArenaBlock *b, int step) {
  return b->first <= step && step <= b->last && !(b->idle_after < step && step < b->idle_before);
}

static bool together(const ArenaBlock *a, const ArenaBlock *b) {
  for (int step = a->first; step <= a->last; step++)
    if (alive(a, step) && alive(b, step)) return true;
  return false;
}

static bool share_bytes(const ArenaBlock *a, const ArenaBlock *b) {
  return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

// The most bytes alive at any step: no plan can do with less.
static size_t lower_bound(const ArenaBlock *blocks, int n) {
  size_t most = 0;
  for (int step = 0; step < 40; step++) {
    size_t bytes = 0;
    for (int i = 0; i < n; i++)
      if (alive(&blocks[i], step)) bytes += padded(blocks[i].bytes);
    most = MAX(most, bytes);
  }
  return most;
}

TEST(arena_random_lifetimes) {
  size_t reached = 0, bound = 0;
  for (uint64_t round = 0; round < 300; round++) {
    ArenaBlock blocks[MAX_BLOCKS] = {0}, again[MAX_BLOCKS];
    int n = random_blocks(blocks, round);
    memcpy(again, blocks, sizeof again);
    size_t total = arena_plan(blocks, n), end = 0;
    for (int i = 0; i < n; i++) {
      EXPECT(blocks[i].offset % ALIGN == 0);
      end = MAX(end, blocks[i].offset + padded(blocks[i].bytes));
      for (int j = 0; j < i; j++)
        EXPECT(!blocks[i].bytes || !blocks[j].bytes || !together(&blocks[i], &blocks[j]) ||
               !share_bytes(&blocks[i], &blocks[j]));
    }
    EXPECT(total == end && total >= lower_bound(blocks, n));
    reached += total;
    bound += lower_bound(blocks, n);

    for (int i = 0; i < n; i++) again[i].offset = 0;
    EXPECT(arena_plan(again, n) == total);
    for (int i = 0; i < n; i++) EXPECT(again[i].offset == blocks[i].offset);
  }
  EXPECT((double)reached <= 1.2 * (double)bound); // greedy by size stays near the bound
}

TEST(arena_extremes) {
  ArenaBlock apart[] = {{.bytes = 300, .first = 0, .last = 1},
                        {.bytes = 1000, .first = 2, .last = 2},
                        {.bytes = 1, .first = 3, .last = 9}};
  EXPECT_INT(arena_plan(apart, COUNT(apart)), 1024); // never alive together: all in one place
  for (int i = 0; i < COUNT(apart); i++) EXPECT_INT(apart[i].offset, 0);

  ArenaBlock crowd[] = {{.bytes = 1, .last = INT32_MAX},
                        {.bytes = 256, .first = 5, .last = 5},
                        {.bytes = 257, .first = 5, .last = INT32_MAX}};
  EXPECT_INT(arena_plan(crowd, COUNT(crowd)), 256 + 256 + 512); // all alive at step 5: nothing shared

  // Both ends of a lifetime count: a block read last at step 2 and one written first at step 2 are apart.
  ArenaBlock touching[] = {{.bytes = 256, .first = 1, .last = 2}, {.bytes = 256, .first = 2, .last = 3}};
  EXPECT_INT(arena_plan(touching, COUNT(touching)), 512);

  // What lives while another is idle lies on it, unless it is there a step too long.
  ArenaBlock idle[] = {{.bytes = 512, .first = 0, .last = 9, .idle_after = 1, .idle_before = 9},
                       {.bytes = 512, .first = 2, .last = 8}};
  EXPECT_INT(arena_plan(idle, COUNT(idle)), 512);
  idle[1].last = 9;
  EXPECT_INT(arena_plan(idle, COUNT(idle)), 1024);
  EXPECT_INT(arena_plan(NULL, 0), 0);
}

TEST(arena_map) {
  ArenaBlock blocks[] = {{.name = "small", .bytes = 1000000, .first = 0, .last = 1},
                         {.name = "large", .bytes = 2000000, .first = 1, .last = 2}};
  char *text;
  size_t size, total = arena_plan(blocks, COUNT(blocks));
  FILE *out = open_memstream(&text, &size);
  arena_print(blocks, COUNT(blocks), total, out);
  fclose(out);
  EXPECT(strstr(text, "activations 3.0 MB in 2 blocks (at least 3.0 MB are alive at once)") == text);
  EXPECT(strstr(text, "large") < strstr(text, "small"));
  EXPECT(strstr(text, "1-2") != NULL);
  free(text);
}
