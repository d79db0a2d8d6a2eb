// Simulates a stage of a cluster: every block's loads go to the blocks in their masks, each destination counts the
// arriving bytes, and then every consumer of every block signals that it has read the stage.
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/conv.h"

enum { MOST_BLOCKS = 8, MOST_ROWS = 256, ROW_BYTES = 128, A_BYTES = 128 * ROW_BYTES };

static void check(int blocks, int b_rows, int consumers) {
  static int times[MOST_BLOCKS][MOST_ROWS]; // how often a row of B has arrived in a block
  int bytes[MOST_BLOCKS] = {0};
  MulticastShare share[MOST_BLOCKS];
  for (int b = 0; b < blocks; b++)
    for (int row = 0; row < b_rows; row++) times[b][row] = 0;
  for (int rank = 0; rank < blocks; rank++) {
    const MulticastShare s = share[rank] = multicast_share(rank, blocks, b_rows, A_BYTES, ROW_BYTES, consumers);
    if (s.first < 0 || s.rows < 0 || s.first + s.rows > b_rows)
      difference("block %d of %d: rows %d to %d are not B's", rank, blocks, s.first, s.first + s.rows);
    if (s.rows != b_rows / blocks) difference("block %d of %d asks for %d of %d rows", rank, blocks, s.rows, b_rows);
    if (s.mask >> blocks) difference("block %d of %d: mask 0x%x names a block that there is not", rank, blocks, s.mask);
    bytes[rank] += A_BYTES;
    for (int to = 0; to < blocks; to++)
      for (int row = s.first; s.mask >> to & 1 && row < s.first + s.rows; row++, bytes[to] += ROW_BYTES)
        times[to][row]++;
  }
  for (int b = 0; b < blocks; b++)
    for (int row = 0; row < b_rows; row++)
      if (times[b][row] != 1)
        difference("%d blocks: row %d of B arrives %d times in block %d", blocks, row, times[b][row], b);
  for (int b = 0; b < blocks; b++) {
    if (share[b].expected_bytes != bytes[b])
      difference("block %d of %d: %d bytes arrive a stage, and %d are expected", b, blocks, bytes[b],
                 share[b].expected_bytes);
    if (share[b].empty_arrivals != blocks * consumers)
      difference("block %d of %d, %d consumers each: it may load again after %d arrivals, not %d", b, blocks, consumers,
                 blocks * consumers, share[b].empty_arrivals);
  }
}

int main(void) {
  for (int blocks = 1; blocks <= MOST_BLOCKS; blocks *= 2)
    for (int b_rows = 64; b_rows <= MOST_ROWS; b_rows *= 2)
      for (int consumers = 1; consumers <= 3; consumers++) check(blocks, b_rows, consumers);
  return solved();
}
