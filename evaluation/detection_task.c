// What is made of a detector's results over a split of a data set: evaluation/evaluate.h, as a task.
#include <stdlib.h>
#include "base/alloc.h"
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

static bool score(const Dataset *d, void *results, Metrics *out, Err *err) {
  Evaluation *v = results;
  Scores *s = &v->scores;
  bool ok = evaluate_score(d, v, s, err);
  *out = (Metrics){.images = v->images, .left_out = v->left_out};
  if (ok) {
    const EvalSummary *both[] = {&s->bbox, &s->segm};
    for (int k = 0; k < COUNT(both); k++)
      for (int i = 0; i < EVAL_STATS; i++) {
        char name[METRIC_NAME];
        snprintf(name, sizeof name, "%s_%s", k ? "segm" : "bbox", eval_stats[i].key);
        metrics_add(out, name, both[k]->stats[i]);
      }
    snprintf(out->summary, sizeof out->summary, "bbox AP %.3f AP50 %.3f  mask AP %.3f AP50 %.3f", s->bbox.stats[0],
             s->bbox.stats[1], s->segm.stats[0], s->segm.stats[1]);
  }
  return ok;
}

static void report(const Dataset *d, const void *results, double least, EvaluationReport *out) {
  detection_report(d, results, least, out);
}

const Task task_detection = {
    .curve_title = "Average precision",
    .curve_unit = "AP",
    .curve = {{"bbox_AP", "box AP"}, {"bbox_AP50", "box AP50"}, {"segm_AP", "mask AP"}, {"segm_AP50", "mask AP50"}},
    .best = {{"bbox_AP", "best-bbox"}, {"segm_AP", "best-segm"}},
    .collect = collect,
    .score = score,
    .report = report,
    .release = release};
