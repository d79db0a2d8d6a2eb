// Catches precision, recall and confusion tables computed or printed wrongly.
#include <math.h>
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "data/coco/confusion.h"
#include "test/harness/test.h"

static const int64_t counts[] = {8, 2, 0, 1, 4, 0, 0, 0, 0}, nine[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
static const char *const names[] = {"cat", "a<b>&\"\x01\xff", "nobody"};
static const Confusion three = {.classes = 3, .cells = COUNT(nine), .cell = nine, .count = counts, .name = names};

static char *in_folder(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", test_tmp(), name);
  return path;
}

static char *printed(const Confusion *c) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  confusion_print(f, c);
  text_close(f);
  return text;
}

TEST(confusion_figures_of_a_class) {
  ClassFigures *of = confusion_figures(&three);
  const ClassFigures cat = of[0], second = of[1], nobody = of[2];
  free(of);
  EXPECT(cat.images == 10 && cat.predicted == 9 && cat.right == 8);
  EXPECT_NEAR(cat.precision, 8.0 / 9, 1e-15);
  EXPECT_NEAR(cat.recall, 0.8, 1e-15);
  EXPECT_NEAR(cat.f1, 16.0 / 19, 1e-15);
  EXPECT(second.images == 5 && second.predicted == 6 && second.right == 4);
  EXPECT(isnan(nobody.precision) && isnan(nobody.recall) && isnan(nobody.f1) && !nobody.images);
  EXPECT_INT(confusion_images(&three), 15);
  EXPECT_INT(confusion_right(&three), 12);
}

// The commonest first, the lowest truth and prediction among equals, however many are kept.
TEST(confusion_lists_the_commonest_mistakes) {
  static const int64_t count[] = {9, 3, 1, 3, 9, 3, 0, 5, 9};
  const Confusion c = {.classes = 3, .cells = COUNT(nine), .cell = nine, .count = count};
  static const Mistake want[] = {{2, 1, 5}, {0, 1, 3}, {1, 0, 3}, {1, 2, 3}, {0, 2, 1}};
  for (int most = 1; most <= 6; most++) {
    Mistake got[6];
    if (!EXPECT_INT(confusion_mistakes(&c, got, most), MIN(most, 5))) continue;
    for (int i = 0; i < MIN(most, 5); i++)
      EXPECT(got[i].truth == want[i].truth && got[i].predicted == want[i].predicted && got[i].images == want[i].images);
  }
}

TEST(confusion_as_text) {
  char *text = printed(&three);
  EXPECT_STR(text, "top-1 80.00 %: 12 of 15 images of 3 classes\n\n"
                   "rows: true class; columns: predicted class\n"
                   "           0 1 2     recall  precision\n"
                   "0 cat      8 2 .    80.00 %    88.89 %\n"
                   "1 a<b>&\"?? 1 4 .    80.00 %    66.67 %\n"
                   "2 nobody   . . .          -          -\n");
  free(text);
}

// Thirty-one classes, a table of which nobody reads: class 7 is always taken for 3, and 9 at times for 30.
TEST(confusion_of_many_classes_as_text) {
  enum { N = 31 };
  int64_t count[N * N] = {0}, cell[N * N];
  for (int i = 0; i < N * N; i++) cell[i] = i;
  for (int i = 0; i < N; i++) count[i * N + i] = 10;
  count[7 * N + 7] = 0;
  count[7 * N + 3] = 4;
  count[9 * N + 30] = 2;
  const Confusion c = {.classes = N, .cells = COUNT(cell), .cell = cell, .count = count};
  char *text = printed(&c);
  EXPECT(strstr(text, "top-1 98.04 %: 300 of 306 images of 31 classes\n"));
  EXPECT(strstr(text, "   0.00 %          -       4  7\n"));
  EXPECT(strstr(text, "  83.33 %   100.00 %      12  9\n"));
  EXPECT(strstr(text, "       4   100.00 %  7                         3\n"));
  EXPECT(strstr(text, "       2    16.67 %  9                         30\n"));
  EXPECT(!strstr(text, "rows: true class"));
  free(text);
}

TEST(confusion_as_json) {
  Err err;
  char *path = in_folder("confusion.json");
  if (!EXPECT(confusion_json(path, &three, &err))) return;
  size_t size;
  char *text = file_read(path, &size, &err);
  EXPECT_STR(text, "{\"classes\":3,\"images\":15,\"right\":12,\"top1\":0.8,\"class\":["
                   "{\"name\":\"cat\",\"images\":10,\"predicted\":9,\"right\":8,\"precision\":0.8888888888888888,"
                   "\"recall\":0.8,\"f1\":0.8421052631578947},"
                   "{\"name\":\"a<b>&\\\"\\u0001\\ufffd\",\"images\":5,\"predicted\":6,\"right\":4,"
                   "\"precision\":0.6666666666666666,\"recall\":0.8,\"f1\":0.7272727272727273},"
                   "{\"name\":\"nobody\",\"images\":0,\"predicted\":0,\"right\":0,\"precision\":null,"
                   "\"recall\":null,\"f1\":null}],\"matrix\":[[8,2,0],[1,4,0],[0,0,0]]}\n");
  Json j;
  json_open(&j, path, text, size);
  json_skip(&j);
  EXPECT(json_done(&j));
  json_close(&j);
  free(text);
}

