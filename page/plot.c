#include "page/plot.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "page/xml.h"

// Okabe and Ito's colours, told apart under every common colour blindness; gray in place of yellow, which is faint on
// white.
static const char *const colours[PLOT_COLOURS] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                  "#56b4e9", "#e69f00", "#555555", "#000000"};

// LEFT is what is left of the axes at least, Y_LABEL the base line of the label that is written upwards there.
enum { WIDTH = 860, PANEL = 300, HEAD = 50, LEFT = 78, Y_LABEL = 18, RIGHT = 24, TOP = 40, BOTTOM = 52 };
enum { EM = 12, GAP = 8, TICK = 32, MAX_TICKS = 32 }; // of a file's text; ticks to axis; bytes of a tick's label

static void print_text(FILE *f, double x, double y, const char *style, const char *text) {
  fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, style);
  xml_print(f, text);
  fputs("</text>\n", f);
}

typedef struct PlotAxis {
  double left;      // where it begins on the picture; of x alone
  double pixels;    // along it
  double low, high; // of the data; of their decimal logarithms on a log axis
  bool log;
  int n;
  double ticks[MAX_TICKS]; // as low and high
} PlotAxis;

static bool usable(const PlotAxis *a, double v) { return isfinite(v) && (!a->log || v > 0); }
static double scaled(const PlotAxis *a, double v) { return a->log ? log10(v) : v; }
static double fraction(const PlotAxis *a, double v) { return (scaled(a, v) - a->low) / (a->high - a->low); }

static void add_tick(PlotAxis *a, double v) {
  double slack = 1e-9 * (a->high - a->low);
  if (a->n < MAX_TICKS && v >= a->low - slack && v <= a->high + slack) a->ticks[a->n++] = v;
}

// Steps of 1, 2 or 5 times a power of ten, about `wanted` of them.
static double nice_step(double range, int wanted) {
  double raw = range / wanted, power = pow(10, floor(log10(raw))), lead = raw / power;
  return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
}

// More than a decade and a half marks powers of ten, less 1, 2 and 5 of each; so little that this is one mark at most,
// even steps, as a linear axis has.
static void set_log_ticks(PlotAxis *a, int wanted) {
  static const double leads[] = {1, 2, 5};
  double decades = a->high - a->low, margin = 0.03 * decades;
  a->low -= margin;
  a->high += margin;
  int stride = MAX((int)ceil(decades / wanted), 1);
  for (int p = (int)floor(a->low); p <= (int)ceil(a->high); p++)
    for (int i = 0; i < (decades < 1.5 ? 3 : 1); i++)
      if (p % stride == 0) add_tick(a, p + log10(leads[i]));
  if (a->n > 1) return;
  a->n = 0;
  const double low = pow(10, a->low), high = pow(10, a->high), step = nice_step(high - low, wanted);
  for (double i = ceil(low / step); i * step <= high; i++) add_tick(a, log10(i * step));
}

// Widens the range to whole steps and marks them.
static void set_ticks(PlotAxis *a, int wanted, bool widen) {
  if (!(a->high > a->low)) {
    double pad = a->log ? 0.5 : a->low == 0 ? 1 : 0.1 * fabs(a->low);
    a->low -= a->low == 0 && !a->log ? 0 : pad; // nothing that is drawn is below zero
    a->high += pad;
  }
  if (a->log) {
    set_log_ticks(a, wanted);
    return;
  }
  double step = nice_step(a->high - a->low, wanted);
  if (widen) {
    a->low = floor(a->low / step + 1e-9) * step;
    a->high = ceil(a->high / step - 1e-9) * step;
  }
  for (double i = ceil(a->low / step - 1e-9); i * step <= a->high + 1e-9 * step; i++) add_tick(a, i * step);
}

