// Defaults that follow from model, data and conventions: the functions that rows of training/options.h name.
#pragma once
#include "training/options.h"

// What is known when defaults are chosen.
typedef struct Basis {
  int ranks;         // 0: not yet
  int64_t per_epoch; // steps; 0: not yet
  bool idx;          // the data are IDX files
  bool help;         // for --help: what only the data tell stays open
} Basis;

// Each gives the option of its name a value, in a TrainSpec, from a Basis.
extern OptionSettle settle_model, settle_norm, settle_trainable_layers, settle_size, settle_max_size, settle_sizes,
    settle_detections, settle_label_smoothing, settle_dropout, settle_rotate, settle_shift, settle_shear, settle_zoom,
    settle_crop, settle_flip, settle_split_seed, settle_threads, settle_batch, settle_epochs, settle_iters,
    settle_eval_epochs, settle_eval_every, settle_checkpoint_every, settle_optimizer, settle_momentum, settle_moments,
    settle_lr, settle_schedule, settle_warmup, settle_weight_decay, settle_clip_grad;

// How a model learns by its conventions; where none were asked for, by rules that train whatever data set, batch and
// length are (docs/training.md).
typedef struct Optimisation {
  int warmup; // steps, or
  int warmup_epochs;
  int warmup_share; // of the run at most one in so many; 0 = any
  double warmup_factor;
  const SgdFactors *factors; // NULL: all parameters are trained alike
} Optimisation;
Optimisation optimisation_of(const TrainSpec *o);