TEST(confusion_writes_its_files) {
  // Nothing was evaluated.
  EXPECT(confusion_write(test_tmp(), &(Confusion){.classes = 2}, NULL));
  char *text = printed(&(Confusion){.classes = 2});
  EXPECT(strstr(text, "0 of 0 images"));
  free(text);
  Err err;
  EXPECT(!confusion_write("/nowhere/at/all", &three, &err) && strstr(err.msg, "/nowhere/at/all"));
}

// Of a detector: three objects and four detections of two classes; the background is no class, and has no figures.
TEST(confusion_with_background) {
  static const int64_t count[] = {1, 1, 0, 0, 0, 1, 2, 0, 0};
  static const char *const two[] = {"cat", "dog"};
  const Confusion c = {
      .classes = 3, .cells = COUNT(nine), .cell = nine, .count = count, .name = two, .background = true, .rule = "all"};
  EXPECT_INT(confusion_images(&c), 3);
  EXPECT_INT(confusion_detections(&c), 4);
  ClassFigures *of = confusion_figures(&c);
  const ClassFigures cat = of[0], none = of[2];
  free(of);
  EXPECT(cat.images == 2 && cat.predicted == 3 && cat.right == 1 && none.images == 2 && none.predicted == 1);
  EXPECT(isnan(none.recall) && isnan(none.precision) && isnan(none.f1));
  char *text = printed(&c);
  EXPECT_STR(text, "recall 33.33 %: 1 of 3 objects of 2 classes; precision 25.00 %: 1 of 4 detections; all\n\n"
                   "rows: true class; columns: detected class\n"
                   "             0 1 2     recall  precision\n"
                   "0 cat        1 1 .    50.00 %    33.33 %\n"
                   "1 dog        . . 1     0.00 %     0.00 %\n"
                   "2 background 2 . .          -          -\n");
  free(text);
  Err err;
  if (!EXPECT(confusion_write(test_tmp(), &c, &err))) return;
  size_t size;
  text = file_read(in_folder("confusion.json"), &size, &err);
  EXPECT_STR(text, "{\"classes\":2,\"objects\":3,\"detections\":4,\"right\":1,\"recall\":0.3333333333333333,"
                   "\"precision\":0.25,\"rule\":\"all\",\"class\":["
                   "{\"name\":\"cat\",\"objects\":2,\"detections\":3,\"right\":1,\"precision\":0.3333333333333333,"
                   "\"recall\":0.5,\"f1\":0.4},"
                   "{\"name\":\"dog\",\"objects\":1,\"detections\":1,\"right\":0,\"precision\":0,\"recall\":0,"
                   "\"f1\":0}],\"matrix\":[[1,1,0],[0,0,1],[2,0,0]]}\n");
  free(text);
}

// Whether zeros are among the cells or not, it is the same matrix.
TEST(confusion_by_cells) {
  static const int64_t cell[] = {0, 1, 3, 4, 7}, count[] = {8, 2, 1, 4, 0};
  Confusion whole = three;
  whole.background = true;
  const Confusion cells = {
      .classes = 3, .count = count, .cell = cell, .cells = COUNT(cell), .name = names, .background = true};
  Mistake mistake[4];
  char *want = printed(&whole), *got = printed(&cells);
  EXPECT_STR(got, want);
  EXPECT_INT(confusion_mistakes(&cells, mistake, COUNT(mistake)), 2);
  EXPECT(mistake[0].images == 2 && mistake[1].truth == 1 && mistake[1].predicted == 0);
  EXPECT(confusion_write(test_tmp(), &whole, NULL));
  free(want);
  free(got);
  size_t size;
  want = file_read(in_folder("confusion.json"), &size, NULL);
  EXPECT(confusion_write(test_tmp(), &cells, NULL));
  got = file_read(in_folder("confusion.json"), &size, NULL);
  EXPECT_STR(got, want);
  free(want);
  free(got);
}

// A matrix of ten thousand classes would be 200 MB of zeros.
TEST(confusion_of_many_classes_as_cells) {
  for (int background = 0; background < 2; background++)
    for (int many = 0; many < 2; many++) {
      const int n = 1000 + many + background;
      const int64_t cell[] = {0, n - 1, (int64_t)n * n - 2}, count[] = {5, 3, 2};
      const Confusion c = {.classes = n, .cells = 3, .cell = cell, .count = count, .background = background};
      EXPECT(confusion_json(in_folder("many.json"), &c, NULL));
      char *text = file_read(in_folder("many.json"), &(size_t){0}, NULL), want[64];
      snprintf(want, sizeof want, "],\"cells\":[[0,0,5],[0,%d,3],[%d,%d,2]]}\n", n - 1, n - 1, n - 2);
      EXPECT(text && !strstr(text, "\"matrix\":[[5,0,0,") == (bool)many && (strstr(text, want) != NULL) == (bool)many);
      free(text);
    }
}
