// Catches usable images that are left out, unusable ones that are kept, and an empty set without an explanation.
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "data/batches/dataset.h"
#include "test/harness/child.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

TEST(dataset_keeps_what_is_usable) {
  Dataset d;
  if (!open_set(&d, small_set("usable"), &small_options)) return;
  EXPECT_INT(d.num_images, IMAGES - 2);
  EXPECT_INT(d.classes, 3);
  EXPECT_INT(d.without_objects, 2);
  EXPECT_INT(d.crowds, 2);
  EXPECT_INT(d.dropped_boxes, 2);
  EXPECT_INT(d.unlabelled, 2);
  EXPECT_INT(d.max_objects, 3);
  EXPECT_INT(d.max_bytes, 60 * 53 * 3);
  for (int i = 0; i < d.num_images; i++) {
    int n = image_number(&d, i);
    EXPECT_INT(d.first_object[i + 1] - d.first_object[i], image_objects(n));
    for (int o = 0; o < image_objects(n); o++) {
      const Object *object = &d.object[d.first_object[i] + o];
      EXPECT_INT(object->label, o % 2 ? 2 : 1);
      EXPECT(object->box[0] == object_x(n, o) && object->box[3] == object_y(o) + OBJECT_H);
    }
  }
  EXPECT_INT(d.first_object[d.num_images], 24);
  dataset_close(&d);
}

TEST(dataset_options) {
  const char *dir = small_set("options");
  DatasetOptions all = small_options, few = small_options;
  all.keep_empty = true;
  few.limit = 5;
  Dataset d;
  if (!open_set(&d, dir, &all)) return;
  EXPECT_INT(d.num_images, IMAGES);
  EXPECT_INT(d.without_objects, 2);
  dataset_close(&d);
  if (!open_set(&d, dir, &few)) return;
  EXPECT_INT(d.num_images, 5);
  EXPECT_INT(image_number(&d, 4), 5);
  dataset_close(&d);
}

static void write_json(const char *dir, const char *text) {
  char path[1024];
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  write_text(path, text);
}

TEST(dataset_clips_boxes_and_finds_missing_sizes) {
  const char *dir = small_set("odd");
  // Image 1 is 41 x 60. No size given; a box over the border; one from its mask; one of no width.
  write_json(dir, "{\"categories\":[{\"id\":1,\"name\":\"a\"}],\"images\":[{\"id\":1,\"file_name\":\"1.png\"}],"
                  "\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":1,\"bbox\":[-5,30,200,50]},"
                  "{\"id\":2,\"image_id\":1,\"category_id\":1,\"segmentation\":[[4,6,14,6,14,9,4,9]]},"
                  "{\"id\":3,\"image_id\":1,\"category_id\":1,\"bbox\":[5,5,0,9]}]}");
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  EXPECT_INT(d.max_bytes, 41 * 60 * 3);
  EXPECT_INT(d.dropped_boxes, 1);
  if (EXPECT_INT(d.max_objects, 2)) {
    const float want[2][4] = {{0, 30, 60, 41}, {4, 6, 14, 9}};
    for (int o = 0; o < 2; o++)
      for (int k = 0; k < 4; k++) EXPECT_NEAR(d.object[o].box[k], want[o][k], 0);
  }
  dataset_close(&d);
}

// What no image holds is cut off or left out, and takes neither long nor more room than the image.
TEST(dataset_survives_huge_numbers) {
  const char *dir = small_set("huge");
  write_json(dir, "{\"categories\":[{\"id\":1}],\"images\":[{\"id\":1,\"file_name\":\"1.png\"}],\"annotations\":["
                  "{\"id\":1,\"image_id\":1,\"category_id\":1,\"bbox\":[-1e30,0,2e30,41],"
                  "\"segmentation\":[[-1e300,-1e300,1e300,-1e300,1e300,1e300,-1e300,1e300]]},"
                  "{\"id\":2,\"image_id\":1,\"category_id\":1,\"bbox\":[1e300,5,1e300,5]},"
                  "{\"id\":3,\"image_id\":1,\"category_id\":1,\"bbox\":[50,20,-20,-10]},"
                  "{\"id\":4,\"image_id\":1,\"category_id\":1,\"bbox\":[5,5,1e308,9],\"area\":1e308,"
                  "\"segmentation\":{\"size\":[2147483647,2147483647],\"counts\":[4294967295]}}]}");
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  EXPECT_INT(d.dropped_boxes, 2);
  EXPECT_INT(d.coco.bad_segmentation, 1);
  EXPECT_INT(d.bad_masks, 1);
  static const long long area[] = {41 * 60};
  if (EXPECT_INT(d.first_object[1], COUNT(area)))
    for (int o = 0; o < COUNT(area); o++) {
      Rle mask = dataset_mask(&d, 0, &d.object[o]);
      EXPECT_INT((long long)rle_area(&mask), area[o]);
      rle_free(&mask);
    }
  EXPECT(d.max_words <= 2 * 41 * 2);
  dataset_close(&d);
}

