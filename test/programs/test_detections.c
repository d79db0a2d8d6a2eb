// Catches counts of cells, trees or people that are silently limited to 100.
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/infer.h"
#include "test/harness/test.h"

enum { CATEGORIES = 8, IMAGES_OF_MANY = 3, SIDE = 16 }; // and SIDE × SIDE objects in an image

// The shapes' first images of either split, with many objects on a grid: one of category 1 every four pixels.
static const char *set_of_many(void) {
  static char dir[512];
  static const char *const splits[] = {"train", "val"};
  const char *said;
  if (*dir) return dir;
  snprintf(dir, sizeof dir, "%s", test_kept("many-objects"));
  EXPECT_INT(
      command(&said, "mkdir -p %s/annotations && cp -r %s/train %s/val %s", dir, shapes_set(), shapes_set(), dir), 0);
  for (int s = 0; s < COUNT(splits); s++) {
    char *path = xasprintf("%s/annotations/instances_%s.json", dir, splits[s]);
    FILE *f = fopen(path, "w");
    CHECK(f);
    fprintf(f, "{\"categories\":[");
    for (int k = 1; k <= CATEGORIES; k++) fprintf(f, "%s{\"id\":%d,\"name\":\"kind %d\"}", k > 1 ? "," : "", k, k);
    fprintf(f, "],\"images\":[");
    for (int i = 1; i <= IMAGES_OF_MANY; i++)
      fprintf(f, "%s{\"id\":%d,\"file_name\":\"%06d.png\",\"width\":64,\"height\":64}", i > 1 ? "," : "", i, i);
    fprintf(f, "],\"annotations\":[");
    for (int k = 0; k < IMAGES_OF_MANY * SIDE * SIDE; k++) {
      const int x = k % SIDE * 4, y = k / SIDE % SIDE * 4;
      fprintf(f,
              "%s{\"id\":%d,\"image_id\":%d,\"category_id\":1,\"iscrowd\":0,\"area\":9,\"bbox\":[%d,%d,3,3],"
              "\"segmentation\":[[%d,%d,%d,%d,%d,%d,%d,%d]]}",
              k ? "," : "", k + 1, 1 + k / (SIDE * SIDE), x, y, x, y, x + 3, y, x + 3, y + 3, x, y + 3);
    }
    fprintf(f, "]}");
    CHECK(!fclose(f));
    free(path);
  }
  return dir;
}

static int count_of(const char *text, const char *part) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, part)); at++) n++;
  return n;
}

static int train(const char **said, const char *out, const char *more) {
  return command(said, "%s --data %s --model tiny --size 64 --iters 2 --batch 1 --device cpu --out %s %s",
                 tool("train"), set_of_many(), in_tmp(out), more);
}

static int infer(const char **said, const char *weights, const char *out, const char *more) {
  return command(said, "%s --weights %s/model.safetensors --data %s --score 0 --overlays 0 --device cpu --out %s %s",
                 tool("infer"), in_tmp(weights), set_of_many(), in_tmp(out), more);
}

static int found_in(const char *out) {
  char *path = xasprintf("%s/detections.json", in_tmp(out));
  const int n = results_in(path);
  free(path);
  return n;
}

TEST_TIER(detections_up_to_the_limit, 1) {
  static const char data[] = "images with at least 100 objects (the limit on detections per image): 3; 000001.png has "
                             "the most, 256; raise the limit with --detections 300",
                    results[] = "images at the limit of 100 detections: 3 of 3; objects may be missing; "
                                "raise the limit with --detections N";
  const char *said;
  EXPECT_INT(command(&said, "%s --data %s --model tiny", tool("doctor"), set_of_many()), 0);
  EXPECT(count_of(said, data) == 2 && strstr(said, " --detections 300") &&
         strstr(said, " --proposals 600 --set roi_batch=1200 "));
  EXPECT(count_of(said, "images with more objects than a training step samples of an image, 12: 3; --set roi_batch") ==
         1);
  EXPECT_INT(train(&said, "hundred", ""), 0);
  EXPECT(count_of(said, data) == 2);
  EXPECT_INT(infer(&said, "hundred", "hundred-found", "--eval"), 0);
  EXPECT(count_of(said, data) == 1 && strstr(said, results));
  EXPECT_INT(found_in("hundred-found"), 300);
  EXPECT_INT(infer(&said, "hundred", "more-found", "--detections 250 --eval"), 0);
  EXPECT(!strstr(said, data) && !strstr(said, results));
  EXPECT(strstr(said, "images at the limit of 250 detections: 3 of 3"));
  EXPECT(strstr(said, "maxDets=100 ] = ") && strstr(said, "maxDets=250 ] = ") && strstr(said, "(maxDets 250)"));
  EXPECT_INT(found_in("more-found"), 750);
  EXPECT_INT(infer(&said, "hundred", "fewer-found", "--detections 7"), 0);
  EXPECT_INT(found_in("fewer-found"), 21);
  EXPECT_INT(infer(&said, "hundred", "proposals-found", "--proposals 2"), 0);
  const int found = found_in("proposals-found"); // two of each category at most
  EXPECT(found > 0 && found <= IMAGES_OF_MANY * 2 * CATEGORIES);
}

// What training is told is in the weights, in the plan and in run.json, and a resumed run keeps it.
TEST_TIER(detections_are_the_weights, 1) {
  const char *said;
  size_t size;
  EXPECT_INT(train(&said, "three-hundred", "--detections 300 --proposals 600 --set roi_batch=96"), 0);
  EXPECT(!strstr(said, "limit on detections") && strstr(said, "(maxDets 300)"));
  char *record = xasprintf("%s/run.json", in_tmp("three-hundred")), *facts = file_read(record, &size, NULL);
  EXPECT(facts && strstr(facts, "\"detections\":{\"value\":300,\"from\":\"given\"}"));
  EXPECT(facts && strstr(facts, "\"proposals\":{\"value\":600,\"from\":\"given\"}"));
  EXPECT_INT(infer(&said, "three-hundred", "three-hundred-found", ""), 0);
  EXPECT_INT(found_in("three-hundred-found"), 900);
  EXPECT_INT(train(&said, "three-hundred", "--resume --iters 3 --proposals 600 --set roi_batch=96"), 2);
  EXPECT(strstr(said, "its model has detections = 300, but this run's has 100"));
  EXPECT_INT(train(&said, "planned", "--plan --detections 300"), 0);
  EXPECT(strstr(said, "box_roi_align[500,7,7,48]") && strstr(said, "mask_roi_align[300,14,14,48]") &&
         strstr(said, "--max-size or --detections)"));
  EXPECT_INT(train(&said, "planned", "--plan"), 0);
  EXPECT(strstr(said, "mask_roi_align[100,14,14,48]") && !strstr(said, "or --detections)"));
  // A quarter of the RoIs learn masks.
  EXPECT(strstr(said, "box_roi_align[48,7,7,48]") && strstr(said, "mask_roi_align[12,14,14,48]"));
  EXPECT_INT(train(&said, "planned", "--plan --set roi_batch=600"), 0);
  EXPECT(strstr(said, "box_roi_align[600,7,7,48]") && strstr(said, "mask_roi_align[150,14,14,48]") &&
         strstr(said, "--max-size or --set roi_batch)"));
  free(record);
  free(facts);
}
