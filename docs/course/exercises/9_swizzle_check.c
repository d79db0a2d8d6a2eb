// Accepts any order of a row's chunks in which neither the reads of ldmatrix nor the copies into the tile conflict:
// both access eight chunks at a time, which must lie in eight different groups of four banks.
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/conv.h"

enum { ROWS = 64, GROUPS = 8 }; // GROUPS: of four banks, 16 bytes

static void check_row(int chunks, int row) {
  int holds[GROUPS];
  for (int position = 0; position < chunks; position++) holds[position] = -1;
  for (int chunk = 0; chunk < chunks; chunk++) {
    const int position = swizzled(chunks, row, chunk);
    if (position < 0 || position >= chunks)
      difference("rows of %d chunks: chunk %d of row %d lies at %d, outside its row", chunks, chunk, row, position);
    if (holds[position] >= 0)
      difference("rows of %d chunks: chunks %d and %d of row %d lie at the same position", chunks, holds[position],
                 chunk, row);
    holds[position] = chunk;
  }
}

// Checks eight chunks that lanes 0 … 7 access at once: one per row, as ldmatrix reads them, or consecutive ones, as
// they are filled.
static void check_phase(int chunks, bool reads, int row, int chunk) {
  int lane_of[GROUPS];
  for (int group = 0; group < GROUPS; group++) lane_of[group] = -1;
  for (int lane = 0; lane < GROUPS; lane++) {
    const int r = reads ? row + lane : row + lane / chunks, c = reads ? chunk : lane % chunks;
    const int group = (r * chunks + swizzled(chunks, r, c)) % GROUPS, other = lane_of[group];
    if (other >= 0)
      difference("rows of %d chunks, %s: lanes %d and %d both need banks %d to %d", chunks,
                 reads ? "ldmatrix reads a chunk of eight rows" : "eight lanes fill chunks side by side", other, lane,
                 4 * group, 4 * group + 3);
    lane_of[group] = lane;
  }
}

int main(void) {
  for (int chunks = 8; chunks >= 4; chunks /= 2) {
    for (int row = 0; row < ROWS; row++) check_row(chunks, row);
    for (int row = 0; row < ROWS; row += 8)
      for (int chunk = 0; chunk < chunks; chunk++) check_phase(chunks, true, row, chunk);
    for (int row = 0; row < ROWS; row += GROUPS / chunks) check_phase(chunks, false, row, 0);
  }
  return solved();
}
