#include "data/survey/orientation.h"
#include <math.h>

static const double LEAST_AREA = 100, LEAST_RATIO = 1.2; // with smaller ones, the pixels' grid decides the direction

typedef struct MaskMoments { // integrals over a mask of 1, x, y, x², y², xy
  double one, x, y, xx, yy, xy;
} MaskMoments;

// A polygon's, by Green's theorem; independent of the sense in which its points run.
static void add_polygon(MaskMoments *m, const double *xy, int points) {
  MaskMoments p = {0};
  for (int i = 0; i < points; i++) {
    const double *a = &xy[2 * i], *b = &xy[2 * ((i + 1) % points)], cross = a[0] * b[1] - b[0] * a[1];
    p.one += cross / 2;
    p.x += (a[0] + b[0]) * cross / 6;
    p.y += (a[1] + b[1]) * cross / 6;
    p.xx += (a[0] * a[0] + a[0] * b[0] + b[0] * b[0]) * cross / 12;
    p.yy += (a[1] * a[1] + a[1] * b[1] + b[1] * b[1]) * cross / 12;
    p.xy += (a[0] * b[1] + 2 * a[0] * a[1] + 2 * b[0] * b[1] + b[0] * a[1]) * cross / 24;
  }
  const double sign = p.one < 0 ? -1 : 1;
  m->one += sign * p.one;
  m->x += sign * p.x;
  m->y += sign * p.y;
  m->xx += sign * p.xx;
  m->yy += sign * p.yy;
  m->xy += sign * p.xy;
}

// Pixels y0 … y1 - 1 of column x, each at its centre.
static void add_column(MaskMoments *m, double x, double y0, double y1) {
  const double n = y1 - y0, y = (y0 + y1) / 2;
  m->one += n;
  m->x += n * x;
  m->y += n * y;
  m->xx += n * x * x;
  m->yy += n * (y * y + (n * n - 1) / 12);
  m->xy += n * x * y;
}

static void add_runs(MaskMoments *m, const Rle *r) {
  uint64_t at = 0;
  for (int i = 0; i < r->n; at += r->runs[i++])
    for (uint64_t p = at, end = at + r->runs[i]; i % 2 && p < end;) {
      const uint64_t x = p / (uint64_t)r->h, last = MIN(end, (x + 1) * (uint64_t)r->h);
      add_column(m, (double)x + 0.5, (double)(p - x * (uint64_t)r->h), (double)(last - x * (uint64_t)r->h));
      p = last;
    }
}

Axis mask_axis(const Coco *c, const CocoAnn *a) {
  MaskMoments m = {0};
  if (a->type == SEG_RLE) {
    const Rle runs = coco_ann_runs(c, a);
    if (runs.h > 0) add_runs(&m, &runs);
  }
  for (int p = a->first_part; a->type == SEG_POLYGONS && p < a->first_part + a->parts; p++)
    add_polygon(&m, c->xy + c->part_first[p], c->part_points[p]);
  if (!(m.one > 0)) return (Axis){0};
  const double x = m.x / m.one, y = m.y / m.one;
  const double xx = m.xx / m.one - x * x, yy = m.yy / m.one - y * y, xy = m.xy / m.one - x * y;
  const double mean = (xx + yy) / 2, apart = hypot((xx - yy) / 2, xy), least = mean - apart;
  if (!isfinite(mean + apart)) return (Axis){0}; // of coordinates far outside
  return (Axis){m.one, atan2(2 * xy, xx - yy) / 2, least > 0 ? sqrt((mean + apart) / least) : INFINITY};
}

static bool is_inside(const double box[4], const CocoImage *im) {
  return box[0] > 1 && box[1] > 1 && box[0] + box[2] < im->w - 1 && box[1] + box[3] < im->h - 1;
}

Orientation orientation_of(const Dataset *d) {
  Orientation o = {0};
  double re = 0, im = 0;
  for (int i = 0; i < d->num_images; i++)
    for (int k = d->first_object[i]; k < d->first_object[i + 1]; k++) {
      const CocoAnn *a = &d->coco.anns[d->object[k].ann];
      const CocoImage *image = &d->coco.images[d->image[i]];
      if (!is_inside(a->bbox, image) || !coco_ann_has_mask(a, image->h, image->w)) continue;
      const Axis axis = mask_axis(&d->coco, a);
      if (axis.area < LEAST_AREA || axis.ratio < LEAST_RATIO) continue;
      o.objects++;
      re += cos(4 * axis.angle);
      im += sin(4 * axis.angle);
    }
  if (o.objects) o.aligned = hypot(re, im) / o.objects;
  return o;
}
