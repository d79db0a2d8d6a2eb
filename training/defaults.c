#include "training/defaults.h"
#include <string.h>
#include "classification/data/classes.h"
#include "models/model.h"
#include "training/targets.h"

// How a task's models are trained where neither options nor the model's row say otherwise.
typedef struct Defaults {
  int batch, epochs, eval_epochs;
  double rate; // of SGD, for …
  int at;      // … so many images a step
  Decay decay;
  float flip, clip;
} Defaults;

static const double adam_rate = 1e-3; // whatever the batch
static const float decays[] = {[OPTIMIZER_SGD] = 1e-4f, [OPTIMIZER_ADAM] = 0, [OPTIMIZER_ADAMW] = 0.01f}; // torch's

// Detection: docs/training.md says why. Classification: torchvision's references/classification, with a cosine.
static const Defaults defaults[] = {{2, 12, .rate = 0.02, .at = 16, .decay = DECAY_STEP, .flip = 0.5f, .clip = 10},
                                    {128, 90, .eval_epochs = 1, .rate = 0.1, .at = 256, .decay = DECAY_COSINE}};

// ---- what does not go together ----------------------------------------------------------------------------------

static void set(float *value, float unless_given) {
  if (*value < 0) *value = unless_given;
}

static void refuse(bool given, const char *what, const char *why) {
  if (given) die(EXIT_USAGE, "%s %s", what, why);
}

static void refuse_detectors(const TrainOptions *o) {
  static const char why[] = "is for detectors, and this model is a classifier";
  refuse(o->sizes, "--sizes", why);
  refuse(o->max_size, "--max-size", why);
  refuse(o->keep_empty, "--keep-empty", why);
  refuse(o->conventions, "--conventions", why);
  refuse(o->full_masks, "--full-masks", why);
  refuse(o->target_bbox >= 0, "--target-bbox", why);
  refuse(o->target_segm >= 0, "--target-segm", why);
}

static void refuse_classifiers(const TrainOptions *o) {
  static const char why[] = "is for classifiers, and this model is a detector";
  refuse(o->rotate >= 0, "--rotate", why);
  refuse(o->shift >= 0, "--shift", why);
  refuse(o->shear >= 0, "--shear", why);
  refuse(o->zoom >= 0, "--zoom", why);
  refuse(o->crop >= 0, "--crop", why);
  refuse(o->label_smoothing >= 0, "--label-smoothing", why);
  refuse(o->dropout >= 0, "--dropout", why);
  refuse(o->val_fraction > 0, "--val-fraction", why);
  refuse(o->split_seed >= 0, "--split-seed", why);
  refuse(o->target_top1 >= 0, "--target-top1", why);
  int64_t from, until;
  phases_augmented(&o->phase_list, &from, &until);
  refuse(until > 0, "--phases: +augment", why);
}

// What a net has no layers for would be left out without a word.
static void refuse_layers(const TrainOptions *o, const Model *m) {
  refuse(o->trainable_layers >= 0 && !(m->traits & MODEL_STAGES), "--trainable-layers",
         "counts stages of a ResNet, and this model has none: leave it out, and all is trained");
  refuse(o->norm && !(m->traits & MODEL_NORMS), "--norm", "chooses among norms, and this model has none: leave it out");
}

// ---- the split ------------------------------------------------------------------------------------------------------

static void choose_split(TrainOptions *o) {
  const bool given = o->split_seed >= 0, drawn = o->val_fraction > 0;
  refuse(given && !drawn, "--split-seed", "draws the share of --val-fraction P: give that, too");
  refuse(drawn && strcmp(o->train_split, "train"), "--train-split",
         "and --val-fraction exclude each other: the share is "
         "held back of train");
  refuse(drawn && !strcmp(o->val_split, "train"), "--val-split train",
         "and --val-fraction exclude each other: what is trained on would be scored");
  if (drawn && !given) o->split_seed = o->seed;
}

// ---- augmentation -----------------------------------------------------------------------------------------------

// Small pictures such as digits are turned where phases say "+augment", photographs are cut and mirrored as
// torchvision's RandomResizedCrop and RandomHorizontalFlip do it, unless phases say where.
typedef struct AugmentDefaults {
  float rotate, shift, shear, zoom, crop, flip;
} AugmentDefaults;
static const AugmentDefaults digits = {8, 0.08f, 0.3f, 0.08f, 0, 0}, photographs = {.crop = 0.08f, .flip = 0.5f},
                             nothing = {0};

