#include "engine/validate.h"
#include <string.h>
#include "engine/ring.h"

static void add_losses(const Model *m, const double sum[], int images, Metrics *out) {
  double total = 0;
  for (int k = 0; k < model_losses(m); k++) total += sum[k] / images;
  metrics_add(out, "val_loss", total);
  for (int k = 0; k < model_losses(m); k++) {
    char name[METRIC_NAME];
    snprintf(name, sizeof name, "val_%.20s", m->loss[k].name);
    metrics_add(out, name, sum[k] / images);
  }
}

bool validate_run(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Metrics *out, Err *err) {
  const Shapes *s = &e->validate.shapes;
  LoaderOptions options = {.batch = s->images,
                           .world = 1,
                           .threads = threads,
                           .prefetch = s->prefetch,
                           .masks = e->model->targets & BATCH_BIT(BATCH_BITS),
                           .memory = ring_memory(&e->infer.ring)};
  double sum[MAX_LOSSES] = {0}, loss[MAX_LOSSES];
  int images = 0;
  Err failed = {""};
  Loader *loader = loader_open(d, &options, err);
  if (!loader) return false;
  const Batch *batch;
  bool stop = false;
  while (!(stop = stopped && stopped()) && (batch = loader_next(loader, &failed))) {
    if (!batch->used) continue;
    engine_losses(e, batch, loss);
    for (int k = 0; k < model_losses(e->model); k++) sum[k] += loss[k] * batch->used;
    images += batch->used;
  }
  loader_close(loader);
  if (stop || *failed.msg) return err_set(err, "%s", failed.msg);
  if (!images) return err_set(err, "%s: none of its images can be read", d->coco.path);
  add_losses(e->model, sum, images, out);
  return true;
}