// Nothing to train on is still a set to run on: batches have room for one object then.
TEST(dataset_without_objects) {
  const char *dir = small_set("bare");
  write_json(dir, "{\"categories\":[],\"images\":[{\"id\":1,\"file_name\":\"1.png\",\"height\":41,\"width\":60}]}");
  DatasetOptions all = small_options;
  all.keep_empty = true;
  Dataset d;
  if (!open_set(&d, dir, &all)) return;
  EXPECT_INT(d.num_images, 1);
  EXPECT_INT(d.max_objects, 1);
  EXPECT_INT(d.first_object[1], 0);
  dataset_close(&d);
}

// Bad images cost themselves, not the run; most files missing is a mistake.
TEST(dataset_goes_on_without_bad_images) {
  const char *dir = small_set("goes_on");
  char path[1024];
  Dataset d;
  Err err;
  for (int image = 0; image < 7; image++) { // images 4 and 9 of the 14 are not usable
    snprintf(path, sizeof path, "%s/train/%d.png", dir, image);
    CHECK(unlink(path) == 0);
    int missing = image + 1 - (image >= 4);
    if (!EXPECT(dataset_open(&d, dir, "train", &small_options, &err))) continue;
    EXPECT_INT(d.missing, missing);
    EXPECT_INT(d.num_images, IMAGES - 2);
    dataset_close(&d);
  }
  snprintf(path, sizeof path, "%s/train/7.png", dir);
  CHECK(unlink(path) == 0);
  EXPECT(!dataset_open(&d, dir, "train", &small_options, &err) && strstr(err.msg, "0.png: no such file; 7 of 12"));

  // No size, and a file that has none; a size that cannot be; one that is fine.
  write_json(dir, "{\"categories\":[{\"id\":1,\"name\":\"a\"}],\"images\":[{\"id\":1,\"file_name\":\"no.png\"},"
                  "{\"id\":2,\"file_name\":\"10.png\",\"height\":99999,\"width\":99999},"
                  "{\"id\":3,\"file_name\":\"8.png\",\"height\":48,\"width\":60}],"
                  "\"annotations\":[{\"id\":1,\"image_id\":3,\"category_id\":1,\"bbox\":[1,2,30,40]}]}");
  snprintf(path, sizeof path, "%s/stderr", dir);
  int stream = quiet_begin(path);
  bool ok = dataset_open(&d, dir, "train", &small_options, &err);
  quiet_end(stream);
  if (!EXPECT(ok)) return;
  EXPECT_INT(d.bad_images, 2);
  EXPECT_INT(d.num_images, 1);
  char *said = file_read(path, &(size_t){0}, NULL);
  EXPECT(strstr(said, "no.png") && strstr(said, " (10.png) has 99999 x 99999 pixels, but at most 268435456 in all are "
                                                "supported; correct its width and height"));
  free(said);
  dataset_close(&d);
}

