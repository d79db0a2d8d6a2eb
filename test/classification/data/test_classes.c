// Catches images with the wrong label, and layouts of folders that are misread.
#include <sys/stat.h>
#include <unistd.h>
#include "classification/data/class_objects.h"
#include "data/batches/data_identity.h"
#include "test/harness/child.h"
#include "test/harness/class_folders.h"
#include "test/harness/small_set.h"

TEST(classes_know_layouts) {
  const Path paths[] = {scratch_folder("layout-idx"), scratch_folder("layout-split"), scratch_folder("layout-flat"),
                        scratch_folder("layout-coco")};
  const char *idx = paths[0].s, *sorted = paths[1].s, *flat = paths[2].s, *coco = paths[3].s;
  write_idx(idx, "train", 4, 2, 1);
  write_class(join(sorted, "train").s, "cat", 0, 1);
  write_class(flat, "cat", 0, 1);
  write_class(flat, "train", 0, 1); // a class of that name
  EXPECT_INT(classes_layout(idx), CLASSES_IDX);
  EXPECT_INT(classes_layout(sorted), CLASSES_FOLDERS);
  EXPECT_INT(classes_layout(flat), CLASSES_FOLDERS);
  EXPECT_INT(classes_layout(coco), CLASSES_NONE);
  write_class(coco, "train2017", 0, 1);
  write_class(coco, "val2017", 0, 1);
  EXPECT_INT(classes_layout(coco), CLASSES_NONE); // a COCO set without its annotations
  CHECK(dirs_make(join(flat, "annotations").s, NULL));
  EXPECT_INT(classes_layout(flat), CLASSES_NONE);
  EXPECT_INT(classes_layout("/nowhere"), CLASSES_NONE);
  char *roboflow = xasprintf("%s/Roboflow", test_tmp()), *train = xasprintf("%s/Train", roboflow),
       *valid = xasprintf("%s/Valid", roboflow);
  CHECK(dirs_make(train, NULL) && dirs_make(valid, NULL));
  EXPECT_INT(classes_layout(roboflow), CLASSES_NONE); // without its annotations
  free(roboflow);
  free(train);
  free(valid);
  const Path exported = scratch_folder("layout-exported"), drawn = scratch_folder("layout-drawn");
  write_class(exported.s, "pictures", 0, 1);
  write_text(join(exported.s, "names.json").s, "{}");
  EXPECT_INT(classes_layout(exported.s), CLASSES_FOLDERS);
  write_text(join(exported.s, "result.json").s, "{\"annotations\":[]}");
  EXPECT_INT(classes_layout(exported.s), CLASSES_NONE);
  write_class(join(drawn.s, "train").s, "images", 0, 1);
  EXPECT_INT(classes_layout(drawn.s), CLASSES_FOLDERS);
  write_class(join(drawn.s, "train").s, "masks", 0, 1);
  EXPECT_INT(classes_layout(drawn.s), CLASSES_NONE);
  EXPECT(classes_has(idx, "train") && !classes_has(idx, "val") && !classes_has(idx, "test"));
  write_text(join(idx, "val-labels-idx1-ubyte").s, ""); // half of a split is one that cannot be opened
  EXPECT(classes_has(idx, "val"));
  expect_refused(idx, "val", &plain, "val-labels-idx1-ubyte: no images for it; put ");
  EXPECT(classes_has(sorted, "train") && !classes_has(sorted, "val") && !classes_has("/nowhere", "train"));
  expect_refused("/nowhere", "train", &plain, "/nowhere: neither IDX files");
  expect_refused(idx, "valuation", &plain,
                 "split valuation: the splits of a classification data set are train, val and test");
}

