#include "evaluation/evaluate.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "evaluation/gathered.h"
#include "evaluation/rounds.h"

// ---- who finds --------------------------------------------------------------------------------------------------

static void find_on_engine(void *engine, const Batch *batch) { engine_find(engine, batch); }
static bool found_on_engine(void *engine, Found *out) { return engine_found(engine, true, out); }

Finder finder_of(Engine *e) {
  return (Finder){.context = e,
                  .find = find_on_engine,
                  .found = found_on_engine,
                  .ahead = BATCHES_UNDER_WAY,
                  .images = e->infer.shapes.images,
                  .prefetch = e->infer.shapes.prefetch,
                  .memory = ring_memory(&e->infer.ring),
                  .category = e->category,
                  .box_extra = e->config.box_extra};
}

// ---- results ----------------------------------------------------------------------------------------------------

CocoResult evaluate_result(const Finder *f, int64_t image_id, const Detection *d) {
  CocoResult r = {.image_id = image_id,
                  .category_id = f->category[d->label - 1].id,
                  .score = d->score,
                  .has_bbox = true,
                  .has_segm = true,
                  .rle = d->mask};
  r.bbox[0] = d->box[0];
  r.bbox[1] = d->box[1];
  r.bbox[2] = (double)d->box[2] - d->box[0] + f->box_extra;
  r.bbox[3] = (double)d->box[3] - d->box[1] + f->box_extra;
  return r;
}

// ---- the data set -----------------------------------------------------------------------------------------------

typedef struct Evaluating {
  const Finder *finder;
  const Dataset *d;
  const Visitor *visitor;
  Evaluation *out;
  Found found;         // in the last batch
  CocoResult *results; // of an image, while it is packed
  size_t room;
} Evaluating;

// Packs what was found in the image at that place of the batch, which is the detections from `first` on; returns how
// many.
static int pack_image(Evaluating *v, const Batch *batch, int place, int first, Parcel *to) {
  int n = 0;
  const int image = batch->index[place];
  const int64_t id = v->d->coco.images[v->d->image[image]].id;
  const Detections *found = &v->found.detections;
  while (first + n < found->n && found->items[first + n].image == place) n++;
  array_reserve((void **)&v->results, &v->room, (size_t)n, sizeof *v->results);
  for (int i = 0; i < n; i++) v->results[i] = evaluate_result(v->finder, id, &found->items[first + i]);
  gathered_put(to, image, v->results, n);
  return n;
}

static void start(void *context, const Batch *batch) {
  const Evaluating *v = context;
  v->finder->find(v->finder->context, batch);
}

static void compute(void *context, const Batch *batch, Parcel *to) {
  Evaluating *v = context;
  CHECK(v->finder->found(v->finder->context, &v->found) && v->found.batch == batch);
  const double seconds = now_seconds() - v->found.started;
  parcel_put(to, &seconds, sizeof seconds);
  for (int i = 0, first = 0; i < batch->images; i++)
    if (batch->index[i] >= 0) first += pack_image(v, batch, i, first, to);
}

static void drop(void *context) {
  Evaluating *v = context;
  while (v->finder->found(v->finder->context, &v->found)) {
  }
}

static bool unpack_image(Evaluating *v, Unpacking *from) {
  Evaluation *out = v->out;
  CocoResults *all = &out->found;
  CocoResult *found;
  int image, n;
  if (!gathered_take(from, v->d->num_images, &image, &found, &n)) return false;
  if (v->visitor->image) v->visitor->image(v->visitor->context, v->d, image, found, n);
  all->items = xrealloc(all->items, (size_t)(all->n + n) * sizeof *all->items);
  memcpy(all->items + all->n, found, (size_t)n * sizeof *found);
  all->n += n;
  free(found);
  out->read[image] = true;
  out->images++;
  out->left_out--;
  return true;
}

