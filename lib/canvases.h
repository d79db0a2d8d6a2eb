// The canvases that a handle builds graphs for, and the one that an image goes to.
#pragma once
#include "data/batches/canvas.h"

// A set that holds every image which the rule leads to: for landscapes of 1 : 1, 4 : 3 and 3 : 2, the commonest, and
// for all others, and the same upright. Returns how many.
int canvases_of(const Resize *r, Canvas canvas[MAX_CANVASES]);

// The image's size on its canvas, and the place of that, the smallest which holds it; -1: none does. An image so thin
// that maskrcnn-benchmark's rounding takes it past max_size ends there, unless a canvas is as large.
int canvases_place(const Resize *r, const Canvas *canvas, int n, int h, int w, int *rh, int *rw);
