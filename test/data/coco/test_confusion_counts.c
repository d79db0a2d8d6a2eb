// Catches counts of a confusion matrix in wrong cells, and cells that depend on the order of counting.
#include "base/alloc.h"
#include "base/rng.h"
#include "data/coco/confusion_counts.h"
#include "test/harness/test.h"

// As a whole matrix has them, counted from either end.
TEST(confusion_counts_as_a_matrix) {
  enum { N = 5000, CELLS = 2500, SCORES = 3 };
  int64_t *want = xcalloc(CELLS * SCORES, sizeof *want);
  ConfusionCounts c[2] = {{.scores = SCORES}, {.scores = SCORES}};
  for (int i = 0; i < N; i++)
    for (int k = 0; k < 2; k++) {
      const uint64_t random = rng_key(7, (uint64_t)(k ? N - 1 - i : i));
      const int64_t cell = (int64_t)(random % CELLS);
      const int score = (int)((random >> 32) % SCORES);
      confusion_count(&c[k], cell << 20, score);
      if (!k) want[cell * SCORES + score]++;
    }
  for (int k = 0; k < 2; k++) {
    int64_t sum = 0;
    confusion_counts_sort(&c[k]);
    for (size_t i = 0; i < c[k].cells; i++) {
      EXPECT(i == 0 || c[k].cell[i] > c[k].cell[i - 1]);
      for (int s = 0; s < SCORES; s++) {
        EXPECT_INT(c[k].count[i * SCORES + (size_t)s], want[(c[k].cell[i] >> 20) * SCORES + s]);
        sum += c[k].count[i * SCORES + (size_t)s];
      }
    }
    EXPECT_INT(sum, N);
    confusion_counts_free(&c[k]);
  }
  free(want);
}
