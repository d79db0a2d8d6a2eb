// Draws masks: a translucent fill and an outline just inside the edge, so that touching objects keep separate outlines.
#pragma once
#include "data/coco/spans.h"
#include "data/pictures/font.h"

typedef struct DrawMask {
  Spans spans; // owned; none: nothing is drawn
  Colour colour;
  float line; // width of the outline, pixels
} DrawMask;

// Memory that draw_masks takes at most, for an image of this size.
size_t draw_masks_bytes(const Image *im);
// Draws n masks, the first at the bottom. Only their boxes are touched; several threads share the image's rows.
void draw_masks(Image *im, const DrawMask *masks, int n);
