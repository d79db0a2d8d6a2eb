// Catches hold-outs that are not the same again: by another order of the file, as a text, in a folder that has changed.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/batches/dataset.h"
#include "data/batches/holdout.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

static Holdout drawn_from(const char *dir, const HoldoutOptions *draw) {
  DatasetOptions o = small_options;
  Dataset d;
  Holdout h = {0};
  o.holdout.draw = draw;
  if (!open_set(&d, dir, &o)) return h;
  h = *d.holdout;
  free(d.holdout);
  d.holdout = NULL;
  dataset_close(&d);
  return h;
}

// Opens a side; false with a message.
static bool opens_side(Dataset *d, const char *dir, const Holdout *h, HoldoutSide side, Err *err) {
  DatasetOptions o = small_options;
  o.keep_empty = true;
  o.holdout = (HoldoutUse){.held = h, .side = side};
  return dataset_open(d, dir, "train", &o, err);
}

static Holdout read_again(const Holdout *h) {
  Holdout again;
  Err err;
  char *text = holdout_text(h);
  CHECK(holdout_read(&again, text, &err));
  char *twice = holdout_text(&again);
  EXPECT_STR(twice, text);
  free(text);
  free(twice);
  return again;
}

TEST(holdout_divides_all_images) {
  char *dir = xstrdup(small_set("holdout"));
  const HoldoutOptions draw = {.fraction = 0.3f, .seed = 1};
  Holdout h = drawn_from(dir, &draw), again = read_again(&h);
  Err err;
  Dataset train, val, other;
  if (!EXPECT(opens_side(&train, dir, &again, HOLDOUT_TRAIN, &err) &&
              opens_side(&val, dir, &again, HOLDOUT_VAL, &err))) {
    puts(err.msg);
    return;
  }
  EXPECT_STR(h.by, "--val-fraction 0.3 --split-seed 1");
  EXPECT(train.num_images + val.num_images == IMAGES && val.num_images == 4 && h.held == 4 && h.trained == IMAGES - 4);
  int empty = 0, seen[3] = {0};
  for (int i = 0; i < val.num_images; i++) {
    empty += image_objects(image_number(&val, i)) == 0;
    for (int k = 0; k < train.num_images; k++) EXPECT(image_number(&val, i) != image_number(&train, k));
    for (int o = val.first_object[i]; o < val.first_object[i + 1]; o++) seen[val.object[o].label]++;
  }
  EXPECT(empty == 1 && seen[1] > 0 && seen[2] > 0); // one of two without objects
  // The annotations are those of the side's images.
  for (int a = 0; a < val.coco.num_anns; a++) EXPECT(coco_find_image(&val.coco, val.coco.anns[a].image_id) >= 0);
  const HoldoutOptions reseeded = {.fraction = 0.3f, .seed = 2};
  Holdout of_other = drawn_from(dir, &reseeded);
  EXPECT(!holdout_same(&h, &of_other, false, &err));
  if (EXPECT(opens_side(&other, dir, &of_other, HOLDOUT_VAL, &err))) dataset_close(&other);
  dataset_close(&train);
  dataset_close(&val);
  holdout_free(&h);
  holdout_free(&again);
  holdout_free(&of_other);
  free(dir);
}

// Every image is held out by one fold.
TEST(holdout_folds_are_a_partition) {
  char *dir = xstrdup(small_set("holdout-folds"));
  int held = 0;
  Holdout fold[3];
  for (int i = 0; i < 3; i++) {
    fold[i] = drawn_from(dir, &(HoldoutOptions){.fold = i + 1, .folds = 3, .seed = 1});
    held += fold[i].held;
    EXPECT(fold[i].held == 4 || fold[i].held == 5);
    for (int k = 0; k < i; k++)
      for (int a = 0; a < fold[i].held; a++)
        for (int b = 0; b < fold[k].held; b++) EXPECT(strcmp(fold[i].val[a].name, fold[k].val[b].name));
  }
  EXPECT_INT(held, IMAGES);
  for (int i = 0; i < 3; i++) holdout_free(&fold[i]);
  free(dir);
}

