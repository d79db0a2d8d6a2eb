// Walks with known results: a piece of 4 bytes is complete each second, unless stated otherwise. If all are right,
// prints the answer to the chapter's next question.
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/exercises.h"

enum { MOST = 6 };

static const struct {
  const char *what;
  int pieces;
  double ready[MOST], bytes[MOST], bucket, latency, rate, end;
} cases[] = {
    {"no pieces", 0, {0}, {0}, 8, 1, 4, 0},
    {"one piece, one bucket: 1 + 0 + 4 / 4", 1, {1}, {4}, 4, 0, 4, 2},
    {"one piece that fills no bucket", 1, {1}, {4}, 100, 0, 4, 2},
    {"one bucket of all: 4 + 1 + 16 / 4", 4, {1, 2, 3, 4}, {4, 4, 4, 4}, 16, 1, 4, 9},
    {"a bucket each, beside the walk: 4 + 0 + 4 / 8", 4, {1, 2, 3, 4}, {4, 4, 4, 4}, 4, 0, 8, 4.5},
    {"a bucket each, latency above a second: 1 + 4 · (2 + 4 / 4)", 4, {1, 2, 3, 4}, {4, 4, 4, 4}, 4, 2, 4, 13},
    {"two buckets, the first done: 4 + 1 + 8 / 8", 4, {1, 2, 3, 4}, {4, 4, 4, 4}, 8, 1, 8, 6},
    {"two buckets, the second waits: 2 + 2 · (1 + 8 / 4)", 4, {1, 2, 3, 4}, {4, 4, 4, 4}, 8, 1, 4, 8},
    {"5 bytes a bucket: a piece fills none, two are more", 4, {1, 2, 3, 4}, {4, 4, 4, 4}, 5, 1, 8, 6},
    {"a rest of one piece: 3 + 1 + 4 / 4", 3, {1, 2, 3}, {4, 4, 4}, 8, 0, 8, 3.5},
    {"a large piece alone, then a small one", 2, {1, 9}, {64, 4}, 8, 1, 8, 11.5},
    {"pieces complete together", 3, {5, 5, 5}, {4, 4, 4}, 4, 1, 4, 11},
};

// A walk of 6 ms that completes 180 pieces of a megabyte, reduced at 256 GB/s.
static void ask(void) {
  enum { PIECES = 180 };
  static const double megabytes[] = {1, 2, 3, 6, 10, 12, 15, 20, 30, 60, 90, 180};
  double ready[PIECES], bytes[PIECES];
  for (int i = 0; i < PIECES; i++) {
    ready[i] = 6e-3 * (i + 1) / PIECES;
    bytes[i] = 1e6;
  }
  for (int i = 0; i < (int)(sizeof megabytes / sizeof *megabytes); i++) {
    const double bucket = megabytes[i] * 1e6;
    printf("buckets of %3.0f MB: the end is at %.3f ms, with ten times the latency at %.3f ms\n", megabytes[i],
           last_reduction_ends(PIECES, ready, bytes, bucket, 40e-6, 256e9) * 1e3,
           last_reduction_ends(PIECES, ready, bytes, bucket, 400e-6, 256e9) * 1e3);
  }
}

int main(void) {
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
    const double got = last_reduction_ends(cases[i].pieces, cases[i].ready, cases[i].bytes, cases[i].bucket,
                                           cases[i].latency, cases[i].rate);
    if (got != cases[i].end) difference("%s: the last reduction ends at %g, not %g", cases[i].what, got, cases[i].end);
  }
  solved();
  ask();
  return 0;
}
