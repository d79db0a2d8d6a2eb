// Draws the labels of objects: class and score on a plate beside the object.
//
// Labels cover no other label and as little of the objects as possible; those with higher scores are placed first. One
// without room beside its object stands farther off, with a leader line to it. What finds no room there either is
// counted: "+4 spoon", once per class.
#pragma once
#include "data/coco/spans.h"
#include "data/pictures/font.h"
#include "data/pictures/rect.h"

typedef struct LabelledObject {
  Rect box;          // within the image
  const Spans *mask; // NULL or empty: the object is its box
  const char *name;  // of its class, "" for the score alone; NULL: no label
  float score;       // with two digits behind the name; negative or NaN: omitted, as for ground truth
  Colour colour;
} LabelledObject;

// The height of capitals for that many labels: in proportion to the picture, smaller where there are many.
float label_size(const Image *im, int n);
void draw_labels(Image *im, const LabelledObject *objects, int n, float size, float line);
