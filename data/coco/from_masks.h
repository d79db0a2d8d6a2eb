// Boxes and areas of annotations: as in the file, or those of their masks.
#pragma once
#include "data/coco/coco.h"

extern const char *const measure_choices[]; // "file", "mask": MeasureChoice
typedef enum MeasureChoice { MEASURE_FILE, MEASURE_MASK } MeasureChoice;

// Takes the boxes or the areas, or both, of an image's annotations from their masks, if they have one with a pixel. The
// image's size must be known. The image's digest of areas changes with them.
void coco_take_from_masks(Coco *c, CocoImage *im, bool boxes, bool areas);
// The same for all images whose size is known.
void coco_take_all_from_masks(Coco *c, bool boxes, bool areas);
// Whether most areas are those of the boxes, as Roboflow writes them: of up to 1,000 annotations whose mask is clearly
// smaller than its box, *compared, so many are *of_boxes.
bool coco_areas_are_of_boxes(const Coco *c, int *of_boxes, int *compared);
