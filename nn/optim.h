// Learning-rate schedules, which are pure functions of the step so that a resumed run needs no state, and the
// optimizer's settings. The updates are ops: sgd, adam.
#pragma once
#include <stdint.h>
#include "nn/ops.h"

typedef enum OptimizerType { OPTIMIZER_SGD, OPTIMIZER_ADAM, OPTIMIZER_ADAMW } OptimizerType;
extern const char *const optimizer_names[]; // "sgd", "adam", "adamw", NULL

typedef struct Optimizer { // all zero: SGD, one rate and one decay for all
  OptimizerType type;
  const SgdFactors *factors; // NULL: one rate and one decay for all
  double beta1, beta2, eps;  // of Adam and AdamW
  double ema;                // decay of the moving average of the parameters; 0: there is none
} Optimizer;

enum { MAX_MILESTONES = 8, MAX_PHASES = 16 };
typedef enum Decay { DECAY_STEP, DECAY_COSINE, DECAY_CONSTANT, DECAY_PHASES } Decay;

typedef struct Schedule {
  Decay decay;
  double base;   // learning rate before decay and after warmup
  int64_t steps; // of the whole run
  // The first `warmup` steps are scaled by a factor that grows linearly from warmup_factor to 1, on top of the decay.
  int64_t warmup;
  double warmup_factor;
  // DECAY_STEP: from each milestone on, times gamma.
  double gamma;
  int milestones;
  int64_t milestone[MAX_MILESTONES];
  // DECAY_COSINE: the step at which it begins to fall.
  int64_t cosine_start;
  // DECAY_PHASES: before phase_end[i], times phase_factor[i]; from the last on, times the last.
  int phases;
  int64_t phase_end[MAX_PHASES];
  double phase_factor[MAX_PHASES];
} Schedule;

// What Mask R-CNN is trained with: 1000 steps of warmup from 1/1000, ×0.1 at 2/3 and 8/9 of the run, rounded down
// (60k and 80k of 90k). Fields may be changed afterwards.
Schedule schedule_default(Decay decay, int64_t steps, double base);

// The learning rate of step `step`, counted from 0. At 0 ≤ step < warmup the factor is
//   warmup_factor + (1 - warmup_factor) · step / warmup,
// as torch.optim.lr_scheduler.LinearLR and detectron2's WarmupMultiStepLR have it; milestones count as in MultiStepLR;
// cosine is base · (1 + cos(π · (step - start) / (steps - start))) / 2 from its start on. Where that is 0, warmup does
// not shift it, as in detectron2's WarmupCosineLR; where it is the end of warmup, the peak is base, as in the
// SequentialLR of torchvision's references/classification.
double schedule_rate(const Schedule *s, int64_t step);

// The decay of a moving average of the parameters in update number `updates`, counted from 1: at most
// (1 + updates) / (10 + updates), so that early averages forget the initial values, as in TensorFlow's
// tf.train.ExponentialMovingAverage.
double ema_decay(double decay, int64_t updates);

// The linear scaling rule: a rate that was found at `at` images a step, as 0.02 at 16 (Goyal et al., "Accurate, large
// minibatch SGD", 2017; He et al., "Mask R-CNN", 2017).
double scaled_rate(double rate, int at, int images_per_step);
