// Catches data of boxes only that cannot be learnt, or whose boxes are learnt or scored as masks.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

static void expect_mistake(const char *says, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void expect_mistake(const char *says, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  expect_mistake_of("", says, fmt, args);
  va_end(args);
}

// The shapes' first two images of each split, with boxes.
static const char *boxes_set(void) {
  static char dir[512];
  static const char *const splits[] = {"train", "val"};
  const char *said;
  snprintf(dir, sizeof dir, "%s", in_tmp("boxes-only"));
  EXPECT_INT(
      command(&said, "mkdir -p %s/annotations && cp -r %s/train %s/val %s", dir, shapes_set(), shapes_set(), dir), 0);
  for (int s = 0; s < COUNT(splits); s++) {
    char *path = xasprintf("%s/annotations/instances_%s.json", dir, splits[s]);
    write_text(path, "{\"categories\":[{\"id\":1,\"name\":\"a\"}],\"images\":["
                     "{\"id\":1,\"file_name\":\"000001.png\",\"width\":64,\"height\":64},"
                     "{\"id\":2,\"file_name\":\"000002.png\",\"width\":64,\"height\":64}],\"annotations\":["
                     "{\"id\":1,\"image_id\":1,\"category_id\":1,\"bbox\":[4,4,30,30],\"segmentation\":[]},"
                     "{\"id\":2,\"image_id\":2,\"category_id\":1,\"bbox\":[9,20,40,30]}]}");
    free(path);
  }
  return dir;
}

TEST_TIER(boxes_only_choose_their_model, 1) {
  const char *said, *dir = boxes_set();
  expect_mistake("no annotation has a segmentation, so tiny cannot learn masks: give --model fasterrcnn-tiny, which ",
                 "%s --data %s --model tiny --device cpu --out %s", tool("train"), dir, in_tmp("boxes-none"));
  expect_mistake("--target-segm is for models with masks, but fasterrcnn-tiny is not one: leave it out",
                 "%s --data %s --model fasterrcnn-tiny --target-segm 0.5", tool("train"), dir);
  EXPECT_INT(command(&said, "%s --data %s --size 64 --device cpu --plan | grep -e --model=", tool("train"), dir), 0);
  EXPECT(strstr(said, "--model=fasterrcnn-r50-fpn  (data)"));
  expect_mistake("_train.json has one: leave it out", "%s --data %s --size 64 --device cpu --paste 0.5 --plan",
                 tool("train"), dir);
  EXPECT_INT(command(&said, "%s --data %s --model tiny --size 64", tool("doctor"), dir), 0);
  EXPECT(strstr(said, " --model fasterrcnn-tiny ") && !strstr(said, "objects without a mask"));
}

TEST_TIER(boxes_only_are_learnt_and_scored, 1) {
  const char *said, *dir = boxes_set();
  char out[512], weights[600];
  snprintf(out, sizeof out, "%s", in_tmp("boxes-run"));
  snprintf(weights, sizeof weights, "%s/model.safetensors", out);
  EXPECT_INT(command(&said, "%s --data %s --model fasterrcnn-tiny --size 64 --iters 2 --batch 1 --device cpu --out %s",
                     tool("train"), dir, out),
             0);
  EXPECT(strstr(said, "bbox AP ") && !strstr(said, "mask AP") && !strstr(said, "without a mask"));
  EXPECT_INT(command(&said, "%s --weights %s --data %s --score 0 --device cpu --eval --out %s", tool("infer"), weights,
                     dir, in_tmp("boxes-found")),
             0);
  EXPECT(strstr(said, "\nbbox\n") && !strstr(said, "\nsegm\n"));
  size_t size;
  char *path = xasprintf("%s/detections.json", in_tmp("boxes-found")), *found = file_read(path, &size, NULL);
  EXPECT(found && strstr(found, "\"bbox\":[") && !strstr(found, "segmentation"));
  free(found);
  free(path);
  expect_mistake("--polygons needs masks, but ", "%s --weights %s --data %s --polygons", tool("infer"), weights, dir);
}
