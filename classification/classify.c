#include "classification/classify.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "classification/classify_page.h"
#include "data/coco/confusion.h"
#include "evaluation/rounds.h"

// ---- memory -----------------------------------------------------------------------------------------------------

static void plan(Engine *e) {
  Classifier *c = e->results = xcalloc(1, sizeof *c);
  c->bytes = (size_t)e->infer.shapes.images * (size_t)e->config.classes * dtype_size(e->dev->real);
  memory_add(&e->memory, "probabilities of batches under way", ON_HOST_LOCKED, BATCHES_UNDER_WAY * c->bytes, "--batch");
}

static bool allocate(Engine *e, Err *err) {
  Classifier *c = e->results;
  for (int i = 0; i < BATCHES_UNDER_WAY; i++) {
    ClassSlot *s = &c->slot[i];
    if (!(s->probs = device_host_alloc(e->dev, c->bytes)))
      return err_memory(err, BATCHES_UNDER_WAY * c->bytes, "the probabilities of batches under way", "--batch");
    s->mark = device_mark_open(e->dev);
  }
  return true;
}

static bool make_room(Engine *e, int64_t pixels) {
  (void)e;
  (void)pixels;
  return true;
}

static void close_results(Engine *e) {
  Classifier *c = e->results;
  if (!c) return;
  if (engine_classifying(e)) device_sync(e->dev); // what is under way writes into the slots
  for (int i = 0; i < BATCHES_UNDER_WAY; i++) {
    if (c->slot[i].mark) device_mark_close(e->dev, c->slot[i].mark);
    device_host_free(e->dev, c->slot[i].probs);
  }
  free(c);
  e->results = NULL;
}

static size_t image_bytes(const ModelConfig *c) {
  (void)c;
  return sizeof(ClassRow) + sizeof(bool);
}

// ---- the pipeline -----------------------------------------------------------------------------------------------

// Probabilities are the network's own last node.
static void queue(Engine *e, const Network *n) {
  (void)e;
  (void)n;
}

void engine_classify(Engine *e, const Batch *batch) {
  Classifier *c = e->results;
  CHECK(engine_classifying(e) < BATCHES_UNDER_WAY);
  ClassSlot *s = &c->slot[c->started++ % BATCHES_UNDER_WAY];
  s->started = now_seconds();
  s->batch = batch;
  engine_queue_inference(e, batch, e->timing);
  device_fetch(e->dev, s->probs, e->infer.network[batch->canvas].result[CLASS_PROBS]->x.data, c->bytes);
  device_mark_set(e->dev, s->mark);
}

bool engine_classified(Engine *e, bool wait, Classified *out) {
  Classifier *c = e->results;
  if (!engine_classifying(e)) return false;
  const ClassSlot *s = &c->slot[c->handed_out % BATCHES_UNDER_WAY];
  if (!wait && !device_mark_reached(e->dev, s->mark)) return false;
  device_mark_wait(e->dev, s->mark);
  c->handed_out++;
  *out = (Classified){.batch = s->batch, .probs = s->probs, .started = s->started};
  return true;
}

int engine_classifying(const Engine *e) {
  const Classifier *c = e->results;
  return (int)(c->started - c->handed_out);
}

void engine_drop_classified(Engine *e) {
  Classifier *c = e->results;
  if (c) c->handed_out = c->started;
}

static bool before(float a, float b) { return isnan(a) ? !isnan(b) : a > b; }

ClassRow classify_row(const Engine *e, const Classified *c, int place) {
  const int classes = e->config.classes;
  const size_t first = (size_t)place * (size_t)classes;
  ClassRow row;
  for (int i = 0; i < TOP_CLASSES; i++) row.top[i] = -1;
  for (int k = 0; k < classes; k++) {
    const size_t at = first + (size_t)k;
    const float prob = e->dev->real == F64 ? (float)((const double *)c->probs)[at] : ((const float *)c->probs)[at];
    int to = TOP_CLASSES;
    while (to > 0 && (row.top[to - 1] < 0 || before(prob, row.prob[to - 1]))) to--;
    for (int i = TOP_CLASSES - 1; i > to; i--) {
      row.top[i] = row.top[i - 1];
      row.prob[i] = row.prob[i - 1];
    }
    if (to == TOP_CLASSES) continue;
    row.top[to] = k;
    row.prob[to] = prob;
  }
  for (int i = classes; i < TOP_CLASSES; i++) row.prob[i] = 0;
  return row;
}

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

