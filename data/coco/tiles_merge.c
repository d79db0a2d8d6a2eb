#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/tiles.h"

// A detection in pixels of the image.
typedef struct TileView {
  const CocoResult *from;
  int tile;
  Spans mask;
  Spans region;     // compared with others: the mask or, if that is empty, the box
  PixelRect extent; // of region and box
  double box[4];    // x1 y1 x2 y2
  int64_t area;     // of region
  bool whole;       // touches no side of its tile beyond which the image continues
  bool taken;       // already part of an object
} TileView;

typedef struct Views {
  const TileDetections *found;
  int tiles, h, w;
  TileView *items; // tile by tile
  int n;
  int *first; // [tiles + 1] the first view of each tile
} Views;

// ---- detections -------------------------------------------------------------------------------------------------

// A detection that ends within this many pixels of a tile's side counts as cut by it, because networks are not exact.
static int margin(int side) { return (side + 99) / 100; }

static PixelRect pixels_of(const double box[4], PixelRect within) {
  PixelRect r;
  r.x1 = (int)fmax(within.x1, fmin(floor(box[0]), within.x2));
  r.y1 = (int)fmax(within.y1, fmin(floor(box[1]), within.y2));
  r.x2 = (int)fmax(r.x1, fmin(ceil(box[2]), within.x2));
  r.y2 = (int)fmax(r.y1, fmin(ceil(box[3]), within.y2));
  return r;
}

static Spans filled(PixelRect r) {
  Spans s = {.n = rect_empty(r) ? 0 : r.x2 - r.x1};
  s.items = xmalloc((size_t)s.n * sizeof *s.items);
  for (int i = 0; i < s.n; i++) s.items[i] = (Span){r.x1 + i, r.y1, r.y2};
  return s;
}

static PixelRect hull(PixelRect a, PixelRect b) {
  if (rect_empty(a)) return b;
  if (rect_empty(b)) return a;
  return (PixelRect){MIN(a.x1, b.x1), MIN(a.y1, b.y1), MAX(a.x2, b.x2), MAX(a.y2, b.y2)};
}

// The tile borders that a detection touches and beyond which `seen` continues, in the detection's rows or columns.
static bool cut_for(const TileView *v, PixelRect tile, PixelRect seen) {
  const PixelRect e = v->extent;
  const int mx = margin(tile.x2 - tile.x1), my = margin(tile.y2 - tile.y1);
  const bool same_rows = e.y1 < seen.y2 && e.y2 > seen.y1, above = e.x1 < seen.x2 && e.x2 > seen.x1;
  return (same_rows && ((e.x1 - tile.x1 < mx && seen.x1 < tile.x1 && seen.x2 > tile.x1) ||
                        (tile.x2 - e.x2 < mx && seen.x2 > tile.x2 && seen.x1 < tile.x2))) ||
         (above && ((e.y1 - tile.y1 < my && seen.y1 < tile.y1 && seen.y2 > tile.y1) ||
                    (tile.y2 - e.y2 < my && seen.y2 > tile.y2 && seen.y1 < tile.y2)));
}

static TileView view_of(const CocoResult *r, int tile, PixelRect at, int h, int w) {
  TileView v = {.from = r, .tile = tile};
  for (int k = 0; k < 4; k++) v.box[k] = r->bbox[k % 2] + (k < 2 ? 0 : r->bbox[k]) + (k % 2 ? at.y1 : at.x1);
  if (r->has_segm) v.mask = spans_of(&r->rle, at.x1, at.y1);
  const PixelRect box = pixels_of(v.box, at);
  v.region = v.mask.n ? v.mask : filled(box);
  v.extent = hull(spans_extent(&v.region), box);
  v.area = spans_area(&v.region, v.extent);
  v.whole = !cut_for(&v, at, (PixelRect){0, 0, w, h});
  return v;
}

static void views_open(Views *v, const TileDetections *found, int tiles, int h, int w) {
  int n = 0;
  for (int t = 0; t < tiles; t++) n += found[t].n;
  *v = (Views){.found = found,
               .tiles = tiles,
               .h = h,
               .w = w,
               .items = xmalloc((size_t)n * sizeof *v->items),
               .first = xmalloc((size_t)(tiles + 1) * sizeof *v->first)};
  for (int t = 0; t < tiles; t++) {
    v->first[t] = v->n;
    for (int i = 0; i < found[t].n; i++) v->items[v->n++] = view_of(&found[t].items[i], t, found[t].tile, h, w);
  }
  v->first[tiles] = v->n;
}

static void views_close(Views *v) {
  for (int i = 0; i < v->n; i++) {
    if (v->items[i].region.items != v->items[i].mask.items) spans_free(&v->items[i].region);
    spans_free(&v->items[i].mask);
  }
  free(v->items);
  free(v->first);
}

// ---- objects ----------------------------------------------------------------------------------------------------

