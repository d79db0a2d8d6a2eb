// Catches synthetic classification sets that change under the same seed, or overwrite other files.
#include <stdlib.h>
#include <unistd.h>
#include "base/alloc.h"
#include "classification/data/class_folders.h"
#include "classification/data/idx.h"
#include "classification/data/shapes_classes.h"
#include "data/images/image.h"
#include "test/harness/test.h"

static ShapesConfig config(const char *dir, int train, int val) {
  return (ShapesConfig){.dir = dir, .train = train, .val = val, .size = 28, .seed = 5};
}

static const char *folder(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", test_tmp(), name);
  return path;
}

TEST(shapes_classes_as_idx) {
  static const char *const splits[][2] = {{"train", NULL}, {"t10k", NULL}};
  const char *dir = folder("shapes-idx");
  const ShapesConfig c = config(dir, 20, 7);
  Err err = {""};
  Idx before = {0};
  for (int again = 0; again < 2; again++) {
    if (!EXPECT(shapes_write_classes(&c, SHAPES_IDX, &err))) break;
    for (int s = 0; s < 2; s++) {
      char *images, *labels;
      Idx x, y;
      if (!EXPECT(idx_find(dir, splits[s], &images, &labels, &err))) break;
      if (EXPECT(idx_load_pair(&x, &y, images, labels, &err))) {
        EXPECT(x.n == (s ? 7 : 20) && x.h == 28 && x.w == 28);
        for (int i = 0; i < x.n; i++) EXPECT_INT(y.bytes[i], i % SHAPE_CLASSES);
        if (s == 0 && again) EXPECT(!memcmp(x.bytes, before.bytes, 20 * 28 * 28)); // the same seed
        if (s == 0 && !again) before = (Idx){x.n, x.h, x.w, memcpy(xmalloc(20 * 28 * 28), x.bytes, 20 * 28 * 28)};
        idx_free(&x);
        idx_free(&y);
      }
      free(images);
      free(labels);
    }
  }
  for (int i = 1; i < before.n; i++) EXPECT(memcmp(before.bytes, before.bytes + i * 784, 784) != 0);
  idx_free(&before);
  EXPECT(!shapes_write_classes(&c, SHAPES_FOLDERS, &err) &&
         strstr(err.msg, " contains other files than a shapes data set of this format; choose an empty folder"));
  EXPECT(!shapes_write(&(ShapesConfig){.dir = dir, .train = 1, .val = 1, .size = 64}, &err));
}

TEST(shapes_classes_as_folders) {
  const char *dir = folder("shapes-folders");
  Err err = {""};
  ShapesConfig c = config(dir, 20, 6);
  for (int smaller = 0; smaller < 2; smaller++) { // nothing of a larger set stays
    if (smaller) c.train = 9;
    if (!EXPECT(shapes_write_classes(&c, SHAPES_FOLDERS, &err))) return;
    char train[1024];
    snprintf(train, sizeof train, "%s/train", dir);
    ClassFolders f;
    if (!EXPECT(class_folders_list(&f, train, &err))) return;
    EXPECT_INT(f.classes, SHAPE_CLASSES);
    EXPECT_INT(f.files, c.train);
    for (int i = 0; i < f.files; i++) {
      char *path = xasprintf("%s/%s", train, f.file[i].path);
      Image im;
      if (EXPECT(image_load(&im, path, &err))) EXPECT(im.h == 28 && im.w == 28);
      image_free(&im);
      free(path);
    }
    class_folders_free(&f);
  }
}

// A shape is there: pixels in the middle of a square and around it differ from a background of its key in many places,
// and no two categories draw alike.
TEST(shapes_single_draws_its_category) {
  for (int category = 0; category < SHAPE_CLASSES; category++) {
    Image a = shapes_single(category, 48, 11), b = shapes_single((category + 1) % SHAPE_CLASSES, 48, 11);
    int differ = 0;
    for (int i = 0; i < 48 * 48 * 3; i++) differ += a.rgb[i] != b.rgb[i];
    EXPECT(differ > 100 && differ < 48 * 48 * 3); // the background is of the key alone
    image_free(&a);
    image_free(&b);
  }
}
