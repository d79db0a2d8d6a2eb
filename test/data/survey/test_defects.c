// Catches defects of a data set that doctor misses, miscounts or gives wrong advice on.
#include <omp.h>
#include <sys/stat.h>
#include <unistd.h>
#include "data/survey/defects.h"
#include "data/survey/suggest.h"
#include "test/harness/child.h"
#include "test/harness/exif.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

// An annotation of category 1 in an image, and what it has besides.
#define ANN(id, image, rest) "{\"id\":" #id ",\"image_id\":" #image ",\"category_id\":1," rest "},"
#define BOX "\"bbox\":[20,10,20,20]"
#define MASK "\"segmentation\":[[20,10,40,10,40,30,20,30]]"

static const char broken[] =
    "{\"categories\":[{\"id\":1,\"name\":\"a\"},{\"id\":2,\"name\":\"b\"},{\"id\":2,\"name\":\"c\"}],\"images\":["
    "{\"id\":1,\"file_name\":\"5.png\"},{\"id\":1,\"file_name\":\"1.png\",\"height\":41,\"width\":60},"
    "{\"id\":2,\"file_name\":\"2.png\",\"height\":42,\"width\":60},"
    "{\"id\":7,\"file_name\":\"7.png\",\"height\":60,\"width\":47}," // 47 x 60 in truth
    "{\"id\":8,\"file_name\":\"8.png\",\"height\":48,\"width\":60}],\"annotations\":["
    // clang-format off
    ANN(10, 1, BOX "," MASK)
    ANN(10, 2, BOX "," MASK)
    ANN(11, 99, BOX "," MASK)
    "{\"id\":12,\"image_id\":1,\"category_id\":77," BOX "},"
    ANN(13, 1, "\"bbox\":[20,10,0,20]," MASK)
    ANN(14, 1, "\"bbox\":[70,10,20,20]," MASK)
    ANN(15, 2, "\"bbox\":[50,10,15,20],\"segmentation\":[[50,10,60,10,60,30,50,30]]")
    ANN(16, 2, "\"bbox\":[20,10,40,30]," MASK)
    ANN(17, 2, BOX)
    ANN(18, 1, BOX ",\"segmentation\":{\"size\":[41,60],\"counts\":[5,5]}")
    ANN(19, 1, BOX ",\"segmentation\":[[20,10,40,10,40,30,20,30,7]]")
    ANN(20, 1, BOX ",\"segmentation\":{\"size\":[2,2],\"counts\":[1,3]}")
    ANN(21, 1, BOX ",\"segmentation\":[[70,50,80,50,80,60]]")
    ANN(25, 1, BOX ",\"segmentation\":[[0,0,1,1,0,0,1,1,0,0,0,1]]")
    ANN(22, 1, "\"iscrowd\":1," BOX ",\"segmentation\":3")
    ANN(23, 7, BOX "," MASK)
    "{\"id\":24,\"image_id\":8,\"category_id\":1," BOX "," MASK "}]}";
// clang-format on

static const char *broken_set(void) {
  const char *dir = small_set("broken");
  char path[1024];
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  write_text(path, broken);
  snprintf(path, sizeof path, "%s/train/8.png", dir);
  CHECK(truncate(path, 300) == 0);
  return dir;
}

typedef struct Want {
  int count;
  int64_t id;
  int64_t image; // its id; 0: none
} Want;

