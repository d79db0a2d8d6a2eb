#include "data/survey/twice.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

// Limits on how many other objects, with boxes that begin next to its own, an object is compared with, and on how many
// of these by pixels, and on these of an image: they bound the time for an image of a million objects.
enum { NEXT = 32, NEXT_RASTERISED = 4, MOST_RASTERISED = 4096 };
static const double same_iou = 0.9;

static int compare_objects(const void *pa, const void *pb) {
  const TwiceObject *a = pa, *b = pb;
  if (a->category != b->category) return compare_int(&a->category, &b->category);
  for (int i = 0; i < 4; i++)
    if (a->box[i] != b->box[i]) return a->box[i] < b->box[i] ? -1 : 1;
  return compare_int(&a->ann, &b->ann);
}

static double box_iou(const float a[4], const float b[4]) {
  const double w = fmin(a[2], b[2]) - fmax(a[0], b[0]), h = fmin(a[3], b[3]) - fmax(a[1], b[1]);
  const double both = fmax(w, 0) * fmax(h, 0);
  const double of_a = ((double)a[2] - a[0]) * ((double)a[3] - a[1]),
               of_b = ((double)b[2] - b[0]) * ((double)b[3] - b[1]);
  return both / (of_a + of_b - both);
}

// Whether all coordinates are equal, as in nearly all copies.
static bool same_polygons(const Coco *c, const CocoAnn *a, const CocoAnn *b) {
  if (a->type != SEG_POLYGONS || b->type != SEG_POLYGONS || a->parts != b->parts) return false;
  for (int p = 0; p < a->parts; p++) {
    const int i = a->first_part + p, k = b->first_part + p, points = c->part_points[i];
    if (points != c->part_points[k] ||
        memcmp(c->xy + c->part_first[i], c->xy + c->part_first[k], 2 * (size_t)points * sizeof *c->xy))
      return false;
  }
  return true;
}

static bool same_pixels(const Coco *c, const CocoImage *im, const CocoAnn *a, const CocoAnn *b) {
  Scratch scratch = {0};
  Rle of_a, of_b;
  double iou = 0;
  if (coco_ann_rle_in(&scratch, c, a, im->h, im->w, &of_a) && coco_ann_rle_in(&scratch, c, b, im->h, im->w, &of_b))
    rle_iou(&of_a, 1, &of_b, 1, NULL, &iou);
  scratch_free(&scratch);
  return iou >= same_iou;
}

static bool same_object(const Coco *c, const CocoImage *im, const TwiceObject *a, const TwiceObject *b, int most,
                        int *rasterised) {
  if (box_iou(a->box, b->box) < same_iou) return false;
  const CocoAnn *of_a = &c->anns[a->ann], *of_b = &c->anns[b->ann];
  if (!coco_ann_has_mask(of_a, im->h, im->w) || !coco_ann_has_mask(of_b, im->h, im->w))
    return memcmp(a->box, b->box, sizeof a->box) == 0;
  if (same_polygons(c, of_a, of_b)) return true;
  if (*rasterised >= most) return false;
  ++*rasterised;
  return same_pixels(c, im, of_a, of_b);
}

void twice_mark(const Coco *c, const CocoImage *im, TwiceObject *object, int n, bool *is_copy) {
  int rasterised = 0;
  if (n < 2) return;
  qsort(object, (size_t)n, sizeof *object, compare_objects);
  for (int i = 0; i < n; i++) {
    const int most = MIN(rasterised + NEXT_RASTERISED, MOST_RASTERISED);
    for (int k = i + 1; k < n && k <= i + NEXT; k++) {
      const TwiceObject *a = &object[i], *b = &object[k];
      if (b->category != a->category || b->box[0] - a->box[0] > 0.1f * (a->box[2] - a->box[0])) break;
      if (!is_copy[MAX(a->ann, b->ann)] && same_object(c, im, a, b, most, &rasterised))
        is_copy[MAX(a->ann, b->ann)] = true;
    }
  }
}
