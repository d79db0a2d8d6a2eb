// Learning-rate schedules.
#include "nn/optim.h"
#include <math.h>
#include "base/error.h"

const char *const optimizer_names[] = {
    [OPTIMIZER_SGD] = "sgd", [OPTIMIZER_ADAM] = "adam", [OPTIMIZER_ADAMW] = "adamw", NULL};

static const double PI = 3.14159265358979323846;

Schedule schedule_default(Decay decay, int64_t steps, double base) {
  return (Schedule){
      .decay = decay,
      .base = base,
      .steps = steps,
      .warmup = 1000,
      .warmup_factor = 0.001,
      .gamma = 0.1,
      .milestones = 2,
      .milestone = {steps * 2 / 3, steps * 8 / 9},
  };
}

static double warmup_factor(const Schedule *s, int64_t step) {
  if (step >= s->warmup) return 1;
  return s->warmup_factor + (1 - s->warmup_factor) * (double)step / (double)s->warmup;
}

static double cosine_factor(const Schedule *s, int64_t step) {
  const int64_t past = step - s->cosine_start, span = s->steps - s->cosine_start;
  if (past <= 0) return 1;
  return past < span ? (1 + cos(PI * (double)past / (double)span)) / 2 : 0;
}

static double decay_factor(const Schedule *s, int64_t step) {
  if (s->decay == DECAY_COSINE) return cosine_factor(s, step);
  int passed = 0;
  if (s->decay == DECAY_CONSTANT) return 1;
  if (s->decay == DECAY_PHASES) {
    while (passed < s->phases - 1 && step >= s->phase_end[passed]) passed++;
    return s->phase_factor[passed];
  }
  for (int i = 0; i < s->milestones; i++) passed += step >= s->milestone[i];
  return pow(s->gamma, passed);
}

double schedule_rate(const Schedule *s, int64_t step) {
  return s->base * warmup_factor(s, step) * decay_factor(s, step);
}

double ema_decay(double decay, int64_t updates) { return fmin(decay, (1 + (double)updates) / (10 + (double)updates)); }

double scaled_rate(double rate, int at, int images_per_step) { return rate * images_per_step / at; }