TEST(defects_are_found) {
  static const Want want[DEFECTS] = {
      [DEFECT_IMAGE_ID] = {1, 1, 0},    [DEFECT_CATEGORY_ID] = {1, 2, 0},  [DEFECT_ANN_ID] = {1, 10, 1},
      [DEFECT_NO_IMAGE] = {1, 11, 0},   [DEFECT_NO_CATEGORY] = {1, 12, 1}, [DEFECT_BOX_EMPTY] = {2, 13, 1},
      [DEFECT_BOX_BEYOND] = {1, 15, 2}, [DEFECT_BOX_APART] = {1, 16, 2},   [DEFECT_TWICE] = {6, 18, 1},
      [DEFECT_MASK_NONE] = {1, 17, 2},  [DEFECT_MASK_BAD] = {2, 18, 1},    [DEFECT_MASK_ODD] = {1, 19, 1},
      [DEFECT_MASK_SIZE] = {1, 20, 1},  [DEFECT_MASK_EMPTY] = {1, 21, 1},  [DEFECT_MASK_UNIT] = {1, 25, 1},
      [DEFECT_FILE] = {2, 7, 7}};
  Dataset d;
  Defects f;
  if (!open_set(&d, broken_set(), &small_options)) return;
  defects_find(&f, &d, DEPTH_FILES, NULL, NULL);
  for (int k = 0; k < DEFECTS; k++) {
    int i = f.of_type[k].image;
    int64_t image = i >= 0 && want[k].image ? d.coco.images[i].id : 0;
    if (!EXPECT(f.of_type[k].count == want[k].count && f.of_type[k].id == want[k].id && image == want[k].image))
      printf("  %s: %d, first %lld of image %lld\n", defect_info[k].key, f.of_type[k].count, (long long)f.of_type[k].id,
             (long long)image);
  }
  EXPECT_INT(f.corners, 1); // annotation 16's box is x1 y1 x2 y2
  EXPECT_INT(f.of_image[0], 1 << DEFECT_ANN_ID | 1 << DEFECT_TWICE | 1 << DEFECT_NO_CATEGORY | 1 << DEFECT_BOX_EMPTY |
                                1 << DEFECT_MASK_BAD | 1 << DEFECT_MASK_ODD | 1 << DEFECT_MASK_SIZE |
                                1 << DEFECT_MASK_EMPTY | 1 << DEFECT_MASK_UNIT);
  EXPECT(!f.reason[0] && !f.reason[1]);
  EXPECT(f.reason[2] && strstr(f.reason[2], "/train/7.png: the image has 60 x 47 pixels, but 47 x 60 in"));
  EXPECT(f.reason[3] && strstr(f.reason[3], "/train/8.png: cannot read the image: the file is truncated"));
  EXPECT(f.decode_ms > 0 && f.turned == 0);
  defects_free(&f);
  dataset_close(&d);
}

// An image that is a pipe counts as a missing file: reading it would never end.
TEST(defects_of_a_pipe) {
  const char *dir = broken_set();
  Dataset d;
  Defects f;
  char path[1024];
  snprintf(path, sizeof path, "%s/train/8.png", dir);
  CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
  if (!open_set(&d, dir, &small_options)) return;
  defects_find(&f, &d, DEPTH_FILES, NULL, NULL);
  EXPECT(f.reason[3] && strstr(f.reason[3], "8.png: no such file, or not a regular file"));
  EXPECT_INT(f.of_type[DEFECT_FILE].count, 1);
  EXPECT_INT(f.of_type[DEFECT_MISSING].count, 1);
  EXPECT_INT(f.of_type[DEFECT_MISSING].id, 8);
  defects_free(&f);
  dataset_close(&d);
  CHECK(unlink(path) == 0);
}

// An image that was left out from the start is one defect, whatever its size; its annotations are none.
TEST(defects_of_images_left_out) {
  const char *dir = small_set("left-out");
  char path[1024];
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  write_text(path,
             "{\"categories\":[{\"id\":1}],\"images\":["
             "{\"id\":1,\"file_name\":\"1.png\",\"height\":41,\"width\":2147483647},"
             "{\"id\":2,\"file_name\":\"2.png\",\"height\":420,\"width\":600},"
             "{\"id\":3,\"file_name\":\"3.png\",\"height\":60,\"width\":43}],\"annotations\":["
             "{\"id\":1,\"image_id\":1,\"category_id\":1,\"bbox\":[20,10,20,20]},"
             "{\"id\":2,\"image_id\":2,\"category_id\":1,\"bbox\":[20,10,20,20],\"segmentation\":[[1,1,9,1,9,9]]},"
             "{\"id\":3,\"image_id\":3,\"category_id\":1,\"bbox\":[20,10,0,20]},"
             "{\"id\":4,\"image_id\":3,\"category_id\":1,\"bbox\":[20,10,9,20]}]}");
  Dataset d;
  Defects f;
  snprintf(path, sizeof path, "%s/stderr", dir);
  int kept = quiet_begin(path);
  bool ok = open_set(&d, dir, &small_options);
  quiet_end(kept);
  if (!ok) return;
  defects_find(&f, &d, DEPTH_FILES, NULL, NULL);
  EXPECT_INT(f.of_type[DEFECT_FILE].count, 2);
  EXPECT_INT(f.of_type[DEFECT_FILE].id, 1);
  EXPECT_INT(f.of_type[DEFECT_BOX_EMPTY].count, 1);
  EXPECT_INT(f.of_type[DEFECT_BOX_EMPTY].id, 3);
  EXPECT_INT(f.of_type[DEFECT_MASK_NONE].count, 1);
  defects_free(&f);
  dataset_close(&d);
}

