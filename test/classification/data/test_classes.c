// Catches images with the wrong label, splits that overlap or change, and folder layouts that are misread.
#include <stdlib.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "classification/data/class_objects.h"
#include "classification/data/classes.h"
#include "classification/data/idx.h"
#include "data/batches/data_identity.h"
#include "data/images/png.h"
#include "data/images/shrink.h"
#include "test/harness/batches.h"
#include "test/harness/child.h"
#include "test/harness/small_set.h"

enum { SIDE = 12, PER_CLASS = 10 };

static const ClassOptions plain = {.size = {SIDE, SIDE}};

typedef struct Path {
  char s[1024];
} Path;

static Path join(const char *dir, const char *name) {
  Path p;
  CHECK(snprintf(p.s, sizeof p.s, "%s/%s", dir, name) < (int)sizeof p.s);
  return p;
}

static Path scratch_folder(const char *name) {
  char own[64]; // not the name of another file's test
  snprintf(own, sizeof own, "classes-%s", name);
  Path p = join(test_tmp(), own);
  CHECK(dirs_make(p.s, NULL));
  return p;
}

static void write_picture(const char *dir, const char *name, int h, int w, uint64_t key) {
  Image im = image_alloc(h, w);
  for (int i = 0; i < h * w * 3; i++) im.rgb[i] = (uint8_t)rng_u32(key, (uint64_t)i);
  CHECK(png_write(join(dir, name).s, &im, PNG_FAST, NULL));
  image_free(&im);
}

// DIR/CLASS/0.png …, of sizes that differ.
static void write_class(const char *dir, const char *name, int from, int images) {
  CHECK(dirs_make(join(dir, name).s, NULL));
  for (int i = from; i < from + images; i++) {
    char file[256];
    snprintf(file, sizeof file, "%s/%d.png", name, i);
    write_picture(dir, file, 9 + i % 5, 9 + i % 7, rng_key((uint64_t)name[0], (uint64_t)i));
  }
}

static bool opens(Dataset *d, const char *dir, const char *split, const ClassOptions *o) {
  Err err = {""};
  test_limit(120);
  return test_true(classes_open(d, dir, split, o, &err), *err.msg ? err.msg : split, __FILE__, __LINE__);
}

static void expect_refused(const char *dir, const char *split, const ClassOptions *o, const char *says) {
  Err err = {""};
  Dataset d;
  if (!EXPECT(!classes_open(&d, dir, split, o, &err) && strstr(err.msg, says)))
    printf("  said: %s\n  expected: %s\n", err.msg, says);
}

static void write_labels(const char *dir, const char *split, int n, uint8_t *labels) {
  char name[256];
  snprintf(name, sizeof name, "%s-labels-idx1-ubyte", split);
  CHECK(idx_save(&(Idx){n, 1, 1, labels}, join(dir, name).s, IDX_LABELS, NULL));
}

// n images of SIDE × SIDE noise; labels i % classes.
static void write_idx(const char *dir, const char *split, int n, int classes, uint64_t seed) {
  uint8_t *pixels = xmalloc((size_t)n * SIDE * SIDE), *labels = xmalloc((size_t)n);
  for (int i = 0; i < n * SIDE * SIDE; i++) pixels[i] = (uint8_t)rng_u32(seed, (uint64_t)i);
  for (int i = 0; i < n; i++) labels[i] = (uint8_t)(i % classes);
  char name[256];
  snprintf(name, sizeof name, "%s-images-idx3-ubyte.gz", split);
  CHECK(idx_save(&(Idx){n, SIDE, SIDE, pixels}, join(dir, name).s, IDX_IMAGES, NULL));
  write_labels(dir, split, n, labels);
  free(pixels);
  free(labels);
}

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
  const Path exported = scratch_folder("layout-exported"), drawn = scratch_folder("layout-drawn");
  write_class(exported.s, "images", 0, 1);
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

