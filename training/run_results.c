#include "training/run_results.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/log_clock.h"
#include "base/log_read.h"
#include "evaluation/task.h"
#include "training/best.h"
#include "training/defaults.h"

// ---- of the log -------------------------------------------------------------------------------------------------

enum { LOG_SECONDS, LOG_LOSS, LOG_EVALUATED, LOG_SET, LOG_METRICS, LOG_CURVES = LOG_METRICS + MAX_TASK_CURVES };

typedef struct RunLog {
  const Task *task;
  Curve curve[LOG_CURVES];
  int curves;
  RunSessions sessions;
  int64_t amended; // the step after which --amend or a rollback last changed the run; 0: never
} RunLog;

static void note_amendment(void *amended, int64_t step, const char *changes) {
  (void)changes;
  *(int64_t *)amended = step;
}

static bool read_log(RunLog *l, const TrainingRun *r, Err *err) {
  const char *key[LOG_CURVES] = {
      [LOG_SECONDS] = "seconds", [LOG_LOSS] = "loss", [LOG_EVALUATED] = "left_out", [LOG_SET] = BEST_SET};
  *l = (RunLog){.task = r->model->task, .curves = LOG_METRICS};
  for (; l->curves < LOG_CURVES && l->task->curve[l->curves - LOG_METRICS].metric; l->curves++)
    key[l->curves] = l->task->curve[l->curves - LOG_METRICS].metric;
  char *path = xasprintf("%s/log.jsonl", r->o.out);
  const bool ok = curves_read(path, key, l->curves, l->curve, err) && run_sessions_read(&l->sessions, path, err);
  amendments_read(path, note_amendment, &l->amended);
  free(path);
  return ok;
}