// A size that is not its file's would make every place of every batch as large.
TEST(dataset_makes_no_room_for_images_that_are_not_there) {
  const char *dir = small_set("giants");
  char path[1024];
  Dataset d;
  Err err;
  // 1.png is 60 x 41, 2.png 60 x 42, 3.png 43 x 60, 5.png 60 x 45 pixels, w x h; 5 is as large as it says, transposed.
  write_json(dir, "{\"categories\":[{\"id\":1,\"name\":\"a\"}],\"images\":["
                  "{\"id\":1,\"file_name\":\"1.png\",\"height\":16384,\"width\":16384},"
                  "{\"id\":2,\"file_name\":\"2.png\",\"height\":42,\"width\":60},"
                  "{\"id\":3,\"file_name\":\"3.png\",\"height\":6000,\"width\":43},"
                  "{\"id\":5,\"file_name\":\"5.png\",\"height\":60,\"width\":45}],"
                  "\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":1,\"bbox\":[1,2,30,30]},"
                  "{\"id\":6,\"image_id\":1,\"category_id\":1,\"bbox\":[1,2,30,31]},"
                  "{\"id\":2,\"image_id\":2,\"category_id\":1,\"bbox\":[1,2,31,30]},"
                  "{\"id\":3,\"image_id\":3,\"category_id\":1,\"bbox\":[1,2,32,30]},"
                  "{\"id\":4,\"image_id\":5,\"category_id\":1,\"bbox\":[1,2,33,30]},"
                  "{\"id\":5,\"image_id\":5,\"category_id\":1,\"bbox\":[1,2,34,30]}]}");
  snprintf(path, sizeof path, "%s/stderr", dir);
  int stream = quiet_begin(path);
  bool ok = dataset_open(&d, dir, "train", &small_options, &err);
  quiet_end(stream);
  if (!EXPECT(ok)) return;
  EXPECT_INT(d.max_bytes, 60 * 45 * 3);
  EXPECT_INT(d.bad_images, 2);
  if (EXPECT_INT(d.num_images, 2)) {
    EXPECT_INT(d.coco.images[d.image[0]].id, 2);
    EXPECT_INT(d.coco.images[d.image[1]].id, 5);
    EXPECT_INT(d.first_object[1], 1);
    EXPECT_INT(d.first_object[2], 3);
    for (int o = 0; o < d.first_object[2]; o++) EXPECT_NEAR(d.object[o].box[2], o ? 33 + o : 32, 0);
  }
  char *said = file_read(path, &(size_t){0}, NULL);
  EXPECT(strstr(said, "1.png: the image has 60 x 41 pixels, but 16384 x 16384 in "));
  EXPECT(strstr(said, "3.png: the image has 43 x 60 pixels, but 43 x 6000 in ") && !strstr(said, "5.png"));
  free(said);
  dataset_close(&d);
  DatasetOptions strict = small_options;
  strict.strict = true;
  EXPECT(!dataset_open(&d, dir, "train", &strict, &err) &&
         strstr(err.msg, "1.png: the image has 60 x 41 pixels, but 16384 x"));
}

TEST(dataset_explains_failures) {
  const char *dir = small_set("failures");
  Dataset d;
  Err err;
  write_json(dir, "{\"categories\":[],\"images\":[{\"id\":1,\"file_name\":\"1.png\",\"height\":41,\"width\":60}],"
                  "\"annotations\":[]}");
  EXPECT(!dataset_open(&d, dir, "train", &small_options, &err) &&
         strstr(err.msg, ": no annotations; its list \"annotations\" is missing or empty"));
  write_json(dir, "{\"categories\":[],\"images\":[{\"id\":5,\"height\":41,\"width\":60}],\"annotations\":[]}");
  EXPECT(!dataset_open(&d, dir, "train", &small_options, &err) && strstr(err.msg, "image 5 has no file_name"));
  char *name = xmalloc(5001), *json;
  memset(name, 'a', 5000);
  name[5000] = 0;
  json = xasprintf("{\"categories\":[],\"images\":[{\"id\":5,\"file_name\":\"%s\",\"height\":41,\"width\":60}],"
                   "\"annotations\":[]}",
                   name);
  write_json(dir, json);
  EXPECT(!dataset_open(&d, dir, "train", &small_options, &err) &&
         strstr(err.msg, ": a file_name of 5000 bytes; a path has less than 4096"));
  free(name);
  free(json);
  write_json(dir, "{\"categories\":[],\"images\":[{\"id\":5,\"file_name\":\"1.png\",\"height\":99999,\"width\":99999}],"
                  "\"annotations\":[]}");
  DatasetOptions strict = small_options;
  strict.strict = true;
  EXPECT(!dataset_open(&d, dir, "train", &strict, &err) && strstr(err.msg, "99999 x 99999"));
  dir = small_set("gone");
  char path[1024];
  snprintf(path, sizeof path, "%s/train/3.png", dir);
  CHECK(unlink(path) == 0);
  EXPECT(!dataset_open(&d, dir, "train", &strict, &err));
  if (!EXPECT(strstr(err.msg, "gone/train/3.png: no such file; 1 of 12 images of "))) printf("%s\n", err.msg);
  write_json(dir, "{\"categories\":[],\"images\":[{\"id\":1,\"file_name\":\"C:\\\\cells\\\\1.png\",\"height\":41,"
                  "\"width\":60}],\"annotations\":[]}");
  DatasetOptions empty = small_options;
  empty.keep_empty = true;
  if (EXPECT(dataset_open(&d, dir, "train", &empty, &err))) { // by the last part of the name
    EXPECT_INT(d.missing, 0);
    dataset_close(&d);
  }
  dir = small_set("loop");
  snprintf(path, sizeof path, "%s/train/3.png", dir);
  CHECK(unlink(path) == 0);
  CHECK(!symlink("3.png", path)); // to itself
  EXPECT(!dataset_open(&d, dir, "train", &strict, &err) && !strstr(err.msg, "no such file"));
  EXPECT(strstr(err.msg, "/3.png: ") && strstr(err.msg, "; 1 of 12 images of "));
  CHECK(!unlink(path) && !mkfifo(path, 0600));
  EXPECT(!dataset_open(&d, dir, "train", &strict, &err) && strstr(err.msg, "/3.png: not a regular file; 1 of 12"));
  CHECK(!unlink(path)); // or who writes there would wait for a reader
  EXPECT(!dataset_open(&d, dir, "nosuchsplit", &small_options, &err) && err.msg[0]);
}

