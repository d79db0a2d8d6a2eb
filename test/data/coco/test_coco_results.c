// Catches result files that do not read back as they were written, and bad ones that are accepted.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "data/coco/coco.h"
#include "test/harness/fixtures.h"
#include "test/harness/test.h"

static const char *text_file(const char *name, const char *text) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", test_tmp(), name);
  FILE *f = fopen(path, "w");
  CHECK(f && fputs(text, f) >= 0 && !fclose(f));
  return path;
}

static bool same_result(const CocoResult *a, const CocoResult *b) {
  return a->image_id == b->image_id && a->category_id == b->category_id && a->score == b->score &&
         a->has_bbox == b->has_bbox && a->has_segm == b->has_segm && memcmp(a->bbox, b->bbox, sizeof a->bbox) == 0 &&
         a->rle.h == b->rle.h && a->rle.w == b->rle.w && a->rle.n == b->rle.n &&
         (a->rle.n == 0 || memcmp(a->rle.runs, b->rle.runs, (size_t)a->rle.n * sizeof *a->rle.runs) == 0);
}

static void check_round_trip(const char *path, int count) {
  CocoResults loaded, again;
  Err err;
  if (!EXPECT(coco_results_load(&loaded, path, NULL, &err))) {
    printf("  %s\n", err.msg);
    return;
  }
  EXPECT_INT(loaded.n, count);
  char *copy = xasprintf("%s/saved.json", test_tmp());
  EXPECT(coco_results_save(&loaded, copy, &err));
  if (EXPECT(coco_results_load(&again, copy, NULL, &err)) && EXPECT_INT(again.n, loaded.n))
    for (int i = 0; i < loaded.n; i++) EXPECT(same_result(&loaded.items[i], &again.items[i]));
  coco_results_free(&loaded);
  coco_results_free(&again);
  free(copy);
}

TEST(coco_results_survive_saving) {
  const char *boxes = shared_path("cocoeval/cocoapi_val2014_100/dt_bbox.json");
  const char *masks = shared_path("cocoeval/cocoapi_val2014_100/dt_segm.json");
  if (boxes && masks) {
    check_round_trip(boxes, 734);
    check_round_trip(masks, 734);
  }
  const char *text = "{\"detections\":[{\"image_id\":-4,\"category_id\":2,\"score\":0.1,\"bbox\":[1e-7,-0.3,1e22,4]},"
                     "{\"image_id\":5,\"category_id\":2,\"score\":1,\"segmentation\":{\"size\":[100,100],"
                     "\"counts\":[100,28,9872]}}],\"other\":[1]}";
  check_round_trip(text_file("two.json", text), 2);
  check_round_trip(text_file("none.json", "[]"), 0);
}

// The run-length alphabet holds a backslash, which JSON escapes.
TEST(coco_results_escape_counts) {
  uint32_t runs[] = {0, 44 + 32 * 12, 10000 - 44 - 32 * 12};
  CocoResult item = {.has_segm = true, .score = 0.5, .rle = {.h = 100, .w = 100, .n = COUNT(runs), .runs = runs}};
  char *counts = rle_to_string(&item.rle);
  EXPECT(strchr(counts, '\\') != NULL);
  free(counts);
  char *path = xasprintf("%s/escape.json", test_tmp());
  CocoResults saved = {.items = &item, .n = 1}, loaded;
  Err err;
  EXPECT(coco_results_save(&saved, path, &err));
  if (EXPECT(coco_results_load(&loaded, path, NULL, &err))) EXPECT(same_result(&loaded.items[0], &item));
  coco_results_free(&loaded);
  item.score = NAN;
  EXPECT(!coco_results_save(&saved, path, &err));
  EXPECT(strstr(err.msg, "detection 1 has a bbox or score that is not finite"));
  free(path);
}

// How many detections a file holds; -1 when it cannot be read.
static int results_in(const char *path) {
  CocoResults r;
  Err err;
  if (!coco_results_load(&r, path, NULL, &err)) return -1;
  int n = r.n;
  coco_results_free(&r);
  return n;
}