static void compute(void *context, const Batch *batch, Parcel *to) {
  const Classifying *v = context;
  Classified c;
  CHECK(engine_classified(v->e, true, &c) && c.batch == batch);
  for (int i = 0; i < batch->images; i++) {
    if (batch->index[i] < 0) continue;
    const PackedImage p = {batch->index[i], classify_row(v->e, &c, i)};
    parcel_put(to, &p, sizeof p);
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

static bool unpack(void *context, Unpacking *from) {
  const Classifying *v = context;
  Classification *out = v->out;
  for (PackedImage p; from->left;) {
    if (!parcel_take(from, &p, sizeof p) || !valid(&p, v)) return false;
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
  const LoaderOptions options = {.batch = e->infer.shapes.images,
                                 .threads = threads,
                                 .prefetch = e->infer.shapes.prefetch,
                                 .held = BATCHES_UNDER_WAY,
                                 .memory = ring_memory(&e->infer.ring)};
  Classifying v = {.e = e, .d = d, .out = out};
  const RoundWork work = {.context = &v,
                          .ahead = BATCHES_UNDER_WAY,
                          .start = start,
                          .compute = compute,
                          .drop = drop,
                          .unpack = unpack,
                          .stopped = stopped};
  memory_for("the results of an evaluation", e->train.network ? "--val-limit" : "--limit");
  out->row = xcalloc((size_t)d->num_images, sizeof *out->row);
  out->read = xcalloc((size_t)d->num_images, sizeof *out->read);
  memory_for(NULL, NULL);
  const bool complete = rounds_run(e->comm, d, &options, &work, err);
  for (int i = 0; complete && gathers && i < d->num_images; i++)
    if (!out->read[i]) atomic_store(&d->reported[i], 1); // known to be bad here, too, where another rank met it
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

void classify_confusion(const Dataset *d, const Classification *c, int64_t *count) {
  memset(count, 0, (size_t)c->classes * (size_t)c->classes * sizeof *count);
  for (int i = 0; i < d->num_images; i++)
    if (c->read[i]) count[(size_t)d->object[i].label * (size_t)c->classes + (size_t)c->row[i].top[0]]++;
}

bool classify_accepts(const Category *category, int classes, const Dataset *d, Err *err) {
  if (!d->of_classes) return err_set(err, "%s: not a set of images by class", d->coco.path);
  if (d->classes != classes)
    return err_set(err, "%s: %d classes, but the model knows %d", d->coco.path, d->classes, classes);
  for (int i = 0; i < classes; i++)
    if (strncmp(category[i].name, d->coco.categories[i].name, sizeof category[i].name - 1))
      return err_set(err, "%s: class %d is %s, the model's %s", d->coco.path, i, d->coco.categories[i].name,
                     category[i].name);
  return true;
}

// ---- the task ---------------------------------------------------------------------------------------------------

static void release(void *results) {
  classification_free(results);
  free(results);
}

static bool accepts(const Engine *e, const Dataset *d, Err *err) {
  return classify_accepts(e->category, e->config.classes, d, err);
}

static void *collect(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Err *err) {
  Classification *c = xmalloc(sizeof *c);
  if (classify_run(e, d, threads, stopped, c, err)) return c;
  release(c);
  return NULL;
}

static bool score(const Dataset *d, void *results, Metrics *out, Err *err) {
  (void)err;
  const Classification *c = results;
  const ClassScores s = classify_score(d, c);
  *out = (Metrics){.images = c->images, .left_out = c->left_out};
  const double images = MAX((double)s.images, 1), top1 = (double)s.top1 / images, top5 = (double)s.top5 / images;
  metrics_add(out, "val_top1", top1);
  metrics_add(out, "val_top5", top5);
  snprintf(out->summary, sizeof out->summary, "top-1 %.2f %%  top-5 %.2f %%", 100 * top1, 100 * top5);
  return true;
}

static bool report(const Dataset *d, const void *results, const char *folder, Err *err) {
  const Classification *c = results;
  const size_t classes = (size_t)c->classes;
  int64_t *count = xmalloc(classes * classes * sizeof *count);
  const char **name = xmalloc(classes * sizeof *name);
  classify_confusion(d, c, count);
  for (size_t i = 0; i < classes; i++) name[i] = d->coco.categories[i].name;
  const bool ok = confusion_write(folder, &(Confusion){.classes = c->classes, .count = count, .name = name}, err);
  free(name);
  free(count);
  return ok;
}

static void page(const Dataset *d, const void *results, double least, PageEvaluation *out) {
  (void)least; // the first class counts, whatever its probability
  classify_page(d, results, out);
}

const TaskRow task_classification = {.tells_run = true,
                                     .curve_title = "Accuracy",
                                     .curve_unit = "share of images",
                                     .curve = {{"val_top1", "top-1"}, {"val_top5", "top-5"}},
                                     .best = {{"val_top1", "best-top1"}},
                                     .plan = plan,
                                     .allocate = allocate,
                                     .make_room = make_room,
                                     .close = close_results,
                                     .image_bytes = image_bytes,
                                     .queue = queue,
                                     .accepts = accepts,
                                     .collect = collect,
                                     .score = score,
                                     .report = report,
                                     .page = page,
                                     .release = release};
