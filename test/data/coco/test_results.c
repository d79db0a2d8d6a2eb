// Catches result files left invalid or incomplete when writing stops.
#include "base/alloc.h"
#include "base/json.h"
#include "data/coco/polygons.h"
#include "data/coco/results.h"
#include "test/harness/test.h"

static const ResultClass class_list[] = {{7, "cat \"x\"\n"}, {9, NULL}};
static const ResultClasses classes = {class_list, COUNT(class_list)};
static uint32_t ring_runs[] = {6, 3, 2, 1, 1, 1, 2, 3, 6}; // of 5 × 5 pixels: a square with a hole
static const CocoResult found[] = {
    {.image_id = 3,
     .category_id = 7,
     .score = 0.5,
     .has_bbox = true,
     .bbox = {1, 1, 3, 3},
     .has_segm = true,
     .rle = {.h = 5, .w = 5, .n = COUNT(ring_runs), .runs = ring_runs}},
    {.image_id = 3, .category_id = 9, .score = 0.25, .has_bbox = true, .bbox = {0, 0, 1.5, 1}},
};
static const ResultImage image = {.id = 3, .file_name = "a/\xff\"b\".jpg", .h = 5, .w = 5};

static void expect_text(const char *path, const char *want) {
  Err err;
  size_t size;
  char *text = file_read(path, &size, &err);
  if (EXPECT(text)) EXPECT_STR(text, want);
  free(text);
}

#define LINE                                                                                                           \
  "{\"image_id\":3,\"file_name\":\"a/\\ufffd\\\"b\\\".jpg\",\"width\":5,\"height\":5,\"detections\":["                 \
  "{\"category\":\"cat \\\"x\\\"\\u000a\",\"category_id\":7,\"bbox\":[1,1,3,3],\"score\":0.5,"                         \
  "\"segmentation\":{\"size\":[5,5],\"counts\":\"632NO0124\"}},"                                                       \
  "{\"category\":\"\",\"category_id\":9,\"bbox\":[0,0,1.5,1],\"score\":0.25}]}\n"
#define EMPTY "{\"image_id\":4,\"file_name\":\"c\",\"width\":1,\"height\":2,\"detections\":[]}\n"

TEST(results_are_lines) {
  char *path = xasprintf("%s/lines.jsonl", test_tmp()), *part = xasprintf("%s.partial", path);
  ResultWriter w;
  Err err;
  if (!EXPECT(results_open(&w, path, RESULTS_JSONL, false, &classes, &err))) return;
  EXPECT_STR(results_partial(&w), part);
  EXPECT(!results_direct(&w));
  expect_text(part, "");
  EXPECT(results_add(&w, &image, found, COUNT(found), &err));
  expect_text(part, LINE);
  EXPECT(results_add(&w, &(ResultImage){.id = 4, .file_name = "c", .h = 2, .w = 1}, NULL, 0, &err));
  expect_text(part, LINE EMPTY);
  EXPECT_INT(w.n, 2);
  CocoResult bad = found[1];
  bad.score = NAN;
  EXPECT(!results_add(&w, &image, &bad, 1, &err) && strstr(err.msg, "lines.jsonl: detection 3 has a bbox or score"));
  expect_text(part, LINE EMPTY);
  EXPECT(results_commit(&w, &err));
  expect_text(path, LINE EMPTY);
  // The next run leaves it alone until it is complete itself.
  EXPECT(results_open(&w, path, RESULTS_JSONL, false, &classes, &err) && results_add(&w, &image, NULL, 0, &err));
  results_keep(&w);
  expect_text(path, LINE EMPTY);
  EXPECT(path_is_file(part));
  EXPECT(results_open(&w, path, RESULTS_JSONL, false, &classes, &err));
  results_abort(&w);
  EXPECT(!path_is_file(part));
  free(path);
  free(part);
}

TEST(results_refuse_an_absent_folder) {
  static const ResultFormat formats[] = {RESULTS_JSONL, RESULTS_COCO};
  char *path = xasprintf("%s/nowhere/results", test_tmp());
  for (int i = 0; i < COUNT(formats); i++) {
    ResultWriter w;
    Err err = {""};
    EXPECT(!results_open(&w, path, formats[i], false, &classes, &err) && strstr(err.msg, "/nowhere/results"));
  }
  free(path);
}

TEST(results_are_an_array) {
  char *path = xasprintf("%s/array.json", test_tmp());
  ResultWriter w;
  Err err;
  CocoResults r;
  if (!EXPECT(results_open(&w, path, RESULTS_COCO, true, &classes, &err))) return;
  EXPECT(results_add(&w, &image, found, COUNT(found), &err) && results_add(&w, &image, NULL, 0, &err));
  for (int i = 0; i < 2; i++) { // before and after the end
    char *at = xstrdup(i ? path : results_partial(&w));
    if (i) EXPECT(results_commit(&w, &err));
    if (EXPECT(coco_results_load(&r, at, NULL, &err))) {
      EXPECT_INT(r.n, 2);
      EXPECT(r.items[0].has_segm && !memcmp(r.items[0].rle.runs, ring_runs, sizeof ring_runs));
    }
    coco_results_free(&r);
    free(at);
  }
  size_t size;
  char *text = file_read(path, &size, &err);
  Contours c = polygons_of(&found[0].rle);
  char *want = xasprintf(",\"polygons\":[[%.0f,%.0f,%.0f,", c.xy[0], c.xy[1], c.xy[2]);
  EXPECT_INT(c.parts, 1);
  EXPECT(text && strstr(text, want) && !strstr(strstr(text, want) + COUNT(",\"polygons"), "polygons"));
  free(want);
  contours_free(&c);
  free(text);
  free(path);
}
