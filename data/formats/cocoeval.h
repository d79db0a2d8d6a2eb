// COCO's detection metrics for boxes and masks: the 12 figures and the per-category rows that pycocotools gives.
// Definition: https://cocodataset.org/#detection-eval ; treatment of odd cases as pycocotools 2.0's COCOeval does it.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "base/util.h"
#include "data/formats/coco.h"

typedef enum EvalKind { EVAL_BBOX, EVAL_SEGM } EvalKind;

// What one of the 12 figures averages, over every category that has ground truth of that size.
typedef enum EvalArea { AREA_ALL, AREA_SMALL, AREA_MEDIUM, AREA_LARGE, EVAL_AREAS } EvalArea;
typedef struct EvalStat {
  const char *key; // "AP", "AP50", … "AR_large"
  bool recall;     // average recall, or else average precision
  int iou;         // percent: at this threshold alone; 0: the mean over 0.50, 0.55, … 0.95
  EvalArea area;   // of the object: small ≤ 32² ≤ medium ≤ 96² ≤ large, square pixels
  int max_dets;    // the best 1, 10 or 100 detections of each image and category
} EvalStat;
enum { EVAL_STATS = 12 };
extern const EvalStat eval_stats[EVAL_STATS];

typedef struct EvalCategory {
  int64_t id;
  const char *name; // borrowed from the ground truth
  double ap, ap50, ar_100;
} EvalCategory;

typedef struct EvalSummary {
  double stats[EVAL_STATS]; // in [0, 1], in the order of eval_stats; -1 where no ground truth defines it
  EvalCategory *categories; // in the order of the ground truth's; owned
  int num_categories;
  int unknown_image, unknown_category; // detections left out because the ground truth has no such image or category
  int duplicate_ids; // annotations whose id a later one has too: pycocotools sees the last, once for each occurrence
  int zero_ids;      // annotations with id 0: pycocotools counts what matches them as false, and so do we
  // EVAL_SEGM:
  int other_size;         // detections whose mask has another size than its image: as in pycocotools they match nothing
  int first_other_size;   // the first of them, from 0
  int box_masks;          // annotations without a mask that can be used: the box stands in
  int64_t first_box_mask; // id of the first of them
  int maskless;           // detections without a mask: the box stands in
  int first_maskless;     // the first of them, from 0
} EvalSummary;

// Evaluates detections against the ground truth, on its `images`: a shallow copy with some of them left out scores on
// the rest, as pycocotools does with params.imgIds. As pycocotools' loadRes has it, a detection's area is that of its
// box where it has one, also for segm; a missing box is the mask's, a missing mask is the box. The result does not
// depend on the number of threads. False, naming the detection, when one has neither box nor mask and, for masks, when
// its segmentation cannot be used, for which pycocotools scores whatever its runs happen to say, or when its image has
// no size in the ground truth, for which pycocotools stops, too. Free with cocoeval_free.
bool cocoeval_run(EvalSummary *out, const Coco *gt, const CocoResults *dt, EvalKind kind, Err *err);
void cocoeval_free(EvalSummary *s);

// The twelve lines people know from pycocotools.
void cocoeval_print(FILE *f, const EvalSummary *s);
// A table of the categories; those without ground truth show "-".
void cocoeval_print_categories(FILE *f, const EvalSummary *s);
// One JSON object: the keys of eval_stats, and "per_category" by category id; 17 significant digits.
void cocoeval_print_json(FILE *f, const EvalSummary *s);
