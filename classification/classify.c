#include "classification/classify.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "classification/data/class_objects.h"
#include "evaluation/engine_distribute.h"

// ---- the data set -----------------------------------------------------------------------------------------------

typedef struct Classifying {
  Engine *e;
  const Dataset *d;
  Classification *out;
} Classifying;

typedef struct PackedImage {
  int image;
  ClassRow row;
} PackedImage;

static void start(void *context, const Batch *batch) { engine_classify(((const Classifying *)context)->e, batch); }

static void compute(void *context, const Batch *batch, ByteBuffer *to) {
  const Classifying *v = context;
  Classified c;
  CHECK(engine_classified(v->e, true, &c) && c.batch == batch);
  for (int i = 0; i < batch->images; i++) {
    if (batch->index[i] < 0) continue;
    const PackedImage p = {batch->index[i], classify_row(v->e, &c, i)};
    byte_buffer_put(to, &p, sizeof p);
  }
}

static void drop(void *context) {
  const Classifying *v = context;
  for (Classified c; engine_classified(v->e, true, &c);) {
  }
}

static bool valid(const PackedImage *p, const Classifying *v) {
  for (int i = 0; i < TOP_CLASSES; i++)
    if (p->row.top[i] < -1 || p->row.top[i] >= v->out->classes) return false;
  return p->image >= 0 && p->image < v->d->num_images && p->row.top[0] >= 0;
}

static bool unpack(void *context, ByteReader *from) {
  const Classifying *v = context;
  Classification *out = v->out;
  for (PackedImage p; from->left;) {
    if (!byte_reader_take(from, &p, sizeof p) || !valid(&p, v)) return false;
    out->row[p.image] = p.row;
    out->read[p.image] = true;
    out->images++;
    out->left_out--;
  }
  return true;
}

bool classify_run(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Classification *out, Err *err) {
  const bool gathers = comm_rank(e->comm) == 0;
  *out = (Classification){.classes = e->config.classes, .left_out = gathers ? d->num_images + d->bad_images : 0};
  Classifying v = {.e = e, .d = d, .out = out};
  const BatchWork work = {
      .context = &v, .start = start, .compute = compute, .drop = drop, .unpack = unpack, .stopped = stopped};
  memory_for("the results of an evaluation", e->train.network ? "--val-limit" : "--limit");
  out->row = xcalloc((size_t)d->num_images, sizeof *out->row);
  out->read = xcalloc((size_t)d->num_images, sizeof *out->read);
  memory_for(NULL, NULL);
  const bool complete = engine_distribute_batches(e, d, threads, work, err);
  for (int i = 0; complete && gathers && i < d->num_images; i++)
    if (!out->read[i]) dataset_tell_bad(d, i, NULL, "another process could not read it");
  return complete;
}

void classification_free(Classification *c) {
  free(c->row);
  free(c->read);
  *c = (Classification){0};
}

ClassScores classify_score(const Dataset *d, const Classification *c) {
  ClassScores s = {.images = c->images};
  for (int i = 0; i < d->num_images; i++)
    for (int k = 0; c->read[i] && k < TOP_CLASSES; k++)
      if (c->row[i].top[k] == d->object[i].label) {
        s.top1 += k == 0;
        s.top5++;
      }
  return s;
}

ConfusionCounts classify_confusion(const Dataset *d, const Classification *c) {
  ConfusionCounts counts = {.scores = 1};
  for (int i = 0; i < d->num_images; i++)
    if (c->read[i]) confusion_count(&counts, (int64_t)d->object[i].label * c->classes + c->row[i].top[0], 0);
  confusion_counts_sort(&counts);
  return counts;
}
