// Catches classes in the wrong order of probability, or of another image.
#include "classification/class_outputs.h"
#include "test/harness/test.h"

static ClassRow row_of(const float *probs, int classes) {
  Device dev = {.real = F32};
  const Engine e = {.dev = &dev, .config = {.classes = classes}};
  return classify_row(&e, &(Classified){.probs = probs}, 0);
}

static void expect_top(const ClassRow *row, const int *want) {
  for (int i = 0; i < TOP_CLASSES; i++) EXPECT_INT(row->top[i], want[i]);
}

TEST(classify_sorts_by_probability) {
  const float seven[] = {0.1f, 0.3f, 0.05f, 0.2f, 0.15f, 0.16f, 0.04f};
  ClassRow row = row_of(seven, 7);
  expect_top(&row, (int[]){1, 3, 5, 4, 0});
  EXPECT(row.prob[0] == 0.3f && row.prob[4] == 0.1f);
  const float three[] = {0.2f, 0.2f, 0.6f};
  row = row_of(three, 3);
  expect_top(&row, (int[]){2, 0, 1, -1, -1}); // ties by the lowest
  EXPECT(row.prob[3] == 0 && row.prob[4] == 0);
  const float odd[] = {1, NAN, INFINITY, NAN, 0, 0};
  row = row_of(odd, 6);
  expect_top(&row, (int[]){1, 3, 2, 0, 4});
}

// The second image of a batch, in double.
TEST(classify_reads_its_row) {
  Device dev = {.real = F64};
  const Engine e = {.dev = &dev, .config = {.classes = 2}};
  const double probs[] = {0.9, 0.1, 0.25, 0.75};
  const ClassRow row = classify_row(&e, &(Classified){.probs = probs}, 1);
  EXPECT(row.top[0] == 1 && row.top[1] == 0 && row.prob[0] == 0.75f);
}
