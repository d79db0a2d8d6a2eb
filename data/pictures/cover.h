// How much of the objects of a picture lies in a rectangle, from sums over a grid of cells.
#pragma once
#include "data/coco/spans.h"
#include "data/pictures/rect.h"

typedef struct Cover {
  int cell, h, w; // pixels of a cell's side; cells
  double *sum;    // [h + 1, w + 1]; owned
} Cover;

Cover cover_open(int h, int w, int cell); // of a picture of h × w pixels
// Adds an object of weight 1: its mask or, where that is NULL or empty, its box.
void cover_add(Cover *c, const Spans *mask, Rect box);
void cover_end(Cover *c); // all objects have been added
// Sum of the fractions of the objects that lie in the rectangle; only after cover_end.
double cover_in(const Cover *c, Rect r);
void cover_close(Cover *c);