// The time of a step: since the step before it or, for a session's first step, since its log was opened.
static double step_seconds(const RunLog *l, int i) {
  const Curve *c = &l->curve[LOG_SECONDS];
  const bool follows = i > 0 && run_sessions_before(&l->sessions, (int64_t)c->x[i]) ==
                                    run_sessions_before(&l->sessions, (int64_t)c->x[i - 1]);
  return follows ? c->y[i] - c->y[i - 1] : c->y[i];
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Results are read up to two steps late, but all of them before an evaluation and at the end: there the last two
// intervals are too short by as much as the next one, which includes the evaluation, is too long.
static bool near_evaluation(const RunLog *l, double step) {
  const Curve *steps = &l->curve[LOG_SECONDS], *evaluated = &l->curve[LOG_EVALUATED];
  bool near = steps->x[steps->n - 1] - step <= 1;
  for (int i = 0; i < evaluated->n; i++) near |= fabs(evaluated->x[i] - step) <= 1;
  return near;
}

static double mean_of(const double *x, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += x[i];
  return sum / n;
}

// The typical interval: the median of means over several, because results are also read together before a checkpoint;
// the mean if there are few.
static double typical_of(double *each, int n) {
  enum { WINDOW = 12, FEW = 3 };
  const int windows = n / WINDOW;
  if (windows < FEW) return mean_of(each, n);
  for (int i = 0; i < windows; i++) each[i] = mean_of(each + WINDOW * i, WINDOW);
  qsort(each, (size_t)windows, sizeof *each, by_size);
  return (each[(windows - 1) / 2] + each[windows / 2]) / 2;
}

// The total and the typical time of the steps after `first` up to `last`; NaN without steps. The typical time is of
// steps without an evaluation or, if half of them or more have one, the mean of all.
static void time_steps(const RunLog *l, int64_t first, int64_t last, double *sum, double *typical) {
  const Curve *c = &l->curve[LOG_SECONDS];
  double *each = xmalloc((size_t)MAX(c->n, 1) * sizeof *each);
  int n = 0, all = 0;
  *sum = 0;
  for (int i = 0; i < c->n; i++) {
    if (c->x[i] <= (double)first || c->x[i] > (double)last) continue;
    const double took = step_seconds(l, i);
    *sum += took;
    all++;
    if (!near_evaluation(l, c->x[i])) each[n++] = took;
  }
  *typical = 2 * n > all ? typical_of(each, n) : *sum / all;
  free(each);
}

static void record_speed(Record *j, const TrainingRun *r, const RunLog *l, int64_t first, int64_t last) {
  double sum, typical;
  time_steps(l, first, last, &sum, &typical);
  record_num(j, "seconds", sum);
  record_num(j, "img_s", r->o.batch * r->o.gpus / typical);
}

// The last value after `first` up to `last`; NaN: there is none.
static double last_value(const Curve *c, int64_t first, int64_t last) {
  double value = NAN;
  for (int i = 0; i < c->n; i++)
    if (c->x[i] > (double)first && c->x[i] <= (double)last) value = c->y[i];
  return value;
}

static double mean_value(const Curve *c, int64_t first, int64_t last) {
  double sum = 0;
  int n = 0;
  for (int i = 0; i < c->n; i++)
    if (c->x[i] > (double)first && c->x[i] <= (double)last) {
      sum += c->y[i];
      n++;
    }
  return sum / n;
}

static void record_metrics(Record *j, const RunLog *l, int64_t first, int64_t last) {
  for (int i = LOG_METRICS; i < l->curves; i++)
    record_num(j, l->task->curve[i - LOG_METRICS].metric, last_value(&l->curve[i], first, last));
}

// The set on which an evaluation was scored; 0: an older record does not say.
static double set_of(const RunLog *l, double step) {
  const Curve *c = &l->curve[LOG_SET];
  for (int i = 0; i < c->n; i++)
    if (c->x[i] == step) return c->y[i];
  return 0;
}

// Adds the best of the evaluations that were scored on the same set as the first one.
static void record_best(Record *j, const RunLog *l) {
  const double set = l->curve[LOG_SET].n ? l->curve[LOG_SET].y[0] : 0;
  char key[2 * METRIC_NAME];
  for (int i = LOG_METRICS; i < l->curves; i++) {
    const Curve *c = &l->curve[i];
    int best = 0;
    for (int k = 1; k < c->n; k++)
      if (c->y[k] > c->y[best] && (!set_of(l, c->x[k]) || set_of(l, c->x[k]) == set)) best = k;
    snprintf(key, sizeof key, "best_%s", l->task->curve[i - LOG_METRICS].metric);
    record_num(j, key, c->n ? c->y[best] : NAN);
    snprintf(key, sizeof key, "best_%s_step", l->task->curve[i - LOG_METRICS].metric);
    record_num(j, key, c->n ? c->x[best] : NAN);
  }
}

// ---- phases -----------------------------------------------------------------------------------------------------

// Adds phase i of the run, up to step `last`.
static void add_phase(RecordList *list, const TrainingRun *r, const RunLog *l, int i, int64_t last) {
  const Schedule *s = &r->schedule;
  const Phase *p = s->phases ? &r->o.phase_list.phase[i] : NULL;
  const int64_t first = i > 0 ? s->phase_end[i - 1] : 0, end = MIN(p ? s->phase_end[i] : r->steps, last);
  if (end <= first) return;
  Record *j = &list->item;
  record_begin(j);
  record_num(j, "epochs", (double)(end - first) / (double)r->per_epoch);
  record_num(j, "lr", s->base * (p ? s->phase_factor[i] : 1));
  const Augment augment = augment_of(&r->o);
  record_bool(j, "augment", augment_any(&augment) && first / MAX(r->per_epoch, 1) >= r->o.augment_after);
  if (l->amended > first) record_int(j, "amended", l->amended);
  record_int(j, "first_step", first + 1);
  record_int(j, "steps", end - first);
  record_speed(j, r, l, first, end);
  record_num(j, "loss", mean_value(&l->curve[LOG_LOSS], MAX(first, end - r->per_epoch), end));
  record_metrics(j, l, first, end);
  record_list_add(list);
}

static void record_phases(Record *j, const TrainingRun *r, const RunLog *l, int64_t step) {
  RecordList phases = {0};
  for (int i = 0; i < MAX(r->schedule.phases, 1); i++) add_phase(&phases, r, l, i, step);
  record_list_end(&phases, j, "phase");
}

// ---- all ------------------------------------------------------------------------------------------------------------

bool run_results_record(Record *j, const TrainingRun *r, int64_t step, Err *err) {
  RunLog l;
  const bool ok = read_log(&l, r, err);
  if (ok) {
    record_metrics(j, &l, -1, step);
    record_best(j, &l);
    record_speed(j, r, &l, 0, step);
    record_phases(j, r, &l, step);
  }
  curves_free(l.curve, l.curves);
  run_sessions_free(&l.sessions);
  return ok;
}
