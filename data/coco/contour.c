#include "data/coco/contour.h"
#include <stdlib.h>
#include "base/alloc.h"

typedef struct Tracer {
  const uint8_t *mask;
  int h, w;
  uint8_t *seen; // [h, w]: the crack above this pixel belongs to a traced loop
  int *points;
  double *xy;
  size_t parts, parts_cap, coords, coords_cap;
} Tracer;

static bool inside(const Tracer *t, int y, int x) {
  return y >= 0 && y < t->h && x >= 0 && x < t->w && t->mask[(size_t)y * t->w + x];
}

static void add_point(Tracer *t, int x, int y) {
  array_reserve((void **)&t->xy, &t->coords_cap, t->coords + 2, sizeof *t->xy);
  t->xy[t->coords++] = x;
  t->xy[t->coords++] = y;
}

// Follows the cracks eastwards from the upper left corner of a pixel whose upper neighbour is outside, keeping the mask
// on the right, and records the corners. Where two pixels of the mask meet only at a corner, the path does not cross
// over. Returns the area on its right: negative around a hole.
static int64_t trace_loop(Tracer *t, int x0, int y0) {
  enum { EAST, SOUTH, WEST, NORTH, DIRECTIONS, RIGHT = 1, LEFT = 3 };
  static const int dx[] = {1, 0, -1, 0}, dy[] = {0, 1, 0, -1};
  // The pixel ahead on the right, relative to the corner.
  static const int right_x[] = {0, -1, -1, 0}, right_y[] = {0, 0, -1, -1};
  int x = x0, y = y0, d = EAST;
  int64_t area = 0;
  do {
    if (d == EAST) t->seen[(size_t)y * t->w + x] = 1;
    area -= (int64_t)y * dx[d];
    x += dx[d];
    y += dy[d];
    int l = (d + LEFT) % DIRECTIONS; // the pixel ahead on the left is the right one of that direction
    if (!inside(t, y + right_y[d], x + right_x[d])) {
      add_point(t, x, y);
      d = (d + RIGHT) % DIRECTIONS;
    } else if (inside(t, y + right_y[l], x + right_x[l])) {
      add_point(t, x, y);
      d = l;
    }
  } while (x != x0 || y != y0 || d != EAST);
  return area;
}

// All loops, or those before the first hole.
static Contours trace(const uint8_t *mask, int h, int w, bool holes, bool *hole) {
  Tracer t = {.mask = mask, .h = h, .w = w, .seen = xcalloc((size_t)h * w, 1)};
  *hole = false;
  for (int y = 0; y < h && (holes || !*hole); y++) {
    for (int x = 0; x < w && (holes || !*hole); x++) {
      if (!inside(&t, y, x) || inside(&t, y - 1, x) || t.seen[(size_t)y * t.w + x]) continue;
      size_t first = t.coords;
      *hole |= trace_loop(&t, x, y) < 0;
      array_reserve((void **)&t.points, &t.parts_cap, t.parts + 1, sizeof *t.points);
      t.points[t.parts++] = (int)((t.coords - first) / 2);
    }
  }
  free(t.seen);
  return (Contours){(int)t.parts, t.points, t.xy};
}

bool contours_trace(Contours *c, const uint8_t *mask, int h, int w) {
  bool hole;
  *c = trace(mask, h, w, false, &hole);
  if (hole) contours_free(c);
  return !hole;
}

Contours contours_trace_all(const uint8_t *mask, int h, int w) {
  bool hole;
  return trace(mask, h, w, true, &hole);
}

double contour_area(const double *xy, int points) {
  double twice = 0;
  for (int i = 0; i < points; i++) {
    const double *p = xy + 2 * (size_t)i, *q = i + 1 < points ? p + 2 : xy;
    twice += p[0] * q[1] - q[0] * p[1];
  }
  return twice / 2;
}

void contours_free(Contours *c) {
  free(c->points);
  free(c->xy);
  *c = (Contours){0};
}
