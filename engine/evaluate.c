#include "engine/evaluate.h"
#include <stdlib.h>
#include <string.h>

CocoResult evaluate_result(const Engine *e, int64_t image_id, const Detection *d) {
  CocoResult r = {.image_id = image_id,
                  .category_id = e->category[d->label - 1].id,
                  .score = d->score,
                  .has_bbox = true,
                  .has_segm = true,
                  .rle = d->mask};
  r.bbox[0] = d->box[0];
  r.bbox[1] = d->box[1];
  r.bbox[2] = (double)d->box[2] - d->box[0] + e->config.box_extra;
  r.bbox[3] = (double)d->box[3] - d->box[1] + e->config.box_extra;
  return r;
}

// The detections from `first` on that belong to one image; returns how many.
static int append(const Engine *e, int64_t image_id, Detections *found, int first, CocoResults *out) {
  int n = 0, place = first < found->n ? found->items[first].image : 0;
  while (first + n < found->n && found->items[first + n].image == place) n++;
  out->items = xrealloc(out->items, (size_t)(out->n + n) * sizeof *out->items);
  for (int i = 0; i < n; i++) {
    out->items[out->n++] = evaluate_result(e, image_id, &found->items[first + i]);
    found->items[first + i].mask = (Rle){0}; // moved
  }
  return n;
}

bool evaluate_run(Engine *e, const Dataset *d, int threads, const Visitor *visitor, Evaluation *out, Err *err) {
  *out = (Evaluation){.left_out = d->num_images + d->bad_images};
  LoaderOptions options = {.batch = e->infer.shapes.images,
                           .world = 1,
                           .threads = threads,
                           .prefetch = e->infer.shapes.prefetch,
                           .memory = ring_memory(&e->infer.ring)};
  Err failed = {""};
  Loader *loader = loader_open(d, &options, err);
  if (!loader) return false;
  memory_for("the results of an evaluation", e->train.network ? "--val-limit" : "--limit");
  out->read = xcalloc((size_t)d->num_images, sizeof *out->read);
  const Batch *batch;
  bool stopped = false;
  while (!(stopped = visitor && visitor->stopped && visitor->stopped()) && (batch = loader_next(loader, &failed))) {
    double start = now_seconds();
    Detections found;
    engine_infer(e, batch);
    engine_detections(e, batch, 0.5f, &found);
    if (visitor && visitor->batch) visitor->batch(visitor->context, d, batch, &found, now_seconds() - start);
    for (int i = 0; i < batch->images; i++)
      if (batch->index[i] >= 0) out->read[batch->index[i]] = true;
    out->images += batch->used;
    out->left_out -= batch->used;
    for (int i = 0; i < found.n;)
      i += append(e, d->coco.images[d->image[batch->index[found.items[i].image]]].id, &found, i, &out->found);
    detections_free(&found);
  }
  loader_close(loader);
  memory_for(NULL, NULL);
  if (stopped || failed.msg[0]) return err_set(err, "%s", failed.msg);
  return out->images > 0 || err_set(err, "%s: none of its %d images can be read", d->coco.path, out->left_out);
}

void evaluation_free(Evaluation *v) {
  coco_results_free(&v->found);
  free(v->read);
  *v = (Evaluation){0};
}

bool evaluate_score(const Dataset *d, const Evaluation *v, Scores *out, Err *err) {
  *out = (Scores){0};
  memory_for("the scores of an evaluation", "--val-limit or --limit");
  Coco view = d->coco; // the images that were read, where some could not be or --limit left them out
  view.num_images = 0;
  view.images = xmalloc((size_t)d->num_images * sizeof *view.images);
  for (int i = 0; i < d->num_images; i++)
    if (v->read[i]) view.images[view.num_images++] = d->coco.images[d->image[i]];
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

bool evaluate_categories(const Engine *e, const Dataset *d, Err *err) {
  const Coco *c = &d->coco;
  for (int i = 0; i < c->num_categories; i++) {
    int k = 0;
    while (k < e->config.classes - 1 && e->category[k].id != c->categories[i].id) k++;
    if (k == e->config.classes - 1)
      return err_set(err, "%s: category %d, id %lld (%s), is none of the checkpoint's %d", c->path, i + 1,
                     (long long)c->categories[i].id, c->categories[i].name ? c->categories[i].name : "", k);
  }
  return true;
}

// ---- the task ---------------------------------------------------------------------------------------------------

static void release(void *results) {
  evaluation_free(results);
  free(results);
}

static void *collect(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Err *err) {
  Evaluation *v = xmalloc(sizeof *v);
  if (evaluate_run(e, d, threads, &(Visitor){.stopped = stopped}, v, err)) return v;
  release(v);
  return NULL;
}

static bool score(const Dataset *d, const void *results, Metrics *out, Err *err) {
  Scores s;
  const Evaluation *v = results;
  bool ok = evaluate_score(d, v, &s, err);
  *out = (Metrics){.images = v->images, .left_out = v->left_out};
  if (ok) {
    const EvalSummary *both[] = {&s.bbox, &s.segm};
    for (int k = 0; k < COUNT(both); k++)
      for (int i = 0; i < EVAL_STATS; i++) {
        char name[METRIC_NAME];
        snprintf(name, sizeof name, "%s_%s", k ? "segm" : "bbox", eval_stats[i].key);
        metrics_add(out, name, both[k]->stats[i]);
      }
    snprintf(out->summary, sizeof out->summary, "bbox AP %.3f (AP50 %.3f)  mask AP %.3f (AP50 %.3f)", s.bbox.stats[0],
             s.bbox.stats[1], s.segm.stats[0], s.segm.stats[1]);
  }
  scores_free(&s);
  return ok;
}

static void results(Engine *e, const Batch *batch) {
  Detections found;
  engine_detections(e, batch, 0.5f, &found);
  detections_free(&found);
}

static size_t image_bytes(const ModelConfig *c) {
  enum { RUNS = 256 }; // of a mask that covers a quarter of an image of 500 columns
  return (size_t)c->detections * (sizeof(CocoResult) + RUNS * sizeof(uint32_t));
}

const TaskRow task_detection = {
    .curve = {{"bbox_AP", "box AP"}, {"bbox_AP50", "box AP50"}, {"segm_AP", "mask AP"}, {"segm_AP50", "mask AP50"}},
    .best = {{"bbox_AP", "best-bbox"}, {"segm_AP", "best-segm"}},
    .plan = detect_plan,
    .allocate = detect_allocate,
    .close = detect_close,
    .image_bytes = image_bytes,
    .results = results,
    .accepts = evaluate_categories,
    .collect = collect,
    .score = score,
    .release = release};