// A list in memory: four images of category 0, four of 1; ids are positions.
static bool draws(Holdout *h, const char *const *name, int n, const HoldoutOptions *o, Notes *notes, Err *err) {
  int first[9], of[8];
  uint64_t key[8];
  for (int i = 0; i < n; i++) {
    first[i] = i;
    of[i] = name[i][0] == 'b';
    key[i] = (uint64_t)(name[i][1] - '0' + 10 * of[i]); // the pixels
  }
  first[n] = n;
  ImageList l = {.of = "set", .n = n, .name = (const char **)name, .key = key};
  return holdout_draw(h, &l, &(ImageCategories){2, first, of}, o, "train", notes, err);
}

TEST(holdout_does_not_depend_on_the_order_of_images) {
  static const char *const name[] = {"a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4"}, *const turned[] = {
                                                                                          "b4", "a2", "b3", "a4",
                                                                                          "b1", "a1", "a3", "b2"};
  Holdout h[2];
  Notes notes = {0};
  Err err;
  for (uint64_t seed = 0; seed < 8; seed++) {
    const HoldoutOptions o = {.fraction = 0.25f, .seed = seed};
    if (!EXPECT(draws(&h[0], name, 8, &o, &notes, &err) && draws(&h[1], turned, 8, &o, &notes, &err))) return;
    EXPECT(h[0].held == 2 && h[0].val[0].name[0] == 'a' && h[0].val[1].name[0] == 'b');
    EXPECT(holdout_same(&h[0], &h[1], false, &err));
    for (int i = 0; i < 2; i++) holdout_free(&h[i]);
    notes_free(&notes);
  }
}

TEST(holdout_keeps_groups_together) {
  static const char *const name[] = {"a1/x", "a2/x", "a3/y", "a4/y", "b1/x", "b2/x", "b3/z", "b4/z"};
  Holdout h;
  Notes notes = {0};
  Err err;
  const HoldoutOptions o = {.fraction = 0.25f, .group = "/(.)"};
  if (!EXPECT(draws(&h, name, 8, &o, &notes, &err))) return;
  EXPECT(h.groups == 3 && h.held == 2 && h.val[0].name[3] == h.val[1].name[3] && h.val[0].name[3] != 'x');
  EXPECT(strstr(notes.line[0],
                "set: --val-fraction 0.25 --split-seed 0 --group '/(.)' holds out 2 of 8 images (25.0 %)") &&
         strstr(notes.line[0], "; groups that stay together: 3; names that --group does not match: 0"));
  notes_free(&notes);
  holdout_free(&h);
}

static void expect_refused(const char *says, const char *const *name, int n, const HoldoutOptions *o) {
  Holdout h;
  Notes notes = {0};
  Err err = {""};
  EXPECT(!draws(&h, name, n, o, &notes, &err));
  if (!EXPECT(strstr(err.msg, says))) puts(err.msg);
}

TEST(holdout_refuses_what_cannot_be_divided) {
  static const char *const name[] = {"a1", "a1", "b1", "b2"}, *const bad[] = {"a1", "b\xff"},
                           *const field[] = {"a1", "a2", "a3"};
  expect_refused("all images are in one group; choose another --group", field, 3,
                 &(HoldoutOptions){.fraction = 0.5f, .group = "^."});
  expect_refused("--group (z)1 matches none of the 4 file names of set (a1); it is a POSIX extended", name, 4,
                 &(HoldoutOptions){.fraction = 0.5f, .group = "(z)1"});
  expect_refused("all image files are identical", name, 2, &(HoldoutOptions){.fraction = 0.5f});
  expect_refused("it has fewer than two images", name, 1, &(HoldoutOptions){.fraction = 0.5f});
  expect_refused("--fold 2/5: set has only 3 groups of images; choose at most 3 folds", name, 4,
                 &(HoldoutOptions){.fold = 2, .folds = 5});
  expect_refused("--val-fraction 0.1 of the 4 images of set is less than half an image; give at least 0.125", name, 4,
                 &(HoldoutOptions){.fraction = 0.1f});
  expect_refused("the name is not UTF-8", bad, 2, &(HoldoutOptions){.fraction = 0.5f});
}

static void expect_other_data(const char *says, const char *dir, const Holdout *h) {
  Dataset d;
  Err err = {""};
  if (!EXPECT(!opens_side(&d, dir, h, HOLDOUT_VAL, &err))) {
    dataset_close(&d);
    return;
  }
  if (!EXPECT(strstr(err.msg, says))) puts(err.msg);
}

