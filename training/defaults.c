#include "training/defaults.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/parallel.h"
#include "base/text.h"
#include "models/model.h"

// ---- by model -------------------------------------------------------------------------------------------------------

static const Learning *learning_of(const TrainSpec *o) { return &model_of(&o->config)->learning; }

// The source of a value: the model, if the value differs from the usual default.
static OptionSource learned_from(bool as_usual) { return as_usual ? FROM_DEFAULT : FROM_MODEL; }
static const Learning *usual_learning(void) {
  ModelConfig usual;
  Err err;
  CHECK(config_init(&usual, DEFAULT_MODEL, &err));
  return &model_of(&usual)->learning;
}

OptionSource settle_model(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  if (!o->weights) return !o->model || !strcmp(o->model, DEFAULT_MODEL) ? FROM_DEFAULT : FROM_DATA;
  o->model = config_variant(&o->config);
  return FROM_MODEL;
}

OptionSource settle_norm(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  o->norm = (int)o->config.norm;
  return o->weights ? FROM_MODEL : FROM_DEFAULT;
}

OptionSource settle_trainable_layers(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  o->trainable_layers = o->config.trainable_layers;
  return o->weights ? FROM_MODEL : FROM_DEFAULT;
}

OptionSource settle_size(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  o->size = o->config.size;
  return FROM_MODEL;
}

OptionSource settle_max_size(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  o->max_size = o->config.max_size;
  return o->from.size == FROM_GIVEN ? FROM_DEFAULT : FROM_MODEL;
}

// The model's number of sizes, evenly spaced up to its own.
OptionSource settle_sizes(void *values, const void *basis) {
  TrainSpec *o = values;
  const ModelConfig *c = &o->config;
  Sizes *s = &o->shorter_sides;
  size_t size;
  (void)basis;
  if (c->train_sizes < 2) return FROM_NOTHING;
  CHECK(!o->own_sizes); // settled once; copies of the specification share the text
  FILE *text = text_open(&o->own_sizes, &size);
  *s = (Sizes){0};
  for (int last = MIN(c->train_sizes, MAX_SIZES) - 1; s->n <= last; s->n++) {
    s->side[s->n] = c->train_size_min + (c->size - c->train_size_min) * s->n / last;
    fprintf(text, s->n ? ",%d" : "%d", s->side[s->n]);
  }
  text_close(text);
  o->sizes = o->own_sizes;
  return o->from.conventions == FROM_GIVEN ? FROM_CONVENTIONS : FROM_MODEL;
}

OptionSource settle_detections(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  o->detections = o->config.detections;
  return o->weights ? FROM_MODEL : FROM_DEFAULT;
}

OptionSource settle_proposals(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  o->proposals = config_proposals(&o->config);
  return FROM_MODEL;
}

OptionSource settle_score(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  o->score = o->config.min_score;
  return FROM_MODEL;
}

OptionSource settle_nms(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  o->nms = o->config.nms;
  return FROM_MODEL;
}

OptionSource settle_label_smoothing(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  o->label_smoothing = o->config.label_smoothing;
  return FROM_MODEL;
}

OptionSource settle_dropout(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  o->dropout = o->config.dropout;
  return FROM_MODEL;
}

// ---- by data --------------------------------------------------------------------------------------------------------

static AugmentFor augmented_for(const TrainSpec *o, const Basis *b) {
  if (model_of(&o->config)->traits & MODEL_DETECTOR) return AUGMENT_DETECTORS;
  return b->idx ? AUGMENT_DIGITS : AUGMENT_PHOTOGRAPHS;
}

// Detectors: measured in results/augment-h100.txt. The implementations whose conventions can be had mirror alone, and
// so do benchmarks, which are compared with theirs.
OptionSource settle_augment(void *values, const void *basis) {
  TrainSpec *o = values;
  switch (augmented_for(o, basis)) {
  case AUGMENT_DETECTORS:
    o->augment = o->conventions || o->benchmark || o->benchmark_loader ? AUGMENT_MIRROR : AUGMENT_STANDARD;
    return o->conventions ? FROM_CONVENTIONS : FROM_DEFAULT;
  case AUGMENT_PHOTOGRAPHS: o->augment = AUGMENT_STANDARD; return FROM_MODEL;
  default: o->augment = AUGMENT_NONE; return FROM_DATA;
  }
}

// A strength that the preset leaves at 0 is not told.
static OptionSource settle_strength(const TrainSpec *o, float strength) {
  return strength > 0 ? o->from.augment == FROM_GIVEN ? FROM_PRESET : (OptionSource)o->from.augment : FROM_NOTHING;
}

