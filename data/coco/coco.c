// Queries on a COCO data set in memory.
#include "data/coco/coco.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/mapped.h"

static int compare_id(const void *a, const void *b) { // of structs whose first member is their id
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

int coco_find_image(const Coco *c, int64_t id) {
  const CocoImage *found =
      c->num_images ? bsearch(&id, c->images, (size_t)c->num_images, sizeof *c->images, compare_id) : NULL;
  return found ? (int)(found - c->images) : -1;
}

int coco_find_category(const Coco *c, int64_t id) {
  const CocoCategory *found =
      c->num_categories ? bsearch(&id, c->categories, (size_t)c->num_categories, sizeof *c->categories, compare_id)
                        : NULL;
  return found ? (int)(found - c->categories) : -1;
}

void coco_free(Coco *c) {
  free(c->path);
  free(c->origin);
  if (!c->map || c->own_categories) {
    for (int i = 0; i < c->num_categories; i++) {
      free(c->categories[i].name);
      free(c->categories[i].text_id);
    }
    free(c->categories);
  }
  if (c->map) {
    mapped_close(c->map, c->map_bytes);
  } else {
    for (int i = 0; i < c->num_images; i++) {
      free(c->images[i].file_name);
      free(c->images[i].text_id);
    }
    free(c->images);
    free(c->anns);
    free(c->part_points);
    free(c->part_first);
    free(c->xy);
    free(c->runs);
    free(c->broken);
  }
  *c = (Coco){0};
}

Rle coco_ann_runs(const Coco *c, const CocoAnn *a) {
  return (Rle){.h = a->rle_h, .w = a->rle_w, .n = a->num_runs, .runs = c->runs + a->first_run};
}

bool coco_ann_has_mask(const CocoAnn *a, int h, int w) {
  if (a->type == SEG_NONE || h <= 0 || w <= 0 || (uint64_t)h * (uint64_t)w > UINT32_MAX) return false;
  return a->type != SEG_RLE || (a->rle_h == h && a->rle_w == w);
}

static Rle polygon_of(Scratch *scratch, const Coco *c, int part, int h, int w) {
  return rle_from_polygon_in(scratch, c->xy + c->part_first[part], c->part_points[part], h, w);
}

// The union of many polygons, as bits: a polygon's mask is needed once.
static Rle union_in(Scratch *scratch, const Coco *c, const CocoAnn *a, int h, int w) {
  uint32_t *bits = xcalloc((size_t)h * (size_t)w / 32 + 1, sizeof *bits);
  for (int i = 0; i < a->parts; i++) {
    Rle part = polygon_of(NULL, c, a->first_part + i, h, w);
    rle_add_to_bits(&part, bits);
    rle_free(&part);
  }
  Rle all = rle_from_bits(bits, h, w), copy = all;
  const size_t bytes = (size_t)all.n * sizeof *all.runs;
  copy.runs = scratch_take(scratch, bytes);
  if (!copy.runs) die_of_memory(bytes, HERE);
  memcpy(copy.runs, all.runs, bytes);
  rle_free(&all);
  free(bits);
  return copy;
}

bool coco_ann_rle_in(Scratch *scratch, const Coco *c, const CocoAnn *a, int h, int w, Rle *out) {
  *out = (Rle){0};
  if (!coco_ann_has_mask(a, h, w)) return false;
  if (a->type == SEG_RLE) {
    *out = coco_ann_runs(c, a);
    return true;
  }
  enum { FEW = 64 }; // of which all in the scratch, without allocations
  Rle parts[FEW] = {0};
  for (int i = 0; i < a->parts && a->parts <= FEW; i++) parts[i] = polygon_of(scratch, c, a->first_part + i, h, w);
  *out = a->parts <= FEW ? rle_merge_in(scratch, parts, a->parts, false) : union_in(scratch, c, a, h, w);
  return true;
}

bool coco_ann_rle(const Coco *c, const CocoAnn *a, int h, int w, Rle *out) {
  Scratch scratch = {0};
  bool usable = coco_ann_rle_in(&scratch, c, a, h, w, out);
  if (usable) *out = rle_copy(out);
  scratch_free(&scratch);
  return usable;
}
