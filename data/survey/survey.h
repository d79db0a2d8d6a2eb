// Statistics of a data set that affect training: object sizes at the training size, categories, canvases, memory.
#pragma once
#include <stdint.h>
#include "data/batches/dataset.h"

// Objects below TINY pixels (the square root of the box's area, at the training size) are hardly learned: the first
// level has a stride of 4; larger ones than AMPLE pixels gain little from a larger image. An image of more than CROWDED
// objects determines every batch's memory.
enum { SURVEY_TINY = 8, SURVEY_AMPLE = 24, SURVEY_CROWDED = 100 };

typedef struct CategorySurvey {
  int objects, images; // images that have one
  int tiny;
  float size; // median size of its objects, pixels at the training size; 0 without any
} CategorySurvey;

typedef struct Survey {
  CategorySurvey *category; // [coco.num_categories]
  int objects, tiny;
  int used;                     // categories with an object
  float size10, size50, size90; // percentiles of the objects' size, pixels at the training size
  Size image50, image100;       // the median and the largest image by area, as stored
  float scale50;                // median scale factor of resizing
  int large;                    // images whose area resizing reduces at least 4 times
  int crowded;                  // images with more than SURVEY_CROWDED objects
  int fullest;                  // the image with the most objects
  double padding[MAX_CANVASES]; // [n - 1] fraction of all pixels that is padding with at most n canvases
  int64_t slot_bytes;           // memory of one image in a batch: pixels, boxes, masks
  int64_t mask_bytes;           // of these, for masks: the maximum over images
} Survey;

void survey_take(Survey *s, const Dataset *d);
void survey_free(Survey *s);
