// Catches duplicates, conflicting labels and broken images of a classification set that doctor does not report.
#include <stdlib.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "classification/data/class_advice.h"
#include "classification/data/class_report.h"
#include "classification/data/idx.h"
#include "data/images/png.h"
#include "data/survey/diagnosis.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static void write_picture(const char *path, int h, int w, uint64_t key) {
  Image im = image_alloc(h, w);
  for (int i = 0; i < h * w * 3; i++) im.rgb[i] = (uint8_t)rng_u32(key, (uint64_t)i);
  CHECK(png_write(path, &im, PNG_FAST, NULL));
  image_free(&im);
}

// DIR/{train,val}/{cat,dog}/KEY.png: pictures of equal keys are equal. Sizes go by the key.
static void write_pictures(const char *dir, const char *split, const char *name, int from, int to) {
  char *folder = xasprintf("%s/%s/%s", dir, split, name);
  CHECK(dirs_make(folder, NULL));
  for (int key = from; key < to; key++) {
    char *path = xasprintf("%s/%d.png", folder, key);
    write_picture(path, 20 + key, 30 + key, (uint64_t)key);
    free(path);
  }
  free(folder);
}

static const char *ill_set(void) {
  static char dir[512];
  snprintf(dir, sizeof dir, "%s/class-survey", test_tmp());
  if (path_is_dir(dir)) return dir;
  write_pictures(dir, "train", "cat", 0, 5);
  write_pictures(dir, "train", "dog", 5, 8);
  write_pictures(dir, "val", "cat", 20, 22);
  char *path = xasprintf("%s/train/cat/copy.png", dir);
  write_picture(path, 21, 31, 1); // of cat/1
  free(path);
  path = xasprintf("%s/train/dog/cat.png", dir);
  write_picture(path, 22, 32, 2); // of cat/2
  free(path);
  path = xasprintf("%s/val/cat/seen.png", dir);
  write_picture(path, 23, 33, 3); // of train's cat/3
  free(path);
  path = xasprintf("%s/train/dog/6.png", dir);
  CHECK(truncate(path, 200) == 0);
  free(path);
  return dir;
}

static const char *name_of(const Dataset *d, int i) { return d->coco.images[d->image[i]].file_name; }

TEST(class_survey_finds) {
  Dataset train, val;
  ClassSurvey s, v;
  Err err = {""};
  if (!EXPECT(classes_open(&train, ill_set(), "train", &(ClassOptions){.size = {50, 50}}, &err))) return;
  const CategoryList known = dataset_categories(&train);
  if (!EXPECT(classes_open(&val, ill_set(), "val", &(ClassOptions){.size = {50, 50}, .like = &known}, &err))) return;
  class_survey_take(&s, &train, true, NULL, NULL);
  class_survey_take(&v, &val, true, NULL, NULL);
  EXPECT(s.count[0] == 6 && s.count[1] == 4 && v.count[0] == 3 && v.count[1] == 0);
  EXPECT(s.least.h == 20 && s.least.w == 30 && s.most.h == 27 && s.most.w == 37);
  EXPECT_INT(s.small, 7); // lower than 25: 0 to 4, and copies of 1 and 2
  EXPECT_INT(s.unreadable, 1);
  EXPECT(s.first_unreadable >= 0 && !strcmp(name_of(&train, s.first_unreadable), "dog/6.png"));
  EXPECT(s.reason && strstr(s.reason, "dog/6.png: cannot read the image: "));
  EXPECT_INT(s.copies, 2);
  EXPECT_INT(s.conflicts, 1);
  EXPECT(s.conflict[0] >= 0 && train.object[s.conflict[0]].label != train.object[s.conflict[1]].label);
  EXPECT(s.decode_ms > 0 && v.copies == 0 && !v.reason);
  int first[2];
  EXPECT_INT(class_survey_shared(&s, &train, &v, &val, first), 1);
  EXPECT_STR(name_of(&val, first[0]), "cat/seen.png");
  EXPECT_STR(name_of(&train, first[1]), "cat/3.png");
  class_survey_free(&s);
  class_survey_take(&s, &train, false, NULL, NULL); // names and sizes alone
  EXPECT(s.copies == 0 && s.unreadable == 0 && s.least.h == 20);
  EXPECT_INT(class_survey_shared(&s, &train, &v, &val, first), 0);
  class_survey_free(&s);
  class_survey_free(&v);
  dataset_close(&val);
  dataset_close(&train);
}

