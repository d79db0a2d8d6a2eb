#include "training/curves.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/log_read.h"
#include "evaluation/task.h"
#include "page/plot.h"

enum { CURVES = 4 + MAX_LOSSES + MAX_TASK_CURVES };

typedef struct CurveSet { // what is drawn of a run, in the order of legends
  const char *key[CURVES], *label[CURVES];
  int n;
} CurveSet;

static void add_curve(CurveSet *s, const char *key, const char *label) {
  s->key[s->n] = key;
  s->label[s->n] = label;
  s->n++;
}

// `count` series from curve `first` on.
static PlotPanel panel(const char *title, const char *label, bool log_y, const CurveSet *set, const Curve *all,
                       int first, int count, bool noisy, PlotSeries *series) {
  for (int i = first; i < first + count; i++)
    series[i] = (PlotSeries){set->label[i], all[i].x, all[i].y, all[i].n, noisy}; // noisy ones are smoothed
  return (PlotPanel){title, "step", label, log_y, series + first, count, NULL};
}

bool curves_draw(const char *dir, const Model *m, Err *err) {
  const Task *task = m->task;
  const int losses = model_losses(m);
  CurveSet set = {0};
  add_curve(&set, "loss", "total");
  for (int place = 0; place < losses; place++)
    for (int i = 0; i < losses; i++)
      if (m->loss[i].drawn == place) add_curve(&set, m->loss[i].name, m->loss[i].label);
  add_curve(&set, "val_loss", "validation");
  const int norm = set.n, rate = norm + 1, metrics = rate + 1;
  add_curve(&set, "grad_norm", "gradient norm");
  add_curve(&set, "lr", "learning rate");
  for (int i = 0; i < MAX_TASK_CURVES && task->curve[i].metric; i++)
    add_curve(&set, task->curve[i].metric, task->curve[i].label);
  Curve all[CURVES] = {0};
  PlotSeries series[CURVES];
  char *log = xasprintf("%s/log.jsonl", dir), *svg = xasprintf("%s/curves.svg", dir);
  bool ok = curves_read(log, set.key, set.n, all, err);
  if (ok) {
    PlotPanel panels[] = {
        panel("Losses", "loss", true, &set, all, 0, all[norm - 1].n ? norm : norm - 1, true, series),
        panel("Gradient norm", "L2 norm", true, &set, all, norm, 1, true, series),
        panel("Learning rate", "per step", false, &set, all, rate, 1, false, series),
        panel(task->curve_title, task->curve_unit, false, &set, all, metrics, set.n - metrics, false, series)};
    series[norm - 1].smooth = false; // means over a whole data set
    ok = plot_svg(svg, dir, panels, all[metrics].n ? 4 : 3, err);
  }
  curves_free(all, CURVES);
  free(log);
  free(svg);
  return ok;
}
