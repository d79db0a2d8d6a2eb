// Prepares ground truth and detections in pycocotools' order, and computes the overlaps within an image.
#include "data/coco/cocoeval_cells.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/boundary.h"
#include "data/coco/rle.h"

static const double area_range[EVAL_AREAS][2] = {{0, 1e10}, {0, 1024}, {1024, 9216}, {9216, 1e10}};

bool eval_outside(double area, EvalArea a) { return area < area_range[a][0] || area > area_range[a][1]; }
bool eval_gt_ignored(const EvalGt *g, EvalArea a) { return g->crowd || eval_outside(g->area, a); }

int eval_compare_score(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) - isnan(b);
  return (a < b) - (a > b);
}

static int compare_gt(const void *pa, const void *pb) {
  const EvalGt *a = pa, *b = pb;
  if (a->category != b->category) return a->category < b->category ? -1 : 1;
  if (a->image != b->image) return a->image < b->image ? -1 : 1;
  return (a->order > b->order) - (a->order < b->order);
}

static int compare_dt(const void *pa, const void *pb) {
  const EvalDt *a = pa, *b = pb;
  if (a->category != b->category) return a->category < b->category ? -1 : 1;
  if (a->image != b->image) return a->image < b->image ? -1 : 1;
  int by_score = eval_compare_score(a->result->score, b->result->score);
  return by_score ? by_score : (a->result > b->result) - (a->result < b->result);
}

// Adds annotation i, which belongs to this image. If the file's ids are used, the last annotation with the same id
// takes its place, because pycocotools looks annotations up by id.
static void gather_gt(EvalCells *e, int image, int i, EvalSummary *out) {
  const Coco *c = e->coco;
  const CocoAnn *a = &c->anns[i];
  if (a->category < 0 || a->left_out) return;
  const bool replaced = a->replaced && !c->own_ids;
  out->duplicate_ids += replaced;
  if (replaced) {
    if (a->by < 0) return;
    a = &c->anns[a->by];
    image = coco_find_image(c, a->image_id);
    if (image < 0 || a->category < 0 || a->left_out) return;
  }
  const bool lacks_mask = e->type != EVAL_BBOX && !coco_ann_has_mask(a, c->images[image].h, c->images[image].w);
  e->gts[e->num_gts++] = (EvalGt){.ann = a,
                                  .id = c->own_ids ? i + 1 : a->id,
                                  .category = a->category,
                                  .image = image,
                                  .order = i,
                                  .area = a->area,
                                  .crowd = a->crowd || lacks_mask};
  out->zero_ids += a->id == 0 && !c->own_ids;
  if (!lacks_mask) return;
  if (out->box_masks++ == 0) out->first_box_mask = a->id;
}

static void gather_gts(EvalCells *e, EvalSummary *out) {
  const Coco *c = e->coco;
  e->gts = xmalloc((size_t)c->num_anns * sizeof *e->gts);
  for (int i = 0; i < c->num_images; i++)
    for (int k = 0; k < c->images[i].anns; k++) gather_gt(e, i, c->images[i].first_ann + k, out);
  out->all_box_masks = true; // of the objects
  for (int i = 0; i < e->num_gts; i++) out->all_box_masks &= e->gts[i].crowd;
  for (int i = 0; out->all_box_masks && i < e->num_gts; i++) e->gts[i].crowd = e->gts[i].ann->crowd;
  qsort(e->gts, (size_t)e->num_gts, sizeof *e->gts, compare_gt);
}

// Whether a detection's mask, or its box if it has no mask, can be scored as intended.
static bool check_mask(const Coco *c, const CocoResult *r, int i, const CocoImage *image, EvalSummary *out, Err *err) {
  const char *what = image->h <= 0 || image->w <= 0                         ? "without height and width"
                     : (uint64_t)image->h * (uint64_t)image->w > UINT32_MAX ? "too large for masks"
                                                                            : NULL;
  if (what)
    return err_set(err, "detection %d: its image, %lld, is %s in %s", i + 1, (long long)r->image_id, what,
                   c->path ? c->path : "the ground truth");
  if (r->bad_segm)
    return err_set(err, "detection %d, of image %lld: its segmentation is invalid; correct it, or remove it", i + 1,
                   (long long)r->image_id);
  if (r->has_segm && (r->rle.h != image->h || r->rle.w != image->w) && out->other_size++ == 0)
    out->first_other_size = i;
  if (!r->has_segm && out->maskless++ == 0) out->first_maskless = i;
  return true;
}