// What the table says is done about them is done.
TEST(defects_are_treated) {
  Dataset d;
  if (!open_set(&d, broken_set(), &small_options)) return;
  EXPECT_INT(d.num_images, 4);
  EXPECT_STR(d.coco.images[0].file_name, "1.png"); // the last of image 1
  EXPECT_STR(d.coco.categories[1].name, "c");
  static const struct {
    int64_t id;
    float box[4];
    uint64_t area; // of the mask
  } want[] = {{10, {20, 10, 40, 30}, 400}, {19, {20, 10, 40, 30}, 400}, {21, {20, 10, 40, 30}, 0},
              {25, {20, 10, 40, 30}, 0},   {10, {20, 10, 40, 30}, 400}, {15, {50, 10, 60, 30}, 200},
              {16, {20, 10, 60, 40}, 400}, {17, {20, 10, 40, 30}, 400}};
  if (!EXPECT_INT(d.first_object[2], COUNT(want))) return;
  for (int o = 0; o < COUNT(want); o++) {
    const Object *object = &d.object[o];
    EXPECT_INT(d.coco.anns[object->ann].id, want[o].id);
    for (int k = 0; k < 4; k++) EXPECT_NEAR(object->box[k], want[o].box[k], 0);
    Rle mask = dataset_mask(&d, o < d.first_object[1] ? 0 : 1, object);
    EXPECT_INT((long long)rle_area(&mask), (long long)want[o].area);
    rle_free(&mask);
  }
  dataset_close(&d);
}

TEST(defects_without_looking_at_files) {
  Dataset d;
  Defects f;
  if (!open_set(&d, broken_set(), &small_options)) return;
  defects_find(&f, &d, DEPTH_ANNOTATIONS, NULL, NULL);
  EXPECT_INT(f.of_type[DEFECT_FILE].count, 0);
  EXPECT(f.of_type[DEFECT_BOX_APART].count == 1 && f.of_type[DEFECT_MASK_EMPTY].count == 1); // as with files
  EXPECT_INT(f.of_type[DEFECT_MASK_SIZE].count, 1);
  EXPECT(f.decode_ms == 0 && f.file_key[0] == 0);
  defects_free(&f);
  dataset_close(&d);
}

// Headers tell sizes: 7.png is turned. That 8.png ends early shows when it is decoded.
TEST(defects_of_headers) {
  Dataset d;
  Defects f, annotations;
  if (!open_set(&d, broken_set(), &small_options)) return;
  defects_find(&f, &d, DEPTH_HEADERS, NULL, NULL);
  EXPECT_INT(f.of_type[DEFECT_FILE].count, 1);
  EXPECT(f.reason[2] && strstr(f.reason[2], "/train/7.png: the image has 60 x 47 pixels, but 47 x 60 in"));
  char *line = defects_line(&f, DEFECT_FILE, true);
  EXPECT(strstr(line, "whose size differs from the annotations: 1; left out, with their objects; first: image 7, "
                      "file 7.png; ") &&
         strstr(line, "the image has 60 x 47 pixels"));
  free(line);
  defects_find_annotations(&annotations, &d.coco); // without image files, as cocoeval
  for (int k = 0; k < DEFECT_MISSING; k++) EXPECT_INT(annotations.of_type[k].count, f.of_type[k].count);
  EXPECT(defects_any(&annotations));
  defects_free(&annotations);
  defects_free(&f);
  dataset_close(&d);
}

// A file that a viewer would turn is read as it is stored, and counted.
TEST(defects_tell_turned_images) {
  const char *turned = shared_path("odd_images/exif_Landscape_6.jpg");
  if (!turned) {
    test_skip("no odd images");
    return;
  }
  const char *dir = small_set("turned");
  char text[1024];
  snprintf(text, sizeof text, "cp %s %s/train/1.png", turned, dir);
  CHECK(system(text) == 0);
  snprintf(text, sizeof text, "%s/annotations/instances_train.json", dir);
  write_text(text, "{\"categories\":[{\"id\":1}],\"images\":[{\"id\":1,\"file_name\":\"1.png\"}],\"annotations\":["
                   "{\"image_id\":1,\"category_id\":1,\"bbox\":[1,1,9,9]}]}");
  Dataset d;
  Defects f;
  if (!open_set(&d, dir, &small_options)) return;
  defects_find(&f, &d, DEPTH_FILES, NULL, NULL);
  EXPECT(f.turned == 1 && f.of_type[DEFECT_FILE].count == 0);
  defects_free(&f);
  dataset_close(&d);
}

