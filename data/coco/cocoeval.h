// COCO's detection metrics for boxes, masks and boundaries of masks: the 12 figures and the per-category rows that
// pycocotools gives. Definition: https://cocodataset.org/#detection-eval ; treatment of odd cases as pycocotools 2.0's
// COCOeval does it.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "data/coco/coco.h"

// What overlaps. EVAL_BOUNDARY: the smaller of the IoU of the masks and that of their boundaries
// (data/coco/boundary.h); that of the masks for crowds. As in bowenc0221/boundary-iou-api.
typedef enum IouType { EVAL_BBOX, EVAL_SEGM, EVAL_BOUNDARY } IouType;
extern const char *const iou_types[]; // for base/cli.h: "bbox", "segm", "boundary"

// What one of the 12 figures averages, over every category that has ground truth of that size.
typedef enum EvalArea { AREA_ALL, AREA_SMALL, AREA_MEDIUM, AREA_LARGE, EVAL_AREAS } EvalArea;
typedef struct EvalStat {
  const char *key; // "AP", "AP50", … "AR_large"
  bool recall;     // average recall, or else average precision
  int iou;         // percent: at this threshold alone; 0: the mean over 0.50, 0.55, … 0.95
  EvalArea area;   // of the object: small ≤ 32² ≤ medium ≤ 96² ≤ large, square pixels
  int limit;       // which limit on the detections of each image and category, or EVAL_AT_100
} EvalStat;
enum { EVAL_STATS = 12, EVAL_LIMITS = 3 };
enum { EVAL_AT_100 = -1 }; // that limit which is 100: AP, as pycocotools' summarize has it
extern const EvalStat eval_stats[EVAL_STATS];

// The best so many detections of each image and category, ascending from 1 on: pycocotools' params.maxDets.
extern const int eval_max_dets[EVAL_LIMITS]; // 1, 10, 100

// Precision over recall, at the recalls 0, 0.01, … 1, for objects of every size and the last limit on detections.
typedef enum EvalCurve { CURVE_50, CURVE_75, CURVE_MEAN, EVAL_CURVES } EvalCurve; // IoU 0.50, 0.75, mean of all ten
enum { EVAL_RECALLS = 101 };
typedef double EvalPrecision[EVAL_CURVES][EVAL_RECALLS]; // -1 where no ground truth defines it

typedef struct EvalCategory {
  int64_t id;
  const char *name;    // borrowed from the ground truth
  double ap, ap50, ar; // at the last limit on detections
} EvalCategory;

typedef struct EvalSummary {
  IouType type;
  double stats[EVAL_STATS]; // in [0, 1], in the order of eval_stats; -1 where no ground truth defines it
  EvalCategory *categories; // in the order of the ground truth's; owned
  int num_categories;
  EvalPrecision *precision; // of the categories, and of all in the last place, their mean; owned
  int max_dets[EVAL_LIMITS];
  double ap_last;                      // AP at the last limit: stats[0] where that is 100
  int unknown_image, unknown_category; // detections left out because the ground truth has no such image or category
  int duplicate_ids; // annotations whose id a later one has too: pycocotools sees the last, once for each occurrence
  int zero_ids;      // annotations with id 0: pycocotools counts what matches them as false, and so do we
  // of masks:
  int other_size;         // detections whose mask has another size than its image: as in pycocotools they match nothing
  int first_other_size;   // the first of them, from 0
  int box_masks;          // annotations without a mask that can be used: the box stands in
  int64_t first_box_mask; // id of the first of them
  int maskless;           // detections without a mask: the box stands in
  int first_maskless;     // the first of them, from 0
} EvalSummary;

// Evaluates detections against the ground truth, on its `images`: a shallow copy with some of them left out scores on
// the rest, as pycocotools does with params.imgIds. With gt->own_ids, no score depends on the ids of annotations. As
// pycocotools' loadRes has it, a detection's area is that of its box where it has one, also for segm; a missing box is
// the mask's, a missing mask is the box. The result does not depend on the number of threads. False, naming the
// detection, when one has neither box nor mask and, for masks, when its segmentation cannot be used, for which
// pycocotools scores whatever its runs happen to say, or when its image has no size in the ground truth, for which
// pycocotools stops, too; and for boundaries when no detection has a mask, or no annotation. Free with cocoeval_free.
bool cocoeval_run(EvalSummary *out, const Coco *gt, const CocoResults *dt, IouType type, Err *err);
// The same with other limits than eval_max_dets. AP is at 100 detections, as in pycocotools, and -1 where no limit is
// 100; the other precisions and the recalls by size are at the last limit.
bool cocoeval_run_at(EvalSummary *out, const Coco *gt, const CocoResults *dt, IouType type,
                     const int max_dets[EVAL_LIMITS], Err *err);
void cocoeval_free(EvalSummary *s);

// The name of a figure, which has the limit where that makes it another: "AR_10" for instance. Returns `key`.
enum { EVAL_KEY = 24 };
const char *eval_stat_key(const EvalSummary *s, int stat, char key[EVAL_KEY]);
int eval_stat_limit(const EvalSummary *s, int stat); // the number of detections it is at

// The twelve lines people know from pycocotools; AP at the last limit in a line more where that is not 100. `undefined`
// stands in place of a figure that no ground truth defines; NULL: -1.000, as in pycocotools.
void cocoeval_print(FILE *f, const EvalSummary *s, const char *undefined);
// A table of the categories; those without ground truth show "-".
void cocoeval_print_categories(FILE *f, const EvalSummary *s);
// One JSON object: the figures by eval_stat_key, "AP_at_<n>" where the last limit is not 100, and "per_category" by
// category id; 17 significant digits.
void cocoeval_print_json(FILE *f, const EvalSummary *s);