#define SETTLE_STRENGTH(field, ...)                                                                                    \
  OptionSource settle_##field(void *values, const void *basis) {                                                       \
    TrainSpec *o = values;                                                                                             \
    o->field = augment_preset(augmented_for(o, basis), (AugmentPreset)o->augment)->field;                              \
    return settle_strength(o, o->field);                                                                               \
  }
EACH_AUGMENT(SETTLE_STRENGTH, )

Augment augment_of(const TrainSpec *o) {
#define AUGMENT_TAKE(field, ...) .field = o->field,
  return (Augment){EACH_AUGMENT(AUGMENT_TAKE, ).sizes = o->shorter_sides};
}

OptionSource settle_range(void *values, const void *basis) {
  const Basis *b = basis;
  if (!b->per_epoch) return b->help ? FROM_DEFAULT : FROM_LATER; // the data are measured
  return ((TrainSpec *)values)->range_from;
}

OptionSource settle_split_seed(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  if (!holdout_wanted(&o->holdout)) return FROM_NOTHING;
  o->split_seed = o->seed;
  o->holdout.seed = (uint64_t)o->seed;
  return FROM_DEFAULT;
}

OptionSource settle_threads(void *values, const void *basis) {
  TrainSpec *o = values;
  const Basis *b = basis;
  if (!b->per_epoch) return FROM_LATER; // ranks share the cores
  o->threads = parallel_cores();
  return FROM_DEFAULT;
}

// ---- length ---------------------------------------------------------------------------------------------------------

OptionSource settle_batch(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  o->batch = learning_of(o)->batch;
  return learned_from(o->batch == usual_learning()->batch);
}

OptionSource settle_epochs(void *values, const void *basis) {
  TrainSpec *o = values;
  const Learning *l = learning_of(o);
  Phases own = {0};
  Err err;
  (void)basis;
  if (l->phases) CHECK(phases_parse(&own, l->phases, &err));
  o->epochs = o->phase_list.n ? phases_epochs(&o->phase_list) : own.n ? phases_epochs(&own) : learning_of(o)->epochs;
  if (o->from.iters == FROM_GIVEN) return FROM_NOTHING;
  return o->phase_list.n ? (OptionSource)o->from.phases : learned_from(o->epochs == usual_learning()->epochs);
}

OptionSource settle_iters(void *values, const void *basis) {
  TrainSpec *o = values;
  const Basis *b = basis;
  if (!b->per_epoch) return FROM_LATER;
  o->iters = o->epochs * b->per_epoch;
  return FROM_DATA;
}

// Evaluations take at most a tenth of the time if an image takes half as long in them as in training: on an H200
// inference sees 863 images a second and training 386, and scores are computed besides.
OptionSource settle_eval_epochs(void *values, const void *basis) {
  TrainSpec *o = values;
  const Basis *b = basis;
  const Learning *l = learning_of(o);
  o->eval_epochs = o->from.eval_every == FROM_GIVEN ? 0 : l->eval_epochs;
  if (!o->eval_epochs) return FROM_NOTHING;
  if (!l->eval_steps || b->help) return learned_from(o->eval_epochs == usual_learning()->eval_epochs);
  if (!b->per_epoch) return FROM_LATER;
  const int64_t by_steps = (l->eval_steps + b->per_epoch - 1) / b->per_epoch;
  const double by_images = ceil(0.5 * o->val_share / 0.1);
  o->eval_epochs = (int)MAX(o->eval_epochs, MAX((double)by_steps, by_images));
  return FROM_DATA;
}

OptionSource settle_eval_every(void *values, const void *basis) {
  TrainSpec *o = values;
  const Basis *b = basis;
  if (!o->eval_epochs) return FROM_DEFAULT;
  if (!b->per_epoch) return FROM_LATER;
  o->eval_every = (int)MIN(o->eval_epochs * b->per_epoch, INT32_MAX);
  return FROM_DATA;
}

OptionSource settle_checkpoint_every(void *values, const void *basis) {
  enum { LEAST = 100 };
  TrainSpec *o = values;
  const Basis *b = basis;
  if (!b->per_epoch) return FROM_LATER;
  o->checkpoint_every = (int)MIN(MAX(b->per_epoch, LEAST), INT32_MAX);
  return FROM_DATA;
}

// ---- how it learns --------------------------------------------------------------------------------------------------

// In the order of ParamRole: weights, biases, scales and shifts of norms.
static const SgdFactors norms_without_decay = {.rate = {1, 1, 1, 1}, .decay = {1, 1, 0, 0}};
static const SgdFactors biases_apart = {.rate = {1, 2, 1, 2}, .decay = {1, 0, 1, 0}};

