// Patterns with known results, then random reads, compared with a simulated memory that is accessed until all lanes
// have their words. If all are right, prints the answer to the chapter's next question.
#include <stdbool.h>
#include "base/rng.h"
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/conv.h"

// Lane l reads at l / across · down + l % across · right.
static const struct {
  const char *what;
  int bytes, across, right, down, want;
} known[] = {
    {"neighbouring words", 4, 32, 4, 0, 1},
    {"one word for all", 4, 32, 0, 0, 1},
    {"a column of rows of 128 bytes", 4, 1, 0, 128, 32},
    {"a column of rows of 132 bytes", 4, 1, 0, 132, 1},
    {"every second word", 4, 32, 8, 0, 2},
    {"two rows of 64 bytes apart by 128", 4, 16, 4, 128, 2},
    {"neighbouring pairs", 8, 32, 8, 0, 2},
    {"neighbouring fours", 16, 32, 16, 0, 4},
    {"one four for all", 16, 32, 0, 0, 4},
    {"fours of 32 rows of 128 bytes", 16, 1, 0, 128, 32},
    {"fours of 32 rows of 144 bytes", 16, 1, 0, 144, 4},
    {"fours of 32 rows of 80 bytes", 16, 1, 0, 80, 4},
    {"fours of 32 rows of 64 bytes", 16, 1, 0, 64, 16},
    {"pairs of 32 rows of 72 bytes", 8, 1, 0, 72, 2},
};

// In each access, every bank provides the first word that a lane still needs, to all lanes that need it.
static int asked(int bytes, const int *address) {
  const int words = bytes / BANK_BYTES, at_once = 128 / bytes;
  int times = 0;
  for (int first = 0; first < LANES; first += at_once) {
    bool served[32 * 4] = {false};
    for (int left = at_once * words; left > 0; times++) {
      int open[BANKS];
      for (int bank = 0; bank < BANKS; bank++) open[bank] = -1;
      for (int i = 0; i < at_once * words; i++) {
        const int word = address[first + i / words] / BANK_BYTES + i % words, bank = word % BANKS;
        if (!served[i] && open[bank] < 0) open[bank] = word;
        if (served[i] || open[bank] != word) continue;
        served[i] = true;
        left--;
      }
    }
  }
  return times;
}

// Each lane reads the first 16 bytes of a row; rows have different lengths.
static void ask(void) {
  int address[LANES];
  for (int row = 64; row <= 144; row += 16) {
    for (int l = 0; l < LANES; l++) address[l] = l * row;
    printf("rows of %3d bytes: %2d accesses\n", row, shared_accesses(16, address));
  }
}

int main(void) {
  int address[LANES];
  for (int p = 0; p < (int)(sizeof known / sizeof *known); p++) {
    for (int l = 0; l < LANES; l++)
      address[l] = l / known[p].across * known[p].down + l % known[p].across * known[p].right;
    const int got = shared_accesses(known[p].bytes, address);
    if (got != known[p].want) difference("%s: %d accesses, not %d", known[p].what, got, known[p].want);
  }
  for (int drawn = 0; drawn < 300; drawn++) {
    const int bytes = 4 << drawn % 3, range = 8 << drawn % 7;
    for (int l = 0; l < LANES; l++) address[l] = (int)(rng_u32((uint64_t)drawn, (uint64_t)l) % (uint32_t)range) * bytes;
    const int got = shared_accesses(bytes, address), want = asked(bytes, address);
    if (got != want)
      difference("drawn reads %d, of %d bytes below %d: %d accesses, not %d", drawn, bytes, range * bytes, got, want);
  }
  solved();
  ask();
  return 0;
}