// The pixels by which a detection is compared with one of another tile.
static int64_t counted(const Views *all, const TileView *v, const TileView *other, PixelRect both) {
  const PixelRect *tile = &all->found[v->tile].tile, *seen = &all->found[other->tile].tile;
  return cut_for(v, *tile, *seen) ? spans_area(&v->region, both) : v->area;
}

static bool match(const Views *all, const TileView *a, const TileView *b) {
  if (a->tile == b->tile || a->from->category_id != b->from->category_id) return false;
  const PixelRect both = rect_common(all->found[a->tile].tile, all->found[b->tile].tile);
  if (rect_empty(rect_common(both, rect_common(a->extent, b->extent)))) return false;
  const int64_t common = spans_common_area(&a->region, &b->region, both);
  return common > 0 && 2 * common >= MIN(counted(all, a, b, both), counted(all, b, a, both));
}

// The detections of one object, in the order in which they were added.
typedef struct TiledObject {
  int *views;
  size_t n, cap;
} TiledObject;

static void take(TiledObject *o, Views *all, int i) {
  array_reserve((void **)&o->views, &o->cap, o->n + 1, sizeof *o->views);
  o->views[o->n++] = i;
  all->items[i].taken = true;
}

// Whether the object contains another detection that this tile sees whole.
static bool has_whole_of(const TiledObject *o, const Views *all, int tile) {
  for (size_t i = 0; i < o->n; i++) {
    const TileView *v = &all->items[o->views[i]];
    if (v->tile == tile && v->whole) return true;
  }
  return false;
}

// Adds all detections that match one of the object's, and those that match these in turn.
static void grow(TiledObject *o, Views *all, int seed) {
  o->n = 0;
  take(o, all, seed);
  for (size_t k = 0; k < o->n; k++) {
    const TileView *member = &all->items[o->views[k]];
    for (int t = 0; t < all->tiles; t++) {
      if (rect_empty(rect_common(member->extent, all->found[t].tile))) continue;
      for (int i = all->first[t]; i < all->first[t + 1]; i++) {
        const TileView *v = &all->items[i];
        if (v->taken || !match(all, member, v) || (v->whole && has_whole_of(o, all, t))) continue;
        take(o, all, i);
      }
    }
  }
}

static CocoResult result_of(const CocoResult *from, const double box[4], const Spans *mask, int h, int w) {
  CocoResult r = *from;
  r.bbox[0] = box[0];
  r.bbox[1] = box[1];
  r.bbox[2] = box[2] - box[0];
  r.bbox[3] = box[3] - box[1];
  r.shares_runs = false;
  if (r.has_segm) r.rle = spans_rle(mask, h, w);
  return r;
}

static int64_t mask_area(const TileView *v) { return v->mask.n ? v->area : 0; }

// The object as a result: its best detection, which was added first, with the box and mask of the largest detection or
// of all.
static CocoResult shape(const TiledObject *o, const Views *all) {
  const TileView *best = &all->items[o->views[0]], *largest = best;
  double box[4];
  memcpy(box, best->box, sizeof box);
  for (size_t i = 1; i < o->n; i++) {
    const TileView *v = &all->items[o->views[i]];
    if (mask_area(v) > mask_area(largest)) largest = v;
    for (int k = 0; k < 4; k++) box[k] = k < 2 ? fmin(box[k], v->box[k]) : fmax(box[k], v->box[k]);
  }
  if (largest->whole) return result_of(best->from, largest->box, &largest->mask, all->h, all->w);
  Spans mask = {0};
  for (size_t i = 0; i < o->n; i++) {
    Spans joined = spans_union(&mask, &all->items[o->views[i]].mask);
    spans_free(&mask);
    mask = joined;
  }
  CocoResult r = result_of(best->from, box, &mask, all->h, all->w);
  spans_free(&mask);
  return r;
}

// ---- their order ------------------------------------------------------------------------------------------------

typedef struct Rank {
  double score;
  int view;
} Rank;

static int compare_ranks(const void *a, const void *b) {
  const Rank *p = a, *q = b;
  if (p->score != q->score) return p->score < q->score ? 1 : -1;
  return (p->view > q->view) - (p->view < q->view);
}

CocoResults tiles_merge(const TileDetections *found, int tiles, int h, int w) {
  Views all;
  views_open(&all, found, tiles, h, w);
  Rank *order = xmalloc((size_t)all.n * sizeof *order);
  for (int i = 0; i < all.n; i++) order[i] = (Rank){all.items[i].from->score, i};
  qsort(order, (size_t)all.n, sizeof *order, compare_ranks);
  CocoResults out = {.items = xmalloc((size_t)all.n * sizeof *out.items)};
  TiledObject object = {0};
  for (int i = 0; i < all.n; i++) {
    if (all.items[order[i].view].taken) continue;
    grow(&object, &all, order[i].view);
    out.items[out.n++] = shape(&object, &all);
  }
  free(object.views);
  free(order);
  views_close(&all);
  return out;
}
