#include "data/coco/from_masks.h"
#include <math.h>
#include "base/digest.h"
#include "base/parallel.h"

const char *const measure_choices[] = {"file", "mask", NULL};

void coco_take_from_masks(Coco *c, CocoImage *im, bool boxes, bool areas) {
  uint64_t digest = boxes ? 1 : 0;
  for (CocoAnn *a = c->anns + im->first_ann; a < c->anns + im->first_ann + im->anns; a++) {
    Rle mask;
    if (coco_ann_rle(c, a, im->h, im->w, &mask)) {
      const uint64_t area = rle_area(&mask);
      if (boxes && area > 0) rle_bbox(&mask, a->bbox);
      if (boxes && area > 0) a->has_bbox = true;
      if (areas && area > 0) a->area = (double)area;
      rle_free(&mask);
    }
    digest = digest_bytes(digest, &a->area, sizeof a->area);
    if (boxes) digest = digest_bytes(digest, a->bbox, sizeof a->bbox);
  }
  im->areas = digest;
}

typedef struct MaskMeasuring {
  Coco *coco;
  bool boxes, areas;
} MaskMeasuring;

static void measure_image(void *of, int i, int thread) {
  (void)thread;
  const MaskMeasuring *m = of;
  CocoImage *im = &m->coco->images[i];
  if (im->h > 0 && im->w > 0) coco_take_from_masks(m->coco, im, m->boxes, m->areas);
}

void coco_take_all_from_masks(Coco *c, bool boxes, bool areas) {
  parallel_for(c->num_images, parallel_threads(c->num_images), measure_image, &(MaskMeasuring){c, boxes, areas});
}

// By the shoelace formula, of all parts; overlaps count twice.
static double area_of_polygons(const Coco *c, const CocoAnn *a) {
  double sum = 0;
  for (int p = a->first_part; p < a->first_part + a->parts; p++) {
    const double *xy = c->xy + c->part_first[p];
    const int n = c->part_points[p];
    double twice = 0;
    for (int i = 0; i < n; i++) {
      const double *from = xy + 2 * (size_t)i, *to = xy + 2 * (size_t)((i + 1) % n);
      twice += from[0] * to[1] - to[0] * from[1];
    }
    sum += fabs(twice) / 2;
  }
  return sum;
}

bool coco_areas_are_of_boxes(const Coco *c, int *of_boxes, int *compared) {
  enum { SAMPLE = 1000 };
  const int step = (c->num_anns + SAMPLE - 1) / SAMPLE;
  *of_boxes = *compared = 0;
  for (int i = 0; i < c->num_anns; i += step) {
    const CocoAnn *a = &c->anns[i];
    if (a->type == SEG_NONE || !a->has_bbox || a->crowd) continue;
    const Rle runs = coco_ann_runs(c, a);
    const double mask = a->type == SEG_POLYGONS ? area_of_polygons(c, a) : (double)rle_area(&runs);
    const double box = a->bbox[2] * a->bbox[3];
    if (!(mask < 0.9 * box)) continue;
    ++*compared;
    *of_boxes += fabs(a->area - box) <= 0.05 * box; // boxes are rounded
  }
  return 2 * *of_boxes > *compared;
}
