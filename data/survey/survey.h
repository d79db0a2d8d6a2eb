// Figures about a data set that tell how it will train: object sizes at the training size, categories, canvases, room.
#pragma once
#include <stdint.h>
#include "data/batches/dataset.h"

// Objects below TINY pixels (the root of the box's area, at the training size) are hardly learnt: the first level has a
// stride of 4. An image of more than CROWDED objects decides how much room every batch has.
enum { SURVEY_TINY = 8, SURVEY_CROWDED = 100 };

typedef struct CategorySurvey {
  int objects, images; // images that hold one
  int tiny;
  float size; // median of its objects, pixels at the training size; 0 without any
} CategorySurvey;

typedef struct Survey {
  CategorySurvey *category; // [coco.num_categories]
  int objects, tiny;
  int used;                     // categories with an object
  float size10, size50, size90; // percentiles of the objects' size, pixels at the training size
  Size image50, image100;       // the median and the largest image by area, as stored
  float scale50;                // median of what resizing multiplies a side by
  int large;                    // images that resizing makes at least 4 times smaller in area
  int crowded;                  // images with more than SURVEY_CROWDED objects
  int fullest;                  // the image with the most objects
  double padding[MAX_CANVASES]; // [n - 1] the share of all pixels that is padding with at most n canvases
  int64_t slot_bytes;           // room for one image in a batch: pixels, boxes, masks
  int64_t mask_bytes;           // of these, for masks: what the image with most of them takes
} Survey;

void survey_take(Survey *s, const Dataset *d);
void survey_free(Survey *s);