static bool gather_dts(EvalCells *e, const CocoResults *dt, int most, EvalSummary *out, Err *err) {
  const Coco *c = e->coco;
  e->dts = xmalloc((size_t)dt->n * sizeof *e->dts);
  int n = 0;
  for (int i = 0; i < dt->n; i++) {
    const CocoResult *r = &dt->items[i];
    if (!r->has_bbox && !r->has_segm)
      return err_set(err, "detection %d has neither bbox nor segmentation; add one", i + 1);
    int image = coco_find_image(c, r->image_id), category = coco_find_category(c, r->category_id);
    out->unknown_image += image < 0;
    out->unknown_category += image >= 0 && category < 0;
    if (image < 0 || category < 0) continue;
    if (e->type != EVAL_BBOX && !check_mask(c, r, i, &c->images[image], out, err)) return false;
    double area = r->has_bbox ? r->bbox[2] * r->bbox[3] : (double)rle_area(&r->rle);
    e->dts[n++] = (EvalDt){.result = r, .category = category, .image = image, .area = area};
  }
  qsort(e->dts, (size_t)n, sizeof *e->dts, compare_dt);
  int category = -1, image = -1, rank = 0;
  for (int i = 0; i < n; i++) {
    EvalDt d = e->dts[i];
    rank = d.category == category && d.image == image ? rank + 1 : 0;
    category = d.category;
    image = d.image;
    if (rank >= most) continue;
    d.rank = rank;
    e->dts[e->num_dts++] = d;
  }
  return true;
}

// If boxes replaced all masks, the metrics would say nothing about boundaries.
static bool check_boundaries(const EvalCells *e, const CocoResults *dt, const EvalSummary *notes, Err *err) {
  if (e->type != EVAL_BOUNDARY) return true;
  if (e->num_gts && notes->box_masks == e->num_gts)
    return err_set(err, "boundary IoU needs masks, but no annotation of %s has one",
                   e->coco->path ? e->coco->path : "the ground truth");
  int masks = 0;
  for (int i = 0; i < dt->n; i++) masks += dt->items[i].has_segm;
  return masks || !dt->n || err_set(err, "boundary IoU needs masks, but no detection has one");
}

// Walks both sorted lists at once; a cell has ground truth, detections or both.
static void gather_cells(EvalCells *e) {
  e->cells = xmalloc(((size_t)e->num_gts + (size_t)e->num_dts) * sizeof *e->cells);
  int g = 0, d = 0;
  while (g < e->num_gts || d < e->num_dts) {
    int category =
        MIN(g < e->num_gts ? e->gts[g].category : INT32_MAX, d < e->num_dts ? e->dts[d].category : INT32_MAX);
    int gt_image = g < e->num_gts && e->gts[g].category == category ? e->gts[g].image : INT32_MAX;
    int dt_image = d < e->num_dts && e->dts[d].category == category ? e->dts[d].image : INT32_MAX;
    int image = MIN(gt_image, dt_image);
    EvalCell cell = {.gts = e->gts + g, .dts = e->dts + d};
    while (g < e->num_gts && e->gts[g].category == category && e->gts[g].image == image) {
      g++;
      cell.num_gts++;
    }
    while (d < e->num_dts && e->dts[d].category == category && e->dts[d].image == image) {
      d++;
      cell.num_dts++;
    }
    e->cells[e->num_cells++] = cell;
  }
}

bool eval_cells_gather(EvalCells *e, const Coco *gt, const CocoResults *dt, IouType type, int most, EvalSummary *notes,
                       Err *err) {
  *e = (EvalCells){.coco = gt, .type = type};
  if (!gather_dts(e, dt, most, notes, err)) return false;
  gather_gts(e, notes);
  if (!check_boundaries(e, dt, notes, err)) return false;
  gather_cells(e);
  return true;
}

void eval_cells_free(EvalCells *e) {
  free(e->gts);
  free(e->dts);
  free(e->cells);
  *e = (EvalCells){0};
}

// IoU of the boxes, iou[d * num_gts + g].
static void iou_bbox(const EvalCell *c, const uint8_t *crowd, double *iou) {
  double(*dt)[4] = xmalloc((size_t)c->num_dts * sizeof *dt), (*gt)[4] = xmalloc((size_t)c->num_gts * sizeof *gt);
  for (int g = 0; g < c->num_gts; g++) memcpy(gt[g], c->gts[g].ann->bbox, sizeof gt[g]);
  for (int d = 0; d < c->num_dts; d++) {
    const CocoResult *r = c->dts[d].result;
    if (r->has_bbox)
      memcpy(dt[d], r->bbox, sizeof dt[d]);
    else
      rle_bbox(&r->rle, dt[d]);
  }
  bbox_iou(dt[0], c->num_dts, gt[0], c->num_gts, crowd, iou);
  free(dt);
  free(gt);
}

