// Catches accuracy and confusion counts of a data set that do not follow from the network's answers.
#include "classification/classify.h"
#include "classification/data/class_objects.h"
#include "classification/data/classes.h"
#include "data/batches/objects.h"
#include "evaluation/task.h"
#include "test/harness/test.h"

// ---- counts ---------------------------------------------------------------------------------------------------------

enum { IMAGES = 5, CLASSES = 3 };

TEST(classify_counts_hits_and_confusions) {
  Object object[IMAGES] = {{.label = 0}, {.label = 1}, {.label = 2}, {.label = 2}, {.label = 1}};
  ClassRow row[IMAGES] = {{.top = {0, 1, 2, -1, -1}},
                          {.top = {2, 0, 1, -1, -1}},
                          {.top = {2, 1, 0, -1, -1}},
                          {.top = {0, 1, -1, -1, -1}}, // not among those that are there
                          {.top = {1, 0, 2, -1, -1}}};
  bool read[IMAGES] = {true, true, true, true, false};
  CocoImage image[IMAGES] = {
      {.file_name = "a"}, {.file_name = "b"}, {.file_name = "c"}, {.file_name = "d"}, {.file_name = "e"}};
  int image_of[IMAGES] = {0, 1, 2, 3, 4}, first_object[IMAGES + 1] = {0, 1, 2, 3, 4, 5};
  const Dataset d = {.coco = {.images = image, .num_images = IMAGES},
                     .num_images = IMAGES,
                     .image = image_of,
                     .first_object = first_object,
                     .object = object,
                     .classes = CLASSES};
  Classification c = {.classes = CLASSES, .row = row, .read = read, .images = 4, .left_out = 1};
  const ClassScores s = classify_score(&d, &c);
  EXPECT(s.top1 == 2 && s.top5 == 3 && s.images == 4);
  ConfusionCounts counts = classify_confusion(&d, &c);
  static const int64_t want[] = {0, 5, 6, 8};
  if (EXPECT_INT(counts.cells, COUNT(want)))
    for (int i = 0; i < COUNT(want); i++) EXPECT(counts.cell[i] == want[i] && counts.count[i] == 1);
  confusion_counts_free(&counts);
  c.classes = 1 << 16; // a whole matrix would be 34 GB
  counts = classify_confusion(&d, &c);
  EXPECT(counts.cells == 4 && counts.cell[3] == (2LL << 16) + 2);
  confusion_counts_free(&counts);
  c.classes = CLASSES;
  Metrics m;
  Err err;
  EXPECT(task_classification.score(&d, &c, &m, &err));
  EXPECT(m.n == 2 && m.metric[0].value == 0.5 && m.metric[1].value == 0.75 && m.images == 4 && m.left_out == 1);
  EXPECT_STR(m.summary, "top-1 50.00 %  top-5 75.00 %");
}
