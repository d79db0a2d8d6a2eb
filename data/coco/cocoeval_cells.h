// What COCO's metrics compare: ground truth and detections in the order that matching takes them in, the pairs of an
// image and a category that either of them is in, and how much they overlap. The evaluator's own; callers have
// data/coco/cocoeval.h.
#pragma once
#include "data/coco/cocoeval.h"

typedef struct EvalGt {
  const CocoAnn *ann;
  int64_t id;                 // by which it is told apart: 0 matches nothing
  int category, image, order; // indices into the ground truth; order as pycocotools lists them
  double area;
} EvalGt;

typedef struct EvalDt {
  const CocoResult *result;
  int category, image, rank; // rank: by score within image and category, from 0
  double area;
  uint16_t matched[EVAL_AREAS], ignored[EVAL_AREAS]; // bit t: at IoU threshold t
} EvalDt;

// The ground truth and the detections of one category in one image, or of all; it has one or the other, or both.
typedef struct EvalCell {
  const EvalGt *gts;
  EvalDt *dts;
  int num_gts, num_dts;
} EvalCell;

typedef struct EvalCells {
  const Coco *coco;
  IouType type;
  EvalGt *gts; // by category, image, order
  EvalDt *dts; // by category, image, rank
  EvalCell *cells;
  int num_gts, num_dts, num_cells;
} EvalCells;

// Of the detections the best `most` of each image and category. What people should know of the files goes to `notes`,
// to be zero before. False as cocoeval_run is; free with eval_cells_free in any case.
bool eval_cells_gather(EvalCells *e, const Coco *gt, const CocoResults *dt, IouType type, int most, EvalSummary *notes,
                       Err *err);
void eval_cells_free(EvalCells *e);

bool eval_outside(double area, EvalArea a);
bool eval_gt_ignored(const EvalGt *g, EvalArea a); // a crowd, or an object of another size
// As a stable sort by -score does in numpy: higher first, NaN last; 0 leaves the tie to the caller.
int eval_compare_score(double a, double b);

// The overlap of the detections and the ground truth of one image, iou[d * num_gts + g]: of boxes or masks, as `kind`
// says, over the detection's own area where the ground truth is a crowd. Below `least` only that it is less is said:
// boundaries of masks that overlap less are not looked at.
void eval_overlaps(const Coco *coco, IouType type, const EvalCell *c, double least, double *iou);

// The ground truth that a detection takes at a threshold, or -1. Candidates are the `n` of `order`, ignored ones last;
// of equal overlaps the later one wins. One that is taken is no candidate, but for crowds. ignored, taken and iou are
// by ground truth.
int eval_best_gt(const EvalCell *c, const int *order, int n, const bool *ignored, const bool *taken, const double *iou,
                 double threshold);
