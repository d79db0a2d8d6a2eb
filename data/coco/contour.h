// Traces the outlines of masks along the edges between pixels, so that COCO's rasteriser reproduces the mask exactly.
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct Contours {
  int parts;
  int *points; // [parts] number of points
  double *xy;  // x, y pairs of all parts, one after the other; pixels of the image, at pixel corners
} Contours;

// Traces row-major bytes [h, w], non-zero = foreground, into a polygon for each piece connected by pixel sides. False,
// with nothing to free, if the mask has a hole, which COCO's polygons cannot represent. An empty mask has no parts.
bool contours_trace(Contours *c, const uint8_t *mask, int h, int w);
// The outlines of pieces and of holes, with the mask on the right, so that contour_area is positive for a piece and
// negative for a hole. Only corners become points.
Contours contours_trace_all(const uint8_t *mask, int h, int w);
double contour_area(const double *xy, int points);
void contours_free(Contours *c);
