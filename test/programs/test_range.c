// Catches 16-bit images that are trained on, evaluated or shown in another range than the run's.
#include <dirent.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/images/image.h"
#include "data/images/png.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

enum { FACTOR = 16 }; // 12 bits

// Rewrites the PNG files of a folder in 16 bits.
static void deepen(const char *folder) {
  DIR *dir = opendir(folder);
  CHECK(dir);
  for (struct dirent *entry; (entry = readdir(dir));) {
    Image im;
    char *path = xasprintf("%s/%s", folder, entry->d_name);
    if (strstr(entry->d_name, ".png") && EXPECT(image_load(&im, path, NULL))) {
      const size_t n = (size_t)im.h * im.w * 3;
      uint8_t *bytes = xmalloc(2 * n);
      for (size_t i = 0; i < n; i++) {
        bytes[2 * i] = (uint8_t)(im.rgb[i] * FACTOR >> 8);
        bytes[2 * i + 1] = (uint8_t)(im.rgb[i] * FACTOR);
      }
      EXPECT(png_write_pixels(path, &(PngPixels){im.h, im.w, 3, 2, bytes}, PNG_FAST, NULL, NULL));
      free(bytes);
      image_free(&im);
    }
    free(path);
  }
  closedir(dir);
}

// Two sets of the same images, in 8 and in 16 bits.
static void make_sets(const char *kind, char **flat, char **deep) {
  const char *said;
  char *sets[2];
  for (int i = 0; i < 2; i++) {
    char name[32];
    snprintf(name, sizeof name, "range%s-%d", kind, i ? 16 : 8);
    sets[i] = xstrdup(in_tmp(name));
    CHECK(!command(&said, "%s %s --out %s --train 12 --val 6 --size 48 --seed 3", tool("shapes"), kind, sets[i]));
  }
  *flat = sets[0];
  *deep = sets[1];
}

static int train(const char **said, const char *data, const char *out, const char *more) {
  return command(said, "%s --data %s --device cpu --threads 2 --size 48 --iters 4 --batch 2 --out %s %s", tool("train"),
                 data, in_tmp(out), more);
}

static char *tensor(const char *run, const char *name) {
  const char *said;
  EXPECT_INT(command(&said, "%s %s/model.safetensors %s", tool("inspect"), in_tmp(run), name), 0);
  return xstrdup(said);
}

TEST_TIER(program_trains_on_16_bits_as_on_8, 1) {
  static const char name[] = "roi_heads.box_predictor.cls_score.weight";
  const char *said;
  char *flat, *deep, folder[1024];
  make_sets("", &flat, &deep);
  for (int v = 0; v < 2; v++) {
    snprintf(folder, sizeof folder, "%s/%s", deep, v ? "val" : "train");
    deepen(folder);
  }
  EXPECT_INT(train(&said, flat, "range-run-8", "--model tiny --detections 10"), 0);
  EXPECT(!strstr(said, "16-bit"));
  EXPECT_INT(train(&said, deep, "range-run-16", "--model tiny --detections 10 --range 0,4095"), 0);
  EXPECT(!strstr(said, "note: 16-bit"));
  char *of_8 = tensor("range-run-8", name), *of_16 = tensor("range-run-16", name);
  EXPECT_STR(of_16, of_8);
  EXPECT_INT(train(&said, deep, "range-run-type", "--model tiny --detections 10 --range type"), 0);
  EXPECT(strstr(said, "at most 1/16 of the range 0 to 65535: 12 of 12 (") &&
         strstr(said, "at most 1/16 of the range 0 to 65535: 6 of 6 ("));
  char *of_type = tensor("range-run-type", name);
  EXPECT(strcmp(of_type, of_8) != 0);
  // Weights of 8 bits say so, and another range can be given.
  EXPECT_INT(command(&said, "%s --weights %s/model.safetensors %s/val/000001.png --device cpu --out %s", tool("infer"),
                     in_tmp("range-run-8"), deep, in_tmp("range-found-8")),
             0);
  EXPECT(strstr(said, "val/000001.png has 16-bit samples and is nearly black in the range 0,65535; set another"));
  EXPECT_INT(command(&said, "%s --weights %s/model.safetensors %s/val/000001.png --range 0,4095 --device cpu --out %s",
                     tool("infer"), in_tmp("range-run-8"), deep, in_tmp("range-found-given")),
             0);
  EXPECT(!strstr(said, "nearly"));
  EXPECT_INT(command(&said, "%s --weights %s/model.safetensors %s/val/000001.png --range 0,1 --device cpu --out %s",
                     tool("infer"), in_tmp("range-run-8"), deep, in_tmp("range-found-white")),
             0);
  EXPECT(strstr(said, "val/000001.png has 16-bit samples and is nearly white in the range 0,1; set another"));
  EXPECT_INT(command(&said, "%s --weights %s/model.safetensors %s/val/000001.png --device cpu --out %s", tool("infer"),
                     in_tmp("range-run-8"), flat, in_tmp("range-found-flat")),
             0);
  char *given = xstrdup(in_tmp("range-found-given/000001.png")); // the overlay
  EXPECT(same_file(given, in_tmp("range-found-flat/000001.png")));
  char *all[] = {of_8, of_16, of_type, flat, deep, given};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}

