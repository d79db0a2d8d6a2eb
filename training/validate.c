#include "training/validate.h"
#include "engine/ring.h"
#include "evaluation/distribute.h"

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

typedef struct BatchLosses { // losses of a batch, without padding
  int64_t used;              // number of images
  double loss[MAX_LOSSES];
} BatchLosses;

typedef struct Validating {
  Engine *e;
  double sum[MAX_LOSSES];
  int images;
} Validating;

static void compute(void *context, const Batch *batch, ByteBuffer *to) {
  const Validating *v = context;
  BatchLosses b = {.used = batch->used};
  engine_losses(v->e, batch, b.loss);
  byte_buffer_put(to, &b, sizeof b);
}

static bool unpack(void *context, ByteReader *from) {
  Validating *v = context;
  BatchLosses b;
  if (!byte_reader_take(from, &b, sizeof b) || b.used < 0 || b.used > v->e->validate.shapes.images) return false;
  for (int k = 0; k < model_losses(v->e->model); k++) v->sum[k] += b.loss[k] * (double)b.used;
  v->images += (int)b.used;
  return true;
}

bool validate_run(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Metrics *out, Err *err) {
  const Shapes *s = &e->validate.shapes;
  const LoaderOptions options = {.batch = s->images,
                                 .threads = threads,
                                 .prefetch = s->prefetch,
                                 .masks = e->model->targets & BATCH_BIT(BATCH_BITS),
                                 .memory = ring_memory(&e->infer.ring)};
  Validating v = {.e = e};
  const BatchWork work = {.context = &v, .compute = compute, .unpack = unpack, .stopped = stopped};
  if (!distribute_batches(e->comm, d, &options, &work, err)) return false;
  if (comm_rank(e->comm) == 0) add_losses(e->model, v.sum, v.images, out);
  return true;
}
