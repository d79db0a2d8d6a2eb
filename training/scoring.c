// Scores evaluations while training steps continue.
#include "training/scoring.h"
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/run_folder.h"
#include "data/batches/data_identity.h"

// Writes the evaluation's facts into the run's folder, and draws the page. Failures do not end the run.
static void report(Scoring *s, const EvaluationReport *r) {
  char stem[32];
  Record head = {0};
  snprintf(stem, sizeof stem, "step-%08lld", (long long)s->step);
  record_begin(&head);
  record_int(&head, "step", s->step);
  record_int(&head, "scored_set", s->metrics.set);
  bool exact;
  const int trained = s->report.trained_on ? trained_on_count(s->report.trained_on, s->d, NULL, &exact) : -1;
  record_num(&head, "scored_on_training_images", trained < 0 ? NAN : trained);
  const ReportFile file = {.folder = s->report.folder,
                           .name = RUN_EVALUATION,
                           .series = "step-",
                           .stem = stem,
                           .head = &head,
                           .before = &s->before,
                           .scores = &s->metrics};
  if (report_write(&file, r, &s->no_report) && s->report.page.draw_page)
    s->report.page.draw_page(s->report.page.context, s->report.folder, &s->no_report);
  record_free(&head);
}

static void *score(void *context) {
  Scoring *s = context;
  if (s->apart) omp_set_num_threads(s->cores); // affects only this thread's parallel regions
  const Task *t = s->task;
  s->ok = t->score(s->d, s->results, &s->metrics, &s->err);
  if (s->ok && s->report.folder) {
    EvaluationReport r = {0};
    if (t->report) t->report(s->d, s->results, s->report.score, &r);
    if (t->keeps_confusion) s->ok = confusion_write(s->report.folder, &r.confusion, &s->err);
    if (s->ok) report(s, &r);
    report_free(&r);
  }
  atomic_store(&s->done, true);
  return NULL;
}

void scoring_start(Scoring *s, const Task *task, const Dataset *d, void *results, ReportTo report, int cores, Log *log,
                   int64_t step, double start, const Metrics *before) {
  CHECK(!s->under_way);
  *s = (Scoring){.under_way = true,
                 .step = step,
                 .d = d,
                 .task = task,
                 .results = results,
                 .report = report,
                 .start = start,
                 .cores = cores};
  if (before) s->before = *before;
  log_hold(log);
  s->apart = cores > 0;
  if (s->apart) s->apart = pthread_create(&s->thread, NULL, score, s) == 0;
  if (!s->apart) score(s);
}

bool scoring_ready(const Scoring *s) { return s->under_way && atomic_load(&s->done); }

static void add_metrics(Record *j, const Metrics *m) {
  for (int i = 0; i < m->n; i++) record_num(j, m->metric[i].name, m->metric[i].value);
}

// Records when the scores were done, in seconds since the log was opened, and how long the evaluation took.
static void record_clock(Record *j, double now, const Log *log, double start) {
  Record clock = {0};
  record_begin(&clock);
  record_num(&clock, "at", now - log->opened);
  record_num(&clock, "took", now - start);
  if (log->session) record_int(&clock, "session", log->session);
  record_raw(j, "clock", record_end(&clock));
  record_free(&clock);
}

static void record_metrics(Log *log, const Scoring *s) {
  Record *j = log_begin(log, s->step, "eval");
  add_metrics(j, &s->before);
  add_metrics(j, &s->metrics);
  record_int(j, "images", s->metrics.images);
  record_int(j, "left_out", s->metrics.left_out);
  record_int(j, "scored_set", s->metrics.set);
  if (s->metrics.max_dets) record_int(j, "max_dets", s->metrics.max_dets);
  record_clock(j, s->end, log, s->start);
  log_commit(log);
}

static void say(const Scoring *s, Log *log) {
  const Metrics *m = &s->metrics;
  char losses[64] = "";
  if (s->before.n) snprintf(losses, sizeof losses, "  loss %.3f", s->before.metric[0].value);
  log_note(log, "step %lld: %s%s  %.3g s", (long long)s->step, m->summary, losses, s->end - s->start);
  if (m->left_out)
    log_note(log, "step %lld: %d of %d images left out of the evaluation: they could not be read", (long long)s->step,
             m->left_out, m->images + m->left_out);
  if (*m->note) log_note(log, "step %lld: %s", (long long)s->step, m->note);
}

void scoring_wait(Scoring *s, Log *log) {
  if (s->is_said) return;
  if (s->apart) pthread_join(s->thread, NULL);
  s->is_said = true;
  s->end = now_seconds();
  if (s->ok) say(s, log);
}

bool scoring_end(Scoring *s, Log *log, Err *err) {
  if (!s->under_way) return true;
  scoring_wait(s, log);
  s->under_way = false;
  log_release(log);
  if (s->ok) record_metrics(log, s);
  if (*s->no_report.msg) log_note(log, "cannot write the report of the evaluation: %s", s->no_report.msg);
  s->task->release(s->results);
  return s->ok || err_set(err, "%s", s->err.msg);
}
