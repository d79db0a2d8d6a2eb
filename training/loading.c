#include "training/loading.h"
#include "data/batches/sampler.h"
#include "training/defaults.h"

LoaderOptions run_loader_options(const TrainingRun *r) {
  const TrainSpec *o = &r->o;
  LoaderOptions l = {.batch = o->batch,
                     .rank = o->same_images ? 0 : comm_rank(r->comm),
                     .world = o->same_images ? 1 : o->gpus,
                     .seed = (uint64_t)o->seed,
                     .train = true,
                     .augment = augment_of(o),
                     .augment_after = o->augment_after,
                     .threads = o->threads,
                     .prefetch = PREFETCH,
                     .masks = r->model->targets & BATCH_BIT(BATCH_BITS),
                     .strict = o->strict,
                     .first_step = r->first,
                     .end_step = r->last};
  return l;
}

Loader *run_loader(TrainingRun *r) {
  Err err;
  LoaderOptions options = run_loader_options(r);
  options.memory = ring_memory(&r->engine.train.ring);
  Loader *l = loader_open(r->train, &options, &err);
  if (!l) die(EXIT_RUN, "%s", err.msg);
  return l;
}

int64_t run_steps_per_epoch(const TrainSpec *o, int ranks, const Dataset *train) {
  Sampler s;
  SamplerOptions options = {
      .batch = o->batch, .world = ranks, .seed = (uint64_t)o->seed, .train = true, .repeat = train->repeat};
  sampler_open(&s, train->image_canvas, train->num_images, train->num_canvases, &options);
  int64_t steps = s.steps;
  sampler_close(&s);
  return steps;
}
