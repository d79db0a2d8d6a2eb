// Learning-rate schedules: pure functions of the step, so that a resumed run needs no state. The updates are ops: sgd,
// adam.
#pragma once
#include <stdint.h>

enum { MAX_MILESTONES = 8 };
typedef enum Decay { DECAY_STEP, DECAY_COSINE } Decay;

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
} Schedule;

// What Mask R-CNN is trained with: 1000 steps of warmup from 1/1000, ×0.1 at 2/3 and 8/9 of the run, rounded down
// (60k and 80k of 90k). Fields may be changed afterwards.
Schedule schedule_default(Decay decay, int64_t steps, double base);

// The learning rate of step `step`, counted from 0. At 0 ≤ step < warmup the factor is
//   warmup_factor + (1 - warmup_factor) · step / warmup,
// as torch.optim.lr_scheduler.LinearLR and detectron2's WarmupMultiStepLR have it; milestones count as in MultiStepLR;
// cosine is base · (1 + cos(π · step / steps)) / 2, which warmup does not shift, as detectron2's WarmupCosineLR.
double schedule_rate(const Schedule *s, int64_t step);

// The linear scaling rule with its usual anchor, 0.02 for 16 images a step (Goyal et al., "Accurate, large minibatch
// SGD", 2017; He et al., "Mask R-CNN", 2017).
double scaled_rate(int images_per_step);