static void format_tick(const PlotAxis *a, double tick, char *out, size_t size) {
  double v = a->log ? pow(10, tick) : tick;
  if (fabs(v) < 1e-12 * (fabs(a->high) + fabs(a->low)) && !a->log) v = 0; // -0 and what rounding leaves of it
  if (fabs(v) >= 1e4 && fabs(v) < 1e6)
    snprintf(out, size, "%gk", v / 1e3);
  else if (fabs(v) >= 1e6 && fabs(v) < 1e9)
    snprintf(out, size, "%gM", v / 1e6);
  else
    snprintf(out, size, "%.4g", v);
}

// Of a tick's label in em, as DejaVu Sans has it, which is wider than most.
static double tick_width(const char *label) {
  double em = 0;
  for (; *label; label++) em += *label == '.' || *label == '-' ? 0.36 : 0.64;
  return em;
}

// Room for the y label, of which a quarter of an em is below its base line, and beside it for the widest of the ticks.
static double room_for(const PlotAxis *y, int em) {
  const double below = 0.25, apart = 0.3;
  char label[TICK];
  double widest = 0;
  for (int i = 0; i < y->n; i++) {
    format_tick(y, y->ticks[i], label, sizeof label);
    widest = fmax(widest, tick_width(label));
  }
  return fmax(LEFT, ceil(Y_LABEL + em * (below + apart + widest) + GAP));
}

// The range of all that can be drawn, on a picture of that width.
static void set_axes(const PlotPanel *p, int width, int em, PlotAxis *x, PlotAxis *y) {
  const double h = PANEL - TOP - BOTTOM;
  *x = (PlotAxis){.low = INFINITY, .high = -INFINITY};
  *y = (PlotAxis){.pixels = h, .low = INFINITY, .high = -INFINITY, .log = p->log_y};
  for (int s = 0; s < p->num_series; s++) {
    for (int i = 0; i < p->series[s].n; i++) {
      double px = p->groups ? i : p->series[s].x[i], py = p->series[s].y[i];
      if (!usable(x, px) || !usable(y, py)) continue;
      x->low = fmin(x->low, px);
      x->high = fmax(x->high, px);
      y->low = fmin(y->low, scaled(y, py));
      y->high = fmax(y->high, scaled(y, py));
    }
  }
  if (p->groups) y->low = 0; // bars stand on it
  if (!isfinite(x->low)) *x = (PlotAxis){.low = 0, .high = 1};
  if (!isfinite(y->low)) *y = (PlotAxis){.pixels = h, .low = 0, .high = p->log_y ? 0 : 1, .log = p->log_y};
  if (x->low > 0 && x->low < 0.5 * x->high) x->low = 0; // zero is worth showing when it is near
  if (!y->log && y->low > 0 && y->low < 0.5 * y->high) y->low = 0;
  if (!p->groups) set_ticks(x, width > 600 ? 8 : 5, false);
  set_ticks(y, 5, true);
  x->left = room_for(y, em);
  x->pixels = width - x->left - RIGHT;
}

// Disks at the points that no line reaches, because those beside them cannot be drawn or are not there: a single
// evaluation is seen, too.
static void print_lone_points(FILE *f, const PlotSeries *s, const PlotAxis *ax, const PlotAxis *ay, double top,
                              const char *colour) {
  const double w = ax->pixels, h = ay->pixels;
  bool last = false;
  for (int i = 0; i < s->n; i++) {
    bool here = usable(ax, s->x[i]) && usable(ay, s->y[i]);
    bool next = i + 1 < s->n && usable(ax, s->x[i + 1]) && usable(ay, s->y[i + 1]);
    if (here && !last && !next)
      fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", ax->left + w * fraction(ax, s->x[i]),
              top + TOP + h * (1 - fraction(ay, s->y[i])), colour);
    last = here;
  }
}

