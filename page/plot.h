// Curves and bars as one SVG file: panels one above the other, each with its own axes and legend.
#pragma once
#include <stdio.h>
#include "base/error.h"

typedef struct PlotSeries {
  const char *name;    // in the legend
  const double *x, *y; // x: not looked at for bars
  int n;               // points, x ascending; those that are not finite (or not above 0 on a log axis) leave a gap
  bool smooth;         // noisy: a running mean is drawn over the faint raw line
} PlotSeries;

typedef struct PlotPanel {
  const char *title, *x_label, *y_label;
  bool log_y;
  const PlotSeries *series;
  int num_series;
  // Bars instead of lines: group g has this name and holds y[g] of every series, side by side. NULL: lines over x.
  const char *const *groups;
} PlotPanel;

// Writes the panels under one title, replacing the file as a whole. A panel without points shows its empty axes.
bool plot_svg(const char *path, const char *title, const PlotPanel *panels, int num_panels, Err *err);

// One panel as an element of a page, `width` wide and with axes of as many units, without title and legend, and without
// a style: the page has one for svg.plot and its classes (tick, label, grid, axis, line, raw, middle, end), whose text
// is no larger than PLOT_EM.
enum { PLOT_EM = 16 };
void plot_print(FILE *f, const PlotPanel *p, int width);
enum { PLOT_COLOURS = 8 }; // series i of a panel has colour i % PLOT_COLOURS