// A picture of 40 x 60 that is stored lying, annotated upright.
static void write_lying(const char *dir, int annotated_w, int annotated_h) {
  char path[1024], text[1024];
  Image upright = image_alloc(60, 40);
  snprintf(path, sizeof path, "%s/train/1.png", dir);
  exif_write_png(path, &upright, 6);
  image_free(&upright);
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  snprintf(text, sizeof text,
           "{\"categories\":[{\"id\":1}],\"images\":[{\"id\":1,\"file_name\":\"1.png\",\"width\":%d,\"height\":%d}],"
           "\"annotations\":[{\"id\":5,\"image_id\":1,\"category_id\":1,\"bbox\":[10,30,20,25]}]}",
           annotated_w, annotated_h);
  write_text(path, text);
}

TEST(defects_name_exif_if_annotations_fit_only_one_way) {
  const char *dir = small_set("lying");
  Dataset d;
  Defects f;
  char *detail[DEFECT_DETAILS];
  DatasetOptions options = small_options;
  write_lying(dir, 40, 60);
  for (int upright = 0; upright < 2; upright++)
    for (int depth = DEPTH_HEADERS; depth <= DEPTH_FILES; depth++) {
      options.exif = upright ? EXIF_YES : EXIF_NO;
      if (!open_set(&d, dir, &options)) return;
      defects_find(&f, &d, (DefectDepth)depth, NULL, NULL);
      EXPECT_INT(f.of_type[DEFECT_FILE].count, !upright);
      EXPECT_INT(f.turned, 1);
      EXPECT(upright || (f.reason[0] && strstr(f.reason[0], "1.png: the image has 60 x 40 pixels, but 40 x 60 in ") &&
                         strstr(f.reason[0], "; it would match if rotated by its EXIF orientation: --exif yes")));
      defects_free(&f);
      dataset_close(&d);
    }
  write_lying(dir, 60, 40); // as Label Studio does: upright points, the size as stored
  options.exif = EXIF_NO;
  if (!open_set(&d, dir, &options)) return;
  defects_find(&f, &d, DEPTH_FILES, NULL, NULL);
  EXPECT(f.of_type[DEFECT_BOX_BEYOND].count == 1 && f.of_type[DEFECT_FILE].count == 0);
  EXPECT_INT(defects_details(&f, DEFECT_BOX_BEYOND, detail), 2);
  EXPECT(strstr(detail[1], "1 would fit if their images were rotated by the EXIF orientation: --exif yes"));
  for (int i = 0; i < 2; i++) free(detail[i]);
  defects_free(&f);
  dataset_close(&d);
  options.exif = EXIF_YES; // the other way round
  if (!open_set(&d, dir, &options)) return;
  defects_find(&f, &d, DEPTH_FILES, NULL, NULL);
  EXPECT(f.of_type[DEFECT_BOX_BEYOND].count == 0 && f.of_type[DEFECT_FILE].count == 0); // the sides are exchanged
  defects_free(&f);
  dataset_close(&d);
}

TEST(defects_do_not_depend_on_threads) {
  Dataset d;
  Defects one, many;
  if (!open_set(&d, broken_set(), &small_options)) return;
  int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  defects_find(&one, &d, DEPTH_FILES, NULL, NULL);
  omp_set_num_threads(3);
  defects_find(&many, &d, DEPTH_FILES, NULL, NULL);
  omp_set_num_threads(threads);
  EXPECT(memcmp(one.of_type, many.of_type, sizeof one.of_type) == 0 && one.corners == many.corners);
  EXPECT(memcmp(one.of_image, many.of_image, (size_t)d.coco.num_images * sizeof *one.of_image) == 0);
  EXPECT(memcmp(one.file_key, many.file_key, (size_t)d.num_images * sizeof *one.file_key) == 0);
  defects_free(&one);
  defects_free(&many);
  dataset_close(&d);
}

