// Defaults that depend on model, data and conventions: the functions named in rows of training/options.h.
#pragma once
#include "training/options.h"

// What is known when defaults are chosen.
typedef struct Basis {
  int ranks;         // 0: not known yet
  int64_t per_epoch; // steps; 0: not known yet
  bool idx;          // the data are IDX files
  bool help;         // for --help: defaults that depend on the data are not resolved
} Basis;

// Each sets the option after which it is named, in a TrainSpec, from a Basis.
extern OptionSettle settle_model, settle_norm, settle_trainable_layers, settle_size, settle_max_size, settle_sizes,
    settle_detections, settle_proposals, settle_score, settle_nms, settle_label_smoothing, settle_dropout,
    settle_augment, settle_range, settle_split_seed, settle_threads, settle_batch, settle_epochs, settle_iters,
    settle_eval_epochs, settle_eval_every, settle_checkpoint_every, settle_optimizer, settle_momentum, settle_moments,
    settle_lr, settle_schedule, settle_warmup, settle_weight_decay, settle_clip_grad;

#define DECLARE_STRENGTH(field, ...) extern OptionSettle settle_##field;
EACH_AUGMENT(DECLARE_STRENGTH, )
// The strengths of augmentation that the options have.
Augment augment_of(const TrainSpec *o);

// The learning settings of a model by its conventions; if none were requested, by rules that suit any data set, batch
// size and length (docs/training.md).
typedef struct Optimisation {
  int warmup; // warm-up steps, limited by warmup_share
  int warmup_epochs;
  int warmup_share; // warm-up takes at most 1 / warmup_share of the run; 0 = no limit
  double warmup_factor;
  const SgdFactors *factors; // NULL: the same for all parameters
} Optimisation;
Optimisation optimisation_of(const TrainSpec *o);
