// Classification data sets (IDX files or folders of images) as a Source.
#include <string.h>
#include "base/file.h"
#include "classification/data/class_report.h"
#include "classification/data/classes.h"
#include "data/batches/source.h"

static const char *contents(const char *dir) {
  static const char *const what[] = {[CLASSES_IDX] = "IDX files", [CLASSES_FOLDERS] = "a folder of images per class"};
  return what[classes_layout(dir)];
}

static bool is_split(const char *name) {
  return !strcmp(name, "train") || !strcmp(name, "val") || !strcmp(name, "test");
}

static bool find(const char *dir, const char *train_split, const char *val_split, Err *err) {
  const char *const split[] = {train_split, val_split};
  for (int i = 0; i < COUNT(split); i++)
    if (!is_split(split[i]))
      return err_set(err, "--%s-split %s: the splits of a classification data set are train, val and test",
                     i ? "val" : "train", split[i]);
  if (contents(dir)) return true;
  if (!path_is_dir(dir)) return err_set(err, "%s: no such folder", dir);
  return err_set(err,
                 "%s: neither IDX files (train-images-idx3-ubyte and train-labels-idx1-ubyte, or .gz) nor a folder of "
                 "images per class (train/CLASS/…)",
                 dir);
}

static bool has(const char *dir, const char *split, const SourceOptions *o, Err *err) {
  (void)o;
  return classes_has(dir, split) || err_set(err, "%s has no validation images", dir);
}

static bool open_set(Dataset *d, const char *dir, const char *split, const SourceOptions *o, Err *err) {
  const DatasetOptions *set = &o->set;
  const CategoryList known = o->train ? dataset_categories(o->train) : (CategoryList){0};
  return classes_open(d, dir, split,
                      &(ClassOptions){.size = {set->resize.size, set->resize.size},
                                      .view = o->view,
                                      .holdout = set->holdout,
                                      .strict = set->strict,
                                      .upright = set->exif == EXIF_YES,
                                      .patience = set->patience,
                                      .limit = set->limit,
                                      .like = o->train ? &known : NULL},
                      err);
}

static bool gray(const char *dir) { return classes_layout(dir) == CLASSES_IDX; }

const Source source_of_classes = {.learner = "a classifier",
                                  .learners = "classifiers",
                                  .wanted = "a classification data set",
                                  .contents = contents,
                                  .find = find,
                                  .has = has,
                                  .open = open_set,
                                  .gray = gray,
                                  .survey = class_report};