// A sound set has none; a real one neither.
TEST(defects_of_a_sound_set) {
  static const char *const sets[] = {"coco", "nuclei"};
  for (int i = 0; i < COUNT(sets); i++) {
    const char *dir = shared_path(sets[i]);
    if (!dir) {
      test_skip("no shared data sets");
      return;
    }
    Dataset d;
    Defects f;
    Err err;
    if (!EXPECT(dataset_open(
            &d, dir, "val",
            &(DatasetOptions){.resize = {.size = 96, .max_size = 160}, .max_canvases = 2, .keep_empty = true}, &err)))
      continue;
    defects_find(&f, &d, DEPTH_FILES, NULL, NULL);
    for (int k = 0; k < DEFECTS; k++)
      if (!EXPECT_INT(f.of_type[k].count, 0)) printf("  %s of %s\n", defect_info[k].key, sets[i]);
    defects_free(&f);
    dataset_close(&d);
  }
}

TEST(survey_counts_and_measures) {
  Dataset d;
  Survey s;
  if (!open_set(&d, small_set("survey"), &small_options)) return;
  survey_take(&s, &d);
  int objects[2] = {0}, images[2] = {0};
  for (int i = 0; i < IMAGES; i++)
    for (int o = 0; o < image_objects(i); o++) {
      objects[o % 2]++;
      images[o % 2] += o < 2;
    }
  for (int c = 0; c < 2; c++) {
    EXPECT_INT(s.category[c].objects, objects[c]);
    EXPECT_INT(s.category[c].images, images[c]);
    // 9 x 7 pixels; the shorter side, 40 to 53, becomes 96, its rounding at most a pixel of 96.
    EXPECT(s.category[c].size > sqrtf(63) * 96 / 53 * 0.98f && s.category[c].size < sqrtf(63) * 96 / 40 * 1.02f);
  }
  EXPECT(s.used == 2 && s.objects == objects[0] + objects[1] && s.tiny == 0 && s.large == 0 && s.crowded == 0);
  EXPECT(s.size10 <= s.size50 && s.size50 <= s.size90);
  EXPECT(s.image100.h * s.image100.w == 53 * 60 && s.scale50 > 1.8f && s.scale50 < 2.4f);
  EXPECT_INT(d.first_object[s.fullest + 1] - d.first_object[s.fullest], 3);
  for (int n = 1; n < MAX_CANVASES; n++) EXPECT(s.padding[n] <= s.padding[n - 1] && s.padding[n] > 0);
  EXPECT(s.slot_bytes > d.max_bytes && s.mask_bytes == 4 * d.max_words);
  survey_free(&s);
  dataset_close(&d);
  if (!open_set(&d, small_set("survey"), &(DatasetOptions){.resize = {.size = 16, .max_size = 160}, .max_canvases = 1}))
    return;
  survey_take(&s, &d);
  EXPECT_INT(s.tiny, s.objects); // 9 x 7 pixels on a third of that
  EXPECT_INT(s.large, d.num_images);
  survey_free(&s);
  dataset_close(&d);
}

// Of a single object every percentile is its size.
TEST(survey_measures_a_single_object) {
  Dataset d;
  Survey s;
  char path[1024];
  const char *dir = small_set("survey-one");
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  write_text(path, "{\"categories\":[{\"id\":3,\"name\":\"a\"}],\"images\":[{\"id\":1,\"file_name\":\"1.png\","
                   "\"height\":41,\"width\":60}],\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":3,"
                   "\"bbox\":[1,1,30,30]}]}");
  if (!open_set(&d, dir, &small_options)) return;
  survey_take(&s, &d);
  EXPECT_NEAR(s.size50, 30 * 96 / 41., 0.5); // 41 pixels become 96
  EXPECT(s.size10 == s.size50 && s.size90 == s.size50 && s.category[0].size == s.size50);
  EXPECT(s.objects == 1 && s.image50.h == 41 && s.image100.w == 60);
  survey_free(&s);
  dataset_close(&d);
}

static bool open_split(Split *s, const char *dir, const char *name, int size) {
  *s = (Split){.name = name};
  s->open = dataset_open(
      &s->data, dir, name,
      &(DatasetOptions){.resize = {.size = size, .max_size = 2 * size}, .max_canvases = 1, .keep_empty = true},
      &s->stop);
  if (!EXPECT(s->open)) return false;
  survey_take(&s->survey, &s->data);
  defects_find(&s->defects, &s->data, DEPTH_FILES, NULL, NULL);
  return true;
}

static void close_split(Split *s) {
  defects_free(&s->defects);
  survey_free(&s->survey);
  dataset_close(&s->data);
}

