// Reads an operand as the tensor cores do: the descriptor's fields give the address of an element in a layout without
// swizzle, and then bits 7 to 9 of the address are XORed into bits 4 to 6. The tile's elements are where TMA, or the
// lesson's copies, store them.
#include <inttypes.h>
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/conv.h"

enum { ROW_BYTES = 128, CHUNK = 8 }; // CHUNK: elements of 16 bytes

static uint32_t field(uint64_t descriptor, int first, int bits) {
  return (uint32_t)(descriptor >> first & (((uint64_t)1 << bits) - 1));
}

static void check_fields(uint64_t d) {
  const uint64_t used = (uint64_t)0x3fff | (uint64_t)0x3fff << 32 | (uint64_t)3 << 62;
  if (field(d, 62, 2) != 1) difference("bits 62 and 63 say swizzle %u; of 128 bytes is 1", field(d, 62, 2));
  if (d & ~used) difference("bits outside start, stride and swizzle are set: 0x%016" PRIx64, d & ~used);
}

// Bytes from the start of the block's shared memory.
static uint32_t read_from(uint64_t d, int i, int j) {
  const uint32_t start = field(d, 0, 14) << 4, stride = field(d, 32, 14) << 4;
  const uint32_t linear = start + (uint32_t)(i / 8) * stride + (uint32_t)(i % 8 * ROW_BYTES + j * 2);
  return linear ^ (linear >> 7 & 7) << 4;
}
static uint32_t lies_at(uint32_t tile, int row, int k) {
  return (tile & 0x3ffff) + (uint32_t)(row * ROW_BYTES + (k / CHUNK ^ row % 8) * 16 + k % CHUNK * 2);
}

static void check(uint32_t tile, int row, int k) {
  const uint64_t d = wgmma_descriptor(tile, row, k);
  check_fields(d);
  for (int i = 0; i < 64; i++)
    for (int j = 0; j < 16; j++) {
      const uint32_t got = read_from(d, i, j), want = lies_at(tile, row + i, k + j);
      if (got != want)
        difference("tile at 0x%x, operand from row %d, k %d: its element (%d, %d) is read from 0x%x and lies at 0x%x",
                   tile, row, k, i, j, got, want);
    }
}

int main(void) {
  // In the last one, the block's rank in the cluster is 1.
  const uint32_t tiles[] = {0, 0x400, 0x8000, 0x38000, 0x1000400};
  for (int t = 0; t < 5; t++)
    for (int row = 0; row <= 192; row += 64)
      for (int k = 0; k < 64; k += 16) check(tiles[t], row, k);
  return solved();
}
