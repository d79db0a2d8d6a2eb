// The input of COCO's metrics: ground truth and detections in matching order, the (image, category) pairs that have
// either, and their overlaps. Internal to the evaluator; callers use data/coco/cocoeval.h.
#pragma once
#include "data/coco/cocoeval.h"

typedef struct EvalGt {
  const CocoAnn *ann;
  int64_t id;                 // its identity in matching: 0 matches nothing
  int category, image, order; // indices into the ground truth; order: pycocotools' position in its list
  double area;
  bool crowd; // detections that match it are ignored: a crowd or, where others' masks are compared, one without a mask
} EvalGt;

typedef struct EvalDt {
  const CocoResult *result;
  int category, image, rank; // rank: by score within image and category, from 0
  double area;
  uint16_t matched[EVAL_AREAS], ignored[EVAL_AREAS]; // bit t is for IoU threshold t
} EvalDt;

// The ground truth and detections of one category, or of all categories, in one image; at least one of the two lists is
// not empty.
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

// Keeps the `most` best detections of each image and category. Notes on the files go to `notes`, which must be zero
// before. Fails as cocoeval_run does; call eval_cells_free in any case.
bool eval_cells_gather(EvalCells *e, const Coco *gt, const CocoResults *dt, IouType type, int most, EvalSummary *notes,
                       Err *err);
void eval_cells_free(EvalCells *e);

bool eval_outside(double area, EvalArea a);
bool eval_gt_ignored(const EvalGt *g, EvalArea a); // a crowd, an object without a mask, or one of another size
// The order of numpy's stable sort by -score: higher first, NaN last; 0 leaves the tie to the caller.
int eval_compare_score(double a, double b);

// The overlap of the detections and the ground truth of one image, iou[d * num_gts + g]: of boxes or masks, by `type`,
// divided by the detection's own area if the ground truth is a crowd. Overlaps below `least` are only known to be
// below: boundaries of such masks are not computed.
void eval_overlaps(const Coco *coco, IouType type, const EvalCell *c, double least, double *iou);

// The ground truth that a detection matches at a threshold, or -1. Candidates are the `n` of `order`, ignored ones
// last; of equal overlaps the later one wins. Ground truth already taken is not a candidate, except crowds. ignored,
// taken and iou are indexed by ground truth.
int eval_best_gt(const EvalCell *c, const int *order, int n, const bool *ignored, const bool *taken, const double *iou,
                 double threshold);
