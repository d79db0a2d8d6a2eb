// Draws results over an image, at its resolution: translucent masks with crisp contours, boxes, labels.
#pragma once
#include "data/coco/rle.h"
#include "data/images/image.h"

typedef enum DrawColours { COLOUR_CLASS, COLOUR_INSTANCE } DrawColours;
extern const char *const draw_colours[]; // for base/cli.h

typedef struct DrawItem {
  float x1, y1, x2, y2; // box, pixels of the image
  const char *label;    // class name; "": the score alone; NULL: no label
  float score;          // appended to the name with two digits; negative: omitted, as for ground truth
  const Rle *mask;      // of the image's size; NULL: box only
  int colour;           // its number, from 0; items of one number have the same colour
} DrawItem;

// Draws n items. Lines and letters are in proportion to the image, lines of small objects to these. Large objects are
// below small ones, and a box that is at least half filled by its mask is not drawn. Labels:
// data/pictures/draw_labels.h.
void draw_overlay(Image *im, const DrawItem *items, int n);
