// Catches annotations or images that are not found where tools put them, and a message that does not say what would do.
#include <stdlib.h>
#include "base/alloc.h"
#include "base/basics.h"
#include "base/file.h"
#include "data/coco/layout.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

static char *root_of(const char *name) { return xasprintf("%s/layout-%s", test_tmp(), name); }

// Makes folders, whose names end in a slash, and files with an empty COCO document.
static void make(const char *root, const char *const *paths) {
  Err err;
  for (; *paths; paths++) {
    char *path = xasprintf("%s/%s", root, *paths), *folder = xstrdup(path);
    *strrchr(folder, '/') = '\0';
    CHECK(dirs_make(folder, &err));
    if (path[strlen(path) - 1] != '/') write_text(path, "{\"images\":[],\"annotations\":[]}");
    free(path);
    free(folder);
  }
}

// The folders that may hold the images include this one.
static bool has_folder(const CocoLayout *l, const char *root, const char *folder) {
  bool has = false;
  char *path = *folder ? xasprintf("%s/%s", root, folder) : xstrdup(root);
  for (int i = 0; i < l->folders; i++) has |= !strcmp(l->folder[i], path);
  free(path);
  return has;
}

TEST(layout_finds_what_tools_write) {
  static const struct {
    const char *paths[6], *split, *name, *annotations, *images;
  } cases[] = {
      {{"annotations/instances_val2017.json", "val2017/"},
       "val",
       "COCO",
       "annotations/instances_val2017.json",
       "val2017"},
      {{"annotations/instances_train2014.json", "annotations/instances_train2017.json", "train2017/"},
       "train2017",
       "COCO",
       "annotations/instances_train2017.json",
       "train2017"},
      {{"annotations/test.json", "test/"}, "test", "COCO", "annotations/test.json", "test"},
      {{"annotations/instances_Train.json", "images/Train/"},
       "train",
       "COCO",
       "annotations/instances_Train.json",
       "images/Train"},
      {{"annotations/instances_Validation.json", "images/Validation/"},
       "val",
       "COCO",
       "annotations/instances_Validation.json",
       "images/Validation"},
      {{"annotations/instances_default.json", "images/default/"},
       "train",
       "CVAT",
       "annotations/instances_default.json",
       "images/default"},
      {{"annotations/instances_default.json", "annotations/val_instances_default.json", "images/"},
       "val",
       "CVAT",
       "annotations/val_instances_default.json",
       "images"},
      {{"train/_annotations.coco.json", "valid/_annotations.coco.json"},
       "val",
       "Roboflow",
       "valid/_annotations.coco.json",
       "valid"},
      {{"train/_annotations.coco.json", "test/_annotations.coco.json"},
       "test",
       "Roboflow",
       "test/_annotations.coco.json",
       "test"},
      {{"_annotations.coco.json"}, "train", "Roboflow", "_annotations.coco.json", ""},
      {{"result.json", "images/"}, "train", "Label Studio", "result.json", "images"},
      {{"train.json", "val.json", "images/"}, "val", "COCO", "val.json", "images"},
      {{"annotations/lvis_v1_val.json", "val2017/"}, "val", "LVIS", "annotations/lvis_v1_val.json", "val2017"},
      {{"train/annotations.json", "train/images/"},
       "train",
       "COCO, a folder per split",
       "train/annotations.json",
       "train/images"},
      {{"annotations.json", "JPEGImages/"}, "train", "COCO", "annotations.json", "JPEGImages"},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    char name[16];
    snprintf(name, sizeof name, "%d", i);
    char *root = root_of(name);
    CocoLayout l;
    Err err = {0};
    make(root, cases[i].paths);
    if (EXPECT(coco_layout_find(&l, root, cases[i].split, NULL, NULL, &err))) {
      EXPECT_STR(l.annotations + strlen(root) + 1, cases[i].annotations);
      EXPECT_STR(l.name, cases[i].name);
      if (!EXPECT(has_folder(&l, root, cases[i].images))) printf("  case %d\n", i);
      EXPECT(!l.other);
      coco_layout_free(&l);
    } else {
      printf("  case %d: %s\n", i, err.msg);
    }
    free(root);
  }
}

TEST(layout_messages_name_what_would_do) {
  static const struct {
    const char *paths[4], *split, *json, *says;
  } cases[] = {
      {{"annotations/instances_train2014.json", "annotations/instances_train2017.json"},
       "train",
       NULL,
       "/annotations/instances_train2017.json match; give the split's full name: --train-split train2014 (infer: "
       "--split "
       "train2014)"},
      {{"annotations/val_instances_1.json", "annotations/val_instances_2.json"},
       "val",
       NULL,
       "/annotations/val_instances_2.json match; give the one you mean as --val-json FILE --val-images DIR"},
      {{"Seeds 2/train/_annotations.coco.json"}, "train", NULL, "/Seeds 2/train/_annotations.coco.json, give --data '"},
      {{"labels/all.json", "images/"}, "train", NULL, "/images"},
      {{"annotations/default.json", "images/"}, "train", NULL, "/annotations/default.json --train-images "},
      {{"annotations/default.json"}, "val", NULL, "/annotations/default.json --val-images "},
      {{"result.json"}, "val", NULL, "/result.json; give --val-json FILE --val-images DIR for it"},
      {{"trainset/_annotations.coco.json"}, "train", NULL, "/trainset/_annotations.coco.json --train-images "},
      {{"my set/_annotations.coco.json"}, "train", NULL, "/my set/_annotations.coco.json' --train-images '"},
      {{"train/_annotations.coco.json", "dev/_annotations.coco.json"},
       "val",
       NULL,
       "/dev/_annotations.coco.json --val-images "},
      {{"train/masks/"}, "train", NULL, " contains 0 images but no annotations in COCO format, such as "},
      {{"train/x.png", "train/1/y.JPG", "z.jpeg"}, "train", NULL, " contains 3 images but no annotations in COCO "},
      {{"./"}, "train", NULL, ": the folder is empty"},
      {{"train/"}, "train", NULL, "/annotations/instances_train.json"},
      {{"train/"}, "train", "/nonexistent.json", "/nonexistent.json: no such file"},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    char name[16];
    snprintf(name, sizeof name, "bad-%d", i);
    char *root = root_of(name);
    CocoLayout l;
    Err err = {0};
    make(root, cases[i].paths);
    EXPECT(!coco_layout_find(&l, root, cases[i].split, cases[i].json, NULL, &err) && !l.annotations);
    if (!EXPECT(strstr(err.msg, cases[i].says))) printf("  %s\n", err.msg);
    free(root);
  }
}

TEST(layout_tells_of_a_second_export) {
  char *root = root_of("two");
  CocoLayout l;
  Err err;
  make(root, (const char *const[]){"annotations/instances_train.json", "train/_annotations.coco.json", NULL});
  if (EXPECT(coco_layout_find(&l, root, "train", NULL, NULL, &err))) {
    char *note = coco_layout_note(&l, "train");
    EXPECT_STR(l.name, "COCO");
    if (EXPECT(note)) EXPECT(strstr(note, "train/_annotations.coco.json --train-images DIR would read that"));
    free(note);
    coco_layout_free(&l);
  }
  char *json = xasprintf("%s/train/_annotations.coco.json", root);
  if (EXPECT(coco_layout_find(&l, NULL, "train", json, NULL, &err))) {
    EXPECT_STR(l.annotations, json);
    EXPECT(l.folders == 1 && !coco_layout_note(&l, "train"));
    coco_layout_free(&l);
  }
  free(json);
  free(root);
}