TEST(classes_from_idx) {
  const Path at = scratch_folder("idx");
  const char *dir = at.s;
  write_idx(dir, "train", 23, 3, 1);
  write_idx(dir, "t10k", 6, 2, 2);
  Dataset d, val;
  if (!opens(&d, dir, "train", &(ClassOptions){0})) return;
  EXPECT(d.type == &objects_of_classes && d.classes == 3 && d.num_images == 23 && d.max_objects == 1);
  EXPECT(d.num_canvases == 1 && d.canvas[0].h == SIDE && d.canvas[0].w == SIDE && d.canvas[0].images == 23);
  EXPECT_INT(d.max_bytes, 3 * SIDE * SIDE);
  EXPECT_STR(d.coco.categories[2].name, "2");
  EXPECT_STR(d.coco.images[7].file_name, "train-images-idx3-ubyte.gz#7");
  int count[3];
  classes_count(&d, count);
  EXPECT(count[0] == 8 && count[1] == 8 && count[2] == 7);
  const CategoryList known = dataset_categories(&d);
  if (opens(&val, dir, "val", &(ClassOptions){.like = &known})) {
    EXPECT(val.classes == 3 && val.num_images == 6); // of two of them
    EXPECT(data_identity(&val, NULL).files != data_identity(&d, NULL).files);
    dataset_close(&val);
  }
  write_idx(dir, "test", 6, 4, 2);
  expect_refused(dir, "test", &(ClassOptions){.like = &known}, "test-labels-idx1-ubyte: 1 category is not in ");
  write_text(join(dir, "classes.txt").s, "cat\r\ndog\n");
  expect_refused(dir, "train", &plain, "/classes.txt names only classes 0 to 1; add a line for each class");
  write_text(join(dir, "classes.txt").s, "cat\ndog\nb\xe9te\n");
  expect_refused(dir, "train", &plain, "classes.txt: not UTF-8; save it as UTF-8");
  CHECK(!unlink(join(dir, "classes.txt").s) && !mkfifo(join(dir, "classes.txt").s, 0600));
  expect_refused(dir, "train", &plain, "/classes.txt: it is a pipe, not a regular file");
  CHECK(!unlink(join(dir, "classes.txt").s) && !symlink("nothing", join(dir, "classes.txt").s));
  expect_refused(dir, "train", &plain, "/classes.txt: No such file");
  CHECK(!unlink(join(dir, "classes.txt").s));
  write_text(join(dir, "classes.txt").s, "cat\ndog\ncat\n");
  expect_refused(dir, "train", &plain, "classes.txt: classes 0 and 2 have the same name, cat; rename one");
  write_text(join(dir, "classes.txt").s, "\xef\xbb\xbf"
                                         "cat\ndog\n\nfly\nnone");
  if (opens(&val, dir, "train", &plain)) {
    EXPECT_INT(val.classes, 4);
    EXPECT_STR(val.coco.categories[0].name, "cat");
    write_text(join(dir, "classes.txt").s, "cat\ndog\nbee\nnone");
    const CategoryList flies = dataset_categories(&val);
    expect_refused(dir, "train", &(ClassOptions){.like = &flies}, "/classes.txt: 1 category is not in ");
    write_text(join(dir, "classes.txt").s, "dog\ncat\nFly\nbee"); // in another order; and no image is of a bee
    Dataset other;
    if (opens(&other, dir, "train", &(ClassOptions){.like = &flies})) {
      EXPECT(other.object[0].label == 1 - val.object[0].label && other.classes == 4);
      EXPECT(strstr(other.notes.line[0], "categories are mapped by name: 0 dog to 1, 1 cat to 0"));
      EXPECT(strstr(other.notes.line[1], "and are treated as the same: \"Fly\" for \"fly\""));
      EXPECT(strstr(other.notes.line[2], " are left out: 3 bee"));
      dataset_close(&other);
    }
    EXPECT_STR(val.coco.categories[2].name, "fly");
    dataset_close(&val);
  }
  dataset_close(&d);
  // Labels that no image has are classes: EMNIST's letters begin at 1.
  CHECK(unlink(join(dir, "classes.txt").s) == 0);
  uint8_t letters[23];
  for (int i = 0; i < COUNT(letters); i++) letters[i] = i % 2 ? 5 : 1;
  CHECK(idx_save(&(Idx){COUNT(letters), 1, 1, letters}, join(dir, "train-labels-idx1-ubyte").s, IDX_LABELS, NULL));
  if (opens(&d, dir, "train", &plain)) {
    EXPECT(d.classes == 6 && d.object[1].label == 5);
    dataset_close(&d);
  }
  expect_refused(dir, "train", &(ClassOptions){.holdout = {.draw = &(HoldoutOptions){.fraction = 0.01f}}},
                 "--val-fraction 0.01 of the 23 images of ");
}

