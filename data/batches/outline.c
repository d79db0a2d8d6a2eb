#include "data/batches/outline.h"
#include <math.h>

Outline outline_begin(const float map[6], double w, double h) {
  const double a = (double)map[0], b = (double)map[1], c = (double)map[2];
  const double d = (double)map[3], e = (double)map[4], f = (double)map[5], det = a * e - b * d;
  return (Outline){.to_canvas = {e / det, -b / det, (b * f - c * e) / det, -d / det, a / det, (c * d - a * f) / det},
                   .w = w,
                   .h = h,
                   .x1 = INFINITY,
                   .y1 = INFINITY,
                   .x2 = -INFINITY,
                   .y2 = -INFINITY,
                   .left = INFINITY,
                   .top = INFINITY,
                   .right = -INFINITY,
                   .bottom = -INFINITY};
}

void outline_point(const Outline *o, const double xy[2], double at[2]) {
  const double *m = o->to_canvas;
  at[0] = m[0] * xy[0] + m[1] * xy[1] + m[2];
  at[1] = m[3] * xy[0] + m[4] * xy[1] + m[5];
}

double outline_scale(const Outline *o) {
  return fabs(o->to_canvas[0] * o->to_canvas[4] - o->to_canvas[1] * o->to_canvas[3]);
}

// ---- cutting off ----------------------------------------------------------------------------------------------------

// Sutherland and Hodgman, "Reentrant polygon clipping", 1974: a stage for each side of the canvas hands what is left of
// the polygon to the next, point by point, so that it needs no memory. What a polygon that is not convex gains along a
// side has no area.
typedef struct OutlinePoint {
  double x, y;
} OutlinePoint;
enum { SIDES = 4 };
typedef struct CutStage {
  bool any;
  OutlinePoint first, last;
} CutStage;
typedef struct Cut {
  Outline *o;
  CutStage stage[SIDES + 1]; // the last adds up what is left
  double twice;              // its area, signed
} Cut;

// Distance to a side, positive inside.
static double inside(const Outline *o, int side, OutlinePoint p) {
  switch (side) {
  case 0: return p.x;
  case 1: return p.y;
  case 2: return o->w - p.x;
  default: return o->h - p.y;
  }
}

// Cut at a side, a point is there but for rounding.
static void extend(Outline *o, OutlinePoint p) {
  o->x1 = fmin(o->x1, fmax(p.x, 0));
  o->y1 = fmin(o->y1, fmax(p.y, 0));
  o->x2 = fmax(o->x2, fmin(p.x, o->w));
  o->y2 = fmax(o->y2, fmin(p.y, o->h));
}

static void add_point(Cut *c, int side, OutlinePoint p);

// The edge from a to b: what of it a stage passes on, without a.
static void add_edge(Cut *c, int side, OutlinePoint a, OutlinePoint b) {
  if (side == SIDES) {
    c->twice += a.x * b.y - b.x * a.y;
    return;
  }
  const double from = inside(c->o, side, a), to = inside(c->o, side, b);
  if ((from >= 0) != (to >= 0)) {
    const double t = from / (from - to);
    add_point(c, side + 1, (OutlinePoint){a.x + t * (b.x - a.x), a.y + t * (b.y - a.y)});
  }
  if (to >= 0) add_point(c, side + 1, b);
}

static void add_point(Cut *c, int side, OutlinePoint p) {
  CutStage *s = &c->stage[side];
  if (side == SIDES) extend(c->o, p);
  if (s->any)
    add_edge(c, side, s->last, p);
  else
    s->first = p;
  s->any = true;
  s->last = p;
}

// The first point was only remembered; the edge back to it brings it to the next stage.
static void close_polygon(Cut *c) {
  for (int side = 0; side <= SIDES; side++)
    if (c->stage[side].any) add_edge(c, side, c->stage[side].last, c->stage[side].first);
}

// ---- shapes ---------------------------------------------------------------------------------------------------------

void outline_polygon(Outline *o, const double *xy, int points) {
  Cut cut = {.o = o};
  double twice = 0, last[2], at[2];
  if (points == 0) return;
  outline_point(o, xy + 2 * (points - 1), last);
  for (int i = 0; i < points; i++) {
    outline_point(o, xy + 2 * i, at);
    twice += last[0] * at[1] - at[0] * last[1];
    last[0] = at[0];
    last[1] = at[1];
    o->left = fmin(o->left, at[0]);
    o->top = fmin(o->top, at[1]);
    o->right = fmax(o->right, at[0]);
    o->bottom = fmax(o->bottom, at[1]);
    add_point(&cut, 0, (OutlinePoint){at[0], at[1]});
  }
  close_polygon(&cut);
  o->whole += fabs(twice) / 2;
  o->visible += fabs(cut.twice) / 2;
}

void outline_mask(Outline *o, const Rle *mask) {
  uint32_t at = 0;
  for (int run = 0; run < mask->n; at += mask->runs[run++]) {
    if (run % 2 == 0) continue;
    uint32_t left = mask->runs[run]; // goes down a column, and may continue at the top of the next
    double x = at / (uint32_t)mask->h, y = at % (uint32_t)mask->h;
    while (left > 0) {
      // Whole columns are one rectangle.
      const uint32_t columns = y == 0 && left >= (uint32_t)mask->h ? left / (uint32_t)mask->h : 1;
      const double end = fmin(y + left, mask->h);
      outline_polygon(o, (double[]){x, y, x + columns, y, x + columns, end, x, end}, 4);
      left -= columns > 1 ? columns * (uint32_t)mask->h : (uint32_t)(end - y);
      x += columns;
      y = 0;
    }
  }
}
