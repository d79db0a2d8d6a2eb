// Draws results over an image: translucent masks with crisp contours, boxes, labels.
#pragma once
#include "data/coco/rle.h"
#include "data/images/image.h"

typedef struct DrawItem {
  float x1, y1, x2, y2; // box, pixels of the image
  const char *label;    // class name; NULL: no label
  float score;          // appended to the name with two digits; negative: omitted, as for ground truth
  const Rle *mask;      // of the image's size; NULL: box only
} DrawItem;

// Draws n items, coloured by index. Small images are enlarged by an integer factor first, so that labels are legible:
// the image may be larger on return. Labels do not overlap, higher scores take precedence, and they hide as little of
// the objects as possible; a label that does not fit is omitted.
void draw_overlay(Image *im, const DrawItem *items, int n);