static const Optimisation by_conventions[] = {
    [CONVENTIONS_TORCHVISION] = {.warmup = 1000, .warmup_factor = 1e-3}, // at most the first epoch
    [CONVENTIONS_DETECTRON2] = {.warmup = 1000, .warmup_factor = 1e-3, .factors = &norms_without_decay},
    [CONVENTIONS_MLPERF] = {.warmup = 500, .warmup_factor = 1 / 3.0, .factors = &biases_apart},
};

Optimisation optimisation_of(const TrainSpec *o) {
  const Learning *l = learning_of(o);
  if (o->conventions) return by_conventions[o->conventions - 1];
  return (Optimisation){
      .warmup = l->warmup, .warmup_epochs = l->warmup_epochs, .warmup_share = 3, .warmup_factor = l->warmup_factor};
}

OptionSource settle_optimizer(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  o->optimizer = learning_of(o)->adam ? OPTIMIZER_ADAM : OPTIMIZER_SGD;
  return learning_of(o)->adam ? FROM_MODEL : FROM_DEFAULT;
}

OptionSource settle_momentum(void *values, const void *basis) {
  (void)basis;
  return ((TrainSpec *)values)->optimizer == OPTIMIZER_SGD ? FROM_DEFAULT : FROM_NOTHING;
}

OptionSource settle_moments(void *values, const void *basis) {
  (void)basis;
  return ((TrainSpec *)values)->optimizer == OPTIMIZER_SGD ? FROM_NOTHING : FROM_DEFAULT;
}

OptionSource settle_lr(void *values, const void *basis) {
  static const double adam_rate = 1e-3; // for any batch size
  TrainSpec *o = values;
  const Basis *b = basis;
  const Learning *l = learning_of(o);
  const bool adam = o->optimizer != OPTIMIZER_SGD;
  OptionSource from = FROM_DEFAULT;
  if (o->phase_list.n) {
    o->rate = o->phase_list.phase[0].rate;
    from = (OptionSource)o->from.phases;
  } else if (adam) {
    o->rate = adam_rate;
  } else {
    if (!b->ranks) return FROM_LATER;
    o->rate = scaled_rate(l->rate, l->rate_images, o->batch * b->ranks);
    from = learned_from(l->rate == usual_learning()->rate && l->rate_images == usual_learning()->rate_images);
  }
  o->lr = (float)o->rate;
  return from;
}

OptionSource settle_schedule(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  const bool own = learning_of(o)->phases;
  o->schedule = (int)(own || o->phases ? DECAY_CONSTANT : learning_of(o)->decay);
  return o->phases ? (OptionSource)o->from.phases : learned_from(o->schedule == (int)usual_learning()->decay);
}

// torchvision's references/detection/engine.py warms up in the first epoch alone.
OptionSource settle_warmup(void *values, const void *basis) {
  TrainSpec *o = values;
  const Basis *b = basis;
  const Optimisation how = optimisation_of(o);
  const bool as_usual = !how.warmup_epochs && how.warmup == usual_learning()->warmup;
  const OptionSource from = o->conventions ? FROM_CONVENTIONS : learned_from(as_usual);
  const int64_t usual = how.warmup + how.warmup_epochs * b->per_epoch;
  const bool first_epoch = o->conventions == 1 + CONVENTIONS_TORCHVISION;
  o->warmup = 0;
  if (o->schedule == DECAY_CONSTANT) return FROM_DEFAULT;
  if (!b->per_epoch && (how.warmup_epochs || !b->help)) return FROM_LATER;
  o->warmup = (int)MIN(usual, INT32_MAX);
  if (!b->per_epoch) return from;
  if (how.warmup_share) o->warmup = (int)MIN(usual, o->iters / how.warmup_share);
  if (first_epoch) o->warmup = (int)MIN(usual, b->per_epoch - 1);
  return from;
}

OptionSource settle_weight_decay(void *values, const void *basis) {
  static const float decay[] = {[OPTIMIZER_SGD] = 1e-4f, [OPTIMIZER_ADAM] = 0, [OPTIMIZER_ADAMW] = 0.01f}; // torch's
  TrainSpec *o = values;
  (void)basis;
  o->weight_decay = decay[o->optimizer];
  return FROM_DEFAULT;
}

OptionSource settle_clip_grad(void *values, const void *basis) {
  TrainSpec *o = values;
  (void)basis;
  o->clip_grad = o->conventions ? 0 : learning_of(o)->clip;
  return o->conventions ? FROM_CONVENTIONS : learned_from(o->clip_grad == usual_learning()->clip);
}