static void choose_augmentation(TrainOptions *o) {
  const bool idx = !o->made_up && classes_layout(o->data) == CLASSES_IDX;
  const AugmentDefaults *a = !idx ? &photographs : o->phase_list.n ? &digits : &nothing;
  set(&o->rotate, a->rotate);
  set(&o->shift, a->shift);
  set(&o->shear, a->shear);
  set(&o->zoom, a->zoom);
  set(&o->crop, a->crop);
  set(&o->flip, a->flip);
}

// A detector's images are mirrored and drawn in several sizes, no more.
static void leave_augmentation(TrainOptions *o) { o->rotate = o->shift = o->shear = o->zoom = o->crop = 0; }

// ---- how it learns ----------------------------------------------------------------------------------------------

static void check_phases(const TrainOptions *o) {
  static const char why[] = "and --phases exclude each other: phases tell epochs and rates";
  refuse(o->epochs, "--epochs", why);
  refuse(o->iters, "--iters", why);
  refuse(o->lr > 0, "--lr", why);
  refuse(o->schedule, "--schedule", why);
  refuse(o->warmup >= 0, "--warmup", why);
}

// A model's own phases hold where nothing is said of length or rate.
static void choose_phases(TrainOptions *o, const Learning *l) {
  Err err;
  if (o->phases) check_phases(o);
  if (!o->phases && !o->epochs && !o->iters && o->lr <= 0 && !o->schedule && o->warmup < 0) o->phases = l->phases;
  if (o->phases && !phases_parse(&o->phase_list, o->phases, &err)) die(EXIT_USAGE, "--phases %s", err.msg);
}

static void choose_rate(TrainOptions *o, const Learning *l, const Defaults *d) {
  if (!o->optimizer) o->optimizer = 1 + (l->adam ? OPTIMIZER_ADAM : OPTIMIZER_SGD);
  const bool adam = o->optimizer != 1 + OPTIMIZER_SGD;
  o->rate = adam ? adam_rate : l->rate > 0 ? l->rate : d->rate;
  o->rate_images = adam ? 0 : d->at;
  if (!o->schedule) o->schedule = 1 + (int)(l->phases || o->phases ? DECAY_CONSTANT : d->decay);
  set(&o->weight_decay, decays[o->optimizer - 1]);
  set(&o->clip_grad, o->conventions ? 0 : d->clip);
}

static void choose_length(TrainOptions *o, const Learning *l, const Defaults *d) {
  Phases own = {0};
  Err err;
  if (l->phases) CHECK(phases_parse(&own, l->phases, &err));
  if (!o->batch) o->batch = d->batch;
  if (!o->epochs)
    o->epochs = o->phase_list.n ? phases_epochs(&o->phase_list) : l->phases ? phases_epochs(&own) : d->epochs;
  if (o->eval_epochs < 0) o->eval_epochs = o->eval_every ? 0 : d->eval_epochs;
  const bool never = o->eval_every <= 0 && !o->eval_epochs;
  if (o->patience && never) die(EXIT_USAGE, "--patience counts evaluations: give --eval-every N, too");
  const Targets t = targets_of(o);
  if (t.n && never) die(EXIT_USAGE, "%s is for evaluations to reach: give --eval-every N, too", t.of[0].option);
}

void train_defaults(TrainOptions *o, const ModelConfig *c) {
  const Model *m = model_of(c);
  const Defaults *d = &defaults[m->traits & MODEL_CLASSIFIER ? 1 : 0];
  refuse_layers(o, m);
  choose_phases(o, &m->learning);
  if (m->traits & MODEL_CLASSIFIER) {
    refuse_detectors(o);
    choose_split(o);
    choose_augmentation(o);
  } else {
    refuse_classifiers(o);
    leave_augmentation(o);
    set(&o->flip, d->flip);
  }
  set(&o->label_smoothing, c->label_smoothing);
  set(&o->dropout, c->dropout);
  choose_rate(o, &m->learning, d);
  choose_length(o, &m->learning, d);
  train_options_show(o);
}
