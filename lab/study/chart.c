#include "lab/study/chart.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "lab/study/axis.h"
#include "lab/study/figure_text.h"

enum { WIDTH = 860, PANEL = 320, HEAD = 52, LEFT = 84, RIGHT = 24, TOP = 44, BOTTOM = 56, LEGEND_LINE = 20 };
enum { COLOURS = 7, MOST_CURVES = 64 };

// Okabe and Ito's colours, told apart under every common colour blindness, yellow left out; brighter on dark pages.
static const char style[] =
    "<style>\n"
    "text { fill: #333; font-size: 12px } .title { font-size: 18px; font-weight: bold }\n"
    ".panel { font-size: 14px; font-weight: bold } .middle { text-anchor: middle } .end { text-anchor: end }\n"
    "path { fill: none; stroke-linejoin: round } .page { fill: #fff } .grid { stroke: #e6e6e6 }\n"
    ".axis { stroke: #888 } .line { stroke-width: 1.8 } .error { stroke-width: 1.4 }\n"
    ".theirs { stroke-width: 1.6; stroke-dasharray: 5 4 } .open { fill: #fff; stroke-width: 1.6 }\n"
    ".c0 { stroke: #0072b2 } .c1 { stroke: #d55e00 } .c2 { stroke: #009e73 } .c3 { stroke: #cc79a7 }\n"
    ".c4 { stroke: #56b4e9 } .c5 { stroke: #e69f00 } .c6 { stroke: #555 }\n"
    ".f0 { fill: #0072b2 } .f1 { fill: #d55e00 } .f2 { fill: #009e73 } .f3 { fill: #cc79a7 }\n"
    ".f4 { fill: #56b4e9 } .f5 { fill: #e69f00 } .f6 { fill: #555 } .onbar { stroke: #222; stroke-width: 1.4 }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "text { fill: #d8d8d8 } .page, .open { fill: #16181c } .grid { stroke: #33363c } .axis { stroke: #888 }\n"
    ".c0 { stroke: #4aa8e0 } .c1 { stroke: #f28538 } .c2 { stroke: #2fc79a } .c3 { stroke: #e39cc4 }\n"
    ".c4 { stroke: #8fd0f5 } .c5 { stroke: #f2b94a } .c6 { stroke: #aaa }\n"
    ".f0 { fill: #4aa8e0 } .f1 { fill: #f28538 } .f2 { fill: #2fc79a } .f3 { fill: #e39cc4 }\n"
    ".f4 { fill: #8fd0f5 } .f5 { fill: #f2b94a } .f6 { fill: #aaa } .onbar { stroke: #eee }\n"
    "}\n"
    "</style>\n";

// Between tags.
static void xml_print(FILE *f, const char *text) {
  for (; *text; text++) {
    const char *entity = *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : *text == '&' ? "&amp;" : NULL;
    if (entity)
      fputs(entity, f);
    else
      fputc(*text, f);
  }
}

// ---- what is drawn --------------------------------------------------------------------------------------------------

typedef struct ChartCurve {
  StudyCell cell;    // of its points; x and panel do not count
  int colour, block; // block: of published figures, -1: ours
  bool drawn;        // it has a point somewhere
} ChartCurve;

typedef struct Chart {
  const StudyData *d;
  const StudyPlot *plot;
  ChartCurve curves[MOST_CURVES];
  int num_curves;
  bool numbers;                         // x has a scale; else its values stand side by side
  int *xs, num_xs, *panels, num_panels; // values of the settings of x and of the panels that cells have
} Chart;

typedef struct ChartPoint {
  double value, error; // NaN: not there, not known
} ChartPoint;

static int *values_of(const StudyData *d, int setting, int *n) {
  const int most = d->plan->settings[setting].num_values;
  int *values = xcalloc((size_t)most + 1, sizeof *values);
  *n = 0;
  for (int v = 0; v < most; v++) {
    bool any = false;
    for (int i = 0; i < d->cells.num_cells; i++) any |= d->cells.cells[i].value[setting] == v;
    if (any) values[(*n)++] = v;
  }
  return values;
}

// A plan may have numbers in any order, a scale has them in its own.
static void sort_numbers(const StudySetting *s, int *values, int n) {
  for (int i = 1; i < n; i++)
    for (int at = i; at > 0 && s->values[values[at - 1]].number > s->values[values[at]].number; at--) {
      const int moved = values[at];
      values[at] = values[at - 1];
      values[at - 1] = moved;
    }
}

static bool counts(const Chart *c, int setting) {
  if (setting == c->plot->x || setting == c->plot->panels) return false;
  return setting != STUDY_COMMAND || c->d->plan->num_commands > 1;
}

// Whether a curve of the block (-1: of ours) is for one value of the setting.
static bool tells(const Chart *c, int block, int setting) {
  return counts(c, setting) && (block < 0 || study_published_names(c->d->plan, block, setting));
}

static bool same_curve(const Chart *c, int block, const StudyCell *a, const StudyCell *b) {
  for (int s = 0; s < c->d->plan->num_settings; s++)
    if (tells(c, block, s) && a->value[s] != b->value[s]) return false;
  return true;
}

static int find_curve(const Chart *c, int block, const StudyCell *cell) {
  int i = c->num_curves;
  while (--i >= 0 && (c->curves[i].block != block || !same_curve(c, block, &c->curves[i].cell, cell))) continue;
  return i;
}

static bool block_draws(const Chart *c, int block, const StudyCell *cell) {
  for (int i = 0; i < c->plot->y.n; i++)
    if (!isnan(study_published_figure(c->d->plan, block, cell, c->plot->y.items[i].measure))) return true;
  return false;
}

// Ours first. Those of others have the colour of the one of ours that they are beside, if it is one.
static void find_curves(Chart *c) {
  const StudyPlan *p = c->d->plan;
  int colours = 0;
  for (int i = 0; i < c->d->cells.num_cells; i++) {
    const StudyCell *cell = &c->d->cells.cells[i];
    if (find_curve(c, -1, cell) >= 0 || c->num_curves == MOST_CURVES) continue;
    c->curves[c->num_curves++] = (ChartCurve){*cell, colours++, -1, false};
  }
  for (int b = 0; b < p->num_published; b++) {
    bool beside = true;
    for (int s = 0; s < p->num_settings; s++) beside &= !counts(c, s) || study_published_names(p, b, s);
    for (int i = 0; i < c->d->cells.num_cells; i++) {
      const StudyCell *cell = &c->d->cells.cells[i];
      if (!block_draws(c, b, cell) || find_curve(c, b, cell) >= 0 || c->num_curves == MOST_CURVES) continue;
      const int own = find_curve(c, -1, cell);
      c->curves[c->num_curves++] =
          (ChartCurve){*cell, beside && own >= 0 ? c->curves[own].colour : colours++, b, false};
    }
  }
}

// A command that does not use the panels' setting has its curve in all of them.
static bool stays_in_panel(const Chart *c, const StudyCell *cell) {
  return c->plot->panels >= 0 && c->d->plan->commands[cell->value[STUDY_COMMAND]].uses[c->plot->panels];
}

// x: which of the values that cells have.
static ChartPoint point_of(const Chart *c, const ChartCurve *curve, int x, int panel, const StudyShown *y) {
  StudyCell cell = curve->cell;
  ChartPoint p = {NAN, NAN};
  cell.value[c->plot->x] = c->xs[x];
  if (stays_in_panel(c, &cell)) cell.value[c->plot->panels] = panel;
  const int i = study_cells_find(&c->d->cells, c->d->plan, &cell);
  if (i < 0 || !study_conditions_hold(&y->at, c->d->plan, &cell)) return p;
  if (curve->block >= 0) {
    p.value = study_published_figure(c->d->plan, curve->block, &cell, y->measure);
    return p;
  }
  if (!c->d->num_runs[i]) return p;
  StudyFigure f = study_figure(c->d, i, y->measure);
  p = (ChartPoint){f.value, study_error(c->d, &f)};
  study_figure_free(&f);
  return p;
}

// ---- axes -----------------------------------------------------------------------------------------------------------

static StudyAxis y_axis(const Chart *c, int panel, const StudyShown *y) {
  StudyAxis a = {.low = INFINITY, .high = -INFINITY, .log = c->plot->log_y};
  for (int i = 0; i < c->num_curves; i++)
    for (int x = 0; x < c->num_xs; x++) {
      const ChartPoint p = point_of(c, &c->curves[i], x, panel, y);
      study_axis_reach(&a, p.value);
      if (isfinite(p.error)) study_axis_reach(&a, p.value + p.error);
      if (isfinite(p.error)) study_axis_reach(&a, p.value - p.error);
    }
  if (!isfinite(a.low)) a = (StudyAxis){.high = 1};
  if (a.log)
    study_axis_logarithmic(&a);
  else
    study_axis_linear(&a, c->plot->bars);
  return a;
}

// Of values side by side: in the middles of as many shares.
static StudyAxis x_axis(const Chart *c) {
  const StudySetting *s = &c->d->plan->settings[c->plot->x];
  StudyAxis a = {.low = INFINITY, .high = -INFINITY, .log = c->numbers && c->plot->log_x};
  if (!c->numbers) return (StudyAxis){.low = -0.5, .high = MAX(c->num_xs, 1) - 0.5};
  for (int x = 0; x < c->num_xs; x++) study_axis_reach(&a, s->values[c->xs[x]].number);
  if (!isfinite(a.low)) return (StudyAxis){.high = 1};
  const double margin = a.high > a.low ? 0.04 * (a.high - a.low) : 0.5;
  a.low -= margin;
  a.high += margin;
  return a;
}

static double x_of(const Chart *c, const StudyAxis *a, int x) {
  const double at = c->numbers ? c->d->plan->settings[c->plot->x].values[c->xs[x]].number : x;
  return LEFT + (WIDTH - LEFT - RIGHT) * study_axis_fraction(a, at);
}

static double y_of(const StudyAxis *a, double top, double v) {
  return top + TOP + (PANEL - TOP - BOTTOM) * (1 - study_axis_fraction(a, v));
}

// ---- drawing --------------------------------------------------------------------------------------------------------

static void print_text(FILE *f, double x, double y, const char *class, const char *text) {
  fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
  xml_print(f, text);
  fputs("</text>\n", f);
}

static void print_axes(FILE *f, const Chart *c, const StudyAxis *ax, const StudyAxis *ay, double top, int panel,
                       const StudyShown *y) {
  const StudySetting *s = &c->d->plan->settings[c->plot->x];
  const double bottom = top + PANEL - BOTTOM;
  double last = -INFINITY;
  char label[64];
  for (int i = 0; i < ay->n; i++) {
    const double at = y_of(ay, top, ay->ticks[i]);
    fprintf(f, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n", LEFT, at, WIDTH - RIGHT);
    snprintf(label, sizeof label, "%.6g", fabs(ay->ticks[i]) < 1e-12 * fabs(ay->high) ? 0 : ay->ticks[i]);
    print_text(f, LEFT - 8, at + 4, "end", label);
  }
  for (int x = 0; x < c->num_xs; x++) {
    const char *name = s->values[c->xs[x]].name;
    const double at = x_of(c, ax, x), width = 7.0 * (double)strlen(name) + 8;
    if (at - last < width) continue; // names would cover each other
    last = at;
    print_text(f, at, bottom + 18, "middle", name);
  }
  fprintf(f, "<path class=\"axis\" d=\"M%d %.1fV%.1fH%d\"/>\n", LEFT, top + TOP, bottom, WIDTH - RIGHT);
  char *title = study_measure_title(&c->d->plan->measures[y->measure]);
  if (panel >= 0) {
    const StudySetting *p = &c->d->plan->settings[c->plot->panels];
    char *with = xasprintf("%s: %s %s", c->d->plan->measures[y->measure].label, p->label, p->values[panel].name);
    print_text(f, LEFT, top + TOP - 14, "panel", with);
    free(with);
  } else {
    print_text(f, LEFT, top + TOP - 14, "panel", c->d->plan->measures[y->measure].label);
  }
  snprintf(label, sizeof label, s->unit ? "%.40s, %.20s" : "%.40s", s->label, s->unit);
  print_text(f, (LEFT + WIDTH - RIGHT) / 2.0, bottom + 40, "middle", label);
  fprintf(f, "<g transform=\"translate(20 %.1f) rotate(-90)\">", (top + TOP + bottom) / 2);
  print_text(f, 0, 0, "middle", title);
  fputs("</g>\n", f);
  free(title);
}

static void print_error(FILE *f, const StudyAxis *ay, double top, double x, ChartPoint p, const char *class) {
  if (!(p.error > 1e-12 * fabs(p.value)) || (ay->log && p.value - p.error <= 0)) return;
  const double high = y_of(ay, top, p.value + p.error), low = y_of(ay, top, p.value - p.error);
  fprintf(f, "<path class=\"error %s\" d=\"M%.1f %.1fV%.1fM%.1f %.1fh8M%.1f %.1fh8\"/>\n", class, x, high, low, x - 4,
          high, x - 4, low);
}

// A filled disk for ours; open disks, squares, diamonds and triangles for others, block by block.
static void print_mark(FILE *f, const ChartCurve *curve, double x, double y) {
  static const char *const shapes[] = {"m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "m-4 -4h8v8h-8z",
                                       "m0 -5.5l5 5.5l-5 5.5l-5 -5.5z", "m0 -5l5 9h-10z"};
  const int colour = curve->colour % COLOURS;
  if (curve->block < 0)
    fprintf(f, "<circle class=\"f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\"/>\n", colour, x, y);
  else
    fprintf(f, "<path class=\"open c%d\" d=\"M%.1f %.1f%s\"/>\n", colour, x, y, shapes[curve->block % COUNT(shapes)]);
}

static void print_curve(FILE *f, const Chart *c, ChartCurve *curve, const StudyAxis *ax, const StudyAxis *ay,
                        double top, int panel, const StudyShown *y) {
  const int n = c->num_xs, colour = curve->colour % COLOURS;
  const bool ours = curve->block < 0;
  char class[16];
  bool pen_down = false;
  snprintf(class, sizeof class, "c%d", colour);
  fprintf(f, "<path class=\"%s c%d\" d=\"", ours ? "line" : "theirs", colour);
  for (int x = 0; x < n; x++) {
    const ChartPoint p = point_of(c, curve, x, panel, y);
    if (!study_axis_shows(ay, p.value)) continue; // the line goes on to the next that is there
    fprintf(f, "%c%.1f %.1f", pen_down ? 'L' : 'M', x_of(c, ax, x), y_of(ay, top, p.value));
    pen_down = true;
  }
  fputs("\"/>\n", f);
  curve->drawn |= pen_down;
  for (int x = 0; x < n; x++) {
    const ChartPoint p = point_of(c, curve, x, panel, y);
    if (!study_axis_shows(ay, p.value)) continue;
    print_error(f, ay, top, x_of(c, ax, x), p, class);
    print_mark(f, curve, x_of(c, ax, x), y_of(ay, top, p.value));
  }
}

static bool has_point(const Chart *c, const ChartCurve *curve, const StudyAxis *ay, int panel, const StudyShown *y) {
  for (int x = 0; x < c->num_xs; x++)
    if (study_axis_shows(ay, point_of(c, curve, x, panel, y).value)) return true;
  return false;
}

// One bar of each value, `left` of the value's middle.
static void print_curve_bars(FILE *f, const Chart *c, const ChartCurve *curve, const StudyAxis *ax, const StudyAxis *ay,
                             double top, int panel, const StudyShown *y, double left, double width) {
  const bool ours = curve->block < 0;
  const double base = top + PANEL - BOTTOM;
  for (int x = 0; x < c->num_xs; x++) {
    const ChartPoint p = point_of(c, curve, x, panel, y);
    if (!study_axis_shows(ay, p.value)) continue;
    const double at = x_of(c, ax, x) - left + 0.04 * width, tip = y_of(ay, top, p.value);
    fprintf(f, "<rect class=\"%s%d%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
            ours ? "f" : "theirs c", curve->colour % COLOURS, ours ? "" : " open", at, fmin(tip, base), 0.92 * width,
            fabs(base - tip));
    print_error(f, ay, top, at + 0.46 * width, p, "onbar");
  }
}

// Side by side within four fifths of the share of each value.
static void print_bars(FILE *f, Chart *c, const StudyAxis *ax, const StudyAxis *ay, double top, int panel,
                       const StudyShown *y) {
  int n = 0, before = 0;
  for (int i = 0; i < c->num_curves; i++) n += has_point(c, &c->curves[i], ay, panel, y);
  const double share = (WIDTH - LEFT - RIGHT) / (double)MAX(c->num_xs, 1), width = 0.8 * share / MAX(n, 1);
  for (int i = 0; i < c->num_curves; i++) {
    if (!has_point(c, &c->curves[i], ay, panel, y)) continue;
    c->curves[i].drawn = true;
    print_curve_bars(f, c, &c->curves[i], ax, ay, top, panel, y, 0.4 * share - before * width, width);
    before++;
  }
}

static void print_panel(FILE *f, Chart *c, double top, int panel, const StudyShown *y) {
  const StudyAxis ax = x_axis(c), ay = y_axis(c, panel, y);
  bool any = false;
  for (int i = 0; i < c->num_curves; i++) any |= has_point(c, &c->curves[i], &ay, panel, y);
  print_axes(f, c, &ax, &ay, top, panel, y);
  if (!any) print_text(f, (LEFT + WIDTH - RIGHT) / 2.0, top + PANEL / 2.0, "middle", "no figures");
  if (c->plot->bars) print_bars(f, c, &ax, &ay, top, panel, y);
  for (int i = 0; i < c->num_curves && !c->plot->bars; i++) print_curve(f, c, &c->curves[i], &ax, &ay, top, panel, y);
}

// Whether the figures of others stand beside one of our commands alone: its name would be taken for theirs.
static bool beside_one(const StudyPublished *b) {
  bool one = true;
  for (int i = 1; i < b->num_rows; i++)
    one &= b->rows[i].cell.value[STUDY_COMMAND] == b->rows[0].cell.value[STUDY_COMMAND];
  return one;
}

// "precision AMP, batch/GPU 4"
static void print_name(FILE *f, const Chart *c, const ChartCurve *curve) {
  const StudyPlan *p = c->d->plan;
  const char *comma = "";
  for (int s = 0; s < p->num_settings; s++) {
    if (!tells(c, curve->block, s) || curve->cell.value[s] < 0) continue;
    if (s == STUDY_COMMAND && curve->block >= 0 && beside_one(&p->published[curve->block])) continue;
    const StudyValue *v = &p->settings[s].values[curve->cell.value[s]];
    fputs(comma, f);
    if (s != STUDY_COMMAND && isfinite(v->number)) {
      xml_print(f, p->settings[s].label);
      fputc(' ', f);
    }
    xml_print(f, s == STUDY_COMMAND ? v->text : v->name);
    comma = ", ";
  }
  if (curve->block >= 0) fputs(*comma ? ": " : "", f);
  if (curve->block >= 0) xml_print(f, p->published[curve->block].label);
  if (curve->block < 0 && !*comma) fputs("measured", f);
}

static void print_legend(FILE *f, const Chart *c, double top) {
  double y = top;
  for (int i = 0; i < c->num_curves; i++) {
    const ChartCurve *curve = &c->curves[i];
    const int colour = curve->colour % COLOURS;
    if (!curve->drawn) continue;
    if (c->plot->bars)
      fprintf(f, "<rect class=\"%s%d%s\" x=\"%d\" y=\"%.1f\" width=\"22\" height=\"10\"/>\n",
              curve->block < 0 ? "f" : "theirs c", colour, curve->block < 0 ? "" : " open", LEFT, y - 9);
    else
      fprintf(f, "<path class=\"%s c%d\" d=\"M%d %.1fh22\"/>\n", curve->block < 0 ? "line" : "theirs", colour, LEFT,
              y - 4);
    if (!c->plot->bars) print_mark(f, curve, LEFT + 11, y - 4);
    fprintf(f, "<text x=\"%d\" y=\"%.1f\">", LEFT + 30, y);
    print_name(f, c, curve);
    fputs("</text>\n", f);
    y += LEGEND_LINE;
  }
}

static bool print_chart(Chart *c, const char *path, Err *err) {
  const StudyPlot *plot = c->plot;
  const int panels = MAX(c->num_panels, 1); // one, where no command that is there uses their setting
  AtomicFile out;
  if (!file_begin(&out, path, err)) return false;
  const int height = HEAD + panels * plot->y.n * PANEL + LEGEND_LINE * c->num_curves + 12;
  fprintf(out.f,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
          "font-family=\"Helvetica, Arial, sans-serif\">\n%s<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n",
          WIDTH, height, WIDTH, height, style, WIDTH, height);
  print_text(out.f, LEFT, 32, "title", plot->title);
  double top = HEAD;
  for (int i = 0; i < plot->y.n; i++)
    for (int panel = 0; panel < panels; panel++) {
      print_panel(out.f, c, top, c->num_panels ? c->panels[panel] : -1, &plot->y.items[i]);
      top += PANEL;
    }
  print_legend(out.f, c, top + 14);
  fputs("</svg>\n", out.f);
  return file_commit(&out, err);
}

bool study_chart_write(const StudyData *d, const StudyPlot *plot, const char *path, Err *err) {
  const StudySetting *x = &d->plan->settings[plot->x];
  Chart c = {.d = d, .plot = plot, .numbers = !plot->bars && x->num_values > 0};
  for (int v = 0; v < x->num_values; v++)
    c.numbers &= isfinite(x->values[v].number) && (!plot->log_x || x->values[v].number > 0);
  c.xs = values_of(d, plot->x, &c.num_xs);
  if (c.numbers) sort_numbers(x, c.xs, c.num_xs);
  if (plot->panels >= 0) c.panels = values_of(d, plot->panels, &c.num_panels);
  find_curves(&c);
  const bool ok = print_chart(&c, path, err);
  free(c.xs);
  free(c.panels);
  return ok;
}
