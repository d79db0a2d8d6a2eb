// Detection data sets in COCO's layout (DIR/annotations and folders of images) as a Source.
#include <stdlib.h>
#include "data/batches/source.h"
#include "data/coco/layout.h"
#include "data/coco/mask_scan.h"

static bool has(const char *dir, const char *split, const SourceOptions *o, Err *err) {
  CocoLayout layout;
  const bool is = coco_layout_find(&layout, dir, split, o ? o->set.json : NULL, o ? o->set.images : NULL, err);
  if (is) coco_layout_free(&layout);
  return is;
}

static bool find(const char *dir, const char *train_split, const char *val_split, Err *err) {
  (void)val_split; // the validation split may be missing
  return has(dir, train_split, NULL, err);
}

static bool lacks_masks(const char *dir, const char *split, const SourceOptions *o) {
  CocoLayout layout;
  Err err;
  if (!coco_layout_find(&layout, dir, split, o->set.json, o->set.images, &err)) return false;
  const bool found = mask_scan_finds(layout.annotations);
  coco_layout_free(&layout);
  return !found;
}

static bool open_set(Dataset *d, const char *dir, const char *split, const SourceOptions *o, Err *err) {
  DatasetOptions options = o->set;
  options.train = o->train && !options.holdout.held ? &o->train->coco : NULL; // sides of one file are treated alike
  options.upright_otherwise = o->train && o->train->upright;
  const CategoryList known = o->train ? dataset_categories(o->train) : (CategoryList){0};
  if (o->train && options.classes) { // which this split may lack
    options.only = &known;
    options.classes = NULL;
  }
  if (!dataset_open(d, dir, split, &options, err)) return false;
  const bool ok = o->train ? dataset_take_categories(d, &known, err) : coco_has_categories(&d->coco, err);
  if (!ok) dataset_close(d);
  return ok;
}

const Source source_of_objects = {.learner = "a detector",
                                  .learners = "detectors",
                                  .wanted = "a data set in COCO format",
                                  .find = find,
                                  .lacks_masks = lacks_masks,
                                  .has = has,
                                  .open = open_set};
