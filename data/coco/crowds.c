#include "data/coco/crowds.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "data/coco/categories_match.h"
#include "data/coco/spans.h"

const char *const crowd_choices[] = {"object", "ignore", NULL};

// ---- pieces ---------------------------------------------------------------------------------------------------------

typedef struct MaskPiece {
  int parent; // equal to its own index: the first span of its piece
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

// Joins every span with those of the previous column that touch it.
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
  enum { STRAY = 50 }; // one pixel in STRAY may be a stray brush mark
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

typedef struct CategoryCrowds {
  int annotations, crowds;
  int masks, connected; // of the category's crowds: masks with a pixel, and connected ones among them
  bool are_objects;
} CategoryCrowds;

static void judge_mask(const Coco *c, const CocoImage *im, const CocoAnn *a, CategoryCrowds *of) {
  Rle mask;
  const bool is_borrowed = a->type == SEG_RLE;
  if (is_borrowed) {
    mask = coco_ann_runs(c, a);
  } else if (!coco_ann_rle(c, a, im->h, im->w, &mask)) { // an image of unknown size
    of->masks += a->type == SEG_POLYGONS;
    of->connected += a->type == SEG_POLYGONS && a->parts == 1;
    return;
  }
  of->masks += rle_area(&mask) > 0;
  of->connected += mask_is_connected(&mask);
  if (!is_borrowed) rle_free(&mask);
}

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
      if (category && 10 * category->crowds > category->annotations) judge_mask(c, &c->images[i], a, category);
    }
  for (int k = 0; k < c->num_categories; k++) of[k].are_objects = 2 * of[k].connected > of[k].masks;
}

// Applies the decision made for `train` to the same categories here, if `train` has crowds of them.
static void follow(const Coco *c, const Coco *train, CategoryCrowds *of) {
  Notes notes = {0};
  Err err;
  const CategoryList known = {.of = train->path, .item = train->categories, .n = train->num_categories},
                     own = {.of = c->path, .item = c->categories, .n = c->num_categories};
  int *used = xcalloc((size_t)own.n, sizeof *used), *to = xcalloc((size_t)own.n, sizeof *to);
  CategoryCrowds *was = xcalloc((size_t)known.n, sizeof *was);
  for (int i = 0; i < train->num_anns; i++) {
    const CocoAnn *a = &train->anns[i];
    if (a->category < 0) continue;
    was[a->category].crowds += a->crowd || a->was_crowd;
    was[a->category].are_objects |= a->was_crowd;
  }
  if (categories_match(&known, &own, used, to, &notes, &err))
    for (int k = 0; k < own.n; k++)
      if (to[k] >= 0 && was[to[k]].crowds) of[k].are_objects = was[to[k]].are_objects;
  notes_free(&notes);
  free(used);
  free(to);
  free(was);
}

int crowds_become_objects(Coco *c, const Coco *train) {
  CategoryCrowds *of = xcalloc((size_t)c->num_categories, sizeof *of);
  int n = 0;
  count_crowds(c, of);
  judge_masks(c, of);
  if (train) follow(c, train, of);
  for (int i = 0; i < c->num_anns; i++) {
    CocoAnn *a = &c->anns[i];
    if (!a->crowd || a->category < 0 || !of[a->category].are_objects) continue;
    a->crowd = false;
    a->was_crowd = true;
    n++;
  }
  free(of);
  return n;
}