// n annotations, all of the first image.
static void write_many(const char *dir, int n, int images) {
  char *text = xasprintf("{\"categories\":[{\"id\":1,\"name\":\"a\"}],\"images\":[");
  size_t used = strlen(text), room = used + 100 * (size_t)(n + images) + 100;
  text = xrealloc(text, room);
  for (int i = 1; i <= images; i++)
    used += (size_t)sprintf(text + used, "%s{\"id\":%d,\"file_name\":\"%d.png\",\"height\":%d,\"width\":60}",
                            i > 1 ? "," : "", i, i, 40 + i);
  used += (size_t)sprintf(text + used, "],\"annotations\":[");
  for (int k = 0; k < n; k++)
    used += (size_t)sprintf(text + used, "%s{\"id\":%d,\"image_id\":1,\"category_id\":1,\"bbox\":[%d,%d,9,9]}",
                            k ? "," : "", k + 1, k % 50, k / 50 % 30);
  sprintf(text + used, "]}");
  write_json(dir, text);
  free(text);
}

// More annotations than matching takes in seconds are refused, with what probably went wrong.
TEST(dataset_refuses_too_many_objects_in_an_image) {
  const char *dir = small_set("many");
  Dataset d;
  Err err;
  write_many(dir, MOST_ANNOTATIONS, 2);
  if (!open_set(&d, dir, &small_options)) return;
  EXPECT_INT(d.max_objects, MOST_ANNOTATIONS);
  dataset_close(&d);
  write_many(dir, MOST_ANNOTATIONS + 1, 2);
  EXPECT(!dataset_open(&d, dir, "train", &small_options, &err));
  EXPECT(strstr(err.msg, ": image 1 (1.png) has 10001 of the 10001 annotations; at most 10000 per image are "
                         "supported: check their image_id"));
  write_many(dir, MOST_ANNOTATIONS + 1, 1); // there is no other image that they could be of
  EXPECT(!dataset_open(&d, dir, "train", &small_options, &err) &&
         strstr(err.msg, "supported: split the image into tiles"));
}

TEST(dataset_legacy_boxes) {
  // Corners are pixels: 9 × 7 from (x, y) ends at (x + 8, y + 6).
  const char *dir = small_set("legacy");
  DatasetOptions options = small_options;
  options.box_extra = 1;
  Dataset d;
  if (!open_set(&d, dir, &options)) return;
  for (int i = 0; i < d.num_images; i++)
    for (int o = d.first_object[i]; o < d.first_object[i + 1]; o++) {
      const float *box = d.object[o].box;
      EXPECT_NEAR(box[2] - box[0], OBJECT_W - 1, 0);
      EXPECT_NEAR(box[3] - box[1], OBJECT_H - 1, 0);
    }
  dataset_close(&d);
}

// Areas that no object has make it small: they are named unless they are recomputed, or few.
TEST(dataset_names_empty_areas) {
  char path[1024], text[1024];
  const char *dir = small_set("empty-areas");
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  for (int area = 0; area < 2; area++)
    for (int mask = 0; mask < 2; mask++) {
      Dataset d;
      Err err;
      snprintf(
          text, sizeof text,
          "{\"categories\":[{\"id\":3,\"name\":\"a\"}],\"images\":[{\"id\":1,\"file_name\":\"1.png\",\"height\":41,"
          "\"width\":60}],\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":3,\"bbox\":[1,1,30,30],\"area\":%d,"
          "\"segmentation\":[[1,1,31,1,1,31]]}]}",
          area ? 450 : -1);
      write_text(path, text);
      const DatasetOptions options = {
          .resize = {.size = 96, .max_size = 160}, .max_canvases = 1, .areas = mask ? MEASURE_MASK : MEASURE_FILE};
      if (!EXPECT(dataset_open(&d, dir, "train", &options, &err))) continue;
      bool named = false;
      for (int i = 0; i < d.notes.n; i++)
        named |= strstr(d.notes.line[i], "areas of 1 of 1 annotations with masks") != NULL;
      EXPECT(named == (!area && !mask) && d.box_areas == named);
      dataset_close(&d);
    }
}
