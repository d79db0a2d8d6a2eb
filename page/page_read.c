#include "page/page_read.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/log_clock.h"
#include "base/log_read.h"
#include "base/run_folder.h"
#include "page/evaluation_read.h"
#include "page/record_read.h"

// ---- the log --------------------------------------------------------------------------------------------------------

enum { SECONDS, SKIPPED, OWN_CURVES }; // beside those that are drawn

static void warn_of_amendment(void *page, int64_t step, const char *changes) {
  page_warn(page, xasprintf("amended at step %lld: %s", (long long)step, changes));
}

static bool read_log(const char *path, RunPage *p, Curve own[OWN_CURVES], Err *err) {
  int n = OWN_CURVES;
  for (int i = 0; i < p->panels.n; i++) n += p->panels.item[i].n;
  const char **key = xcalloc((size_t)n, sizeof *key);
  Curve *curve = xcalloc((size_t)n, sizeof *curve);
  key[SECONDS] = "seconds";
  key[SKIPPED] = "skipped";
  n = OWN_CURVES;
  for (int i = 0; i < p->panels.n; i++)
    for (int k = 0; k < p->panels.item[i].n; k++) key[n++] = p->panels.item[i].curve[k].key;
  const bool ok = curves_read(path, key, n, curve, err);
  memcpy(own, curve, OWN_CURVES * sizeof *own);
  n = OWN_CURVES;
  for (int i = 0; i < p->panels.n; i++)
    for (int k = 0; k < p->panels.item[i].n; k++, n++) {
      PageCurve *c = &p->panels.item[i].curve[k];
      c->x = curve[n].x;
      c->y = curve[n].y;
      c->n = curve[n].n;
      c->cap_x = curve[n].cap_x;
      c->cap_y = curve[n].cap_y;
    }
  free(key);
  free(curve);
  return ok;
}

// An evaluation whose record waits behind its page.
static void add_latest(RunPage *p) {
  const PageEvaluation *e = &p->evaluation;
  for (int i = 0; i < p->panels.n; i++)
    for (int k = 0; k < p->panels.item[i].n; k++) {
      PageCurve *c = &p->panels.item[i].curve[k];
      for (int m = 0; m < e->metrics.n; m++)
        if (!strcmp(e->metrics.item[m].name, c->key) && (!c->n || c->x[c->n - 1] < (double)e->step))
          page_curve_add(c, (double)e->step, strtod(e->metrics.item[m].value, NULL));
    }
}

static const PageCurve *curve_of(const RunPage *p, const char *key) {
  for (int i = 0; i < p->panels.n; i++)
    for (int k = 0; k < p->panels.item[i].n; k++)
      if (!strcmp(p->panels.item[i].curve[k].key, key)) return &p->panels.item[i].curve[k];
  return NULL;
}

// The total loss by the time that all sessions have taken.
static void add_clock(RunPage *p, const Curve *seconds, const RunSessions *sessions) {
  const PageCurve *loss = curve_of(p, "loss");
  if (!loss || loss->n != seconds->n) return; // a step may lack its loss, which was not finite
  PagePanel *panel = page_panel_add(&p->panels, "Loss over time", "seconds of training", "loss");
  panel->log_y = panel->noisy = true;
  PageCurve *c = page_panel_curve(panel, "loss by time", "Loss over time");
  loss = curve_of(p, "loss"); // the list of panels may have moved
  for (int i = 0; i < loss->n; i++)
    page_curve_add(c, run_sessions_before(sessions, (int64_t)loss->x[i]) + seconds->y[i], loss->y[i]);
}

// ---- facts ----------------------------------------------------------------------------------------------------------

static void add_fact(RunPage *p, const char *name, char *value) {
  page_pair_add(&p->facts, name, value);
  free(value);
}

static void add_metric_facts(RunPage *p, const PagePanel *panel) {
  for (int i = 0; i < panel->n; i++) {
    const PageCurve *c = &panel->curve[i];
    int best = 0;
    if (!c->n) continue;
    for (int k = 1; k < c->n; k++)
      if (c->y[k] > c->y[best]) best = k;
    add_fact(p, c->label,
             c->y[best] > c->y[c->n - 1] ? xasprintf("%.3f (%.3f at step %.0f)", c->y[c->n - 1], c->y[best], c->x[best])
                                         : xasprintf("%.3f", c->y[c->n - 1]));
  }
}

static double mean_of_last(const PageCurve *c, int n) {
  double sum = 0;
  const int first = MAX(c->n - n, 0);
  for (int i = first; i < c->n; i++) sum += c->y[i];
  return sum / (c->n - first);
}

