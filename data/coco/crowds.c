#include "data/coco/crowds.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "data/coco/spans.h"

const char *const crowd_choices[] = {"object", "ignore", NULL};

// ---- pieces ---------------------------------------------------------------------------------------------------------

typedef struct MaskPiece {
  int parent; // itself: it is the first span of its piece
  int64_t area;
} MaskPiece;

static int first_of(MaskPiece *p, int i) {
  while (p[i].parent != i) i = p[i].parent = p[p[i].parent].parent;
  return i;
}

static void join(MaskPiece *p, int i, int k) {
  i = first_of(p, i);
  k = first_of(p, k);
  if (i == k) return;
  p[i].parent = k;
  p[k].area += p[i].area;
}

// Joins every span with those of the column before that touch it.
static void join_columns(const Spans *s, MaskPiece *piece) {
  for (int i = 0, before = 0; i < s->n; i++) {
    const Span *span = &s->items[i];
    while (before < i &&
           (s->items[before].x < span->x - 1 || (s->items[before].x == span->x - 1 && s->items[before].end < span->y)))
      before++;
    for (int k = before; k < i && s->items[k].x == span->x - 1 && s->items[k].y <= span->end; k++) join(piece, i, k);
  }
}

bool mask_is_connected(const Rle *mask) {
  enum { STRAY = 50 }; // a pixel that the brush left
  Spans s = spans_of(mask, 0, 0);
  MaskPiece *piece = xmalloc((size_t)s.n * sizeof *piece);
  int64_t area = 0, largest = 0;
  for (int i = 0; i < s.n; i++) {
    piece[i] = (MaskPiece){i, s.items[i].end - s.items[i].y};
    area += piece[i].area;
  }
  join_columns(&s, piece);
  for (int i = 0; i < s.n; i++) largest = MAX(largest, piece[i].area);
  free(piece);
  spans_free(&s);
  return area > 0 && STRAY * (area - largest) <= area;
}

// ---- crowds ---------------------------------------------------------------------------------------------------------

static bool is_one_thing(const Coco *c, const CocoImage *im, const CocoAnn *a) {
  Rle mask;
  if (a->type == SEG_RLE) {
    mask = coco_ann_runs(c, a);
    return mask_is_connected(&mask);
  }
  if (!coco_ann_rle(c, a, im->h, im->w, &mask)) return a->type == SEG_POLYGONS && a->parts == 1; // of no known size
  const bool one = mask_is_connected(&mask);
  rle_free(&mask);
  return one;
}

typedef struct CategoryCrowds {
  int annotations, crowds;
  bool are_objects;
} CategoryCrowds;

static void count_crowds(const Coco *c, CategoryCrowds *of) {
  for (int i = 0; i < c->num_anns; i++) {
    if (c->anns[i].category < 0) continue;
    of[c->anns[i].category].annotations++;
    of[c->anns[i].category].crowds += c->anns[i].crowd;
  }
}

static void judge_masks(const Coco *c, CategoryCrowds *of) {
  for (int i = 0; i < c->num_images; i++)
    for (int k = c->images[i].first_ann; k < c->images[i].first_ann + c->images[i].anns; k++) {
      const CocoAnn *a = &c->anns[k];
      CategoryCrowds *category = a->crowd && a->category >= 0 ? &of[a->category] : NULL;
      if (category && category->are_objects) category->are_objects = is_one_thing(c, &c->images[i], a);
    }
}

int crowds_become_objects(Coco *c) {
  CategoryCrowds *of = xcalloc((size_t)c->num_categories, sizeof *of);
  int n = 0, many = 0;
  count_crowds(c, of);
  for (int k = 0; k < c->num_categories; k++) many += of[k].are_objects = 10 * of[k].crowds > of[k].annotations;
  if (many) judge_masks(c, of);
  for (int i = 0; many && i < c->num_anns; i++) {
    CocoAnn *a = &c->anns[i];
    if (!a->crowd || a->category < 0 || !of[a->category].are_objects) continue;
    a->crowd = false;
    a->was_crowd = true;
    n++;
  }
  free(of);
  return n;
}