// A line through the usable points. Where points crowd, each column of pixels keeps its extremes, so that the file
// stays small and spikes stay visible.
static void print_line(FILE *f, const PlotSeries *s, const double *y, const PlotAxis *ax, const PlotAxis *ay,
                       double top, const char *colour, const char *style) {
  const double w = ax->pixels, h = ay->pixels;
  bool pen_down = false;
  fprintf(f, "<path class=\"%s\" stroke=\"%s\" d=\"", style, colour);
  for (int i = 0; i < s->n;) {
    if (!usable(ax, s->x[i]) || !usable(ay, y[i])) {
      pen_down = false;
      i++;
      continue;
    }
    double x = w * fraction(ax, s->x[i]), column = floor(x), first = y[i], low = first, high = first, last = first;
    int points = 0;
    for (; i < s->n && usable(ax, s->x[i]) && usable(ay, y[i]) && floor(w * fraction(ax, s->x[i])) == column; i++) {
      low = fmin(low, y[i]);
      high = fmax(high, y[i]);
      last = y[i];
      points++;
    }
    double values[] = {last < first ? high : low, last < first ? low : high};
    for (int k = 0; k < (points > 1 ? 2 : 1); k++) {
      double py = top + TOP + h * (1 - fraction(ay, values[k]));
      fprintf(f, pen_down ? "L%.1f %.1f" : "M%.1f %.1f", ax->left + x, py);
      pen_down = true;
    }
  }
  fputs("\"/>\n", f);
}

// Mean over a window of a fortieth of the points, centred; not finite where the raw value is not.
static double *running_mean(const PlotSeries *s, const PlotAxis *y) {
  int reach = MAX(s->n / 80, 1);
  double *mean = xmalloc((size_t)s->n * sizeof *mean), sum = 0;
  int count = 0, from = 0, to = 0;
  for (int i = 0; i < s->n; i++) {
    for (; to < MIN(i + reach + 1, s->n); to++)
      if (usable(y, s->y[to])) {
        sum += scaled(y, s->y[to]);
        count++;
      }
    for (; from < MAX(i - reach, 0); from++)
      if (usable(y, s->y[from])) {
        sum -= scaled(y, s->y[from]);
        count--;
      }
    mean[i] = !usable(y, s->y[i]) ? NAN : y->log ? pow(10, sum / count) : sum / count;
  }
  return mean;
}

// Side by side in their group's share of the width, of which they take four fifths; names below.
static void print_bars(FILE *f, const PlotPanel *p, const PlotAxis *ax, const PlotAxis *ay, double top) {
  int groups = p->num_series ? p->series[0].n : 0;
  double share = ax->pixels / MAX(groups, 1), width = 0.8 * share / p->num_series;
  double h = ay->pixels;
  for (int g = 0; g < groups; g++) {
    double left = ax->left + (g + 0.1) * share;
    for (int s = 0; s < p->num_series; s++) {
      double v = p->series[s].y[g], height = usable(ay, v) ? h * fraction(ay, v) : 0;
      fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", left + s * width,
              top + TOP + h - height, 0.94 * width, height, colours[s % COUNT(colours)]);
    }
    print_text(f, left + 0.4 * share, top + TOP + h + 18, "tick middle", p->groups[g]);
  }
}

static void print_legend(FILE *f, const PlotPanel *p, double top) {
  double x = WIDTH - RIGHT;
  for (int i = p->num_series - 1; i >= 0; i--) {
    x -= 8.4 * (double)strlen(p->series[i].name) + 36; // about the width of a letter at 12 pixels, line and gap
    fprintf(f, "<path class=\"line\" stroke=\"%s\" d=\"M%.1f %.1fh18\"/>\n", colours[i % COUNT(colours)], x,
            top + TOP - 16);
    print_text(f, x + 24, top + TOP - 12, "legend", p->series[i].name);
  }
}

