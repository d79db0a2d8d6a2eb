// COCO's detection metrics for boxes, masks and mask boundaries: the 12 metrics and the per-category values of
// pycocotools. Definition: https://cocodataset.org/#detection-eval ; edge cases are treated as in pycocotools 2.0's
// COCOeval.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "data/coco/coco.h"

// What overlap is measured on. EVAL_BOUNDARY: the smaller of the masks' IoU and their boundaries'
// (data/coco/boundary.h); for crowds, the masks'. As in bowenc0221/boundary-iou-api.
typedef enum IouType { EVAL_BBOX, EVAL_SEGM, EVAL_BOUNDARY } IouType;
extern const char *const iou_types[]; // for base/cli.h: "bbox", "segm", "boundary"

// The definition of one of the 12 metrics, a mean over all categories that have ground truth of that size.
typedef enum EvalArea { AREA_ALL, AREA_SMALL, AREA_MEDIUM, AREA_LARGE, EVAL_AREAS } EvalArea;
typedef struct EvalStat {
  const char *key; // "AP", "AP50", … "AR_large"
  bool recall;     // average recall, otherwise average precision
  int iou;         // percent: the single threshold; 0: the mean over 0.50, 0.55, … 0.95
  EvalArea area;   // of the object: small ≤ 32² ≤ medium ≤ 96² ≤ large, square pixels
  int limit;       // index of the limit on detections per image and category, or EVAL_AT_100
} EvalStat;
enum { EVAL_STATS = 12, EVAL_LIMITS = 3 };
enum { EVAL_AT_100 = -1 }; // the limit that is 100: AP, as in pycocotools' summarize
extern const EvalStat eval_stats[EVAL_STATS];

// Limits on detections per image and category, best first, in ascending order: pycocotools' params.maxDets.
extern const int eval_max_dets[EVAL_LIMITS]; // 1, 10, 100

// Precision over recall, at the recalls 0, 0.01, … 1, for objects of every size and the last limit on detections.
typedef enum EvalCurve { CURVE_50, CURVE_75, CURVE_MEAN, EVAL_CURVES } EvalCurve; // IoU 0.50, 0.75, mean of all ten
enum { EVAL_RECALLS = 101 };
typedef double EvalPrecision[EVAL_CURVES][EVAL_RECALLS]; // -1 if no ground truth defines it

typedef struct EvalCategory {
  int64_t id;
  const char *name;    // borrowed from the ground truth
  double ap, ap50, ar; // at the last limit on detections
} EvalCategory;

typedef struct EvalSummary {
  IouType type;
  double stats[EVAL_STATS]; // in [0, 1], in the order of eval_stats; -1 if no ground truth defines it
  EvalCategory *categories; // in the order of the ground truth's; owned
  int num_categories;
  EvalPrecision *precision; // per category, then the mean over all; owned
  int max_dets[EVAL_LIMITS];
  double ap_last;                      // AP at the last limit: stats[0] if that is 100
  int unknown_image, unknown_category; // detections left out because the ground truth has no such image or category
  int duplicate_ids; // annotations whose id is repeated later: pycocotools sees the last one, once per occurrence
  int zero_ids;      // annotations with id 0: pycocotools counts their matches as false positives, and so do we
  // for masks:
  int other_size;         // detections whose mask has another size than its image: as in pycocotools they match nothing
  int first_other_size;   // index of the first of them
  int box_masks;          // annotations without a usable mask: detections in their boxes are ignored; if
                          // none has a mask, the boxes are used as masks
  bool all_box_masks;     // none has a mask
  int64_t first_box_mask; // id of the first of them
  int maskless;           // detections without a mask: their boxes are used
  int first_maskless;     // index of the first of them
} EvalSummary;

// Evaluates detections against the ground truth, on gt->images: a shallow copy without some of them scores only the
// rest, as with pycocotools' params.imgIds. With gt->own_ids, no score depends on the ids of annotations. As in
// pycocotools' loadRes, a detection's area is its box's if it has one, also for segm; a missing box is the mask's, a
// missing mask is the box. The result does not depend on the number of threads. False, naming the detection, if one has
// neither box nor mask; for masks, if its segmentation cannot be used (pycocotools would score whatever its runs happen
// to be) or its image has no size in the ground truth (pycocotools also stops); and for boundaries, if no detection or
// no annotation has a mask. Free with cocoeval_free.
bool cocoeval_run(EvalSummary *out, const Coco *gt, const CocoResults *dt, IouType type, Err *err);
// The same with other limits than eval_max_dets. AP is at 100 detections, as in pycocotools, and -1 if no limit is 100;
// the other precisions and the recalls by size are at the last limit.
bool cocoeval_run_at(EvalSummary *out, const Coco *gt, const CocoResults *dt, IouType type,
                     const int max_dets[EVAL_LIMITS], Err *err);
// Approximate memory that two summaries, of boxes and masks, take for so many categories while the second is made.
size_t cocoeval_bytes(int categories);
void cocoeval_free(EvalSummary *s);

// The key of a metric, with the actual limit if that is not COCO's: "AR_10" for instance. Returns `key`.
enum { EVAL_KEY = 24 };
const char *eval_stat_key(const EvalSummary *s, int stat, char key[EVAL_KEY]);
int eval_stat_limit(const EvalSummary *s, int stat); // the limit on detections that it uses

// The twelve lines familiar from pycocotools; if the last limit is not 100, AP at that limit in an extra line.
// `undefined` is printed for a metric that no ground truth defines; NULL: -1.000, as in pycocotools.
void cocoeval_print(FILE *f, const EvalSummary *s, const char *undefined);
// A table of the categories; those without ground truth show "-".
void cocoeval_print_categories(FILE *f, const EvalSummary *s);
// One JSON object: the metrics by eval_stat_key, "AP_at_<n>" if the last limit is not 100, and "per_category" by
// category id; 17 significant digits.
void cocoeval_print_json(FILE *f, const EvalSummary *s);
