// Catches photographs that training, inference and doctor read in different orientations, and silence about it.
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/images/image.h"
#include "test/harness/command.h"
#include "test/harness/exif.h"
#include "test/harness/infer.h"
#include "test/harness/test.h"

// A copy of the set of shapes in which the images of these splits are stored turned, with the orientation that makes
// them upright. Returns its path below test_tmp(), to be freed.
static char *turned_set(const char *name, bool train, bool val, int orientation) {
  char *dir = xasprintf("%s/%s", test_tmp(), name);
  const char *said;
  Err err;
  CHECK(!command(NULL, "cp -r %s %s", shapes_set(), dir));
  CHECK(!command(&said, "find %s/%s -name '*.png'", dir, train && val ? "." : train ? "train" : "val"));
  char *names = xstrdup(said);
  for (char *rest, *path = strtok_r(names, "\n", &rest); path; path = strtok_r(NULL, "\n", &rest)) {
    Image im;
    CHECK(image_load(&im, path, &err));
    exif_write_png(path, &im, orientation);
    image_free(&im);
  }
  free(names);
  return dir;
}

static char *weights_of(const char *run) { return xasprintf("%s/%s/checkpoint.safetensors", test_tmp(), run); }

// ./train for a few steps; its exit status, and all that it said.
static int train_on(const char *dir, const char *out, const char *more, const char **said) {
  return command(said,
                 "env OMP_NUM_THREADS=1 %s --data %s --model tiny --size 64 --batch 2 --iters 2 --detections 20 "
                 "--eval-every never "
                 "--device cpu --out %s/%s %s",
                 tool("train"), dir, test_tmp(), out, more);
}

static int infer_with(const char *weights, const char *out, const char *more, const char **said) {
  return command(said, "env OMP_NUM_THREADS=1 %s --weights %s --device cpu --score 0.01 --out %s/%s %s", tool("infer"),
                 weights, test_tmp(), out, more);
}

// The detections of every copy of an image, in all orientations, are those of the upright one, and so are its pictures.
TEST_TIER(exif_named_images_are_read_upright, 1) {
  char *dir = xasprintf("%s/exif-named", test_tmp());
  char path[1024];
  const char *said;
  Image im, wide;
  Err err;
  CHECK(!command(NULL, "mkdir -p %s", dir));
  snprintf(path, sizeof path, "%s/val/000001.png", shapes_set());
  CHECK(image_load(&im, path, &err));
  wide = image_alloc(40, 64); // both sides differ
  memcpy(wide.rgb, im.rgb, (size_t)3 * 40 * 64);
  for (int o = 1; o <= 8; o++) {
    snprintf(path, sizeof path, "%s/%d.png", dir, o);
    exif_write_png(path, &wide, o);
  }
  image_free(&im);
  image_free(&wide);
  EXPECT_INT(command(&said, "%s --format jsonl --labels %s/exif-labels --crops %s/exif-crops %s",
                     infer_line("exif-named-out"), test_tmp(), test_tmp(), dir),
             0);
  EXPECT(strstr(said, "\nimages with an EXIF orientation (7 of 8) are rotated by it, but training read images as "
                      "stored; --exif no reads them as stored\n"));
  CHECK(!command(&said, "cut -d, -f3- %s | sort | uniq -c", in_tmp("exif-named-out/detections.jsonl")));
  EXPECT(!strncmp(said, "      8 ", 8) && strstr(said, "\"width\":64,\"height\":40,") && strstr(said, "\"bbox\":["));
  for (int o = 2; o <= 8; o++)
    EXPECT_INT(command(NULL,
                       "cd %s && cmp exif-named-out/1.png exif-named-out/%d.png && cmp exif-labels/1.png "
                       "exif-labels/%d.png",
                       test_tmp(), o, o),
               0);
  EXPECT_INT(command(&said, "%s --format jsonl --exif no %s/6.png", infer_line("exif-as-stored"), dir), 0);
  EXPECT(strstr(said, "\nimages with an EXIF orientation (1 of 1) are read as stored, as in training\n"));
  EXPECT_INT(command(NULL, "grep -q '\"width\":40,\"height\":64,' %s", in_tmp("exif-as-stored/detections.jsonl")), 0);
  free(dir);
}

