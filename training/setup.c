#include "training/setup.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/output.h"
#include "engine/state.h"
#include "evaluation/task.h"
#include "training/data.h"

// ---- model ------------------------------------------------------------------------------------------------------

// What it sees is a square of one size, whatever the size of images.
static void choose_classifier(const TrainOptions *o, ModelConfig *c) {
  if (o->label_smoothing >= 0) c->label_smoothing = o->label_smoothing;
  if (o->dropout >= 0) c->dropout = o->dropout;
  c->view = train_view(o, c);
}

static ModelConfig choose_config(const TrainOptions *o, const Checkpoint *weights) {
  ModelConfig c, named;
  Err err;
  if (o->model && !config_init(&named, o->model, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (weights) {
    if (!state_config_for(weights, o->model ? &named : NULL, &c, &err)) die(EXIT_USAGE, "%s: %s", o->weights, err.msg);
  } else {
    c = named;
    if (model_of(&c)->traits & MODEL_DETECTOR) c.norm = NORM_GN;
    c.trainable_layers = 5;
    c.classes = 0;
  }
  if (o->norm) c.norm = (NormKind)(o->norm - 1);
  if (c.norm != NORM_FROZEN_BN && c.norm_eps == 0)
    c.norm_eps = 1e-5f; // 0 is for published statistics, which are frozen
  if (o->trainable_layers >= 0) c.trainable_layers = o->trainable_layers;
  if (o->size) config_resize(&c, o->size);
  if (model_of(&c)->traits & MODEL_CLASSIFIER) choose_classifier(o, &c);
  if (o->conventions) config_conventions(&c, (Conventions)(o->conventions - 1));
  if (model_of(&c)->traits & MODEL_DETECTOR) c.mask_logits_fan_in = !o->conventions;
  if (o->max_size) c.max_size = o->max_size;
  return c;
}

ModelConfig setup_model(const TrainOptions *o) {
  Checkpoint weights;
  Err err;
  if (o->weights && !state_open(&weights, o->weights, &err)) die(EXIT_USAGE, "%s", err.msg);
  ModelConfig config = choose_config(o, o->weights ? &weights : NULL);
  if (o->weights) ckpt_close(&weights);
  return config;
}

// ---- how it learns ----------------------------------------------------------------------------------------------

// In the order of ParamKind: weights, biases, scales and shifts of norms.
static const SgdFactors norms_without_decay = {.rate = {1, 1, 1, 1}, .decay = {1, 1, 0, 0}};
static const SgdFactors biases_apart = {.rate = {1, 2, 1, 2}, .decay = {1, 0, 1, 0}};

// The source's rules where conventions were asked for; else those that train whatever the data set, batch and length are
// (docs/training.md).
typedef struct Optimisation {
  int warmup; // steps, or
  int warmup_epochs;
  int warmup_share; // of the run at most one in so many; 0 = any
  double warmup_factor;
  const SgdFactors *factors; // NULL: all parameters are trained alike
} Optimisation;

static const Optimisation by_default = {.warmup = 1000, .warmup_share = 3, .warmup_factor = 1e-3};
// torchvision's references/classification: five epochs from a hundredth of the rate; a third at most is ours.
static const Optimisation of_epochs = {.warmup_epochs = 5, .warmup_share = 3, .warmup_factor = 0.01};
static const Optimisation by_conventions[] = {
    [CONVENTIONS_TORCHVISION] = {.warmup = 1000, .warmup_factor = 1e-3}, // and at most the first epoch
    [CONVENTIONS_DETECTRON2] = {.warmup = 1000, .warmup_factor = 1e-3, .factors = &norms_without_decay},
    [CONVENTIONS_MLPERF] = {.warmup = 500, .warmup_factor = 1 / 3.0, .factors = &biases_apart},
};

static const Optimisation *optimisation_of(const TrainOptions *o, const ModelConfig *c) {
  if (model_of(c)->traits & MODEL_CLASSIFIER) return &of_epochs;
  return o->conventions ? &by_conventions[o->conventions - 1] : &by_default;
}

// torchvision's references/detection/engine.py warms up in the first epoch alone.
static int64_t warmup_of(const TrainOptions *o, const ModelConfig *c, int64_t steps, int64_t per_epoch) {
  const Optimisation *how = optimisation_of(o, c);
  const int64_t usual = how->warmup + how->warmup_epochs * per_epoch;
  if (o->warmup >= 0) return o->warmup;
  if (o->schedule == 1 + DECAY_CONSTANT) return 0;
  if (how->warmup_share) return MIN(usual, steps / how->warmup_share);
  bool first_epoch = o->conventions == 1 + CONVENTIONS_TORCHVISION;
  return first_epoch ? MIN(usual, per_epoch - 1) : usual;
}

static double base_of(const TrainOptions *o) {
  if (o->lr > 0) return float_decimal(o->lr);
  if (o->phase_list.n) return o->phase_list.phase[0].rate;
  return o->rate_images ? scaled_rate(o->rate, o->rate_images, o->batch * o->ranks) : o->rate;
}

Schedule setup_schedule(const TrainOptions *o, const ModelConfig *c, int64_t steps, int64_t per_epoch) {
  if (o->phase_list.n) return phases_schedule(&o->phase_list, base_of(o), per_epoch);
  Schedule s = schedule_default((Decay)(o->schedule - 1), steps, base_of(o));
  s.warmup = warmup_of(o, c, steps, per_epoch);
  s.warmup_factor = optimisation_of(o, c)->warmup_factor;
  return s;
}

static void record_sizes(Record *j, const Sizes *s) {
  char text[MAX_SIZES * 5 + 1] = ""; // four digits and a space each
  for (int i = 0, n = 0; i < s->n; i++) n += sprintf(text + n, i ? " %d" : "%d", s->side[i]);
  record_str(j, "sizes", text);
}

// What sums depend on: NCCL's blocks, and for how many multiprocessors wgrad divides its sums in which node.
static void record_reduction(Record *j, const Reduction *r) {
  if (!r->o.comm) return;
  record_str(j, "reduce", reduce_names[r->o.type]);
  record_int(j, "ctas", r->o.ctas);
  record_int(j, "reserve", r->o.reserve);
  record_num(j, "bucket_mb", r->o.bucket_mb);
}

static void record_schedule(Record *j, const TrainOptions *o, const Schedule *s) {
  char *phases = o->phase_list.n ? phases_text(&o->phase_list, s->base / o->phase_list.phase[0].rate) : NULL;
  record_str(j, "schedule", phases ? phases : schedule_choices[o->schedule]);
  free(phases);
}

// Checkpoints of SGD do not name it.
static void record_optimizer(Record *j, const Optimizer *o) {
  if (o->kind == OPTIMIZER_SGD) return;
  record_str(j, "optimizer", optimizer_names[o->kind]);
  record_num(j, "beta1", o->beta1);
  record_num(j, "beta2", o->beta2);
  record_num(j, "eps", o->eps);
}

static void record_classes(Record *j, const TrainOptions *o) {
  const struct {
    const char *name;
    float value;
  } all[] = {{"rotate", o->rotate}, {"shift", o->shift}, {"shear", o->shear},
             {"zoom", o->zoom},     {"crop", o->crop},   {"val_fraction", o->val_fraction}};
  for (int i = 0; i < COUNT(all); i++) record_num(j, all[i].name, float_decimal(all[i].value));
  if (o->val_fraction > 0) record_int(j, "split_seed", o->split_seed);
}

char *setup_identity(const TrainOptions *o, const Dataset *train, const Schedule *schedule, const Engine *e) {
  Record j = {0};
  record_begin(&j);
  record_int(&j, "seed", o->seed);
  record_int(&j, "images", train->num_images);
  record_int(&j, "objects", train->first_object[train->num_images]);
  record_int(&j, "canvases", train->num_canvases);
  record_int(&j, "batch", o->batch);
  record_int(&j, "world", o->ranks);
  record_int(&j, "steps", schedule->steps);
  record_str(&j, "recipe", o->conventions ? conventions_choices[o->conventions] : "auto"); // as checkpoints have it
  record_schedule(&j, o, schedule);
  record_num(&j, "lr", schedule->base);
  record_int(&j, "warmup", schedule->warmup);
  record_num(&j, "momentum", float_decimal(o->momentum));
  record_num(&j, "weight_decay", float_decimal(o->weight_decay));
  record_num(&j, "clip_grad", float_decimal(o->clip_grad));
  record_str(&j, "amp", amp_names[o->amp]);
  record_bool(&j, "tf32", o->tf32);
  record_num(&j, "flip", float_decimal(o->flip));
  record_sizes(&j, &train->sizes);
  record_bool(&j, "exif", o->exif);
  record_optimizer(&j, &e->optimizer);
  if (train->kind->mapped) record_classes(&j, o);
  record_reduction(&j, &e->reduction);
  char *text = xstrdup(record_end(&j));
  record_free(&j);
  return text;
}

static void record_data(Record *j, const char *split, const Dataset *d) {
  char key[64], value[32];
  const struct {
    const char *what;
    int n;
  } counts[] = {{"images", d->num_images}, {"missing_files", d->missing}};
  for (int i = 0; i < COUNT(counts); i++) {
    snprintf(key, sizeof key, "%s_%s", split, counts[i].what);
    record_int(j, key, counts[i].n);
  }
  snprintf(key, sizeof key, "%s_data", split);
  snprintf(value, sizeof value, "%016llx", (unsigned long long)dataset_key(d));
  record_str(j, key, value);
}

char *setup_agreement(const char *identity, const ModelConfig *c, const Dataset *train, const Dataset *val) {
  Record j = {0};
  char value[512];
  record_begin(&j);
  record_data(&j, "train", train);
  if (val) record_data(&j, "val", val);
  record_bool(&j, "val", val);
  for (int i = 0; i < config_fields(); i++) {
    config_get(c, i, value, sizeof value);
    record_str(&j, config_field_name(i), value);
  }
  const char *config = record_end(&j);
  char *text = xasprintf("%.*s,%s", (int)strlen(identity) - 1, identity, config + 1);
  record_free(&j);
  return text;
}

// ---- on the device ----------------------------------------------------------------------------------------------

static void choose_classes(const TrainOptions *o, ModelConfig *c, int classes) {
  Err err;
  ModelConfig of_data = *c;
  of_data.classes = classes;
  const int names = model_names(&of_data);
  if (c->classes && c->classes != classes && !o->reset_heads)
    die(EXIT_USAGE, "%s knows %d classes, %s has %d: give --reset-heads to train new outputs", o->weights,
        model_names(c), o->data, names);
  if (names < 1) die(EXIT_USAGE, "%s: no category to train on", o->data);
  c->classes = classes;
  if (!config_check(c, &err)) die(EXIT_USAGE, "%s", err.msg);
}

static Category *categories_of(const Coco *coco) {
  Category *c = xcalloc((size_t)coco->num_categories, sizeof *c);
  for (int i = 0; i < coco->num_categories; i++) {
    c[i].id = coco->categories[i].id;
    snprintf(c[i].name, sizeof c[i].name, "%s", coco->categories[i].name ? coco->categories[i].name : "");
  }
  return c;
}

void setup_engine(const TrainOptions *o, Comm *comm, ModelConfig config, const Dataset *train, const Dataset *val,
                  Engine *e) {
  Err err;
  choose_classes(o, &config, train->classes);
  const Optimizer optimizer = {.kind = (OptimizerKind)(o->optimizer - 1),
                               .factors = optimisation_of(o, &config)->factors,
                               .beta1 = float_decimal(o->beta1),
                               .beta2 = float_decimal(o->beta2),
                               .eps = float_decimal(o->eps)};
  config.full_masks = o->full_masks;
  Shapes train_shapes = shapes_of(train, o->batch), infer_shapes = {0};
  if (val) infer_shapes = shapes_of(val, o->batch);
  infer_shapes.losses = o->val_loss;
  train_shapes.threads = infer_shapes.threads = o->threads;
  Category *category = categories_of(&train->coco);
  Compute compute = {
      .device = o->device,
      .amp = amp_types[o->amp],
      .tf32 = o->tf32,
      .conv = o->conv,
      .sync_nodes = o->sync_nodes,
      .ranks_here = o->ranks,
      .seed = (uint64_t)o->seed,
      .optimizer = optimizer,
      .ranks =
          {.comm = comm, .type = (ReduceType)o->reduce, .bucket_mb = o->bucket, .ctas = o->ctas, .reserve = o->reserve},
  };
  if (!engine_open(e, &compute, model_of(&config), &config, category, &train_shapes, &infer_shapes, o->plan, &err) ||
      (val && !e->model->task->accepts(e, val, &err)))
    die(err_exit(&err), "%s", err.msg);
  free(category);
}
