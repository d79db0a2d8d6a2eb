// Points and rectangles of a drawing.
#pragma once
#include <math.h>

typedef struct Point {
  float x, y; // pixels of the image
} Point;

typedef struct Rect {
  float x1, y1, x2, y2; // pixels of the image; x1 ≤ x2, y1 ≤ y2
} Rect;

static inline float rect_area(Rect r) { return (r.x2 - r.x1) * (r.y2 - r.y1); }
static inline float rect_overlap(Rect a, Rect b) { // area
  const float w = fminf(a.x2, b.x2) - fmaxf(a.x1, b.x1), h = fminf(a.y2, b.y2) - fmaxf(a.y1, b.y1);
  return w > 0 && h > 0 ? w * h : 0;
}

// Distance from a pixel's centre to the edge of a rectangle with round corners, negative inside.
static inline float rect_distance(Rect r, float radius, int x, int y) {
  const float dx = fabsf((float)x + 0.5f - (r.x1 + r.x2) / 2) - (r.x2 - r.x1) / 2 + radius;
  const float dy = fabsf((float)y + 0.5f - (r.y1 + r.y2) / 2) - (r.y2 - r.y1) / 2 + radius;
  return hypotf(fmaxf(dx, 0), fmaxf(dy, 0)) + fminf(fmaxf(dx, dy), 0) - radius;
}
