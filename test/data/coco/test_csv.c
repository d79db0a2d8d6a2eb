// Catches tables that a spreadsheet reads otherwise than they were meant, or computes.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/coco/csv.h"
#include "test/harness/test.h"

static void expect_file(const char *folder, const char *name, const char *want) {
  Err err;
  size_t size;
  char *path = xasprintf("%s/%s", folder, name), *text = file_read(path, &size, &err);
  if (EXPECT(text != NULL)) EXPECT_STR(text, want);
  free(text);
  free(path);
}

static uint32_t ring_runs[] = {6, 3, 2, 1, 1, 1, 2, 3, 6};
static const CocoResult found[] = {{.category_id = 7,
                                    .score = 0.5,
                                    .has_bbox = true,
                                    .bbox = {-1.5, 1, 3, 3},
                                    .has_segm = true,
                                    .rle = {.h = 5, .w = 5, .n = COUNT(ring_runs), .runs = ring_runs}},
                                   {.category_id = 9, .score = 0.25, .has_bbox = true, .bbox = {0, 0, 1.5, 1}}};

TEST(csv_of_objects_and_counts) {
  static const ResultClass class[] = {{7, "cat, \"x\""}, {9, NULL}, {11, "=1+1"}};
  char *folder = xasprintf("%s/csv", test_tmp());
  CsvWriter w;
  Err err;
  CHECK(dirs_make(folder, &err));
  if (!EXPECT(csv_open(&w, folder, &(ResultClasses){class, COUNT(class)}, &err))) return;
  EXPECT(csv_add(&w, &(ResultImage){.id = 3, .file_name = "a/b,c.jpg", .h = 5, .w = 6}, found, 2, &err));
  EXPECT(csv_add(&w, &(ResultImage){.id = 4, .file_name = "empty.jpg", .h = 1, .w = 2}, NULL, 0, &err));
#define COUNTS                                                                                                         \
  "file_name,image_id,width,height,count,area,\"cat, \"\"x\"\"\",9,'=1+1\r\n\"a/b,c.jpg\",3,6,5,2,9.5,1,1,0\r\n"
  expect_file(folder, "counts.csv.partial", COUNTS "empty.jpg,4,2,1,0,0,0,0,0\r\n");
  EXPECT_INT(w.n, 2);
  EXPECT(csv_commit(&w, &err));
  expect_file(folder, "counts.csv", COUNTS "empty.jpg,4,2,1,0,0,0,0,0\r\n");
  expect_file(folder, "detections.csv",
              "file_name,image_id,category,category_id,score,area,x,y,width,height\r\n"
              "\"a/b,c.jpg\",3,\"cat, \"\"x\"\"\",7,0.5,8,-1.5,1,3,3\r\n"
              "\"a/b,c.jpg\",3,,9,0.25,1.5,0,0,1.5,1\r\n");
  free(folder);
}

// What a spreadsheet would compute is text; with one class there is no column for it.
TEST(csv_computes_nothing) {
  static const struct {
    const char *name, *field;
  } cases[] = {{"=cmd|' /C calc'!A0.png", "'=cmd|' /C calc'!A0.png"},
               {"+1.png", "'+1.png"},
               {"-1.png", "'-1.png"},
               {"@a.png", "'@a.png"},
               {"\ta.png", "'\ta.png"},
               {"\ra.png", "\"'\ra.png\""},
               {"\n=1", "\"'\n=1\""},
               {" =1", "\"' =1\""},
               {"a=1.png", "a=1.png"},
               {"a\"b.png", "\"a\"\"b.png\""},
               {"a\nb.png", "\"a\nb.png\""},
               {"", ""},
               {" ", "\" \""}};
  static const ResultClass class[] = {{1, "cell"}};
  char *folder = xasprintf("%s/csv-names", test_tmp());
  Err err;
  CHECK(dirs_make(folder, &err));
  for (int i = 0; i < COUNT(cases); i++) {
    CsvWriter w;
    if (!EXPECT(csv_open(&w, folder, &(ResultClasses){class, 1}, &err))) continue;
    EXPECT(csv_add(&w, &(ResultImage){.id = 1, .file_name = cases[i].name, .h = 2, .w = 3}, NULL, 0, &err));
    char *want = xasprintf("file_name,image_id,width,height,count,area\r\n%s,1,3,2,0,0\r\n", cases[i].field);
    expect_file(folder, "counts.csv.partial", want);
    csv_abort(&w);
    free(want);
  }
  free(folder);
}
