#include "training/step_results.h"
#include <math.h>
#include <string.h>

// With fp16, overflowing gradients are part of finding the loss scale; such a step changes only the scale.
static bool may_skip(const TrainingRun *r, const StepResult *s) {
  return r->engine.params.shadow_dtype == F16 && isfinite(s->total) && s->scale[0] >= 1;
}

bool train_diverged(TrainingRun *r, int64_t step, const StepResult *s) {
  if (s->finite || may_skip(r, s)) return false;
  r->diverged = true;
  divergence_take(&r->divergence, r->model, r->train, r->o.batch, step, r->schedule.base, s);
  divergence_gather(&r->divergence, r->comm);
  return true;
}

static void show_step(TrainingRun *r, int64_t done, const StepResult *s) {
  double rate = schedule_rate(&r->schedule, done - 1);
  log_progress(&r->files.log, &(Progress){.step = done,
                                          .steps = r->steps,
                                          .images = (done - r->first) * r->o.batch * r->o.gpus,
                                          .loss = s->total,
                                          .learning_rate = rate});
  files_record_step(&r->files, &r->engine, done, rate, s);
}

bool results_take(TrainingRun *r, int64_t last, bool wait, int64_t *done) {
  for (StepResult s; r->first + r->engine.handed_out < last && engine_result(&r->engine, wait, &s);) {
    const int64_t step = r->first + s.step + 1;
    r->is_void = s.is_void;
    if (s.is_void) *done = step - 1;
    if (s.is_void || train_diverged(r, step, &s)) return false;
    r->asked |= s.stop;
    memcpy(r->scale, s.scale, sizeof r->scale);
    step_parts_result(&r->step_parts, &s);
    if (run_leads(r)) show_step(r, step, &s);
  }
  return true;
}
