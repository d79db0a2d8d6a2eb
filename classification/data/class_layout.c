#include "classification/data/class_layout.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/alloc.h"
#include "base/file.h"
#include "classification/data/class_folders.h"
#include "classification/data/idx.h"
#include "data/coco/elsewhere.h"

static const char *const of_train[] = {"train", "training", NULL};
static const char *const of_val[] = {"val", "valid", "validation", "t10k", "test", NULL};
static const char *const of_test[] = {"test", "t10k", "val", "valid", "validation", NULL};

const char *const *class_split_names(const char *split) {
  if (!strcmp(split, "train")) return of_train;
  if (!strcmp(split, "val")) return of_val;
  return !strcmp(split, "test") || !strcmp(split, "t10k") ? of_test : NULL;
}

char *class_split_folder(const char *dir, const char *const *names) {
  for (; *names; names++) {
    char *path = xasprintf("%s/%s", dir, *names);
    if (class_folders_in(path)) return path;
    free(path);
  }
  return NULL;
}

bool class_split_is_one(const char *dir, const char *folder, Err *err) {
  static const char *const same[][4] = {{"train", "training"}, {"val", "valid", "validation"}, {"test", "t10k"}};
  const char *name = strrchr(folder, '/') + 1;
  for (int i = 0; i < COUNT(same); i++)
    for (int j = 0; same[i][j]; j++) {
      char *other = strcmp(same[i][j], name) ? NULL : class_split_folder(dir, &same[i][j + 1]);
      if (!other) continue;
      err_set(err, "%s and %s are both names of the same split; merge or rename one", folder, other);
      free(other);
      return false;
    }
  return true;
}

// train2017/ and val2017/ belong to a COCO set whose annotations are elsewhere, as images/ alone does; they are not
// classes.
static bool holds_classes(const char *dir) {
  ClassFolders f;
  if (!class_folders_in(dir) || !class_folders_list(&f, dir, NULL)) return class_folders_in(dir);
  bool any = false;
  for (int i = 0; i < f.classes && !(f.classes == 1 && !strcasecmp(f.name[0], "images")); i++)
    any |= strncasecmp(f.name[i], "train", 5) && strncasecmp(f.name[i], "val", 3) && strncasecmp(f.name[i], "test", 4);
  class_folders_free(&f);
  return any;
}

static bool has_folder(const char *dir, const char *name) {
  char *path = xasprintf("%s/%s", dir, name);
  const bool has = path_is_dir(path);
  free(path);
  return has;
}

// Folders next to annotations, and image folders next to labels or mask images, are not classes.
static bool is_of_boxes(const char *dir) {
  if (has_folder(dir, "annotations")) return true;
  if (has_folder(dir, "images") && (has_folder(dir, "masks") || has_folder(dir, "labels"))) return true;
  char *elsewhere = coco_elsewhere(dir);
  free(elsewhere);
  return elsewhere != NULL;
}

ClassLayout classes_layout(const char *dir) {
  if (idx_in(dir)) return CLASSES_IDX;
  char *train = class_split_folder(dir, of_train);
  const bool folders = (train || holds_classes(dir)) && !is_of_boxes(dir) && !(train && is_of_boxes(train));
  free(train);
  return folders ? CLASSES_FOLDERS : CLASSES_NONE;
}

bool classes_has(const char *dir, const char *split) {
  const ClassLayout layout = classes_layout(dir);
  if (layout == CLASSES_IDX) return idx_has(dir, class_split_names(split));
  char *path = layout == CLASSES_FOLDERS ? class_split_folder(dir, class_split_names(split)) : NULL;
  const bool has = path || (layout == CLASSES_FOLDERS && !strcmp(split, "train"));
  free(path);
  return has;
}
