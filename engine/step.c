// Training steps and inference on an open engine.
#include "engine/step.h"
#include <math.h>
#include <string.h>
#include "base/clock.h"
#include "engine/outputs.h"
#include "nn/fault.h"

enum { SCALE_INTERVAL = 2000 }; // finite steps before fp16's loss scale doubles, as in torch.amp.GradScaler

// ---- queueing ---------------------------------------------------------------------------------------------------

static double waited_seconds(Engine *e) {
  device_sync(e->dev);
  return now_seconds();
}

static SgdFactors factors_of(const Engine *e) {
  static const SgdFactors alike = {.rate = {1, 1, 1, 1}, .decay = {1, 1, 1, 1}};
  return e->optimizer.factors ? *e->optimizer.factors : alike;
}

static void queue_sgd(Engine *e) {
  const Params *p = &e->params;
  Sgd sgd = {.hyper = e->hyper,
             .stats = e->stats,
             .part = p->part,
             .parts = p->parts,
             .shadow = p->shadow_dtype,
             .factors = factors_of(e)};
  e->dev->ops->sgd(e->dev, &sgd, p->master, p->grad, p->momentum);
}

static void queue_adam(Engine *e) {
  const Params *p = &e->params;
  const Optimizer *o = &e->optimizer;
  Adam adam = {.hyper = e->hyper,
               .stats = e->stats,
               .state = p->adam_state,
               .part = p->part,
               .parts = p->parts,
               .shadow = p->shadow_dtype,
               .factors = factors_of(e),
               .beta1 = o->beta1,
               .beta2 = o->beta2,
               .eps = o->eps,
               .decoupled = o->type == OPTIMIZER_ADAMW};
  e->dev->ops->adam(e->dev, &adam, p->master, p->grad, p->momentum, p->second);
}

static void queue_update(Engine *e, const Network *n) {
  Device *dev = e->dev;
  Params *p = &e->params;
  int losses;
  const void *loss = reduction_losses(&e->reduction, n, &losses);
  dev->ops->grad_stats(dev, grad_parts(p), e->reduction.sums, losses, loss, e->hyper, e->stats);
  if (p->adam)
    queue_adam(e);
  else
    queue_sgd(e);
  if (p->averages) dev->ops->ema(dev, p->trainable, e->stats, e->towards, p->master, p->average);
  if (p->shadow_dtype == F16) dev->ops->loss_scale_update(dev, SCALE_INTERVAL, e->stats, e->scale, e->hyper);
}

// Names what is being queued, for messages about device faults.
static void say_queued(const Engine *e, const Program *p, int canvas, const char *how) {
  const Canvas *c = &p->shapes.canvas[canvas];
  fault_context(false, "the %s%s of canvas %d x %d (h x w)", how, p == &e->train ? "training step" : "inference", c->h,
                c->w);
}

// Writes this rank's values for the others in this step: stop requests, missing batches.
static void ask(Engine *e, StepSlot *s, const StepOptions *o) {
  const size_t real = dtype_size(e->dev->real);
  if (!e->reduction.agreed) return;
  slot_set(e->dev, s, REAL_ASK, o->stop);
  slot_set(e->dev, s, REAL_ASK + 1, o->batchless ? NAN : 0);
  device_upload(e->dev, (char *)e->reduction.agreed + AGREED_STOP * real, slot_at(e->dev, s, REAL_ASK),
                (AGREED - AGREED_STOP) * real);
}

static void tell_computing(const Engine *e, bool begins) {
  if (e->computing) e->computing(e->computing_context, begins);
}

void queue_step(Engine *e, Network *n) {
  graph_forward(&n->graph);
  graph_backward(&n->graph);
  tell_computing(e, false);
  queue_update(e, n);
  if (e->stamping) timeline_note(&e->train.timeline[n - e->train.network], "update");
}

static void timed_step(Engine *e, Network *n, StepSlot *slot) {
  say_queued(e, &e->train, e->train.inputs.canvas, "timed ");
  double start = waited_seconds(e);
  graph_forward(&n->graph);
  double forward = waited_seconds(e);
  graph_backward(&n->graph);
  double backward = waited_seconds(e);
  tell_computing(e, false);
  queue_update(e, n);
  slot->forward_seconds = forward - start;
  slot->backward_seconds = backward - forward;
  slot->update_seconds = waited_seconds(e) - backward;
}

// The first run queues kernel by kernel (libraries and modules load lazily), the second is recorded, all others replay
// it. A graph with an observer always runs node by node.
static void run(Engine *e, Program *p, int canvas, void (*queue)(Engine *, Network *)) {
  Network *n = &p->network[canvas];
  say_queued(e, p, canvas, p->recorded[canvas] ? "recorded " : "");
  if (p->runs[canvas]++ == 0 || graph_watched(&n->graph)) {
    queue(e, n);
    return;
  }
  if (!p->recorded[canvas]) {
    bool records = device_record(e->dev);
    queue(e, n);
    if (!records) return;
    p->recorded[canvas] = device_record_end(e->dev);
  }
  device_replay(e->dev, p->recorded[canvas]);
}

// ---- training ---------------------------------------------------------------------------------------------------