static void add_data_facts(RunPage *p, const Session *s) {
  if (s->model) add_fact(p, "model", xstrdup(s->model));
  if (s->data) add_fact(p, "data", xstrdup(s->data));
  if (s->images > 0) add_fact(p, "images to train on", xasprintf("%.0f", s->images));
  if (s->val_images > 0) add_fact(p, "images to evaluate on", xasprintf("%.0f", s->val_images));
  if (s->batch > 0)
    add_fact(p, "images a step",
             s->world > 1 ? xasprintf("%.0f, of %.0f ranks", s->batch * s->world, s->world)
                          : xasprintf("%.0f", s->batch));
}

static void add_facts(RunPage *p, const Session *s, double seconds) {
  enum { LATELY = 50 }; // steps
  const PageCurve *loss = curve_of(p, "loss"), *speed = curve_of(p, "img_s");
  const double step = loss && loss->n ? loss->x[loss->n - 1] : 0;
  add_data_facts(p, s);
  add_fact(p, "step", s->steps > 0 ? xasprintf("%.0f of %.0f", step, s->steps) : xasprintf("%.0f", step));
  if (s->per_epoch > 0) add_fact(p, "epoch", xasprintf("%.1f", step / s->per_epoch));
  if (loss && loss->n) add_fact(p, "loss, last 50 steps", xasprintf("%.4f", mean_of_last(loss, LATELY)));
  if (s->metrics >= 0) add_metric_facts(p, &p->panels.item[s->metrics]);
  if (speed && speed->n) add_fact(p, "images per second", xasprintf("%.1f", speed->y[speed->n - 1]));
  if (seconds > 0) {
    const long long whole = llround(seconds);
    add_fact(p, "time", xasprintf("%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60));
  }
  if (s->device) add_fact(p, "device", xstrdup(s->device));
}

// ---- all ------------------------------------------------------------------------------------------------------------

// Of a path, with or without a slash at its end. Owned.
static char *last_part(const char *folder) {
  size_t end = strlen(folder);
  while (end > 1 && folder[end - 1] == '/') end--;
  size_t begin = end;
  while (begin > 0 && folder[begin - 1] != '/') begin--;
  return xasprintf("%.*s", (int)(end - begin), folder + begin);
}

// What a run's record is: of older versions, of a classifier's run that had one, it told what had come of it alone.
static char *record_of(const char *folder) {
  static const char begins[] = "{\"state\":";
  char *path = xasprintf("%s/" RUN_RECORD, folder), first[sizeof begins] = "";
  FILE *f = fopen(path, "r");
  const bool is = f && fgets(first, sizeof first, f) && !strcmp(first, begins);
  if (f) fclose(f);
  if (is) return path;
  free(path);
  return xasprintf("%s/" OLD_SESSION, folder);
}

static char *evaluation_of(const char *folder) {
  char *path = xasprintf("%s/" RUN_EVALUATION, folder);
  if (path_is_file(path)) return path;
  free(path);
  return xasprintf("%s/" OLD_EVALUATION, folder);
}

bool page_read(RunPage *p, const char *folder, const char *name, Err *err) {
  char *log = xasprintf("%s/" RUN_LOG, folder), *session = record_of(folder), *evaluation = evaluation_of(folder);
  Session s = {.metrics = -1};
  Curve own[OWN_CURVES] = {0};
  RunSessions sessions = {0};
  p->name = name ? xstrdup(name) : last_part(folder);
  p->evaluation.step = PAGE_UNSCORED;
  bool ok = path_is_file(log) || err_set(err, "%s: no such file: expected the folder of a run of ./train", log);
  ok = ok && session_read(session, p, &s, err) && read_log(log, p, own, err) &&
       run_sessions_read(&sessions, log, err) &&
       (!path_is_file(evaluation) || evaluation_read(evaluation, folder, p, err));
  p->metrics = s.metrics;
  if (ok) {
    if (p->state && !strcmp(p->state, RUN_GOES_ON) && !folder_is_locked(folder)) {
      free(p->state);
      p->state = xstrdup("ended without a message: it was killed, or its machine failed");
    }
    if (p->evaluation.step >= 0) add_latest(p);
    if (own[SKIPPED].n && own[SKIPPED].y[own[SKIPPED].n - 1] > 0)
      page_warn(p, xasprintf("%.0f steps were skipped while fp16's loss scale was found: their gradients overflowed",
                             own[SKIPPED].y[own[SKIPPED].n - 1]));
    amendments_read(log, warn_of_amendment, p);
    add_clock(p, &own[SECONDS], &sessions);
    add_facts(p, &s, sessions.seconds);
  }
  curves_free(own, OWN_CURVES);
  run_sessions_free(&sessions);
  session_free(&s);
  free(log);
  free(session);
  free(evaluation);
  return ok;
}
