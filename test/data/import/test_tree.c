// Catches a picture that is taken for another, or not found, by the name that annotations have for it; and a split that
// a folder's name does not mean.
#include "base/basics.h"
#include "data/import/tree.h"
#include "test/harness/test.h"

TEST(tree_finds_pictures_by_the_ends_of_their_paths) {
  static const char *const files[] = {"a/1.png", "b/1.png",       "b/sub/2.JPG", "c/my p.png", "c/zelle_\xc3\xbc.png",
                                      "x.json",  "d/train/4.png", "d/val/4.png"};
  static const struct {
    const char *name, *folder;
    TreeMatch match;
    const char *path;
  } cases[] = {
      {"1.png", "a", TREE_EXACT, "a/1.png"},
      {"../b/1.png", "a", TREE_EXACT, "b/1.png"},
      {"C:\\data\\b\\1.png", "", TREE_NAME, "b/1.png"},
      {"/home/x/1.png", "", TREE_SEVERAL, NULL},
      {"/home/x/1.png", "b", TREE_NAME, "b/1.png"},
      {"2.jpg", "", TREE_NAME, "b/sub/2.JPG"},
      {"https://h/d/my%20p.png?token=1", "", TREE_NAME, "c/my p.png"},
      {"/data/local-files/?d=c/my%20p.png", "", TREE_NAME, "c/my p.png"},
      {"zelle_u\xcc\x88.png", "", TREE_NAME, "c/zelle_\xc3\xbc.png"},
      {"3.png", "", TREE_MISSING, NULL},
      {"D:/x/4.png", "ann/valid", TREE_NAME, "d/val/4.png"}, // of the same split
      {"D:/x/4.png", "ann", TREE_SEVERAL, NULL},
      {"x.json", "", TREE_MISSING, NULL}, // no picture
      {"", "", TREE_MISSING, NULL},
  };
  Tree t = {0};
  for (int i = 0; i < COUNT(files); i++) tree_add(&t, files[i], files[i]);
  tree_sort(&t, 0);
  for (int i = 0; i < COUNT(cases); i++) {
    int file = -1;
    const TreeMatch match = tree_picture(&t, cases[i].name, cases[i].folder, &file);
    if (!EXPECT_INT(match, cases[i].match)) printf("%s\n", cases[i].name);
    if (cases[i].path && match) EXPECT_STR(t.file[file].path, cases[i].path);
  }
  tree_free(&t);
}

TEST(tree_splits_of_names) {
  EXPECT_STR(split_of("Training/a.png", false), "train");
  EXPECT_STR(split_of("x/stage1_train/a.png", false), "train");
  EXPECT_STR(split_of("images/val2017/a.png", false), "val");
  EXPECT(split_of("crash-test-dummies/a.png", false) == NULL);
  EXPECT(split_of("x/train.json", false) == NULL);
  EXPECT_STR(split_of("x/train.json", true), "train");
  EXPECT_STR(split_of("x/instances_valid.json", true), "val");
  EXPECT_STR(split_named("Validation"), "val");
  EXPECT_STR(split_named("site-2"), "site-2");
  EXPECT(split_named("default") == NULL && split_named("annotations") == NULL && split_named("a/b") == NULL);
}
