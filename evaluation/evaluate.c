#include "evaluation/evaluate.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "evaluation/engine_distribute.h"
#include "evaluation/gathered.h"
#include "evaluation/task.h"

// ---- results ----------------------------------------------------------------------------------------------------

typedef struct Evaluating {
  Engine *engine;
  const Dataset *d;
  Evaluation *out;
  BatchDetections found; // of the last batch
  CocoResult *results;   // of the image being packed
  size_t room;
} Evaluating;

static CocoResult result_of(const Engine *e, int64_t image_id, const Detection *d) {
  const double extra = (double)e->config.box_extra;
  CocoResult r = {.image_id = image_id,
                  .category_id = e->category[d->label - 1].id,
                  .score = d->score,
                  .has_bbox = true,
                  .has_segm = d->mask.n > 0,
                  .rle = d->mask};
  r.bbox[0] = d->box[0];
  r.bbox[1] = d->box[1];
  r.bbox[2] = (double)d->box[2] - d->box[0] + extra;
  r.bbox[3] = (double)d->box[3] - d->box[1] + extra;
  return r;
}

// Packs the detections of the batch's image at that index, beginning with detection `first`; returns their number.
static int pack_image(Evaluating *v, const Batch *batch, int position, int first, ByteBuffer *to) {
  int n = 0;
  const int image = batch->index[position];
  const int64_t id = v->d->coco.images[v->d->image[image]].id;
  const Detections *found = &v->found.detections;
  while (first + n < found->n && found->items[first + n].image == position) n++;
  array_reserve((void **)&v->results, &v->room, (size_t)n, sizeof *v->results);
  for (int i = 0; i < n; i++) v->results[i] = result_of(v->engine, id, &found->items[first + i]);
  gathered_put(to, image, v->results, n);
  return n;
}

// ---- the data set -----------------------------------------------------------------------------------------------

static void start(void *context, const Batch *batch) {
  const Evaluating *v = context;
  engine_start_detection(v->engine, batch);
}

static void compute(void *context, const Batch *batch, ByteBuffer *to) {
  Evaluating *v = context;
  CHECK(engine_next_detections(v->engine, true, &v->found) && v->found.batch == batch);
  for (int i = 0, first = 0; i < batch->images; i++)
    if (batch->index[i] >= 0) first += pack_image(v, batch, i, first, to);
}

static void drop(void *context) {
  Evaluating *v = context;
  while (engine_next_detections(v->engine, true, &v->found)) {
  }
}

static bool unpack(void *context, ByteReader *from) {
  const Evaluating *v = context;
  while (from->left) {
    CocoResult *found;
    int image, n;
    if (!gathered_take(from, v->d->num_images, &image, &found, &n)) return false;
    evaluation_add(v->out, image, found, n);
  }
  return true;
}

void evaluation_begin(Evaluation *v, const Dataset *d, const ModelConfig *model, bool gathers) {
  *v = (Evaluation){.boxes_alone = model_of(model)->task->boxes_alone,
                    .limit = model->detections,
                    .left_out = gathers ? d->num_images + d->bad_images : 0};
  v->read = xcalloc((size_t)d->num_images, sizeof *v->read);
}

void evaluation_add(Evaluation *v, int image, CocoResult *found, int n) {
  CocoResults *all = &v->found;
  all->items = xrealloc(all->items, (size_t)(all->n + n) * sizeof *all->items);
  if (n > 0) memcpy(all->items + all->n, found, (size_t)n * sizeof *found);
  all->n += n;
  v->at_limit += v->limit && n >= v->limit && found[n - 1].score >= LIMIT_SCORE;
  free(found);
  v->read[image] = true;
  v->images++;
  v->left_out--;
}

void evaluation_end(const Evaluation *v, const Dataset *d) {
  for (int i = 0; i < d->num_images; i++)
    if (!v->read[i]) dataset_tell_bad(d, i, NULL, "another process could not read it");
}

bool evaluate_run(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Evaluation *out, Err *err) {
  const bool gathers = comm_rank(e->comm) == 0;
  Evaluating v = {.engine = e, .d = d, .out = out};
  const BatchWork work = {
      .context = &v, .start = start, .compute = compute, .drop = drop, .unpack = unpack, .stopped = stopped};
  memory_for("the results of an evaluation", e->train.network ? "--val-limit" : "--limit");
  evaluation_begin(out, d, &e->config, gathers);
  const bool complete = engine_distribute_batches(e, d, threads, work, err);
  if (complete && gathers) evaluation_end(out, d);
  memory_for(NULL, NULL);
  free(v.results);
  return complete;
}

void evaluation_free(Evaluation *v) {
  coco_results_free(&v->found);
  scores_free(&v->scores);
  free(v->read);
  *v = (Evaluation){0};
}

Coco evaluate_view(const Dataset *d, const Evaluation *v) {
  Coco view = d->coco; // without images that could not be read or that --limit excludes
  view.num_images = 0;
  view.own_ids = true;
  view.images = xmalloc((size_t)d->num_images * sizeof *view.images);
  for (int i = 0; i < d->num_images; i++)
    if (v->read[i]) view.images[view.num_images++] = d->coco.images[d->image[i]];
  return view;
}

bool evaluate_score(const Dataset *d, const Evaluation *v, Scores *out, Err *err) {
  const int coco = eval_max_dets[EVAL_LIMITS - 1];
  const int beyond[EVAL_LIMITS] = {eval_max_dets[1], coco, v->limit};
  *out = (Scores){0};
  memory_for("the scores of an evaluation", "--val-limit or --limit");
  Coco view = evaluate_view(d, v);
  bool ok = true;
  for (const int n = v->boxes_alone ? 1 : COUNT(out->of); out->n < n && ok; out->n++)
    ok = cocoeval_run_at(&out->of[out->n], &view, &v->found, (IouType)out->n, v->limit > coco ? beyond : eval_max_dets,
                         err);
  const EvalSummary *last = &out->of[out->n - 1];
  if (ok && out->n > 1 && scores_defined(out) && last->all_box_masks)
    cocoeval_free(&out->of[--out->n]); // boxes are no truth about masks
  free(view.images);
  memory_for(NULL, NULL);
  return ok;
}

void scores_free(Scores *s) {
  for (int k = 0; k < s->n; k++) cocoeval_free(&s->of[k]);
}

bool scores_defined(const Scores *s) { return s->of[EVAL_BBOX].ap_last >= 0; }