TEST_TIER(program_measures_and_keeps_the_range, 1) {
  const char *said;
  char *flat, *deep, folder[1024], option[64], line[128];
  int low, high;
  make_sets("", &flat, &deep);
  snprintf(folder, sizeof folder, "%s/train", deep);
  deepen(folder);
  command(&said, "%s --data %s --size 48", tool("doctor"), deep);
  const char *range = strstr(said, "16 bit      range ");
  if (!EXPECT(range &&
              sscanf(range, "16 bit      range %d to %d, measured on 12 of 12 16-bit images", &low, &high) == 2))
    return;
  EXPECT(low % FACTOR == 0 && high % FACTOR == 0 && low < high && high <= 255 * FACTOR);
  snprintf(option, sizeof option, " --range %d,%d", low, high);
  EXPECT(strstr(said, option));
  EXPECT_INT(train(&said, deep, "range-auto", "--model tiny --detections 10 --stop-after 2"), 0);
  snprintf(line, sizeof line, "note: train: range %d to %d, measured on 12 of 12 16-bit images\n", low, high);
  EXPECT(strstr(said, line));
  EXPECT_INT(train(&said, deep, "range-auto", "--model tiny --detections 10 --resume --range 0,4095"), 2);
  deepen(folder); // 16 times as dark: the bytes that are left of the 12 bits
  EXPECT_INT(train(&said, deep, "range-auto", "--model tiny --detections 10 --resume --amend"),
             0); // the run keeps its range
  EXPECT_INT(command(&said, "%s %s/model.safetensors", tool("inspect"), in_tmp("range-auto")), 0);
  snprintf(line, sizeof line, "config.range_low = %d\nconfig.range_high = %d\n", low, high);
  EXPECT(strstr(said, line));
  snprintf(folder, sizeof folder, "%s/val", deep);
  deepen(folder);
  EXPECT_INT(command(&said, "%s --weights %s/model.safetensors --data %s --eval --device cpu --out %s", tool("infer"),
                     in_tmp("range-auto"), deep, in_tmp("range-scored")),
             0);
  EXPECT(!strstr(said, "16-bit"));
  deepen(folder);
  EXPECT_INT(command(&said, "%s --weights %s/model.safetensors --data %s --eval --device cpu --out %s", tool("infer"),
                     in_tmp("range-auto"), deep, in_tmp("range-scored")),
             0);
  EXPECT(strstr(said, "note: 16-bit images of val that are nearly black, because they use at most 1/16 of the range"));
  snprintf(line, sizeof line, "was trained with --range %d,%d, but this run uses 0,4095; --range", low, high);
  char *more = xasprintf("--weights %s/model.safetensors --range 0,4095", in_tmp("range-auto"));
  EXPECT_INT(train(&said, deep, "range-tuned", more), 0);
  EXPECT(strstr(said, line));
  EXPECT_INT(train(&said, deep, "range-wrong", "--model tiny --detections 10 --range 9,8"), 2);
  EXPECT_STR(said,
             "train: --range 9,8: give type, or LOW,HIGH with 0 <= LOW < HIGH <= 65535, such as 0,4095; or auto\n");
  char *all[] = {more, flat, deep};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}

TEST_TIER(program_classifies_16_bits_as_8, 1) {
  const char *said;
  char *flat, *deep, folder[1024];
  make_sets("--folders", &flat, &deep);
  command(&said, "find %s -mindepth 2 -type d", deep);
  char *folders = xstrdup(said);
  for (char *at = strtok(folders, "\n"); at; at = strtok(NULL, "\n")) {
    snprintf(folder, sizeof folder, "%s", at);
    deepen(folder);
  }
  free(folders);
  EXPECT_INT(train(&said, flat, "range-classes-8", "--model resnet18"), 0);
  EXPECT_INT(train(&said, deep, "range-classes-16", "--model resnet18 --range 0,4095"), 0);
  char *of_8 = tensor("range-classes-8", "fc.weight"), *of_16 = tensor("range-classes-16", "fc.weight");
  EXPECT_STR(of_16, of_8);
  command(&said, "%s --data %s", tool("doctor"), deep);
  EXPECT(strstr(said, "16 bit      range ") && strstr(said, " --range "));
  EXPECT_INT(command(&said, "%s --weights %s/model.safetensors --data %s --device cpu --out %s", tool("infer"),
                     in_tmp("range-classes-16"), deep, in_tmp("range-classed")),
             0);
  EXPECT(!strstr(said, "16-bit"));
  char *all[] = {of_8, of_16, flat, deep};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}