TEST(classes_from_folders) {
  const Path at = scratch_folder("folders"), in = join(at.s, "train"), val_in = join(at.s, "val");
  const char *dir = at.s, *train = in.s, *val = val_in.s;
  write_class(train, "dog", 0, 5);
  write_class(train, "Zebra", 0, 4); // capitals come first: byte by byte
  write_class(train, "cat/more", 0, 3);
  write_class(val, "dog", 9, 2);
  write_text(join(train, "dog/notes.txt").s, "");
  write_text(join(train, "dog/.hidden.png").s, "");
  Dataset d, v;
  if (!opens(&d, dir, "train", &plain)) return;
  EXPECT_INT(d.num_images, 12);
  EXPECT_INT(d.classes, 3);
  EXPECT_INT(d.others, 1);
  EXPECT_STR(d.coco.categories[0].name, "Zebra");
  EXPECT_STR(d.coco.categories[2].name, "dog");
  for (int i = 0; i < d.num_images; i++) {
    const CocoImage *im = &d.coco.images[d.image[i]];
    const char *name = d.coco.categories[d.object[i].label].name;
    EXPECT(!strncmp(im->file_name, name, strlen(name)));
    EXPECT(i == 0 || im->id > d.coco.images[d.image[i - 1]].id);
    EXPECT_INT(d.first_object[i], i);
  }
  const CategoryList known = dataset_categories(&d);
  if (opens(&v, dir, "val", &(ClassOptions){.size = {SIDE, SIDE}, .like = &known})) {
    EXPECT(v.classes == 3 && v.num_images == 2 && v.object[0].label == 2);
    dataset_close(&v);
  }
  const ClassOptions few = {.size = {SIDE, SIDE}, .limit = 5};
  if (opens(&v, dir, "train", &few)) {
    EXPECT_INT(v.num_images, 5);
    dataset_close(&v);
  }
  write_class(val, "fox", 0, 1);
  expect_refused(dir, "val", &(ClassOptions){.like = &known}, "/val: 1 category is not in ");
  dataset_close(&d);
}

TEST(classes_refuses_folders) {
  const Path at = scratch_folder("refused"), in = join(at.s, "train");
  const char *root = at.s, *train = in.s;
  write_class(train, "cat", 0, 2);
  expect_refused(root, "train", &plain, "/train: only one class, cat; ");
  write_class(train, "dog", 0, 1);
  expect_refused(root, "val", &plain,
                 ": no folder val with a folder per class; put images there by class, or use --val-fraction");
  CHECK(dirs_make(join(train, "empty").s, NULL));
  expect_refused(root, "train", &plain,
                 "/train/empty: no readable JPEG or PNG file; put images there, or remove the folder");
  CHECK(rmdir(join(train, "empty").s) == 0);
  write_class(train, "Cat", 0, 1);
  expect_refused(
      root, "train", &plain,
      ": the names of the folders Cat and cat differ only in case or Unicode normalization; rename or merge them");
  CHECK(unlink(join(train, "Cat/0.png").s) == 0 && rmdir(join(train, "Cat").s) == 0);
  write_class(train, "caf\u00e9", 0, 1);
  write_class(train, "CAFE\u0301", 0, 1);
  expect_refused(root, "train", &plain, " differ only in case or Unicode normalization; rename or merge them");
  CHECK(unlink(join(train, "CAFE\u0301/0.png").s) == 0 && rmdir(join(train, "CAFE\u0301").s) == 0);
  CHECK(symlink("cat", join(train, "kitten").s) == 0);
  expect_refused(root, "train", &plain, ": cat and kitten are the same folder; remove the link");
  CHECK(unlink(join(train, "kitten").s) == 0);
  CHECK(symlink("..", join(train, "cat/back").s) == 0);
  expect_refused(root, "train", &plain, ": folders are nested deeper than 16 levels; does a link lead back up?");
  CHECK(unlink(join(train, "cat/back").s) == 0);
  write_class(train, "caf\xe9", 0, 1); // Latin-1
  expect_refused(root, "train", &plain, "the folder's name is not UTF-8; rename it");
}

