// Polygon rasterisation by the even-odd rule, bit for bit equal to COCO's maskApi (Dollár and Lin, 2014, rleFrPoly), on
// the CPU and CUDA. The boundary is drawn on a grid POLYGON_FINE times finer; where it crosses the middle of a pixel
// column, that column's fill toggles from there down. Rounding is maskApi's, including truncation towards zero. Toggles
// are collected per column rather than per step: an edge gives the same ones, in time proportional to the number of
// columns.
#pragma once
#include <stdbool.h>
#include "base/basics.h"
#include "base/rng.h" // HD

// reach: in pixels; keeps integers in range for absurd coordinates
enum { POLYGON_FINE = 5, POLYGON_REACH = 1000000 };

// From pixels to the fine grid.
static inline HD int polygon_fine(double pixels) {
  double reach = pixels > POLYGON_REACH ? POLYGON_REACH : pixels > -POLYGON_REACH ? pixels : -POLYGON_REACH;
  return (int)(POLYGON_FINE * reach + .5);
}

// An edge on the fine grid: points (x, y) are computed from the end with the lower major coordinate, so that both
// directions of an edge give the same points.
typedef struct PolygonEdge {
  int x, y;       // that end
  int steps;      // along the major axis, one point each
  bool steep;     // the major axis is y
  double slope;   // minor per major
  int first, end; // columns of pixels whose middle is crossed: first … end - 1
} PolygonEdge;

// The minor coordinate of point t.
static inline HD int polygon_minor(const PolygonEdge *e, int t) {
  return (int)((e->steep ? e->x : e->y) + e->slope * t + .5);
}

// The edge between two points, over pixels whose columns are 0 … w - 1.
static inline HD PolygonEdge polygon_edge(int x0, int y0, int x1, int y1, int w) {
  int dx = x1 > x0 ? x1 - x0 : x0 - x1, dy = y1 > y0 ? y1 - y0 : y0 - y1;
  PolygonEdge e;
  e.steep = dy > dx;
  bool backward = e.steep ? y0 > y1 : x0 > x1;
  e.x = backward ? x1 : x0;
  e.y = backward ? y1 : y0;
  e.steps = e.steep ? dy : dx;
  int rise = e.steep ? x1 - x0 : y1 - y0;
  e.slope = (double)(backward ? -rise : rise) / (e.steps > 0 ? e.steps : 1);
  int a = e.steep ? polygon_minor(&e, 0) : e.x, b = e.steep ? polygon_minor(&e, e.steps) : e.x + e.steps;
  int low = MAX(MIN(a, b), 0), high = MAX(MAX(a, b), 0);
  // A column's middle is fine cell FINE · column + FINE / 2; the step from it to the next cell crosses it.
  e.first = (low - POLYGON_FINE / 2 + POLYGON_FINE - 1) / POLYGON_FINE;
  e.end = MIN((high - POLYGON_FINE / 2 + POLYGON_FINE - 1) / POLYGON_FINE, w);
  return e;
}

// The last point of a steep edge before it crosses the middle of a column: sought from where a line would, for x is
// monotone in t.
static inline HD int polygon_last_before(const PolygonEdge *e, int middle) {
  const double line = (middle + .5 - e->x) / e->slope; // NaN if the edge is vertical
  int t = line > 0 ? (int)MIN(line, (double)(e->steps - 1)) : 0;
  while (t > 0 && (polygon_minor(e, t) <= middle) != (e->slope > 0)) t--;
  while (t + 1 < e->steps && (polygon_minor(e, t + 1) <= middle) == (e->slope > 0)) t++;
  return t;
}

// From which of h rows on (h = none) the edge toggles `column`, one of first … end - 1: the first whose middle is at or
// below the higher point of the step.
static inline HD int polygon_crossing(const PolygonEdge *e, int column, int h) {
  int middle = POLYGON_FINE * column + POLYGON_FINE / 2, y;
  if (e->steep) {
    y = e->y + polygon_last_before(e, middle);
  } else {
    int before = polygon_minor(e, middle - e->x), after = polygon_minor(e, middle - e->x + 1);
    y = MIN(before, after);
  }
  return MIN(MAX(y + POLYGON_FINE / 2, 0) / POLYGON_FINE, h);
}
