// The canvases that a handle builds graphs for, and where an image goes on them: the library's and ./infer's.
#pragma once
#include "data/batches/canvas.h"

typedef struct CanvasSet {
  Resize resize;
  bool square; // one canvas shows all images, whatever their shape: a classifier's
  Canvas canvas[MAX_CANVASES];
  int n;
} CanvasSet;

// Those that hold every image which the rule leads to: for landscapes of 1 : 1, 4 : 3 and 3 : 2, the commonest, and for
// all others, and the same upright. `square`: one of r->size.
CanvasSet canvases_of(const Resize *r, bool square);
// The same without canvases whose longer side is more than twice the shorter one: images that would need one are rare,
// and graphs for them would take memory from all others.
CanvasSet canvases_of_most(const Resize *r, bool square);
// Those of a caller or a data set, unless n = 0 or images go onto a square: then as above.
CanvasSet canvases_given(const Resize *r, bool square, const Canvas *canvas, int n);
// By the same rule, one canvas: the least that holds an image of h × w pixels.
CanvasSet canvases_for(const CanvasSet *s, int h, int w);

// Returns the index of the smallest canvas that holds the image, and the image's size on it; -1: none does. An image so
// thin that maskrcnn-benchmark's rounding takes it past max_size ends there, unless a canvas is as large.
int canvases_fit(const CanvasSet *s, int h, int w, int *rh, int *rw);
