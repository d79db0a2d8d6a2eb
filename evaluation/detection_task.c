// Detection as an evaluation task: evaluation/evaluate.h behind evaluation/task.h.
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "data/batches/data_identity.h"
#include "data/batches/detection_limit.h"
#include "evaluation/detection_report.h"
#include "evaluation/evaluate.h"
#include "evaluation/task.h"

static void release(void *results) {
  evaluation_free(results);
  free(results);
}

static void *collect(Engine *e, const Dataset *d, int threads, bool (*stopped)(void), Err *err) {
  Evaluation *v = xmalloc(sizeof *v);
  if (evaluate_run(e, d, threads, stopped, v, err)) return v;
  release(v);
  return NULL;
}

// AP is -1 if there is no object; that is undefined, not a score.
static double defined(double stat) { return stat < 0 ? NAN : stat; }

// Formats the scores in a line, with the limit on detections if that is not COCO's.
static void say_scores(const Scores *s, int max_dets, char *text, size_t size) {
  static const char *const name[] = {[EVAL_BBOX] = "bbox", [EVAL_SEGM] = "mask"};
  size_t used = 0;
  for (int k = 0; k < s->n; k++)
    used += (size_t)snprintf(text + used, size - used, "%s%s AP %.3f AP50 %.3f", k ? "  " : "", name[k],
                             s->of[k].ap_last, s->of[k].stats[1]);
  if (max_dets != eval_max_dets[EVAL_LIMITS - 1]) snprintf(text + used, size - used, " (maxDets %d)", max_dets);
}

static void say_limit(const Evaluation *v, char *text, size_t size) {
  char *said = detection_limit_results(v->at_limit, v->images, v->limit, LIMIT_SCORE);
  if (said) snprintf(text, size, "%s", said);
  free(said);
}

static void say_why_none(const Dataset *d, const Evaluation *v, char *text, size_t size) {
  const Coco *c = &d->coco;
  int all = 0, crowds = 0, unknown = 0;
  for (int i = 0; i < d->num_images; i++)
    for (int k = 0; v->read[i] && k < c->images[d->image[i]].anns; k++, all++) {
      const CocoAnn *a = &c->anns[c->images[d->image[i]].first_ann + k];
      unknown += a->category < 0;
      crowds += a->category >= 0 && a->crowd;
    }
  char why[2][80] = {"", ""};
  if (crowds) snprintf(why[0], sizeof why[0], "; crowds: %d (set iscrowd to 0 if they are objects)", crowds);
  if (unknown) snprintf(why[1], sizeof why[1], "; unknown category: %d", unknown);
  if (all)
    snprintf(text, size, "no AP: the %d annotations in %d images include no object to score%s%s", all, v->images,
             why[0], why[1]);
  else
    snprintf(text, size, "no AP: the %d images have no annotations", v->images);
}

static bool score(const Dataset *d, void *results, Metrics *out, Err *err) {
  Evaluation *v = results;
  Scores *s = &v->scores;
  bool ok = evaluate_score(d, v, s, err);
  const DataIdentity scored = data_identity(d, v->read);
  *out = (Metrics){.images = v->images,
                   .left_out = v->left_out,
                   .set = data_identity_number(&scored),
                   .max_dets = MAX(eval_max_dets[EVAL_LIMITS - 1], v->limit)};
  if (!ok) return false;
  for (int k = 0; k < s->n; k++)
    for (int i = 0; i < EVAL_STATS; i++) {
      char name[METRIC_NAME], key[EVAL_KEY];
      snprintf(name, sizeof name, "%s_%s", iou_types[k], eval_stat_key(&s->of[k], i, key));
      metrics_add(out, name, defined(i ? s->of[k].stats[i] : s->of[k].ap_last));
    }
  if (scores_defined(s))
    say_scores(s, out->max_dets, out->summary, sizeof out->summary);
  else
    say_why_none(d, v, out->summary, sizeof out->summary);
  say_limit(v, out->note, sizeof out->note);
  return true;
}

static void report(const Dataset *d, const void *results, double least, EvaluationReport *out) {
  detection_report(d, results, least, out);
}

#define DETECTION_TASK                                                                                                 \
  .curve_title = "Average precision", .curve_unit = "AP", .collect = collect, .score = score, .report = report,        \
  .release = release
const Task task_detection = {
    DETECTION_TASK,
    .curve = {{"bbox_AP", "box AP"}, {"bbox_AP50", "box AP50"}, {"segm_AP", "mask AP"}, {"segm_AP50", "mask AP50"}},
    .best = {{"bbox_AP", "best-bbox"}, {"segm_AP", "best-segm"}}};
const Task task_boxes = {DETECTION_TASK, .curve = {{"bbox_AP", "box AP"}, {"bbox_AP50", "box AP50"}},
                         .best = {{"bbox_AP", "best-bbox"}}, .boxes_alone = true};
