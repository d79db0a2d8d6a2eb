// Cases with known results, then random blocks, added one at a time until the next does not fit. If all are right,
// prints the answer to the chapter's next question.
#include "base/rng.h"
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/conv.h"

static const struct {
  const char *what;
  BlockNeeds block;
  int want;
} known[] = {
    {"as small as can be: 32 blocks are the most", {32, 16, 0}, 32},
    {"256 threads of 32 registers: 64 warps are the most", {256, 32, 0}, 8},
    {"256 threads of 33 registers, rounded up to 40: 12 warps a scheduler", {256, 33, 0}, 6},
    {"256 threads of 64 registers", {256, 64, 0}, 4},
    {"256 threads of 128 registers", {256, 128, 0}, 2},
    {"256 threads of 129 registers, rounded up to 136: 3 warps a scheduler", {256, 129, 0}, 1},
    {"1024 threads of 64 registers", {1024, 64, 0}, 1},
    {"1024 threads of 65 registers: 7 warps a scheduler, and 8 wanted", {1024, 65, 0}, 0},
    {"a thread is a warp, too", {1, 255, 0}, 8},
    {"113 KB and one beside: two", {128, 32, 113 * 1024}, 2},
    {"113 KB and a byte", {128, 32, 113 * 1024 + 1}, 1},
    {"227 KB: all there is", {128, 32, 227 * 1024}, 1},
    {"228 KB", {128, 32, 228 * 1024}, 0},
};

static int up(int n, int unit) { return (n + unit - 1) / unit * unit; }

// Whether this many blocks fit, by the resources that they need together.
static int fits(int blocks, BlockNeeds b) {
  const int warps = blocks * up(b.threads, 32) / 32;
  const int registers = up(b.registers * 32, REGISTER_UNIT);
  const int fullest = up(warps, SM_SCHEDULERS) / SM_SCHEDULERS; // warps of the scheduler with the most
  return blocks <= SM_BLOCKS && warps <= SM_WARPS && fullest * registers <= SCHEDULER_REGISTERS &&
         blocks * (up(b.shared, SHARED_UNIT) + BLOCK_SHARED) <= SM_SHARED;
}

static void check(const char *what, BlockNeeds b, int want) {
  const int got = resident_blocks(b);
  if (got != want)
    difference("%s (%d threads, %d registers, %d bytes): %d blocks, not %d", what, b.threads, b.registers, b.shared,
               got, want);
}

// The most registers per thread with which each number of blocks of 256 threads fits.
static void ask(void) {
  for (int registers = 1; registers <= 255; registers++) {
    const int blocks = resident_blocks((BlockNeeds){256, registers, 0});
    if (registers == 255 || resident_blocks((BlockNeeds){256, registers + 1, 0}) != blocks)
      printf("blocks of 256 threads of up to %3d registers: %d\n", registers, blocks);
  }
}

int main(void) {
  for (int i = 0; i < (int)(sizeof known / sizeof *known); i++) check(known[i].what, known[i].block, known[i].want);
  for (uint64_t i = 0; i < 3000; i++) {
    const BlockNeeds b = {1 + (int)(rng_u32(1, i) % 1024), 1 + (int)(rng_u32(2, i) % 255),
                          (int)(rng_u32(3, i) % 60000)};
    int want = 0;
    while (fits(want + 1, b)) want++;
    check("a block drawn at random", b, want);
  }
  solved();
  ask();
  return 0;
}