// After every image the file is whole under its other name, and what stood there before is replaced at the end only.
TEST(coco_results_grow) {
  char *path = xasprintf("%s/grown.json", test_tmp()), *part = xasprintf("%s.partial", path);
  CocoResult item[] = {{.score = 0.5, .has_bbox = true, .bbox = {1, 2, 3, 4}}, {.score = 1, .has_bbox = true}};
  CocoWriter w;
  Err err;
  EXPECT(coco_results_save(&(CocoResults){.items = item, .n = 1}, path, &err));
  if (!EXPECT(coco_writer_open(&w, path, &err))) return;
  EXPECT_STR(w.grown.partial, part);
  EXPECT_INT(results_in(part), 0);
  for (int n = 0; n <= 2; n++) EXPECT(coco_writer_add(&w, item, n, &err));
  EXPECT_INT(results_in(part), 3);
  item[1].bbox[3] = NAN;
  EXPECT(!coco_writer_add(&w, item, 2, &err));
  EXPECT(strstr(err.msg, "/grown.json: detection 5 has a bbox or score that is not finite"));
  EXPECT_INT(results_in(part), 3);
  EXPECT_INT(results_in(path), 1);
  coco_writer_keep(&w);
  EXPECT_INT(results_in(part), 3);
  EXPECT(coco_writer_open(&w, path, &err) && coco_writer_add(&w, item, 1, &err) && coco_writer_add(&w, item, 1, &err));
  EXPECT(coco_writer_commit(&w, &err));
  EXPECT_INT(results_in(path), 2);
  EXPECT(!path_is_file(part));
  free(path);
  free(part);
}

// A file that may not grow, as on a full disk, holds what fitted.
TEST(coco_results_keep_what_fitted) {
  char *path = xasprintf("%s/fitted.json", test_tmp()), *part = xasprintf("%s.partial", path);
  uint32_t runs[4000];
  for (int i = 0; i < COUNT(runs); i++) runs[i] = 3;
  CocoResult item = {.score = 0.5, .has_segm = true, .rle = {.h = 100, .w = 120, .n = COUNT(runs), .runs = runs}};
  fflush(stdout);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CocoWriter w;
    Err err;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){10000, 10000}) && coco_writer_open(&w, path, &err));
    int added = 0;
    while (coco_writer_add(&w, &item, 1, &err)) added++;
    bool said = strstr(err.msg, "/fitted.json.partial: File too large");
    coco_writer_keep(&w);
    _exit(said ? added : 100);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) > 0 && WEXITSTATUS(status) == results_in(part));
  free(path);
  free(part);
}

TEST(coco_results_take_polygons_at_image_size) {
  Coco gt;
  Err err;
  CocoResults r;
  const char *image = "{\"images\":[{\"id\":3,\"height\":4,\"width\":5}]}";
  EXPECT(coco_load(&gt, text_file("gt.json", image), &err));
  const char *text = "[{\"image_id\":3,\"category_id\":1,\"score\":0.5,\"segmentation\":[[0,0,2,0,2,2,0,2]]}]";
  if (EXPECT(coco_results_load(&r, text_file("dt.json", text), &gt, &err))) {
    EXPECT(r.items[0].has_segm && !r.items[0].has_bbox && r.items[0].rle.h == 4 && r.items[0].rle.w == 5);
    EXPECT_INT((long long)rle_area(&r.items[0].rle), 4);
  }
  coco_results_free(&r);
  coco_free(&gt);
}

TEST(coco_results_reject) {
  static const struct {
    const char *text, *message; // after the path
  } cases[] = {
      {"{}", ": expected an array of detections or an object with \"detections\""},
      {"3", ":1:1: expected '[', found '3'"},
      {"[{\"image_id\":1,\"category_id\":1,\"bbox\":[1,2,3,4]}]", ": detection 1, of image 1, has no score"},
      {"[{\"image_id\":1,\"category_id\":1,\"score\":1}]",
       ": detection 1, of image 1, has no bbox or valid segmentation"},
      {"[{\"image_id\":1,\"category_id\":1,\"score\":NaN}]", ":1:40: expected a number, found 'NaN'"},
      {"[{\"image_id\":1,\"score\":1}]", ":1:26: an annotation or detection without image_id or category_id"},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    CocoResults r;
    Err err = {0};
    EXPECT(!coco_results_load(&r, text_file("dt.json", cases[i].text), NULL, &err));
    char *want = xasprintf("%s/dt.json%s", test_tmp(), cases[i].message);
    EXPECT_STR(err.msg, want);
    free(want);
    EXPECT(r.n == 0 && !r.items);
  }
}