// By weights that were trained elsewhere, in a folder that got images, lost some, or has others under their names.
TEST(holdout_is_refused_where_its_images_have_changed) {
  char *dir = xstrdup(small_set("holdout-changed"));
  Holdout drawn = drawn_from(dir, &(HoldoutOptions){.fraction = 0.2f}), h = read_again(&drawn);
  Err err = {""};
  Dataset d;
  char *json = xasprintf("%s/annotations/instances_train.json", dir),
       *path = xasprintf("%s/train/%s", dir, h.val[0].name);
  size_t size;
  char *text = file_read(json, &size, NULL), *file = file_read(path, &size, NULL);
  char *more = xstrdup(text), *at = strstr(more, "\"images\":[");
  char *longer = xasprintf("%.*s{\"id\":7,\"file_name\":\"later.png\",\"height\":9,\"width\":9},%s",
                           (int)(at + 10 - more), more, at + 10);
  write_text(json, longer);
  if (EXPECT(opens_side(&d, dir, &h, HOLDOUT_VAL, &err))) {
    EXPECT_INT(d.num_images, h.held);
    EXPECT(d.notes.n && strstr(d.notes.line[d.notes.n - 1], "neither trained on nor held out, and are left out: 1"));
    dataset_close(&d);
  }
  write_text(json, text);
  FILE *f = fopen(path, "r+b"); // of the same length
  CHECK(f && fseek(f, -1, SEEK_END) == 0 && fputc(file[size - 1] ^ 1, f) != EOF && fclose(f) == 0);
  expect_other_data("the image has changed; it was held out in training, and 1 of the 3 images held out", dir, &h);
  CHECK(remove(path) == 0);
  expect_other_data("the file is missing or cannot be read; it was held out", dir, &h);
  char *name = strstr(text, h.val[0].name);
  name[0] = 'x';
  write_text(json, text);
  expect_other_data("1 of the 3 images that training held out are not in it: ", dir, &h);
  expect_other_data(
      "none of the 3 images that training held out is in it", small_set("holdout-other"),
      &(Holdout){.split = "train", .by = "", .val = (HeldImage[]){{"q", 1, 0}, {"r", 1, 0}, {"s", 1, 0}}, .held = 3});
  char *const all[] = {json, path, text, file, more, longer, dir};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
  holdout_free(&drawn);
  holdout_free(&h);
}

// A scored image whose objects are no longer those of training is named; crowds and the order of objects are no change.
TEST(holdout_tells_changed_annotations) {
  char *dir = xstrdup(small_set("holdout-annotations")), *json = xasprintf("%s/annotations/instances_train.json", dir);
  Holdout drawn = drawn_from(dir, &(HoldoutOptions){.fraction = 0.2f}), h = read_again(&drawn);
  Dataset d;
  Err err;
  size_t size;
  char *text = file_read(json, &size, NULL);
  for (int changed = 0; changed < 2; changed++) {
    int labelled = 0;
    if (!EXPECT(opens_side(&d, dir, &h, HOLDOUT_VAL, &err))) return;
    for (int i = 0; i < d.coco.num_images; i++) labelled += d.coco.images[i].anns > 0;
    char *want =
        xasprintf("annotations have changed since training held these images out: %d of %d; first: ", labelled, h.held);
    EXPECT(d.notes.n ? changed && strstr(d.notes.line[0], want) : !changed);
    free(want);
    dataset_close(&d);
    for (char *at = text; (at = strstr(at, "\"bbox\":[")); at += 9) at[8] = '1' + (at[8] == '1'); // another x
    write_text(json, text);
  }
  const HoldoutOptions draw = {.fraction = 0.2f};
  Holdout now = drawn_from(dir, &draw);
  EXPECT(!holdout_same(&h, &now, true, &err) && strstr(err.msg, ", which is held out, have changed"));
  holdout_free(&now);
  holdout_free(&drawn);
  holdout_free(&h);
  free(text);
  free(json);
  free(dir);
}

// What cannot be read is trained on, where it is reported.
TEST(holdout_of_missing_files) {
  char *dir = xstrdup(small_set("holdout-missing"));
  const HoldoutOptions draw = {.fraction = 0.3f, .seed = 1};
  Holdout h = drawn_from(dir, &draw);
  char *path = xasprintf("%s/train/%s", dir, h.val[1].name);
  CHECK(remove(path) == 0);
  Holdout fewer = drawn_from(dir, &draw);
  EXPECT_INT(fewer.held, h.held - 1);
  EXPECT_INT(fewer.trained, h.trained + 1);
  holdout_free(&h);
  holdout_free(&fewer);
  free(path);
  free(dir);
}