static bool says(const Advice *a, const char *text) {
  for (int i = 0; i < a->num_concerns; i++)
    if (strstr(a->concerns[i], text)) return true;
  return false;
}

TEST(advice_says_what_hurts) {
  const char *dir = small_set("advice");
  char path[1024], copy[2048];
  snprintf(path, sizeof path, "%s/val", dir);
  CHECK(dirs_make(path, NULL));
  snprintf(copy, sizeof copy, "cp %s/train/1.png %s/val/x.png", dir, dir);
  CHECK(system(copy) == 0);
  snprintf(path, sizeof path, "%s/annotations/instances_val.json", dir);
  write_text(path, "{\"categories\":[{\"id\":3,\"name\":\"a\"},{\"id\":8,\"name\":\"b\"}],\"images\":[{\"id\":1,"
                   "\"file_name\":\"x.png\",\"height\":41,\"width\":60}],\"annotations\":[" //
                   "{\"id\":0,\"image_id\":1,\"category_id\":3,\"bbox\":[1,1,30,30]}]}");
  Split train, val;
  if (!open_split(&train, dir, "train", 20) || !open_split(&val, dir, "val", 20)) return;
  Advice a;
  advice_write(&a, &train, &val, false, 1, 0, false);
  EXPECT(says(
      &a, "objects smaller than 8 pixels at --size 20, which are hard to learn: 24 of 24 (100.0 %); most of a 16 of "
          "16, b 8 of 8"));
  EXPECT(says(&a, "categories with fewer than 10 objects in train: 1 (b 8)"));
  EXPECT(says(&a, "categories without objects in val, which are not scored: 1 (b)"));
  defects_find_shared(&val.defects, &val.data, &train.data); // x.png is 1.png
  EXPECT(val.defects.of_type[DEFECT_SHARED].count == 1 && val.defects.of_image[0] >> DEFECT_SHARED & 1);
  EXPECT(says(&a, "only 14 training images: start from pretrained weights (--weights FILE --reset-heads)"));
  EXPECT(says(&a, "images without objects, which are left out: 2 of 14"));
  EXPECT(says(&a, "images with at least 4 times as many pixels"));
  EXPECT(!says(&a, "padding: ")); // further canvases gain nothing
  EXPECT(says(
      &a,
      "annotations of val with id 0: 1; cocoeval and pycocotools count detections that match one as false positives"));
  EXPECT(!says(&a, "annotations of train with id 0"));
  Advice gains;
  train.survey.padding[0] = 0.9;
  advice_write(&gains, &train, &val, false, 1, 0, false);
  EXPECT(says(&gains, "padding: 90 % of all pixels with --canvases 1"));
  advice_free(&gains);
  EXPECT(!says(&a, "EXIF") && !says(&a, "duplicate") && !says(&a, "the same name") && !says(&a, "normalized"));
  advice_free(&a);
  Suggestion s;
  suggest(&s, &train, &val, &(SuggestFor){.canvases = 1, .holdout = "", .gpu = true});
  EXPECT_STR(s.reason[1], "--batch 8: fits a 12 GB GPU with --amp");
  EXPECT(strstr(s.flags, "--size 32 --max-size 64 ") &&
         strstr(s.flags, " --batch 8 --epochs 1250 --augment standard --anchors auto --keep-empty"));
  suggestion_free(&s);
  close_split(&train);
  snprintf(copy, sizeof copy, "cd %s/train && cp 1.png 2.png", dir); // of another height than 2.png's
  CHECK(system(copy) == 0);
  if (!open_split(&train, dir, "train", 320)) return;
  EXPECT_INT(train.defects.of_type[DEFECT_FILE].count, 1);
  advice_write(&a, &train, NULL, true, 1, 0, true);
  EXPECT(says(&a, "--size 320 upscales the images"));
  EXPECT(says(&a, "duplicate image files in train: 1"));
  EXPECT(!says(&a, "objects smaller") && !says(&a, "images without objects"));
  EXPECT(!says(&a, "pretrained"));
  advice_free(&a);
  suggest(&s, &train, NULL, &(SuggestFor){.canvases = 1, .holdout = " --fold 1/2", .weights = true});
  EXPECT(strstr(s.flags, "--size 128 ") && strstr(s.flags, " --epochs 313 ") &&
         strstr(s.flags, " --fold 1/2")); // sides of 48 pixels enlarged 2.75 times
  suggestion_free(&s);
  close_split(&train);
  close_split(&val);
}
