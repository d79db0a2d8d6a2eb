#include "data/coco/polygons.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "data/coco/spans.h"

// A corner of an outline; `next` is the index of the one after it.
typedef struct Corner {
  int x, y, next;
} Corner;

// A slit, from the upper left corner of a hole's first column westwards to the first outline in its way.
typedef struct Slit {
  int hole;     // node of that corner
  int from;     // first node of the edge that it meets
  int x;        // x of that point; its y is the corner's
  int distance; // from node `from`, pixels
} Slit;

typedef struct Outlines {
  Corner *nodes;
  int n;     // number of nodes
  int *edge; // [h, w + 1]: the node that begins the edge along the left side of this pixel, plus 1; 0: no edge
  int h, w;
} Outlines;

// Links the corners into rings of nodes. first[i] is a node of outline i: for a hole, the upper left corner of its
// first column.
static void link_nodes(Outlines *o, const Contours *c, int *first) {
  const double *xy = c->xy;
  for (int i = 0; i < c->parts; i++) {
    const int begin = o->n;
    first[i] = begin;
    for (int k = 0; k < c->points[i]; k++, xy += 2, o->n++) {
      const Corner *best = &o->nodes[first[i]];
      o->nodes[o->n] = (Corner){(int)xy[0], (int)xy[1], o->n + 1};
      if (xy[0] < best->x || (xy[0] == best->x && xy[1] < best->y)) first[i] = o->n;
    }
    o->nodes[o->n - 1].next = begin;
  }
}

static void mark_edges(Outlines *o) {
  for (int i = 0; i < o->n; i++) {
    const Corner *p = &o->nodes[i], *q = &o->nodes[p->next];
    if (p->x != q->x) continue;
    for (int y = MIN(p->y, q->y); y < MAX(p->y, q->y); y++) o->edge[(size_t)y * (o->w + 1) + p->x] = i + 1;
  }
}

// Both pixels along the first step belong to the mask, because a pixel outside the mask would be part of the hole,
// further to the left. So do both pixels to the right of the point where it ends.
static Slit slit_of(const Outlines *o, int hole) {
  const Corner *corner = &o->nodes[hole];
  const int *above = o->edge + (size_t)(corner->y - 1) * (o->w + 1), *below = above + o->w + 1;
  int x = corner->x - 1;
  while (!above[x] && !below[x]) x--;
  const int from = (above[x] ? above[x] : below[x]) - 1;
  return (Slit){hole, from, x, abs(o->nodes[from].y - corner->y)};
}

// If several slits meet an edge, the one farthest from its start comes first.
static int compare_slits(const void *a, const void *b) {
  const Slit *p = a, *q = b;
  if (p->from != q->from) return p->from < q->from ? -1 : 1;
  return (p->distance < q->distance) - (p->distance > q->distance);
}

static int add_node(Outlines *o, int x, int y, int next) {
  o->nodes[o->n] = (Corner){x, y, next};
  return o->n++;
}

// Turns from → end into from → met → corner → … → corner → met → end, without repeating a point that is already there.
static void cut(Outlines *o, const Slit *s) {
  Corner *from = &o->nodes[s->from], *corner = &o->nodes[s->hole];
  const int end = from->next, y = corner->y;
  const bool at_end = o->nodes[end].x == s->x && o->nodes[end].y == y;
  const int back = at_end ? end : add_node(o, s->x, y, end);
  const int start = add_node(o, corner->x, y, corner->next);
  corner->next = back;
  from->next = s->distance == 0 ? start : add_node(o, s->x, y, start);
}

static Contours gather(const Outlines *o, const int *first, const bool *hole, int loops) {
  Contours c = {.points = xmalloc((size_t)loops * sizeof *c.points), .xy = xmalloc(2 * (size_t)o->n * sizeof *c.xy)};
  double *xy = c.xy;
  for (int i = 0; i < loops; i++) {
    if (hole[i]) continue;
    const double *begin = xy;
    int at = first[i];
    do {
      *xy++ = o->nodes[at].x;
      *xy++ = o->nodes[at].y;
      at = o->nodes[at].next;
    } while (at != first[i]);
    c.points[c.parts++] = (int)((xy - begin) / 2);
  }
  return c;
}

// Outlines, some of which are holes, in an image of h × w pixels.
static Contours join_holes(const Contours *c, const bool *hole, int holes, int h, int w) {
  size_t points = 0;
  for (int i = 0; i < c->parts; i++) points += (size_t)c->points[i];
  Outlines o = {.nodes = xmalloc((points + 3 * (size_t)holes) * sizeof *o.nodes),
                .edge = xcalloc((size_t)h * (size_t)(w + 1), sizeof *o.edge),
                .h = h,
                .w = w};
  int *first = xmalloc((size_t)c->parts * sizeof *first), n = 0;
  Slit *slits = xmalloc((size_t)holes * sizeof *slits);
  link_nodes(&o, c, first);
  mark_edges(&o);
  for (int i = 0; i < c->parts; i++)
    if (hole[i]) slits[n++] = slit_of(&o, first[i]);
  qsort(slits, (size_t)n, sizeof *slits, compare_slits);
  for (int i = 0; i < n; i++) cut(&o, &slits[i]);
  Contours joined = gather(&o, first, hole, c->parts);
  free(slits);
  free(first);
  free(o.edge);
  free(o.nodes);
  return joined;
}

static Contours outlines_of(const uint8_t *mask, int h, int w) {
  Contours c = contours_trace_all(mask, h, w);
  bool *hole = xmalloc((size_t)c.parts * sizeof *hole);
  const double *xy = c.xy;
  int holes = 0;
  for (int i = 0; i < c.parts; i++) {
    holes += hole[i] = contour_area(xy, c.points[i]) < 0;
    xy += 2 * (size_t)c.points[i];
  }
  if (holes) {
    Contours joined = join_holes(&c, hole, holes, h, w);
    contours_free(&c);
    c = joined;
  }
  free(hole);
  return c;
}

Contours polygons_of(const Rle *mask) {
  Spans spans = spans_of(mask, 0, 0);
  const PixelRect r = spans_extent(&spans);
  const int h = r.y2 - r.y1, w = r.x2 - r.x1;
  uint8_t *bytes = xmalloc((size_t)h * (size_t)w);
  spans_bytes(&spans, r, bytes);
  Contours c = outlines_of(bytes, h, w);
  size_t points = 0;
  for (int i = 0; i < c.parts; i++) points += (size_t)c.points[i];
  for (size_t i = 0; i < points; i++) {
    c.xy[2 * i] += r.x1;
    c.xy[2 * i + 1] += r.y1;
  }
  free(bytes);
  spans_free(&spans);
  return c;
}