static bool unpack(void *context, Unpacking *from) {
  Evaluating *v = context;
  double seconds;
  bool ok = parcel_take(from, &seconds, sizeof seconds);
  while (ok && from->left) ok = unpack_image(v, from);
  if (ok && v->visitor->took) v->visitor->took(v->visitor->context, seconds);
  return ok;
}

static void settle(void *context, const Batch *batch, int64_t before) {
  const Evaluating *v = context;
  v->visitor->batch(v->visitor->context, v->d, batch, &v->found.detections, before);
}

// Images that another rank could not read are known to be bad here, too.
static void note_unread(const Dataset *d, const Evaluation *v) {
  for (int i = 0; i < d->num_images; i++)
    if (!v->read[i]) atomic_store(&d->reported[i], 1);
}

bool evaluate_with(const Finder *finder, Comm *comm, const Dataset *d, int threads, const Visitor *visitor,
                   Evaluation *out, Err *err) {
  static const Visitor nobody = {0};
  const bool gathers = comm_rank(comm) == 0;
  *out = (Evaluation){.left_out = gathers ? d->num_images + d->bad_images : 0};
  const LoaderOptions options = {.batch = finder->images,
                                 .threads = threads,
                                 .prefetch = finder->prefetch,
                                 .held = finder->ahead,
                                 .memory = finder->memory};
  Evaluating v = {.finder = finder, .d = d, .visitor = visitor ? visitor : &nobody, .out = out};
  const RoundWork work = {.context = &v,
                          .ahead = finder->ahead,
                          .start = start,
                          .compute = compute,
                          .drop = drop,
                          .unpack = unpack,
                          .settle = v.visitor->batch ? settle : NULL,
                          .stopped = v.visitor->stopped};
  out->read = xcalloc((size_t)d->num_images, sizeof *out->read);
  const bool complete = rounds_run(comm, d, &options, &work, err);
  if (complete && gathers) note_unread(d, out);
  free(v.results);
  return complete;
}

bool evaluate_run(Engine *e, const Dataset *d, int threads, const Visitor *visitor, Evaluation *out, Err *err) {
  const Finder finder = finder_of(e);
  memory_for("the results of an evaluation", e->train.network ? "--val-limit" : "--limit");
  const bool complete = evaluate_with(&finder, e->comm, d, threads, visitor, out, err);
  memory_for(NULL, NULL);
  return complete;
}

void evaluation_free(Evaluation *v) {
  coco_results_free(&v->found);
  scores_free(&v->scores);
  free(v->read);
  *v = (Evaluation){0};
}

Coco evaluate_view(const Dataset *d, const Evaluation *v) {
  Coco view = d->coco; // some could not be read, or --limit left them out
  view.num_images = 0;
  view.images = xmalloc((size_t)d->num_images * sizeof *view.images);
  for (int i = 0; i < d->num_images; i++)
    if (v->read[i]) view.images[view.num_images++] = d->coco.images[d->image[i]];
  return view;
}

bool evaluate_score(const Dataset *d, const Evaluation *v, Scores *out, Err *err) {
  *out = (Scores){0};
  memory_for("the scores of an evaluation", "--val-limit or --limit");
  Coco view = evaluate_view(d, v);
  bool ok = cocoeval_run(&out->bbox, &view, &v->found, EVAL_BBOX, err) &&
            cocoeval_run(&out->segm, &view, &v->found, EVAL_SEGM, err);
  free(view.images);
  memory_for(NULL, NULL);
  return ok;
}

void scores_free(Scores *s) {
  cocoeval_free(&s->bbox);
  cocoeval_free(&s->segm);
}

bool evaluate_categories(const Category *category, int n, const Dataset *d, Err *err) {
  const Coco *c = &d->coco;
  for (int i = 0; i < c->num_categories; i++) {
    int k = 0;
    while (k < n && category[k].id != c->categories[i].id) k++;
    if (k == n)
      return err_set(err, "%s: category %d, id %lld (%s), is none of the model's %d; ids are those of training",
                     c->path, i + 1, (long long)c->categories[i].id, c->categories[i].name ? c->categories[i].name : "",
                     n);
  }
  return true;
}
