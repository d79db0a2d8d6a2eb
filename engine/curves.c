#include "engine/curves.h"
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "data/reports/plot.h"

static void curve_add(Curve *c, double x, double y) {
  array_reserve((void **)&c->x, &c->cap_x, (size_t)c->n + 1, sizeof *c->x);
  array_reserve((void **)&c->y, &c->cap_y, (size_t)c->n + 1, sizeof *c->y);
  c->x[c->n] = x;
  c->y[c->n++] = y;
}

// One record: its step is its first member.
static void read_record(Json *j, const char *const *keys, int count, Curve *out) {
  double step = 0;
  const char *key;
  if (json_begin_object(j))
    while ((key = json_key(j))) {
      int k = 0;
      while (k < count && strcmp(keys[k], key)) k++;
      if (!strcmp(key, "step"))
        step = json_number(j);
      else if (k < count && json_peek(j) == JSON_NUMBER)
        curve_add(&out[k], step, json_number(j));
      else
        json_skip(j);
    }
}

bool curves_read(const char *path, const char *const *keys, int count, Curve *out, Err *err) {
  size_t size;
  char *text = file_read(path, &size, err);
  if (!text) return false;
  bool ok = true;
  for (char *line = text, *end; ok && line < text + size; line = end + 1) {
    end = memchr(line, '\n', (size_t)(text + size - line));
    if (!end) break; // cut short by a crash
    Json j;
    json_open(&j, path, line, (size_t)(end - line));
    read_record(&j, keys, count, out);
    ok = json_done(&j) || err_set(err, "%s", j.err.msg);
    json_close(&j);
  }
  free(text);
  return ok;
}

void curves_free(Curve *curves, int count) {
  for (int i = 0; i < count; i++) {
    free(curves[i].x);
    free(curves[i].y);
  }
}

// ---- the picture --------------------------------------------------------------------------------------------------

enum { TRAIN_CURVES = 8, EVAL_CURVES = 4, CURVES = TRAIN_CURVES + EVAL_CURVES, NOISY = 7 };
static const char *const keys[CURVES] = {
    "loss", "loss_classifier", "loss_box_reg", "loss_mask", "loss_objectness", "loss_rpn_box_reg", "grad_norm",
    "lr",   "bbox_AP",         "bbox_AP50",    "segm_AP",   "segm_AP50"};
static const char *const names[CURVES] = {"total",      "classifier", "box",           "mask",
                                          "objectness", "RPN box",    "gradient norm", "learning rate",
                                          "box AP",     "box AP50",   "mask AP",       "mask AP50"};

// `count` series from curve `first` on; noisy ones are smoothed.
static PlotPanel panel(const char *title, const char *label, bool log_y, const Curve *all, int first, int count,
                       PlotSeries *series) {
  for (int i = 0; i < count; i++) {
    const Curve *c = &all[first + i];
    series[i] = (PlotSeries){names[first + i], c->x, c->y, c->n, first + i < NOISY};
  }
  return (PlotPanel){title, "step", label, log_y, series, count, NULL};
}

bool curves_draw(const char *dir, Err *err) {
  Curve all[CURVES] = {0};
  PlotSeries series[CURVES];
  char *log = xasprintf("%s/log.jsonl", dir), *svg = xasprintf("%s/curves.svg", dir);
  bool ok = curves_read(log, keys, CURVES, all, err);
  if (ok) {
    PlotPanel panels[] = {panel("Losses", "loss", true, all, 0, 6, series),
                          panel("Gradient norm", "L2 norm", true, all, 6, 1, series + 6),
                          panel("Learning rate", "per step", false, all, 7, 1, series + 7),
                          panel("Average precision", "AP", false, all, 8, 4, series + 8)};
    ok = plot_svg(svg, dir, panels, all[TRAIN_CURVES].n ? 4 : 3, err);
  }
  curves_free(all, CURVES);
  free(log);
  free(svg);
  return ok;
}
