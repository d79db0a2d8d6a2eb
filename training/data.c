#include "training/data.h"
#include <stdlib.h>
#include <string.h>
#include "base/output.h"
#include "data/batches/source.h"
#include "data/coco/mask_forms.h"
#include "data/import/formats.h"
#include "engine/engine.h"
#include "training/targets.h"

static const Source *source_of(const ModelConfig *c) { return model_of(c)->source; }

bool train_on_gray(const TrainSpec *o, const ModelConfig *c) {
  const Source *s = source_of(c);
  return o->data && !o->made_up && s->gray && s->gray(o->data);
}

float train_view(const TrainSpec *o, const ModelConfig *c) { return train_on_gray(o, c) ? 1 : c->view; }

const char *train_default_model(const TrainSpec *o) {
  ModelConfig usual;
  CHECK(config_init(&usual, DEFAULT_MODEL, NULL));
  const SourceOptions options = {.set = {.json = o->train_json, .images = o->train_images}};
  return source_of(&usual)->lacks_masks(o->data, o->train_split, &options) ? DEFAULT_WITHOUT_MASKS : DEFAULT_MODEL;
}

// A model cannot learn masks where no object has one.
static void refuse_boxes(const TrainSpec *o, const ModelConfig *c, const Dataset *train) {
  const char *would_do = config_without_masks(c);
  if (would_do && train->coco.num_anns > 0 && mask_forms(&train->coco).masks == 0)
    die(EXIT_USAGE,
        "%s: no annotation has a segmentation, so %s cannot learn masks: give --model %s, which finds boxes",
        train->coco.path, o->model, would_do);
}

// The source of other models that takes this folder for its own; NULL: there is none.
static const Source *other_source(const char *dir, const Source *own) {
  for (int i = 0; models[i]; i++) {
    const Source *other = models[i]->source;
    if (i > 0 && other == models[i - 1]->source) continue;
    if (other != own && other->contents && other->contents(dir)) return other;
  }
  return NULL;
}

void train_find_data(const TrainSpec *o, const ModelConfig *c) {
  Err err;
  if (o->train_json) return; // opening it tells
  const Source *own = source_of(c), *other = other_source(o->data, own);
  const bool found = own->find(o->data, o->train_split, o->val_split, &err);
  Err raw;
  if (!found && !import_is_done(o->data, other, &raw)) die(EXIT_USAGE, "%s", raw.msg);
  if (other)
    die(EXIT_USAGE, "%s contains %s, which %s cannot train on: choose %s as --model, or give %s", o->data,
        other->contents(o->data), own->learners, other->learner, own->wanted);
  if (!found) die(EXIT_USAGE, "%s", err.msg);
}

static bool evaluates(const TrainSpec *o) { return o->eval_every >= 0 && !o->benchmark && !o->benchmark_loader; }
static bool asked_to_evaluate(const TrainSpec *o) {
  return o->val_json || (o->from.eval_every == FROM_GIVEN && o->eval_every > 0) || strcmp(o->val_split, "val") ||
         targets_of(o).n;
}

static SourceOptions source_options(const TrainSpec *o, const ModelConfig *c) {
  return (SourceOptions){
      .set = {.resize = resize_of(c),
              .box_extra = c->box_extra,
              .polygons = c->mask_source == MASK_POLYGON,
              .moved_boxes = c->moved_boxes,
              .paste = o->paste > 0,
              .exif = (ExifChoice)o->exif,
              .boxes = (MeasureChoice)o->boxes,
              .areas = (MeasureChoice)o->areas,
              .crowd = (CrowdChoice)o->crowd,
              .classes = o->classes,
              .max_canvases = o->canvases,
              .strict = o->strict,
              .keep_empty = o->keep_empty,
              .patience = STORAGE_PATIENCE,
              .holdout = {.draw = &o->holdout},
              .limit = o->limit,
              .json = o->train_json,
              .images = o->train_images,
              .index = o->plan || o->benchmark || o->benchmark_loader ? NULL : o->out}, // these write no files
      .view = train_view(o, c)};
}

// Copy-paste cuts objects out by their masks.
static void refuse_paste(const TrainSpec *o, const Dataset *d) {
  if (!(o->paste > 0)) return;
  for (int i = 0; i < d->num_images; i++)
    for (int k = d->first_object[i]; k < d->first_object[i + 1]; k++)
      if (dataset_has_mask(d, i, &d->object[k])) return;
  die(EXIT_USAGE, "--paste needs masks, but no object of %s has one: leave it out", d->coco.path);
}

bool train_open_data(const TrainSpec *o, const ModelConfig *c, Dataset *train, Dataset *val) {
  const Source *source = source_of(c);
  SourceOptions options = source_options(o, c);
  Err err;
  int largest = sizes_largest(&o->shorter_sides);
  if (largest > c->max_size)
    die(EXIT_USAGE, "--sizes %d exceeds the maximum of the longer side, %d; increase --max-size", largest, c->max_size);
  if (largest) options.set.resize.size = largest;
  if (!source->open(train, o->data, o->train_split, &options, &err) || !mask_forms_check(&train->coco, &err))
    die(EXIT_USAGE, "%s", err.msg);
  refuse_boxes(o, c, train);
  refuse_paste(o, train);
  if (!evaluates(o)) return false;
  options.set.holdout = (HoldoutUse){0};
  const bool held_out = train->holdout && !strcmp(o->val_split, "val");
  if (held_out) {
    options.set.holdout = (HoldoutUse){.held = train->holdout, .side = HOLDOUT_VAL};
    if (!o->train_json && source->has(o->data, o->val_split, NULL, &err))
      notes_add(&train->notes, "%s has images for evaluation, which are not used: %s holds out training images instead",
                o->data, o->fold ? "--fold" : "--val-fraction");
  } else {
    options.set.json = o->val_json;
    options.set.images = o->val_images;
  }
  if (!held_out && !asked_to_evaluate(o) && !source->has(o->data, o->val_split, &options, &err)) {
    line_print(stderr,
               "note: the run will not evaluate: %s; --val-fraction 0.2 would hold out some of the training "
               "images",
               err.msg);
    return false;
  }
  options.train = train;
  options.set.resize = resize_of(c);
  options.set.paste = false;
  options.set.keep_empty = true;
  options.set.limit = o->val_limit;
  if (!source->open(val, o->data, held_out ? o->train_split : o->val_split, &options, &err) ||
      !mask_forms_check(&val->coco, &err))
    die(EXIT_USAGE, "evaluation: %s", err.msg);
  return true;
}
