#include "training/setup.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/output.h"
#include "engine/state.h"
#include "evaluation/task.h"
#include "training/anchors.h"
#include "training/data.h"
#include "training/defaults.h"

// ---- model ------------------------------------------------------------------------------------------------------

static void set_fields(ModelConfig *c, const char *list) {
  Err err;
  bool ok = model_set_list(c, list, false, &err);
  ModelConfig whole = *c;
  if (!whole.classes) whole.classes = 2; // as long as the data are not open
  if (!ok || !config_check(&whole, &err)) die(EXIT_USAGE, "%s", err.msg);
}

static ModelConfig choose_config(const TrainSpec *o, const Checkpoint *weights) {
  ModelConfig c, named;
  Err err;
  if (o->model && !config_init(&named, o->model, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (weights) {
    if (!state_config_for(weights, o->model ? &named : NULL, &c, &err)) die(EXIT_USAGE, "%s: %s", o->weights, err.msg);
  } else {
    c = named;
    c.trainable_layers = 5;
    c.classes = 0;
  }
  const Model *m = model_of(&c);
  if (m->train) m->train(&c, !weights, !o->conventions);
  if (o->from.norm == FROM_GIVEN) c.norm = (NormType)o->norm;
  if (c.norm != NORM_FROZEN_BN && c.norm_eps == 0)
    c.norm_eps = 1e-5f; // 0 is only for published weights, whose statistics are frozen
  if (o->from.trainable_layers == FROM_GIVEN) c.trainable_layers = o->trainable_layers;
  if (o->from.size == FROM_GIVEN) config_resize(&c, o->size);
  if (o->from.label_smoothing == FROM_GIVEN) c.label_smoothing = o->label_smoothing;
  if (o->from.dropout == FROM_GIVEN) c.dropout = o->dropout;
  c.view = train_view(o, &c);
  if (o->conventions) config_conventions(&c, (Conventions)(o->conventions - 1));
  if (o->from.max_size == FROM_GIVEN) c.max_size = o->max_size;
  if (o->from.detections == FROM_GIVEN) c.detections = o->detections;
  if (o->from.proposals == FROM_GIVEN) config_set_proposals(&c, o->proposals);
  if (o->from.score == FROM_GIVEN) c.min_score = o->score;
  if (o->from.nms == FROM_GIVEN) c.nms = o->nms;
  train_set_anchors(o, &c);
  if (o->set) set_fields(&c, o->set);
  return c;
}

ModelConfig setup_model(const TrainSpec *o) {
  Checkpoint weights;
  Err err;
  if (o->weights && !state_open(&weights, o->weights, &err)) die(EXIT_USAGE, "%s", err.msg);
  ModelConfig config = choose_config(o, o->weights ? &weights : NULL);
  if (o->weights) ckpt_close(&weights);
  return config;
}

// ---- how it learns --------------------------------------------------------------------------------------------------

Schedule setup_schedule(const TrainSpec *o, double rate) {
  if (o->phase_list.n) return phases_schedule(&o->phase_list, rate, o->per_epoch);
  Schedule s = schedule_default((Decay)o->schedule, o->iters, rate);
  Err err;
  if (o->drops && !drops_apply(&o->drop_list, o->per_epoch, &s, &err))
    die(EXIT_USAGE, "--drops %s: %s", o->drops, err.msg);
  s.warmup = o->warmup;
  s.warmup_factor = optimisation_of(o).warmup_factor;
  if (model_of(&o->config)->traits & MODEL_CLASSIFIER) s.cosine_start = s.warmup;
  return s;
}

// ---- on the device ----------------------------------------------------------------------------------------------

static void choose_classes(const TrainSpec *o, ModelConfig *c, int classes) {
  Err err;
  ModelConfig of_data = *c;
  of_data.classes = classes;
  const int names = model_names(&of_data);
  if (c->classes && c->classes != classes && !o->reset_heads)
    die(EXIT_USAGE, "%s has %d classes, but %s has %d: use --reset-heads to train new output layers", o->weights,
        model_names(c), o->data, names);
  if (names < 1)
    die(EXIT_USAGE, "%s: no categories to train on; list them in the annotations' \"categories\"", o->data);
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

void setup_engine(const TrainSpec *o, Comm *comm, const Dataset *train, const Dataset *val, Engine *e) {
  Err err;
  ModelConfig config = o->config;
  choose_classes(o, &config, train->classes);
  const Optimizer optimizer = {.type = (OptimizerType)o->optimizer,
                               .factors = optimisation_of(o).factors,
                               .beta1 = float_decimal(o->beta1),
                               .beta2 = float_decimal(o->beta2),
                               .eps = float_decimal(o->eps),
                               .ema = float_decimal(o->ema)};
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
      .ranks_here = o->gpus,
      .seed = (uint64_t)o->seed,
      .optimizer = optimizer,
      .ranks =
          {.comm = comm, .type = (ReduceType)o->reduce, .bucket_mb = o->bucket, .ctas = o->ctas, .reserve = o->reserve},
  };
  if (!engine_open(e, &compute, model_of(&config), &config, category, &train_shapes, &infer_shapes, o->plan, &err))
    die(err_exit(&err), "%s", err.msg);
  free(category);
}