// ---- what is held out ----------------------------------------------------------------------------------------------

// Number of images, and of those in both.
static int common(const Dataset *a, const Dataset *b) {
  int n = 0;
  for (int i = 0; i < a->num_images; i++)
    for (int k = 0; k < b->num_images; k++)
      n += !strcmp(a->coco.images[a->image[i]].file_name, b->coco.images[b->image[k]].file_name);
  return n;
}

// Opens what is trained on and what is held out.
static bool opens_both(Dataset *train, Dataset *val, const char *dir, const HoldoutOptions *draw) {
  ClassOptions o = {.size = {SIDE, SIDE}, .holdout = {.draw = draw}};
  if (!opens(train, dir, "train", &o)) return false;
  o.holdout = (HoldoutUse){.held = train->holdout, .side = HOLDOUT_VAL};
  return opens(val, dir, "train", &o);
}

// Each class has its share on both sides; another seed holds out other images.
TEST(classes_held_out_by_class) {
  const Path at = scratch_folder("fraction");
  const char *root = at.s;
  write_class(root, "cat", 0, 24);
  write_class(root, "dog", 24, 8);
  Dataset train, val, others[2];
  HoldoutOptions o = {.fraction = 0.25f, .seed = 3};
  int count[2];
  if (!opens_both(&train, &val, root, &o)) return;
  EXPECT(train.num_images == 24 && val.num_images == 8 && common(&train, &val) == 0);
  classes_count(&val, count);
  EXPECT(count[0] == 6 && count[1] == 2);
  o.seed = 4;
  if (!opens_both(&others[0], &others[1], root, &o)) return;
  EXPECT(common(&others[1], &val) < 8);
  Dataset *const all[] = {&train, &val, &others[0], &others[1]};
  for (int i = 0; i < COUNT(all); i++) dataset_close(all[i]);
}

// Copies of an image are on one side, and the order of the file does not matter.
TEST(classes_held_out_of_idx_by_pixels) {
  enum { N = 80 };
  const Path at = scratch_folder("fraction-idx");
  const char *root = at.s;
  uint8_t *pixels = xmalloc((size_t)N * SIDE * SIDE), labels[N];
  bool held[2][N / 2] = {{false}};
  for (int order = 0; order < 2; order++) {
    for (int i = 0; i < N; i++) {
      const int which = (order ? N - 1 - i : i) % (N / 2); // each twice
      labels[i] = (uint8_t)(which % 2);
      for (int k = 0; k < SIDE * SIDE; k++)
        pixels[i * SIDE * SIDE + k] = (uint8_t)(k < 2 ? which : (int)rng_u32((uint64_t)which, (uint64_t)k));
    }
    CHECK(idx_save(&(Idx){N, SIDE, SIDE, pixels}, join(root, "train-images-idx3-ubyte").s, IDX_IMAGES, NULL));
    CHECK(idx_save(&(Idx){N, 1, 1, labels}, join(root, "train-labels-idx1-ubyte").s, IDX_LABELS, NULL));
    Dataset val, train;
    if (!opens_both(&train, &val, root, &(HoldoutOptions){.fraction = 0.2f, .seed = 3})) break;
    EXPECT(train.num_images == N - N / 5 && val.num_images == N / 5);
    for (int i = 0; i < val.num_images; i++) held[order][val.gray[(size_t)val.image[i] * SIDE * SIDE]] = true;
    for (int i = 0; i < train.num_images; i++) EXPECT(!held[order][train.gray[(size_t)train.image[i] * SIDE * SIDE]]);
    dataset_close(&val);
    dataset_close(&train);
  }
  EXPECT(!memcmp(held[0], held[1], sizeof held[0]));
  free(pixels);
}

// ---- batches --------------------------------------------------------------------------------------------------------

static LoaderOptions class_training(int batch) {
  LoaderOptions o = training(batch);
  o.masks = false;
  o.augment = (Augment){.rotate = 8, .shift = 0.08f, .zoom = 0.08f};
  return o;
}