TEST(classes_refuse_one_label) {
  const Path at = scratch_folder("one-label");
  write_idx(at.s, "train", 6, 1, 1);
  expect_refused(at.s, "train", &plain, "only one class, 0; a classifier needs at least two");
  write_labels(at.s, "train", 6, (uint8_t[]){5, 5, 5, 5, 5, 5});
  expect_refused(at.s, "train", &plain, "only one class, 5; a classifier needs at least two");
}

TEST(classes_refuse_two_folders_of_a_split) {
  const Path at = scratch_folder("twice"), train = join(at.s, "train"), val = join(at.s, "val");
  write_class(train.s, "cat", 0, 2);
  write_class(train.s, "dog", 0, 2);
  write_class(val.s, "dog", 0, 1);
  write_class(join(at.s, "test").s, "dog", 0, 1);
  Dataset d, v;
  if (!opens(&d, at.s, "train", &plain)) return;
  const CategoryList known = dataset_categories(&d);
  const ClassOptions o = {.size = {SIDE, SIDE}, .like = &known};
  if (opens(&v, at.s, "val", &o)) dataset_close(&v); // test/ is another split
  write_class(join(at.s, "valid").s, "dog", 0, 1);
  expect_refused(at.s, "val", &o, "classes-twice/val and ");
  expect_refused(at.s, "val", &o, "classes-twice/valid are both names of the same split; merge or rename one");
  write_class(join(at.s, "training").s, "dog", 0, 1);
  expect_refused(at.s, "train", &plain, "classes-twice/training are both names of the same split");
  dataset_close(&d);
}

// Bad headers are left out and counted, whichever class they are of; a class of which none is left stops.
TEST(classes_leave_out_what_has_no_size) {
  const Path at = scratch_folder("unreadable"), in = join(at.s, "train");
  const char *root = at.s, *train = in.s;
  write_class(train, "cat", 0, 3);
  write_class(train, "dog", 0, 3);
  write_text(join(train, "cat/1.png").s, "version https://git-lfs.github.com/spec/v1\n");
  write_text(join(train, "dog/3.JPG").s, "");
  Dataset d;
  const Path log = join(root, "stderr");
  int kept = quiet_begin(log.s);
  if (opens(&d, root, "train", &plain)) {
    EXPECT_INT(d.num_images, 5);
    EXPECT_INT(dataset_bad_images(&d), 2);
    dataset_close(&d);
  }
  write_text(join(train, "cat/0.png").s, "");
  write_text(join(train, "cat/2.png").s, "");
  expect_refused(root, "train", &plain,
                 "/train/cat: no readable JPEG or PNG file; put images there, or remove the folder");
  quiet_end(kept);
  char *said = file_read(join(root, "stderr").s, &(size_t){0}, NULL);
  EXPECT(said && strstr(said, "unusable image left out: ") &&
         strstr(said, "/train/cat/1.png: cannot read the image: a Git "));
  free(said);
  const ClassOptions strict = {.size = {SIDE, SIDE}, .strict = true};
  expect_refused(root, "train", &strict, ".png: cannot read the image: ");
}
