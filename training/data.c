#include "training/data.h"
#include <stdlib.h>
#include <string.h>
#include "classification/data/classes.h"
#include "engine/engine.h"
#include "training/targets.h"

static bool classifies(const ModelConfig *c) { return model_of(c)->traits & MODEL_CLASSIFIER; }

static bool has_split(const char *dir, const char *split, Err *err) {
  char *annotations, *images;
  if (!coco_find_split(dir, split, &annotations, &images, err)) return false;
  free(annotations);
  free(images);
  return true;
}

// What COCO's annotations would be looked for in vain in.
static void refuse_layout(const TrainSpec *o, const ModelConfig *c) {
  const ClassLayout layout = classes_layout(o->data);
  if (!classifies(c) && layout != CLASSES_NONE)
    die(EXIT_USAGE, "%s holds %s, which detectors cannot learn from: give --model of a classifier, or data with boxes",
        o->data, layout == CLASSES_IDX ? "IDX files" : "folders of images by class");
}

static bool evaluates(const TrainSpec *o) { return o->eval_every >= 0 && !o->benchmark && !o->benchmark_loader; }
static bool asked_to_evaluate(const TrainSpec *o) {
  return (o->from.eval_every == FROM_GIVEN && o->eval_every > 0) || strcmp(o->val_split, "val") || targets_of(o).n;
}

// ---- sets of classes --------------------------------------------------------------------------------------------

static bool is_split(const char *name) {
  return !strcmp(name, "train") || !strcmp(name, "val") || !strcmp(name, "test");
}

static void find_classes(const TrainSpec *o) {
  const char *const split[] = {o->train_split, o->val_split};
  for (int i = 0; i < COUNT(split); i++)
    if (!is_split(split[i]))
      die(EXIT_USAGE, "--%s-split %s: a set of classes has train, val and test", i ? "val" : "train", split[i]);
  if (classes_layout(o->data) != CLASSES_NONE) return;
  if (!path_is_dir(o->data)) die(EXIT_USAGE, "%s: no such folder", o->data);
  die(EXIT_USAGE,
      "%s: neither IDX files (train-images-idx3-ubyte and train-labels-idx1-ubyte, or .gz) nor folders of images by "
      "class (train/CLASS/…)",
      o->data);
}

bool train_on_idx(const TrainSpec *o) { return o->data && !o->made_up && classes_layout(o->data) == CLASSES_IDX; }

float train_view(const TrainSpec *o, const ModelConfig *c) { return train_on_idx(o) ? 1 : c->view; }

static bool open_classes(const TrainSpec *o, const ModelConfig *c, Dataset *train, Dataset *val) {
  ClassOptions d = {.size = {c->size, c->size},
                    .view = train_view(o, c),
                    .val_fraction = o->val_fraction,
                    .seed = (uint64_t)o->split_seed,
                    .strict = o->strict,
                    .upright = o->exif,
                    .patience = STORAGE_PATIENCE,
                    .limit = o->limit};
  Err err;
  if (!classes_open(train, o->data, o->train_split, &d, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!evaluates(o)) return false;
  const bool there = classes_has(o->data, o->val_split) || (o->val_fraction > 0 && !strcmp(o->val_split, "val"));
  if (!there && !asked_to_evaluate(o)) {
    fprintf(stderr, "no evaluation: %s has no images for it; --val-fraction 0.2 would hold some of training's back\n",
            o->data);
    return false;
  }
  d.limit = o->val_limit;
  d.like = train;
  if (!classes_open(val, o->data, o->val_split, &d, &err)) die(EXIT_USAGE, "evaluation: %s", err.msg);
  return true;
}

// ---- COCO -------------------------------------------------------------------------------------------------------

static bool open_coco(const TrainSpec *o, const ModelConfig *c, Dataset *train, Dataset *val) {
  DatasetOptions d = {.resize = resize_of(c),
                      .sizes = o->shorter_sides,
                      .box_extra = c->box_extra,
                      .polygons = c->mask_source == MASK_POLYGON,
                      .upright = o->exif,
                      .max_canvases = o->canvases,
                      .strict = o->strict,
                      .keep_empty = o->keep_empty,
                      .patience = STORAGE_PATIENCE,
                      .limit = o->limit,
                      .index = o->plan || o->benchmark || o->benchmark_loader ? NULL : o->out}; // those leave no files
  Err err;
  int largest = sizes_largest(&o->shorter_sides);
  if (largest > c->max_size)
    die(EXIT_USAGE, "--sizes %d: the longer side is at most %d; give a larger --max-size", largest, c->max_size);
  if (!dataset_open(train, o->data, o->train_split, &d, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!evaluates(o)) return false;
  if (!asked_to_evaluate(o) && !has_split(o->data, o->val_split, &err)) {
    fprintf(stderr, "no evaluation: %s\n", err.msg);
    return false;
  }
  d.sizes.n = 0;
  d.keep_empty = true;
  d.limit = o->val_limit;
  if (!dataset_open(val, o->data, o->val_split, &d, &err)) die(EXIT_USAGE, "evaluation: %s", err.msg);
  return true;
}

// ---- either -----------------------------------------------------------------------------------------------------

void train_find_data(const TrainSpec *o, const ModelConfig *c) {
  Err err;
  refuse_layout(o, c);
  if (classifies(c))
    find_classes(o);
  else if (!has_split(o->data, o->train_split, &err))
    die(EXIT_USAGE, "%s", err.msg);
}

bool train_open_data(const TrainSpec *o, const ModelConfig *c, Dataset *train, Dataset *val) {
  return (classifies(c) ? open_classes : open_coco)(o, c, train, val);
}
