// Where an object is after its image was moved: its outline goes through the map and is cut off at the canvas, exactly,
// before any pixel is. A mask of run lengths is the union of its runs, which do not overlap.
#pragma once
#include "data/coco/rle.h"

typedef struct Outline {
  double to_canvas[6]; // the inverse of the map: the image's point (x, y) is shown at (a·x + b·y + c, d·x + e·y + f)
  double w, h;         // of what can be seen, pixels of the canvas
  double whole, visible;           // areas of all, and of what can be seen; of overlapping polygons their sum
  double x1, y1, x2, y2;           // extent of what can be seen, if anything can
  double left, top, right, bottom; // extent of all
} Outline;

// Nothing yet; map: ImageView.map; of the canvas, w × h pixels can be seen.
Outline outline_begin(const float map[6], double w, double h);
// Where the image's point xy is on the canvas.
void outline_point(const Outline *o, const double xy[2], double at[2]);
// Pixels of the canvas for each of the image.
double outline_scale(const Outline *o);
// Adds a polygon of so many points in image pixels; it need not be convex.
void outline_polygon(Outline *o, const double *xy, int points);
// Adds all pixels of a mask.
void outline_mask(Outline *o, const Rle *mask);
