// Scores beside the training steps.
#include "engine/scoring.h"
#include <omp.h>

static void *score(void *context) {
  Scoring *s = context;
  if (s->apart) omp_set_num_threads(s->cores); // of this thread's parallel regions only
  s->ok = evaluate_score(s->d, &s->found, &s->scores, &s->err);
  atomic_store(&s->done, true);
  return NULL;
}

void scoring_start(Scoring *s, const Dataset *d, CocoResults *found, int cores, Log *log, int64_t step, double start) {
  CHECK(!s->under_way);
  *s = (Scoring){.under_way = true, .step = step, .d = d, .found = *found, .start = start, .cores = cores};
  *found = (CocoResults){0};
  log_hold(log);
  s->apart = cores > 0;
  if (s->apart) s->apart = pthread_create(&s->thread, NULL, score, s) == 0;
  if (!s->apart) score(s);
}

bool scoring_ready(const Scoring *s) { return s->under_way && atomic_load(&s->done); }

static void record_scores(Log *log, int64_t step, const Scores *s) {
  Record *j = log_begin(log, step, "eval");
  const EvalSummary *both[] = {&s->bbox, &s->segm};
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < EVAL_STATS; i++) {
      char key[32];
      snprintf(key, sizeof key, "%s_%s", k ? "segm" : "bbox", eval_stats[i].key);
      record_num(j, key, both[k]->stats[i]);
    }
  log_commit(log);
}

bool scoring_end(Scoring *s, Log *log, Err *err) {
  if (!s->under_way) return true;
  if (s->apart) pthread_join(s->thread, NULL);
  s->under_way = false;
  log_release(log);
  if (s->ok) {
    log_note(log, "step %lld: bbox AP %.3f (AP50 %.3f)  mask AP %.3f (AP50 %.3f)  on %d images in %.1f s",
             (long long)s->step, s->scores.bbox.stats[0], s->scores.bbox.stats[1], s->scores.segm.stats[0],
             s->scores.segm.stats[1], s->d->num_images, now_seconds() - s->start);
    record_scores(log, s->step, &s->scores);
  }
  scores_free(&s->scores);
  coco_results_free(&s->found);
  return s->ok || err_set(err, "%s", s->err.msg);
}