TEST(class_survey_of_idx) {
  enum { N = 12, SIDE = 4 };
  char dir[512];
  snprintf(dir, sizeof dir, "%s/class-survey-idx", test_tmp());
  CHECK(dirs_make(dir, NULL));
  uint8_t pixels[N * SIDE * SIDE], labels[N];
  for (int i = 0; i < N; i++) labels[i] = (uint8_t)(i % 3);
  for (int i = 0; i < COUNT(pixels); i++) pixels[i] = (uint8_t)rng_u32(RNG_TEST, (uint64_t)i);
  memcpy(pixels + 5 * SIDE * SIDE, pixels + 2 * SIDE * SIDE, SIDE * SIDE); // of one class
  memcpy(pixels + 9 * SIDE * SIDE, pixels + 1 * SIDE * SIDE, SIDE * SIDE); // of another
  char *path = xasprintf("%s/train-images-idx3-ubyte", dir);
  CHECK(idx_save(&(Idx){N, SIDE, SIDE, pixels}, path, IDX_IMAGES, NULL));
  free(path);
  path = xasprintf("%s/train-labels-idx1-ubyte", dir);
  CHECK(idx_save(&(Idx){N, 1, 1, labels}, path, IDX_LABELS, NULL));
  free(path);
  Dataset d;
  ClassSurvey s;
  Err err = {""};
  if (!EXPECT(classes_open(&d, dir, "train", &(ClassOptions){0}, &err))) return;
  class_survey_take(&s, &d, false, NULL, NULL);
  EXPECT(s.copies == 2 && s.conflicts == 1 && s.copy[0] == 5 && s.copy[1] == 2 && s.conflict[0] == 9 &&
         s.conflict[1] == 1);
  class_survey_free(&s);
  dataset_close(&d);
}

static void expect_advice(const char *want, const Dataset *d, Size median, int size, const char *holdout) {
  char *flags = class_advice(d, &(ClassSurvey){.median = median}, size, holdout);
  EXPECT_STR(flags, want);
  free(flags);
}

// The network by the type and the number of images, the batch by their number, a split where there is none.
TEST(class_advice_by_set) {
  uint8_t gray[1];
  const Dataset digits = {.num_images = 60000, .gray = gray}, other = {.num_images = 1000, .gray = gray},
                maps = {.num_images = 2559, .gray = gray}, photographs = {.num_images = 19999},
                many = {.num_images = 20000}, few = {.num_images = 3};
  const char *phases = "10@1e-3,10@1e-4,25@1e-4 --augment standard --augment-after 20";
  char want[256];
  snprintf(want, sizeof want, "--model vgg-28 --phases %s --batch 128", phases);
  expect_advice(want, &digits, (Size){28, 28}, 0, "");
  snprintf(want, sizeof want, "--model vgg-28 --size 32 --phases %s --batch 32 --val-fraction 0.2", phases);
  expect_advice(want, &other, (Size){20, 32}, 0, " --val-fraction 0.2");
  expect_advice("--model resnet18 --size 96 --batch 64", &maps, (Size){96, 96}, 0, "");
  expect_advice("--model resnet18 --batch 128", &photographs, (Size){480, 640}, 0, "");
  expect_advice("--model resnet50 --size 160 --batch 128", &many, (Size){640, 191}, 0, "");
  expect_advice("--model resnet18 --size 64 --batch 8", &few, (Size){9, 9}, 0, "");
  expect_advice("--model resnet18 --size 100 --batch 8", &few, (Size){9, 9}, 100, "");
}

typedef struct Told {
  char *text, *json;
} Told;

static void tell(const Diagnosis *f, const char *json, const void *context) {
  Told *t = *(Told *const *)context;
  size_t size;
  FILE *out = open_memstream(&t->text, &size);
  diagnosis_print(out, f);
  fclose(out);
  t->json = xstrdup(json);
}

static Told told_of(bool decode, bool sound) {
  Told told = {0}, *to = &told;
  const SourceSurvey survey = {.dir = ill_set(), .canvas = {50, 50}, .decode = decode, .report = tell, .context = &to};
  EXPECT(class_report(&survey) == sound);
  return told;
}

static void expect_lines(const char *text, const char *const *line, int n) {
  for (int i = 0; i < n; i++)
    if (!EXPECT(strstr(text, line[i]))) printf("  missing: %s  in: %s\n", line[i], text);
}

static void forget(Told *t) {
  free(t->text);
  free(t->json);
}

#define SIZES "    images      10 of 2 classes; median 33 x 23 px, smallest 30 x 20 px, largest 37 x 27 px\n"
#define SMALL " smaller than half the input size and will be upscaled more than 2x\n"