// Computes the boundary of a mask unless it has been computed; its width depends on the mask's own size.
static void need_boundary(Rle *boundary, const Rle *mask) {
  if (!boundary->runs) *boundary = rle_boundary(mask, boundary_distance(mask->h, mask->w));
}

// Where the masks' IoU is at least `least` and the ground truth is not a crowd, replaces it by the boundaries' IoU if
// that is smaller.
static void take_boundaries(const Rle *dt, int dts, const Rle *gt, int gts, const uint8_t *crowd, double least,
                            double *iou) {
  Rle *rims = xcalloc((size_t)dts + (size_t)gts, sizeof *rims), *gt_rims = rims + dts;
  for (int d = 0; d < dts; d++)
    for (int g = 0; g < gts; g++, iou++) {
      if (crowd[g] || *iou < least) continue;
      double rim_iou;
      need_boundary(&rims[d], &dt[d]);
      need_boundary(&gt_rims[g], &gt[g]);
      rle_iou(&rims[d], 1, &gt_rims[g], 1, NULL, &rim_iou);
      *iou = MIN(*iou, rim_iou);
    }
  for (int i = 0; i < dts + gts; i++) rle_free(&rims[i]);
  free(rims);
}

// The masks of ground truths from `first` on, boxes where there are none: few more than MOST_RUNS runs. Returns the
// end of those taken.
enum { MOST_RUNS = 1 << 22 };
static int take_gt_masks(const Coco *coco, const EvalCell *c, int first, Rle *mask) {
  const CocoImage *image = &coco->images[c->gts[0].image];
  size_t runs = 0;
  int g = first;
  for (; g < c->num_gts && runs < MOST_RUNS; g++, runs += (size_t)mask++->n) {
    const CocoAnn *a = c->gts[g].ann;
    if (!coco_ann_rle(coco, a, image->h, image->w, mask)) *mask = rle_from_bbox(a->bbox, image->h, image->w);
  }
  return g;
}

// IoU of the masks, iou[d * num_gts + g]; a missing mask is replaced by the box. Ground truths come a part at a time,
// so that a large picture's masks need not all be in memory.
static void iou_segm(const Coco *coco, const EvalCell *c, const uint8_t *crowd, bool boundary, double least,
                     double *iou) {
  const size_t dts = (size_t)c->num_dts, gts = (size_t)c->num_gts;
  Rle *dt = xmalloc(dts * sizeof *dt), *gt = xmalloc(gts * sizeof *gt);
  double *part = xmalloc(dts * gts * sizeof *part);
  const CocoImage *image = &coco->images[c->gts[0].image];
  for (int d = 0; d < c->num_dts; d++) {
    const CocoResult *r = c->dts[d].result;
    dt[d] = r->has_segm ? r->rle : rle_from_bbox(r->bbox, image->h, image->w);
  }
  for (int first = 0, end; first < c->num_gts; first = end) {
    end = take_gt_masks(coco, c, first, gt);
    const int n = end - first;
    rle_iou(dt, c->num_dts, gt, n, crowd + first, part);
    if (boundary) take_boundaries(dt, c->num_dts, gt, n, crowd + first, least, part);
    for (size_t d = 0; d < dts; d++)
      memcpy(iou + d * gts + (size_t)first, part + d * (size_t)n, (size_t)n * sizeof *iou);
    for (int g = 0; g < n; g++) rle_free(&gt[g]);
  }
  for (int d = 0; d < c->num_dts; d++)
    if (!c->dts[d].result->has_segm) rle_free(&dt[d]);
  free(part);
  free(dt);
  free(gt);
}

void eval_overlaps(const Coco *coco, IouType type, const EvalCell *c, double least, double *iou) {
  if (!c->num_gts || !c->num_dts) return;
  uint8_t *crowd = xmalloc((size_t)c->num_gts);
  for (int g = 0; g < c->num_gts; g++) crowd[g] = c->gts[g].crowd;
  if (type == EVAL_BBOX)
    iou_bbox(c, crowd, iou);
  else
    iou_segm(coco, c, crowd, type == EVAL_BOUNDARY, least, iou);
  free(crowd);
}

int eval_best_gt(const EvalCell *c, const int *order, int n, const bool *ignored, const bool *taken, const double *iou,
                 double threshold) {
  int best = -1;
  double best_iou = threshold;
  for (int i = 0; i < n; i++) {
    int g = order[i];
    if (taken[g] && !c->gts[g].crowd) continue;
    if (best >= 0 && !ignored[best] && ignored[g]) break;
    if (iou[g] < best_iou) continue;
    best_iou = iou[g];
    best = g;
  }
  return best;
}
