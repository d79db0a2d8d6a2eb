// Results drawn over an image: translucent masks with crisp contours, boxes, labels.
#pragma once
#include "data/coco/rle.h"
#include "data/images/image.h"

typedef struct DrawItem {
  float x1, y1, x2, y2; // box, pixels of the image
  const char *label;    // class name; NULL: no label
  float score;          // written behind the name with two digits; negative: left out, as for ground truth
  const Rle *mask;      // of the image's size; NULL: box only
} DrawItem;

// Draws n items, a colour for each by its place in the list. Small images are enlarged by a whole factor first, so that
// labels are legible: the image may come back larger. Labels keep clear of each other, the higher score first, and hide
// as little of the objects as they can; where there is no such place a label is left out.
void draw_overlay(Image *im, const DrawItem *items, int n);