// With the title where it is not NULL.
static void print_axes(FILE *f, const PlotPanel *p, const char *title, const PlotAxis *ax, const PlotAxis *ay,
                       double top) {
  const double left = ax->left, w = ax->pixels, h = ay->pixels;
  char label[TICK];
  for (int i = 0; i < ay->n; i++) {
    double y = top + TOP + h * (1 - (ay->ticks[i] - ay->low) / (ay->high - ay->low));
    fprintf(f, "<path class=\"grid\" d=\"M%.0f %.1fh%.1f\"/>\n", left, y, w);
    format_tick(ay, ay->ticks[i], label, sizeof label);
    print_text(f, left - GAP, y + 4, "tick end", label);
  }
  for (int i = 0; i < ax->n; i++) {
    double x = left + w * (ax->ticks[i] - ax->low) / (ax->high - ax->low);
    fprintf(f, "<path class=\"grid\" d=\"M%.1f %.1fv%.1f\"/>\n", x, top + TOP, h);
    format_tick(ax, ax->ticks[i], label, sizeof label);
    print_text(f, x, top + TOP + h + 18, "tick middle", label);
  }
  fprintf(f, "<path class=\"axis\" d=\"M%.0f %.1fv%.1fh%.1f\"/>\n", left, top + TOP, h, w);
  if (title) print_text(f, LEFT, top + TOP - 12, "panel", title);
  print_text(f, left + w / 2, top + TOP + h + 38, "label middle", p->x_label);
  fprintf(f, "<g transform=\"translate(%d %.1f) rotate(-90)\">", Y_LABEL, top + TOP + h / 2);
  print_text(f, 0, 0, "label middle", p->y_label);
  fputs("</g>\n", f);
}

// Axes and what is in them; em: of the text.
static void print_field(FILE *f, const PlotPanel *p, const char *title, int width, int em, double top) {
  PlotAxis x, y;
  set_axes(p, width, em, &x, &y);
  print_axes(f, p, title, &x, &y, top);
  if (p->groups) print_bars(f, p, &x, &y, top);
  for (int i = 0; i < p->num_series && !p->groups; i++) {
    const PlotSeries *s = &p->series[i];
    const char *colour = colours[i % COUNT(colours)];
    print_line(f, s, s->y, &x, &y, top, colour, s->smooth ? "raw" : "line");
    print_lone_points(f, s, &x, &y, top, colour);
  }
  for (int i = 0; i < p->num_series; i++) { // above all raw lines
    const PlotSeries *s = &p->series[i];
    if (!s->smooth || p->groups) continue;
    double *mean = running_mean(s, &y);
    print_line(f, s, mean, &x, &y, top, colours[i % COUNT(colours)], "line");
    free(mean);
  }
}

static void print_panel(FILE *f, const PlotPanel *p, double top) {
  print_field(f, p, p->title, WIDTH, EM, top);
  print_legend(f, p, top);
}

void plot_print(FILE *f, const PlotPanel *p, int width) {
  const int top = TOP - 12; // without title and legend
  fprintf(f, "<svg class=\"plot\" role=\"img\" viewBox=\"0 %d %d %d\"><title>", top, width, PANEL - top);
  xml_print(f, p->title);
  fputs("</title>\n", f);
  print_field(f, p, NULL, width, PLOT_EM, 0);
  fputs("</svg>\n", f);
}

bool plot_svg(const char *path, const char *title, const PlotPanel *panels, int num_panels, Err *err) {
  AtomicFile out;
  if (!file_begin(&out, path, err)) return false;
  FILE *f = out.f;
  int height = HEAD + num_panels * PANEL;
  fprintf(f,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
          "font-family=\"Helvetica, Arial, sans-serif\">\n",
          WIDTH, height, WIDTH, height);
  fputs("<style>\n"
        "text { fill: #333 } .title { font-size: 18px; font-weight: bold } .panel { font-size: 14px; font-weight: bold "
        "}\n"
        ".label, .tick, .legend { font-size: 12px } .tick { fill: #666 }\n"
        ".middle { text-anchor: middle } .end { text-anchor: end }\n"
        "path { fill: none; stroke-linejoin: round; stroke-linecap: round } .grid { stroke: #e8e8e8 } .axis { stroke: "
        "#999 }\n"
        ".line { stroke-width: 1.8 } .raw { stroke-width: 1; opacity: 0.25 }\n"
        "</style>\n",
        f);
  fprintf(f, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", WIDTH, height);
  print_text(f, LEFT, 32, "title", title);
  for (int i = 0; i < num_panels; i++) print_panel(f, &panels[i], HEAD + i * PANEL);
  fputs("</svg>\n", f);
  return file_commit(&out, err);
}