// Trained on turned images with --exif: the weights are those of the upright set, and infer follows them.
TEST_TIER(exif_weights_remember, 1) {
  const char *said;
  char *turned = turned_set("exif-turned", true, true, 6);
  EXPECT_INT(train_on(turned, "exif-run", "--exif", &said), 0);
  EXPECT_INT(train_on(shapes_set(), "exif-plain-run", "", &said), 0);
  char *weights = weights_of("exif-run"), *plain = weights_of("exif-plain-run");
  char *eval = xasprintf("--eval --data %s", turned), *told = xasprintf("--eval --exif no --data %s", turned);
  char *upright = xasprintf("--eval --data %s", shapes_set());
  EXPECT_INT(infer_with(weights, "exif-follows", eval, &said), 0);
  EXPECT(strstr(said, "val: images with an EXIF orientation (6 of 6) are rotated by it, as in training; "
                      "--exif no reads them as stored\n"));
  EXPECT_INT(infer_with(plain, "exif-upright", upright, &said), 0);
  EXPECT(!strstr(said, "EXIF"));
  EXPECT(same_file(in_tmp("exif-follows/detections.json"), in_tmp("exif-upright/detections.json")));
  EXPECT_INT(infer_with(weights, "exif-told", told, &said), 0);
  EXPECT(strstr(said, "val: images with an EXIF orientation (6 of 6) are read as stored, but training rotated "
                      "images by it\n"));
  EXPECT(!same_file(in_tmp("exif-told/detections.json"), in_tmp("exif-upright/detections.json")));
  EXPECT_INT(infer_with(plain, "exif-unlike", eval, &said), 0); // val is turned, what it was trained on is not
  EXPECT(strstr(said, "val: images with an EXIF orientation (6 of 6) are read as stored, as in training; --exif "
                      "yes rotates them\n"));
  // A run that goes on keeps it; one that begins with the weights says what it does differently.
  EXPECT_INT(train_on(turned, "exif-run", "--resume --iters 3 --amend", &said), 2);
  EXPECT(strstr(said, "\"exif\":true"));
  EXPECT_INT(train_on(turned, "exif-run", "--resume --iters 3 --amend --exif", &said), 0);
  char *from = xasprintf("--weights %s", weights), *from_plain = xasprintf("--exif --weights %s", plain);
  EXPECT_INT(train_on(shapes_set(), "exif-tuned", from, &said), 0);
  EXPECT(strstr(said, "was trained on images rotated by their EXIF orientation; this run reads them as stored"));
  EXPECT_INT(train_on(turned, "exif-tuned-too", from_plain, &said), 0);
  EXPECT(strstr(said, "was trained on images as stored; this run rotates them by their EXIF orientation"));
  free(from);
  free(from_plain);
  free(weights);
  free(plain);
  free(eval);
  free(told);
  free(upright);
  free(turned);
}

// A split that is turned while the other is not would be scored, or learnt, as other pictures.
TEST_TIER(exif_one_split_is_turned, 1) {
  static const char says[] = "images with an EXIF orientation, which no image of the other split has: ";
  const char *said;
  for (int val = 0; val < 2; val++) {
    char *dir = turned_set(val ? "exif-val" : "exif-train", !val, val, 3);
    char line[256];
    snprintf(line, sizeof line, "%s: %s%d; read as stored", val ? "val" : "train", says, val ? 6 : 24);
    EXPECT_INT(command(&said, "%s --data %s --model tiny --size 64", tool("doctor"), dir), 1);
    EXPECT(strstr(said, line));
    EXPECT_INT(command(&said, "%s --data %s --model tiny --size 64 --exif", tool("doctor"), dir), 0);
    EXPECT(!strstr(said, says));
    char *out = xasprintf("exif-split-%d", val);
    EXPECT_INT(command(&said,
                       "env OMP_NUM_THREADS=1 %s --data %s --model tiny --size 64 --iters 1 --detections 10 --device "
                       "cpu --out %s/%s",
                       tool("train"), dir, test_tmp(), out),
               0);
    EXPECT(strstr(said, line));
    EXPECT_INT(command(NULL, "test $(grep -c turned %s/%s/defects.tsv) = %d", test_tmp(), out, val ? 6 : 24), 0);
    free(out);
    free(dir);
  }
  char *both = turned_set("exif-both", true, true, 3);
  EXPECT_INT(command(&said, "%s --data %s --model tiny --size 64", tool("doctor"), both), 0);
  EXPECT(!strstr(said, says) && strstr(said, "images with an EXIF orientation, which training ignores as torchvision "
                                             "does: 24 in train, 6 in val; if --html"));
  free(both);
}