void engine_stage(Engine *e, const Batch *batch) {
  CHECK(e->started - e->handed_out < STEPS_UNDER_WAY && batch->images == e->train.shapes.images);
  StepSlot *s = &e->slot[e->started % STEPS_UNDER_WAY];
  s->wait_seconds = device_idle(e->dev) ? batch->wait_seconds : 0; // a busy device lost no time
  memcpy(s->index, batch->index, (size_t)batch->images * sizeof *s->index);
  double start = now_seconds();
  inputs_stage(&e->train.inputs, e->dev, batch);
  s->transfer_seconds = 0;
  if (!e->timing) return;
  device_stage_wait(e->dev);
  s->transfer_seconds = now_seconds() - start;
}

void engine_start(Engine *e, const StepOptions *o) {
  Device *dev = e->dev;
  CHECK(e->started - e->handed_out < STEPS_UNDER_WAY);
  StepSlot *s = &e->slot[e->started++ % STEPS_UNDER_WAY];
  const int canvas = e->train.inputs.canvas;
  Network *n = &e->train.network[canvas];
  const size_t real = dtype_size(dev->real);
  e->batches++;
  s->forward_seconds = s->backward_seconds = s->update_seconds = 0;
  const float hyper[] = {o->learning_rate, o->momentum, o->weight_decay, o->clip};
  for (int i = 0; i < COUNT(hyper); i++) slot_set(e->dev, s, REAL_HYPER + i, hyper[i]);
  device_upload(dev, e->hyper, slot_at(e->dev, s, REAL_HYPER), COUNT(hyper) * real);
  if (e->params.averages) {
    slot_set(dev, s, REAL_TOWARDS, (float)(1 - ema_decay(e->optimizer.ema, o->step + 1)));
    device_upload(dev, e->towards, slot_at(dev, s, REAL_TOWARDS), real);
  }
  *s->step = (uint64_t)o->step;
  device_upload(dev, e->step, s->step, sizeof *s->step);
  ask(e, s, o);
  inputs_take(&e->train.inputs, dev, true);
  tell_computing(e, true);
  if (e->timing)
    timed_step(e, n, s);
  else
    run(e, &e->train, canvas, queue_step);
  if (e->stamping) {
    device_sync(dev);
    timeline_read(&e->train.timeline[canvas]);
  }
  int losses;
  const void *loss = reduction_losses(&e->reduction, n, &losses);
  device_fetch(dev, slot_at(e->dev, s, REAL_AGREED), loss, (size_t)losses * real);
  device_fetch(dev, slot_at(e->dev, s, REAL_STATS), e->stats, 2 * real);
  device_fetch(dev, slot_at(e->dev, s, REAL_SCALE), e->scale, 3 * real);
  for (int i = 0; i < model_counters(e->model); i++) device_fetch(dev, &s->count[i], *n->counter[i], sizeof *s->count);
}

bool engine_result(Engine *e, bool wait, StepResult *r) {
  // All but the last two started are complete (engine.h).
  if (e->handed_out >= e->started - (wait ? 0 : 2)) return false;
  if (e->handed_out >= e->started - 2) device_sync(e->dev);
  const StepSlot *s = &e->slot[e->handed_out % STEPS_UNDER_WAY];
  *r = (StepResult){.step = e->handed_out++,
                    .grad_norm = slot_real(e->dev, s, REAL_STATS),
                    .finite = slot_real(e->dev, s, REAL_STATS + 1) != 0,
                    .scale = {slot_real(e->dev, s, REAL_SCALE), slot_real(e->dev, s, REAL_SCALE + 1),
                              slot_real(e->dev, s, REAL_SCALE + 2)},
                    .index = s->index,
                    .wait_seconds = s->wait_seconds,
                    .transfer_seconds = s->transfer_seconds,
                    .forward_seconds = s->forward_seconds,
                    .backward_seconds = s->backward_seconds,
                    .update_seconds = s->update_seconds};
  if (e->reduction.agreed) {
    r->stop = slot_real(e->dev, s, REAL_AGREED + AGREED_STOP) > 0;
    r->is_void = !isfinite(slot_real(e->dev, s, REAL_AGREED + AGREED_VOID));
  }
  for (int i = 0; i < model_losses(e->model); i++) r->total += r->loss[i] = slot_real(e->dev, s, REAL_AGREED + i);
  for (int i = 0; i < model_counters(e->model); i++) r->counter[i] = s->count[i];
  return true;
}

void engine_step(Engine *e, const Batch *batch, const StepOptions *o, StepResult *r) {
  engine_stage(e, batch);
  engine_start(e, o);
  CHECK(engine_result(e, true, r) && e->handed_out == e->started);
}

// ---- inference --------------------------------------------------------------------------------------------------

static void queue_inference(Engine *e, Network *n) {
  graph_forward(&n->graph);
  e->model->outputs->queue(e, n);
}

void engine_queue_inference(Engine *e, const Batch *batch, bool wait) {
  inputs_stage(&e->infer.inputs, e->dev, batch);
  inputs_take(&e->infer.inputs, e->dev, wait);
  run(e, &e->infer, batch->canvas, queue_inference);
}

void engine_infer(Engine *e, const Batch *batch) { engine_queue_inference(e, batch, true); }

static void queue_losses(Engine *e, Network *n) {
  (void)e;
  graph_forward(&n->graph);
}

void engine_losses(Engine *e, const Batch *batch, double loss[MAX_LOSSES]) {
  Program *p = &e->validate;
  inputs_stage(&p->inputs, e->dev, batch);
  inputs_take(&p->inputs, e->dev, true);
  run(e, p, batch->canvas, queue_losses);
  fetch_reals(e->dev, loss, p->network[batch->canvas].losses->x.data, (size_t)model_losses(e->model));
}