TEST(class_report_of_what_is_wrong) {
  static const char *const text[] = {
      ", a folder of images per class\n",
      SIZES "    canvas      50 x 50\n    decoding    ",
      "\n  cat                                       6          3\n  dog                                       4       "
      "   0\n",
      "  train: image files that cannot be decoded: 1; replaced by another in training, left out in evaluation\n",
      "dog/6.png: cannot read the image: ",
      "  train: identical images with different classes: 1; each is used with its class\n"
      "    first: dog/cat.png (dog), identical to cat/2.png (cat)\n"
      "  val images that are also in train: 1; scores on val will be too high\n"
      "    first: cat/seen.png (cat), identical to cat/3.png (cat)\n",
      "hints\n"
      "  duplicate images in train: 1\n"
      "  7 images in train are" SMALL "  1 images in val are" SMALL
      "  only 10 training images: start from pretrained weights (--weights FILE --reset-heads)\n"
      "  classes without an image in val: 1\n",
      " --model resnet18 --size 50 --batch 8\n"};
  static const char *const json[] = {
      "\"layout\":\"folders\",\"sound\":false,\"train\":{\"stop\":null,\"images\":10,\"canvas\":[50,50],"
      "\"smallest_image\":[20,30],\"median_image\":[23,33],\"largest_image\":[27,37],\"small\":7,\"left_out\":0,"
      "\"unreadable\":1,\"first_unreadable\":\"",
      "\"copies\":2,\"conflicts\":1,\"other_files\":0,\"images_16_bit\":0,\"decode_ms\":0.",
      ("\"classes\":[{\"label\":0,\"name\":\"cat\",\"images\":6},{\"label\":1,\"name\":\"dog\",\"images\":4}]},\"val\":"
       "{"),
      "\"unreadable\":0,\"first_unreadable\":null,\"copies\":0,\"conflicts\":0,",
      "\"shared\":1,\"flags\":\"--model resnet18 --size 50 --batch 8\"}"};
  Told told = told_of(true, false);
  expect_lines(told.text, text, COUNT(text));
  expect_lines(told.json, json, COUNT(json));
  forget(&told);
}

// Where files are not read, nothing is said of what they hold.
TEST(class_report_of_names_and_sizes) {
  static const char *const text[] = {
      SIZES "    canvas      50 x 50\n  val\n", "\n  none in names and sizes; image files were not decoded\n",
      "hints\n  7 images in train are" SMALL "  1 images in val are" SMALL "  only 10 training images: "};
  static const char *const json[] = {"\"sound\":true,", "\"first_unreadable\":null,\"copies\":0,",
                                     "\"decode_ms\":null,", "\"shared\":0,"};
  Told told = told_of(false, true);
  expect_lines(told.text, text, COUNT(text));
  expect_lines(told.json, json, COUNT(json));
  forget(&told);
}

TEST_TIER(class_survey_of_doctor, 1) {
  const char *said, *dir = ill_set();
  EXPECT_INT(command(&said, "%s --data %s --size 50", tool("doctor"), dir), 1);
  static const char *const lines[] = {
      "    images      10 of 2 classes; median ",
      "  cat                                       6          3\n",
      "  train: image files that cannot be decoded: 1; replaced by another in training, left out in evaluation\n",
      "  train: identical images with different classes: 1; each is used with its class\n",
      ("  val images that are also in train: 1; scores on val will be too high\n"
       "    first: cat/seen.png (cat), identical to cat/3.png (cat)\n"),
      "  duplicate images in train: 1\n",
      "  only 10 training images: start from pretrained weights (--weights FILE --reset-heads)\n",
      "  classes without an image in val: 1\n"};
  for (int i = 0; i < COUNT(lines); i++)
    if (!EXPECT(strstr(said, lines[i]))) printf("  missing: %s  in: %s\n", lines[i], said);
  EXPECT_INT(command(&said, "%s --data %s --json", tool("doctor"), dir), 1);
  EXPECT(strstr(said, "\"layout\":\"folders\",\"sound\":false,") && strstr(said, "\"conflicts\":1,") &&
         strstr(said, "{\"label\":1,\"name\":\"dog\",\"images\":4}") &&
         strstr(said, "\"shared\":1,\"flags\":\"--model resnet18 --size 64 --batch 8\"}"));
  EXPECT_INT(command(&said, "%s --data %s --html %s", tool("doctor"), dir, in_tmp("page.html")), 1);
  EXPECT(path_is_file(in_tmp("page.html")) && path_is_file(in_tmp("page-pictures/picture-0012.jpg")));
  char made[512];
  snprintf(made, sizeof made, "%s/class-doctor", test_tmp());
  EXPECT_INT(command(&said, "%s --out %s --idx --folders", tool("shapes"), made), 2);
  EXPECT_INT(command(&said, "%s --out %s --idx --train 5", tool("shapes"), made), 2);
  EXPECT_INT(command(&said, "%s --out %s --idx --train 30 --val 6", tool("shapes"), made), 0);
  EXPECT_INT(command(&said, "%s --data %s", tool("doctor"), made), 0);
  EXPECT(strstr(said, "errors\n  none\n") && strstr(said, "all 28 x 28 px") && strstr(said, "  star ") &&
         strstr(said, "IDX files\n") && !strstr(said, "pretrained weights"));
  // What it suggests can be done.
  const char *suggested = strstr(said, "suggested command\n  ./train --data ");
  if (!EXPECT(suggested)) return;
  char *arguments = xstrdup(strstr(suggested, "--data"));
  EXPECT_INT(command(&said, "%s --device cpu --plan %.*s", tool("train"), (int)strcspn(arguments, "\n"), arguments), 0);
  free(arguments);
}
