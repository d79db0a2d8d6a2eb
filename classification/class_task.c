// Classification as an evaluation task: classification/classify.h behind evaluation/task.h.
#include <stdlib.h>
#include "base/alloc.h"
#include "classification/classify.h"
#include "classification/classify_report.h"
#include "data/batches/data_identity.h"
#include "evaluation/task.h"

static void release(void *results) {
  classification_free(results);
  free(results);
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
  const DataIdentity scored = data_identity(d, c->read);
  *out = (Metrics){.images = c->images, .left_out = c->left_out, .set = data_identity_number(&scored)};
  const double images = MAX((double)s.images, 1), top1 = (double)s.top1 / images, top5 = (double)s.top5 / images;
  metrics_add(out, "val_top1", top1);
  metrics_add(out, "val_top5", top5);
  snprintf(out->summary, sizeof out->summary, "top-1 %.2f %%  top-5 %.2f %%", 100 * top1, 100 * top5);
  return true;
}

static void report(const Dataset *d, const void *results, double least, EvaluationReport *out) {
  (void)least; // the first class counts, whatever its probability
  classify_report(d, results, out);
}

const Task task_classification = {.curve_title = "Accuracy",
                                  .curve_unit = "fraction of images",
                                  .curve = {{"val_top1", "top-1"}, {"val_top5", "top-5"}},
                                  .best = {{"val_top1", "best-top1"}},
                                  .collect = collect,
                                  .score = score,
                                  .report = report,
                                  .keeps_confusion = true,
                                  .release = release};