// Every place holds the image that it says, its label, and the map of its key.
static void check_batch(const Dataset *d, const LoaderOptions *o, const Batch *b, int epoch) {
  for (int position = 0; position < b->images; position++) {
    const int i = b->index[position];
    const ImageInfo *info = &b->info[position];
    if (i < 0) {
      EXPECT(b->count[position] == 0 && b->label[position] == -1 && info->h == 0 && b->affine[6 * position] == 0);
      continue;
    }
    Image im;
    float want[6];
    const uint64_t key = rng_key(rng_key(o->seed, (uint64_t)epoch), (uint64_t)d->coco.images[d->image[i]].id);
    const bool augmented = o->train && epoch >= o->augment_from && (o->augment_until == 0 || epoch < o->augment_until);
    const bool flip = augmented && rng_uniform(rng_key(key, RNG_FLIP), 0) < o->flip;
    EXPECT(dataset_image(d, i, &im, NULL) && im.h == info->h && im.w == info->w);
    EXPECT(!memcmp(b->bytes + info->offset, im.rgb, (size_t)im.h * im.w * 3));
    EXPECT(b->count[position] == 1 && b->label[position] == d->object[i].label);
    EXPECT(info->rh == SIDE && info->rw == SIDE && info->key == key && info->flip == flip);
    augment_map(augmented ? &o->augment : NULL, d->view, key, flip, (Size){im.h, im.w}, (Size){SIDE, SIDE}, want);
    EXPECT(!memcmp(b->affine + 6 * position, want, sizeof want));
    image_free(&im);
  }
}

static void check_epochs(const Dataset *d) {
  LoaderOptions o = class_training(5);
  o.augment_from = 1;
  o.augment_until = 2;
  Err err;
  Loader *l = loader_open(d, &o, &err);
  if (!EXPECT(l)) return;
  const int steps = (int)loader_steps_per_epoch(l);
  EXPECT_INT(steps, (d->num_images + 4) / 5);
  int *seen = xcalloc((size_t)d->num_images, sizeof *seen);
  for (int step = 0; step < 3 * steps; step++) {
    const Batch *b = loader_next(l, &err);
    if (!EXPECT(b)) break;
    EXPECT_INT(b->used, 5);
    check_batch(d, &o, b, step / steps);
    for (int position = 0; position < 5 && step < steps; position++) seen[b->index[position]]++;
  }
  for (int i = 0; i < d->num_images; i++) EXPECT(seen[i] >= 1);
  free(seen);
  loader_close(l);
  // From the middle, with another number of threads: the same batches.
  enum { STEPS = 9, FROM = 4 };
  uint64_t whole[STEPS], part[STEPS - FROM];
  run_hashes(d, &o, whole, STEPS);
  o.first_step = FROM;
  o.threads = 5;
  run_hashes(d, &o, part, STEPS - FROM);
  EXPECT(!memcmp(whole + FROM, part, sizeof part));
}

static void check_evaluation(const Dataset *d) {
  LoaderOptions o = class_training(5);
  o.train = false;
  Err err;
  Loader *l = loader_open(d, &o, &err);
  int next = 0;
  for (const Batch *b; (b = loader_next(l, &err));) {
    check_batch(d, &o, b, 0);
    for (int position = 0; position < b->used; position++) EXPECT_INT(b->index[position], next++);
  }
  EXPECT(next == d->num_images && !*err.msg);
  loader_close(l);
}

TEST(classes_make_batches) {
  const Path idx = scratch_folder("batches-idx"), by_class = scratch_folder("batches");
  const char *folders = by_class.s;
  write_idx(idx.s, "train", 23, 3, 1);
  write_class(folders, "cat", 0, PER_CLASS);
  write_class(folders, "dog", 0, PER_CLASS - 3);
  for (int k = 0; k < 2; k++) {
    Dataset d;
    if (!opens(&d, k ? folders : idx.s, "train", &plain)) continue;
    check_epochs(&d);
    check_evaluation(&d);
    dataset_close(&d);
  }
}

