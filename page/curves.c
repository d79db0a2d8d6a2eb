#include "page/curves.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "page/plot.h"

static const PageCurve *curve_of(const RunPage *r, const char *key) {
  static const PageCurve none = {0};
  for (int i = 0; i < r->panels.n; i++)
    for (int k = 0; k < r->panels.item[i].n; k++)
      if (!strcmp(r->panels.item[i].curve[k].key, key)) return &r->panels.item[i].curve[k];
  return &none;
}

static const PagePanel *panel_of(const RunPage *r, const char *key) {
  static const PagePanel none = {0};
  for (int i = 0; i < r->panels.n; i++)
    for (int k = 0; k < r->panels.item[i].n; k++)
      if (!strcmp(r->panels.item[i].curve[k].key, key)) return &r->panels.item[i];
  return &none;
}

static PlotSeries series_of(const char *label, const PageCurve *c, bool smooth) {
  return (PlotSeries){label, c->x, c->y, c->n, smooth};
}

// All curves of the panel; there is room for one more.
static PlotSeries *all_series(const PagePanel *p, bool smooth) {
  PlotSeries *s = xcalloc((size_t)p->n + 1, sizeof *s);
  for (int i = 0; i < p->n; i++) s[i] = series_of(p->curve[i].label, &p->curve[i], smooth);
  return s;
}

bool curves_draw(const char *folder, const RunPage *r, Err *err) {
  const PageCurve *validation = curve_of(r, "val_loss");
  const PagePanel *losses = panel_of(r, "loss"), none = {0},
                  *metrics = r->metrics >= 0 ? &r->panels.item[r->metrics] : &none;
  const PlotSeries norm = series_of("gradient norm", curve_of(r, "grad_norm"), true),
                   rate = series_of("learning rate", curve_of(r, "lr"), false);
  PlotSeries *loss = all_series(losses, true), *metric = all_series(metrics, false);
  loss[losses->n] = series_of("validation", validation, false); // means over a whole data set
  const PlotPanel panels[] = {
      {"Losses", "step", "loss", true, loss, losses->n + (validation->n > 0), NULL},
      {"Gradient norm", "step", "L2 norm", true, &norm, 1, NULL},
      {"Learning rate", "step", "per step", false, &rate, 1, NULL},
      {metrics->title, "step", metrics->unit, false, metric, metrics->n, NULL},
  };
  char *path = xasprintf("%s/curves.svg", folder);
  const bool ok = plot_svg(path, folder, panels, metrics->n && metrics->curve[0].n ? 4 : 3, err);
  free(path);
  free(loss);
  free(metric);
  return ok;
}
