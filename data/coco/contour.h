// Outlines of masks along the cracks between pixels, so that COCO's rasteriser gives back the very mask.
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct Contours {
  int parts;
  int *points; // [parts]
  double *xy;  // x, y pairs of all parts, one after the other; pixels of the image, at their corners
} Contours;

// Traces row-major bytes [h, w], non-zero = foreground, into a polygon for each piece connected by pixel sides. False,
// with nothing to free, when the mask has a hole: polygons of COCO cannot say that. An empty mask has no parts.
bool contours_trace(Contours *c, const uint8_t *mask, int h, int w);
// The outlines of pieces and of holes alike: with the mask at the right hand, so that the area by contour_area is
// positive for a piece and negative for a hole. Corners alone are points.
Contours contours_trace_all(const uint8_t *mask, int h, int w);
double contour_area(const double *xy, int points);
void contours_free(Contours *c);