// An image whose header is fine and whose pixels are not is replaced in training and left out of an evaluation.
TEST(classes_replace_bad_images) {
  const Path at = scratch_folder("replaced");
  const char *root = at.s;
  write_class(root, "cat", 0, 6);
  write_class(root, "dog", 0, 6);
  size_t size;
  char *bytes = file_read(join(root, "cat/2.png").s, &size, NULL);
  FILE *f = fopen(join(root, "cat/2.png").s, "wb");
  CHECK(bytes && f && fwrite(bytes, 1, size / 2, f) == size / 2 && fclose(f) == 0);
  free(bytes);
  Dataset d;
  if (!opens(&d, root, "train", &plain)) return;
  EXPECT_INT(d.num_images, 12);
  int kept = quiet_begin(join(root, "stderr").s);
  for (int train = 0; train < 2; train++) {
    Err err;
    LoaderOptions o = class_training(4);
    o.train = train;
    Loader *l = loader_open(&d, &o, &err);
    int used = 0;
    for (int step = 0; step < 3; step++) {
      const Batch *b = loader_next(l, &err);
      if (!EXPECT(b)) break;
      used += b->used;
      for (int position = 0; position < 4; position++)
        EXPECT(b->index[position] < 0 || strcmp(d.coco.images[d.image[b->index[position]]].file_name, "cat/2.png"));
    }
    EXPECT_INT(used, train ? 12 : 11);
    EXPECT_INT(loader_bad_images(l), 1);
    loader_close(l);
  }
  quiet_end(kept);
  EXPECT_INT(dataset_bad_images(&d), 1);
  dataset_close(&d);
}

// Large photographs are divided as they are decoded, and the map is of what is left.
TEST(classes_shrink_photographs) {
  const Path at = scratch_folder("large");
  const char *root = at.s;
  write_class(root, "cat", 0, 2);
  CHECK(dirs_make(join(root, "dog").s, NULL));
  write_picture(root, "dog/large.png", 8 * SIDE + 5, 9 * SIDE + 3, 7); // to a quarter
  write_picture(root, "dog/medium.png", 4 * SIDE - 1, 5 * SIDE, 8);    // as it is
  Dataset d;
  if (!opens(&d, root, "train", &plain)) return;
  EXPECT_INT(d.max_whole, 3 * (8 * SIDE + 5) * (9 * SIDE + 3));
  EXPECT_INT(d.max_bytes, 3 * (4 * SIDE - 1) * (5 * SIDE));
  Err err;
  LoaderOptions o = class_training(4);
  o.train = false;
  Loader *l = loader_open(&d, &o, &err);
  const Batch *b = loader_next(l, &err);
  int found = 0;
  for (int position = 0; EXPECT(b) && position < b->used; position++) {
    const int i = b->index[position];
    const ImageInfo *info = &b->info[position];
    if (strcmp(d.coco.images[d.image[i]].file_name, "dog/large.png") != 0) continue;
    found++;
    Image im;
    float map[6];
    const int h = (8 * SIDE + 5) / 4, w = (9 * SIDE + 3) / 4;
    EXPECT(dataset_image(&d, i, &im, &err) && info->h == h && info->w == w);
    shrink(im.rgb, im.h, im.w, 4, im.rgb);
    EXPECT(!memcmp(b->bytes + info->offset, im.rgb, (size_t)h * w * 3));
    augment_map(NULL, 1, info->key, false, (Size){h, w}, (Size){SIDE, SIDE}, map);
    EXPECT(!memcmp(b->affine + 6 * position, map, sizeof map));
    image_free(&im);
  }
  EXPECT_INT(found, 1);
  loader_close(l);
  dataset_close(&d);
}
